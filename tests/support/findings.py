"""Handmade findings, for tests."""

from __future__ import annotations

from typing import Any

from workerdiag.model.diagnosis import (
    Advice,
    Blame,
    Clue,
    Death,
    Decision,
    Findings,
    NextStep,
    RankedCause,
    RetryPolicy,
)
from workerdiag.model.evidence import Gap
from workerdiag.model.identity import Identity
from workerdiag.model.timeline import MemoryLimits, MemorySample, Moment, ProcessHistory, TaskSpan, Timeline

#: 2026-11-21 10:02:03 UTC.
NOON_ISH = 1795255323.0

#: Everything that a hostile log may try on a terminal, a web page and GitHub, in one line.
HOSTILE = (
    "\x1b[31mred\x1b[0m \x1b]0;title\x07\x9b2J\u202egnirts\u2066 \u200bzero\x00\x08"
    " <script>alert(1)</script> <img src=x onerror=alert(1)> &lt; ![x](http://evil.example/x.png)"
    " [click](javascript:alert(1)) https://evil.example www.evil.example @octocat #1 GH-2 a@evil.example"
    " `code` ``` ~~~ **bold** _it_ | table | \ud800 \u2028"
)


def nanny_kill(**changes: Any) -> RankedCause:
    """Return the nanny's memory kill, the likeliest cause of `explained`."""
    arguments: dict[str, Any] = {
        "id": "nanny.memory-terminate",
        "revision": 4,
        "title": "The nanny killed the worker: above its memory limit",
        "family": "nanny",
        "why": "The nanny looks at the memory of its worker every 0.1 s and kills it above "
        "`distributed.worker.memory.terminate` (95%) of the limit. Dask then starts another worker.",
        "probability": 0.97,
        "evidence": (
            Clue(
                sign="budget-exceeded",
                text="Worker tcp://10.0.0.4:34937 (pid=129) exceeded 95% memory budget. Restarting...",
                where="worker.log:120",
                grade="decisive",
                when=NOON_ISH,
                times=3,
            ),
            Clue(
                sign="restart-event",
                text="event worker-restart-memory: worker=tcp://10.0.0.4:34937, pid=129, rss=4101242880",
                where="event worker-restart-memory",
                grade="strong",
            ),
        ),
        "against": (
            Clue(sign="oom-kill", text="Out of memory: Killed process 129", where="kern.log:7", grade="weak"),
        ),
        "unchecked": ("oom-counter (cgroup was not looked at)",),
        "mitigations": (
            Advice(
                do="Give each worker more memory: at least 5 GiB.",
                when="the task really needs the memory",
                cost="Fewer workers per machine.",
                example="dask worker --memory-limit 5GiB",
            ),
            Advice(do="Make the chunks smaller."),
        ),
        "references": ("https://distributed.dask.org/en/stable/worker-memory.html",),
    }
    return RankedCause(**(arguments | changes))


def dead(**changes: Any) -> Death:
    """Return one worker killed by signal 9 at its memory limit."""
    arguments: dict[str, Any] = {
        "identity": Identity(worker="tcp://10.0.0.4:34937", pid=129, nanny="tcp://10.0.0.4:40001"),
        "when": NOON_ISH,
        "signal": 9,
        "reporters": ("nanny log", "exception"),
        "assigned": ("load-1", "load-2", "load-3"),
        "executing": ("load-1",),
        "rss_bytes": 4101242880,
        "limit_bytes": 4294967296,
        "cause": "nanny.memory-terminate",
        "probability": 0.97,
    }
    return Death(**(arguments | changes))


def explained(**changes: Any) -> Findings:
    """Return findings with something in every part."""
    arguments: dict[str, Any] = {
        "outcome": "explained",
        "summary": "The nanny killed worker tcp://10.0.0.4:34937 (pid 129) at 95% of its 4.00 GiB.",
        "causes": (
            nanny_kill(),
            nanny_kill(
                id="kernel.oom-killer",
                revision=1,
                family="kernel",
                title="The kernel killed the worker: the machine or its cgroup was out of memory",
                probability=0.02,
            ),
        ),
        "unknown_probability": 0.01,
        "deaths": (dead(),),
        "blame": Blame(
            verdict="task",
            task="load-1",
            reasons=("It was the only task executing when the worker died.",),
            fairly_blamed=True,
        ),
        "next_steps": (
            NextStep(
                inspect="the kernel log of the worker's machine, around the time of death",
                command="dmesg -T | grep -i 'killed process'",
                permission="may need root",
                until="the ring buffer wraps or the machine restarts",
                distinguishes=("kernel.oom-killer",),
            ),
        ),
        "gaps": (
            Gap(
                source="kernel log",
                reason="forbidden",
                detail="/dev/kmsg: Operation not permitted",
                remedy="Run `dmesg -T` as root.",
            ),
        ),
        "decision": Decision(
            retry_safe=False,
            needs_memory_lower_bound_bytes=4225000000,
            platform_fault=False,
            policy=RetryPolicy(
                action="do-not-retry",
                reason="The nanny killed the worker; the same work would most likely fail the same way",
                conditions=("It holds while a worker gets at most 3.93 GiB.",),
            ),
        ),
        "fingerprint": "3f2a9c01",
        "knowledge": "2026.11.0",
        "version": "0.1.0",
        "notes": ("a.toml is newer than this engine and was left out",),
    }
    return Findings(**(arguments | changes))


def no_death(**changes: Any) -> Findings:
    """Return findings that say a task failed and nothing died."""
    arguments: dict[str, Any] = {
        "outcome": "no-death",
        "summary": "No worker died: the task load-1 raised ValueError.",
        "unknown_probability": 1.0,
        "blame": Blame(verdict="task", task="load-1"),
        "knowledge": "2026.11.0",
        "version": "0.1.0",
    }
    return Findings(**(arguments | changes))


def unknown(**changes: Any) -> Findings:
    """Return findings that say a worker died of an unknown cause."""
    arguments: dict[str, Any] = {
        "outcome": "unknown",
        "summary": "Worker tcp://10.0.0.4:34937 was lost, and the evidence does not say why.",
        "causes": (nanny_kill(probability=0.21),),
        "unknown_probability": 0.79,
        "deaths": (dead(signal=None, cause=None, probability=0.0, rss_bytes=None, limit_bytes=None),),
        "next_steps": explained().next_steps,
        "gaps": explained().gaps,
        "knowledge": "2026.11.0",
        "version": "0.1.0",
    }
    return Findings(**(arguments | changes))


def hostile() -> Findings:
    """Return findings in which all foreign text is hostile."""
    clue = Clue(sign="s", text=f"{HOSTILE}\n{HOSTILE}", where=HOSTILE, grade="strong")
    cause = nanny_kill(
        title=HOSTILE,
        why=HOSTILE,
        evidence=(clue,),
        against=(clue,),
        unchecked=(HOSTILE,),
        mitigations=(Advice(do=HOSTILE, when=HOSTILE, cost=HOSTILE, example=HOSTILE),),
        references=(HOSTILE, "javascript:alert(1)"),
    )
    identity = Identity(worker=HOSTILE, name=HOSTILE, host=HOSTILE, container=HOSTILE, nanny=HOSTILE)
    return explained(
        summary=HOSTILE,
        causes=(cause, cause),
        deaths=(dead(identity=identity, reason=HOSTILE, cause=HOSTILE, assigned=(HOSTILE,)),),
        blame=Blame(verdict="task", task=HOSTILE, reasons=(HOSTILE,), fairly_blamed=False),
        decision=Decision(policy=RetryPolicy(action="ask", reason=HOSTILE, conditions=(HOSTILE,))),
        next_steps=(
            NextStep(inspect=HOSTILE, command=HOSTILE, permission=HOSTILE, until=HOSTILE, distinguishes=(HOSTILE,)),
        ),
        gaps=(Gap(source=HOSTILE, reason="malformed", detail=HOSTILE, remedy=HOSTILE),),
        timeline=Timeline(
            histories=(
                history(
                    identity=identity,
                    tasks=(TaskSpan(key=HOSTILE, thread=HOSTILE, started_at=NOON_ISH - 3),),
                ),
            ),
            moments=(Moment(at=NOON_ISH - 1, kind="trouble", identity=identity, text=HOSTILE),),
        ),
        fingerprint=HOSTILE,
        knowledge=HOSTILE,
        version=HOSTILE,
        notes=(HOSTILE,),
    )


def history(**changes: Any) -> ProcessHistory:
    """Return the last minute of `dead`, sampled every second: memory grows up to its limit."""
    samples = tuple(
        MemorySample(
            at=NOON_ISH - 60.4 + second,
            process_bytes=200 * 2**20 + second * 62 * 2**20,
            managed_bytes=100 * 2**20 + second * 20 * 2**20,
            spilled_bytes=max(0, second - 40) * 30 * 2**20,
            group_bytes=260 * 2**20 + second * 63 * 2**20,
        )
        for second in range(61)
    )
    arguments: dict[str, Any] = {
        "identity": dead().identity,
        "samples": samples,
        "limits": MemoryLimits(
            worker_bytes=4 * 2**30,
            group_bytes=4608 * 2**20,
            spill_fraction=0.7,
            pause_fraction=0.8,
            terminate_fraction=0.95,
        ),
        "tasks": (
            TaskSpan(key="load-0", thread="Dask-1", started_at=NOON_ISH - 50, ended_at=NOON_ISH - 30),
            TaskSpan(key="wait-1", thread="Dask-2", started_at=NOON_ISH - 20),
            TaskSpan(key="load-1", thread="Dask-1", started_at=NOON_ISH - 29),
        ),
        "group_peak_bytes": 4200 * 2**20,
        "recorded": True,
        "when": NOON_ISH,
    }
    return ProcessHistory(**(arguments | changes))


def drawn(**changes: Any) -> Findings:
    """Return `explained` with a minute of the recorder, a pause, and a second worker that died of the same task."""
    other = Identity(worker="tcp://10.0.0.5:34938", pid=130)
    pause = Moment(at=NOON_ISH - 8, kind="pause", identity=dead().identity, text="Worker is at 81% memory usage")
    arguments: dict[str, Any] = {
        "deaths": (dead(), dead(identity=other, when=NOON_ISH + 4)),
        "timeline": Timeline(histories=(history(),), moments=(pause,)),
    }
    return explained(**(arguments | changes))


def several_victims(count: int = 6) -> Findings:
    """Return `drawn` with the memory of *count* workers that died four seconds apart."""
    others = (
        history(
            identity=Identity(worker=f"tcp://10.0.0.{4 + number}:34937", pid=129 + number),
            samples=history().samples[: 60 - 5 * number],
            group_peak_bytes=None,
            when=NOON_ISH + 4 * number,
        )
        for number in range(1, count)
    )
    histories = (history(), *others)
    return drawn(
        deaths=tuple(dead(identity=each.identity, when=each.when) for each in histories),
        timeline=Timeline(histories=histories),
    )
