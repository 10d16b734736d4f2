"""Which evidence belongs to which death: told by logs, seen in deaths."""

from __future__ import annotations

import pytest

from workerdiag import LogText, explain
from workerdiag.correlation.assemble import assemble
from workerdiag.matching.match import search
from workerdiag.matching.scan import Matcher
from workerdiag.model.evidence import Event, Evidence, ExceptionFacts, LogChunk, ProcessExit
from workerdiag.model.identity import Identity
from workerdiag.model.process_end import ProcessEnd
from workerdiag.model.stop_reasons import is_stop_request
from workerdiag.pipeline import diagnose
from workerdiag.rulebook.load import load_rulebook

BOOK = load_rulebook()
MATCHER = Matcher(BOOK)


def log(name: str, *lines: str, stream: str | None = None) -> LogChunk:
    return LogChunk(origin=name, stream=stream, data="\n".join(lines).encode() + b"\n")


def at(second: float, logger: str, text: str, level: str = "INFO") -> str:
    whole, part = divmod(second, 1)
    return f"2026-05-04 11:22:{int(whole):02d},{round(part * 1000):03d} - distributed.{logger} - {level} - {text}"


def ends(*evidence: Evidence) -> list[ProcessEnd]:
    incident = assemble(search(evidence, BOOK, MATCHER).matches, evidence)
    return [case.end for case in incident.cases if case.end is not None]


def exits(*evidence: Evidence) -> list[tuple[int | None, int | None, bool]]:
    return [(end.signal, end.status, end.stop_requested) for end in ends(*evidence)]


START = at(1, "nanny", "        Start Nanny at: 'tcp://10.0.0.4:4001'")
KILLED = at(10, "nanny", "Worker process 7012 was killed by signal 9")
RESTARTING = at(10.1, "nanny", "Restarting worker (status=Status.running)", "WARNING")
REMOVED = at(
    10.02,
    "scheduler",
    "Remove worker addr: tcp://10.0.0.4:4002 name: w (stimulus_id='handle-worker-cleanup-1777893730.02')",
)


def test_nanny_and_scheduler_tell_of_one_death():
    """The nanny knows pid and signal, the scheduler the address; within seconds it is one death."""
    [end] = ends(log("worker.log", START, KILLED, RESTARTING), log("scheduler.log", REMOVED))

    assert (end.identity.pid, end.identity.worker, end.signal) == (7012, "tcp://10.0.0.4:4002", 9)


def test_deaths_minutes_apart_are_two():
    """A removal long after a nanny's message is of another process."""
    later = REMOVED.replace("11:22:10", "11:29:10")

    assert len(ends(log("worker.log", START, KILLED, RESTARTING), log("scheduler.log", later))) == 2


def test_many_deaths_of_one_nanny_are_many():
    """A crash loop is as many deaths as there were processes, in their order."""
    lines = [START]
    for index in range(4):
        lines.append(at(10 + 3 * index, "nanny", f"Worker process {7012 + index} was killed by signal 11"))
        lines.append(at(10.1 + 3 * index, "nanny", "Restarting worker", "WARNING"))

    assert [end.identity.pid for end in ends(log("worker.log", *lines))] == [7012, 7013, 7014, 7015]


def test_a_restart_without_a_word_was_exit_status_zero():
    """Only status 0 is passed over in silence by the nanny."""
    assert exits(log("worker.log", START, RESTARTING)) == [(None, 0, False)]


def test_a_restart_in_a_log_of_warnings_says_nothing_of_the_exit():
    """A LocalCluster shows warnings alone, so a missing INFO line means nothing."""
    assert exits(log("notebook.txt", RESTARTING)) == [(None, None, False)]


def test_a_kill_after_a_request_to_stop_is_a_stop():
    """SIGKILL after "still alive" is how the request ended, not a crash."""
    lines = (
        at(1, "_signals", "Received signal SIGTERM (15)"),
        at(1.1, "nanny", "Closing Nanny at 'tcp://10.0.0.4:4001'. Reason: signal-15"),
        at(1.2, "worker", "Stopping worker at tcp://10.0.0.4:4002. Reason: signal-15"),
        at(9, "nanny", "Worker process still alive after 8.0 seconds, killing", "WARNING"),
        at(9.1, "nanny", "Worker process 7012 was killed by signal 9"),
    )

    assert exits(log("worker.log", *lines)) == [(9, None, True)]


def test_the_kernel_tells_of_the_same_death_by_pid():
    """Kernel log and nanny name one pid, so there is one death."""
    kernel = log(
        "dmesg",
        "[ 900.1] Memory cgroup out of memory: Killed process 7012 (python) total-vm:9kB, anon-rss:500000kB",
        stream="kernel",
    )

    assert exits(log("worker.log", START, KILLED, RESTARTING), kernel) == [(9, None, False)]


def test_kills_of_strangers_do_not_count():
    """A kernel log holds the kills of the whole machine; another pid is another process."""
    kernel = log(
        "dmesg",
        "[  900.100000] Memory cgroup out of memory: Killed process 4 (python) total-vm:9kB, anon-rss:500000kB",
        stream="kernel",
    )
    worker = log("worker.log", START, at(10, "nanny", "Worker process 7012 exited with status 3"), RESTARTING)

    assert exits(worker, kernel) == [(None, 3, False)]


STRANGER = (
    "2026-05-04T11:22:{s},181868+00:00 python invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0",
    "2026-05-04T11:22:{s},181869+00:00 memory: usage 58594kB, limit 58594kB, failcnt 12",
    "2026-05-04T11:22:{s},181870+00:00 Memory cgroup out of memory: Killed process 9999 (python) total-vm:20kB",
)
RESTARTED = at(10, "nanny", "Nanny asking worker to close. Reason: client-restart-1777893730.02")


@pytest.mark.parametrize(
    ("second", "nanny", "cause"),
    [("10", RESTARTED, "exit.client-restart"), ("04", KILLED, "external.sigkill")],
)
def test_a_whole_report_of_a_strangers_kill_does_not_count(second, nanny, cause):
    """The kernel kills a process that is none of Dask's as a worker restarts, or seconds before it is killed."""
    lines = [each.replace("{s}", second) for each in STRANGER]
    evidence = log("worker.log", START, nanny), log("dmesg", *lines, stream="kernel")
    findings = diagnose(evidence, BOOK, matcher=MATCHER)
    assert findings.top is not None
    assert (findings.top.id, len(findings.deaths)) == (cause, 1)


def test_an_unknown_signal_of_a_nanny_is_status_255():
    """A nanny puts these words in the place of that number, in every release; no signal is known."""
    worker = log("worker.log", START, at(10, "nanny", "Worker process 7012 was killed by unknown signal"))
    assert exits(worker) == [(None, 255, False)]


def test_status_137_of_a_container_is_signal_9():
    """Containers and shells word signal n as status 128 + n; a nanny never does."""
    pod = log("describe", "    Last State:     Terminated\n      Reason:       Error\n      Exit Code:    139")
    worker = log("worker.log", START, at(10, "nanny", "Worker process 7012 exited with status 137"))

    assert exits(pod) == [(11, None, False)]
    assert exits(worker) == [(None, 137, False)]


def test_leaving_in_order_is_not_dying():
    """A worker that took leave of the scheduler was not lost."""
    goodbye = at(10, "core", "Received 'close-stream' from tcp://10.0.0.4:5000; closing.")
    [end] = ends(log("scheduler.log", goodbye, REMOVED))

    assert (end.deregistered, end.lost) == (True, False)


def test_an_expected_removal_was_asked_for():
    """The scheduler's event says whether it meant to let the worker go."""
    event = Event(
        topic="all",
        fields={"action": "remove-worker", "worker": "tcp://10.0.0.4:4002", "expected": True},
        identity=Identity(worker="tcp://10.0.0.4:4002"),
    )

    assert [(end.stop_requested, end.lost) for end in ends(event)] == [(True, False)]


def test_killed_worker_names_the_last_death():
    """The exception knows address, pid and nanny; nothing else need be there."""
    facts = ExceptionFacts(
        type="distributed.scheduler.KilledWorker",
        text="...",
        identity=Identity(worker="tcp://10.0.0.4:4002", pid=7012),
    )

    assert [(end.identity.pid, list(end.reporters)) for end in ends(facts)] == [(7012, ["exception"])]


def test_an_exit_that_a_source_reports_joins_by_pid():
    """Whoever knows the wait status adds it to the death it belongs to."""
    exit_ = ProcessExit(identity=Identity(pid=7012), signal=11, reporter="coredumpctl")
    facts = ExceptionFacts(type="KilledWorker", text="", identity=Identity(worker="tcp://10.0.0.4:4002", pid=7012))

    assert exits(facts, exit_) == [(11, None, False)]


def test_where_dask_lost_nobody_the_kernel_speaks_of_strangers():
    """A healthy cluster on a machine on which something else was killed."""
    registered = at(1, "scheduler", "Register worker addr: tcp://10.0.0.4:4002 name: w")
    kernel = "[  99.000001] Memory cgroup out of memory: Killed process 19549 (python) total-vm:9kB, anon-rss:4kB, file-rss:0kB, shmem-rss:0kB"

    assert ends(log("scheduler.log", registered), log("dmesg", kernel, stream="kernel")) == []
    assert len(ends(log("dmesg", kernel, stream="kernel"))) == 1


TWO_NANNIES = (
    START,
    at(1.1, "nanny", "        Start Nanny at: 'tcp://10.0.0.4:4003'"),
    at(2, "nanny", "Closing Nanny at 'tcp://10.0.0.4:4001'. Reason: nanny-close"),
    at(2.1, "nanny", "Nanny asking worker to close. Reason: nanny-close"),
)


@pytest.mark.parametrize(("name", "outcome"), [("python", "unknown"), ("java", "no-death")])
def test_a_log_of_the_scheduler_clears_nobody_whom_the_kernel_may_have_killed(name, outcome):
    """It may have been saved before the scheduler noticed."""
    text = (
        at(1, "scheduler", "  Scheduler at:   tcp://10.0.0.1:8786")
        + "\n"
        + at(
            2,
            "scheduler",
            "Register worker <WorkerState 'tcp://10.0.0.4:4002', name: w, status: init, memory: 0, processing: 0>",
        )
        + f"\nMay  4 11:31:42 node07 kernel: Out of memory: Killed process 4127 ({name}) total-vm:708224kB, anon-rss:466856kB, file-rss:0kB\n"
    )

    assert explain(logs=LogText(text)).outcome == outcome


def test_a_death_after_a_scale_down_is_another_workers():
    """Nannies of one process share a log; one whose worker closed as asked says nothing more of it."""
    assert exits(log("worker.log", *TWO_NANNIES, KILLED, RESTARTING)) == [
        (None, None, True),
        (9, None, False),
    ]


def test_a_nanny_that_loses_patience_kills_the_worker_that_it_asked():
    """A "still alive" between the order and the death says whose death it is."""
    patience = at(6.1, "nanny", "Worker process still alive after 4.0 seconds, killing", "WARNING")
    assert exits(log("worker.log", *TWO_NANNIES, patience, KILLED)) == [(9, None, True)]


def test_a_nanny_alone_in_its_log_tells_of_its_own_worker():
    """What a platform kills after it asked is asked for all the same."""
    alone = [line for line in TWO_NANNIES if "4003" not in line]
    assert exits(log("worker.log", *alone, KILLED)) == [(9, None, True)]


@pytest.mark.parametrize(
    ("listed", "asked"),
    [
        ("(1, 2)", False),
        ("('w', 2)", True),
        ("('tcp://10.0.0.4:9', 'tcp://10.0.0.4:4002')", True),
        ("('tcp://10.0.0.4:9',)", False),
        ("", True),
    ],
)
def test_a_retirement_is_of_those_that_it_lists(listed, asked):
    """By name or by address; a list that is not there spares nobody."""
    retire = at(3, "scheduler", f"Retire worker addresses (stimulus_id='retire-workers-1.5') {listed}".rstrip())
    [(_, _, was_asked)] = exits(log("scheduler.log", retire, REMOVED))
    assert was_asked is asked


def test_each_worker_that_a_nanny_kills_is_one_that_it_asked():
    """Of two that do not close in time, both kills follow from the orders."""
    orders = [
        START,
        *(
            at(2 + n / 10, "nanny", f"Closing Nanny at 'tcp://10.0.0.4:400{n}'. Reason: nanny-close")
            for n in (1, 3)
        ),
        *[at(6.1, "nanny", "Worker process still alive after 4.0 seconds, killing", "WARNING")] * 2,
        *(at(6.2, "nanny", f"Worker process {pid} was killed by signal 9") for pid in (7012, 7013)),
    ]
    assert exits(log("worker.log", *orders)) == [(9, None, True)] * 2


def test_a_worker_that_closes_slowly_is_one_death():
    """The scheduler lets it go when it is asked, four seconds before its nanny kills it."""
    slow = (
        START,
        at(2, "nanny", "Closing Nanny at 'tcp://10.0.0.4:4001'. Reason: nanny-close"),
        at(6.1, "nanny", "Worker process still alive after 4.0 seconds, killing", "WARNING"),
        KILLED,
    )
    removed = REMOVED.replace("11:22:10,020", "11:22:02,010")
    assert exits(log("worker.log", *slow), log("scheduler.log", removed)) == [(9, None, True)]


def test_a_name_that_is_used_again_is_another_worker():
    """What was ordered before a worker joined was for the last one of its name."""
    lines = (
        at(3, "scheduler", "Retire worker addresses (stimulus_id='retire-workers-1.5') ('w',)"),
        at(5, "scheduler", "Register worker addr: tcp://10.0.0.4:4002 name: w"),
        REMOVED,
    )
    assert exits(log("scheduler.log", *lines)) == [(None, None, False)]


def test_whoever_knows_a_process_tells_which_nannys_it_was():
    """A pid in a log that nannies share is given the names that other evidence has for it."""
    second = Identity(worker="tcp://10.0.0.4:4004", pid=7012, nanny="tcp://10.0.0.4:4003")
    exit_ = ProcessExit(identity=second, signal=9, when=1777893730.0, reporter="flight recorder")
    told = ends(log("worker.log", *TWO_NANNIES, KILLED), exit_)
    assert [(end.identity.worker, end.identity.nanny, end.stop_requested) for end in told] == [
        (None, "tcp://10.0.0.4:4001", True),
        ("tcp://10.0.0.4:4004", "tcp://10.0.0.4:4003", False),
    ]


@pytest.mark.parametrize(
    "ends",
    [
        "kernel: Memory cgroup out of memory: Killed process 7012 (python) total-vm:9141244kB, anon-rss:4041216kB",
        KILLED,
    ],
)
def test_what_started_a_process_tells_of_the_same_end(ends):
    """A launcher says how its container ended, below what the kernel or a nanny says of the process."""
    text = f"{ends}\nworker-7 exited with code 137\n"
    assert [each.signal for each in explain(logs=LogText(text)).deaths] == [9]


def test_a_shell_tells_of_the_same_end_with_the_pid_of_the_nanny():
    """A batch script's shell names the command that it ran, and has no time of its own: the worker said its last an hour before."""
    job = log(
        "job.err",
        at(1, "worker", "      Start worker at:      tcp://10.0.0.4:4002").replace("11:22", "10:22"),
        "/var/spool/slurmd/job00002/slurm_script: line 11:  6402 Killed       dask worker tcp://10.0.0.1:8786 --nanny",
    )
    identity = Identity(worker="tcp://10.0.0.4:4002", pid=6426, nanny="tcp://10.0.0.4:4001")
    fields = {"action": "remove-worker", "expected": False}
    removed = Event(topic="all", fields=fields, when=1777893730.0, identity=identity)

    [end] = ends(job, removed)

    assert (end.identity.pid, end.identity.worker, end.signal) == (6426, "tcp://10.0.0.4:4002", 9)


def test_an_exit_that_no_message_tells_of_says_who_told_it():
    """The evidence of a report has its place and time, as every other."""
    told = ProcessExit(identity=Identity(worker="tcp://10.0.0.4:4002"), signal=11, when=10.0, reporter="sacct")
    [clue] = [each for each in diagnose([told], BOOK, matcher=MATCHER).causes[0].evidence if "signal" in each.text]
    assert (clue.text, clue.where, clue.when) == ("ended by signal 11", "sacct", 10.0)


def test_a_stop_of_others_is_no_sign_of_a_death_that_nobody_asked_for():
    """A scale-down seconds before explains the workers that it lists, and not the next one."""
    retire = at(8, "scheduler", "Retire worker addresses (stimulus_id='retire-workers-1.5') (1, 2)")
    retired = at(9, "scheduler", "Retired worker 'tcp://10.0.0.9:1' (stimulus_id='retire-workers-1.5')")
    logs = [
        (f"{START}\n{KILLED}\n{RESTARTING}", "nanny"),
        (f"{retire}\n{retired}\n{REMOVED}", "scheduler"),
    ]
    top = explain(logs=[LogText(text, stream) for text, stream in logs]).top
    assert top is not None
    assert top.id == "external.sigkill"


def test_a_stop_a_second_before_a_worker_joined_is_no_sign_of_its_death():
    """An adaptive cluster gives the name of the one it sent away to the next one at once."""
    retire = at(8, "scheduler", "Retire worker addresses (stimulus_id='retire-workers-1.5') (1, 'w')")
    joined = at(9.2, "scheduler", "Register worker addr: tcp://10.0.0.4:4002 name: w")
    logs = [
        (f"{START}\n{KILLED}\n{RESTARTING}", "nanny"),
        (f"{retire}\n{joined}\n{REMOVED}", "scheduler"),
    ]
    top = explain(logs=[LogText(text, stream) for text, stream in logs]).top
    assert top is not None
    assert top.id == "external.sigkill"


def test_a_nanny_that_closes_without_a_worker_is_no_death():
    """A busy machine is slow to start the next worker; the cluster gives that nanny up, by no order of anybody."""
    closing = at(28, "nanny", "Closing Nanny at 'tcp://10.0.0.4:4001'. Reason: nanny-close")
    closed = at(28.1, "nanny", "Nanny at 'tcp://10.0.0.4:4001' closed.")
    told = exits(log("worker.log", START, KILLED, closing, closed), log("scheduler.log", REMOVED))
    assert told == [(9, None, False)]
    asked = at(28.05, "nanny", "Nanny asking worker to close. Reason: nanny-close")
    assert exits(log("worker.log", START, KILLED, closing, asked, closed)) == [
        (9, None, False),
        (None, None, True),
    ]


def test_two_crashes_at_once_have_a_line_of_the_kernel_each():
    """One line tells of one process, also where its pid is of another namespace."""
    nannies = [
        log(f"{n}.log", at(10 + n / 4, "nanny", f"Worker process {n} was killed by signal 11")) for n in (1, 2)
    ]
    fault = "2026-05-04T11:22:10 vm kernel: python[777{}]: segfault at 1{} ip 0 sp 0 error 4 in libc.so"
    kernel = log("kern.log", *(fault.format(n, n) for n in (1, 2)), stream="kernel")
    evidence = [*nannies, kernel]
    incident = assemble(search(evidence, BOOK, MATCHER).matches, evidence)
    lines = [
        [sign.line for sign in case.signs if sign.stream == "kernel" and sign.owner == "signal.segfault"]
        for case in incident.cases
    ]
    assert sorted(lines) == [[1], [2]]


@pytest.mark.parametrize(
    ("reason", "asked"),
    [
        ("worker-close", True),
        ("nanny-kill", True),
        ("client-restart-1795249445.79", True),
        ("out of the way, please", True),
        ("worker-handle-scheduler-connection-broken", False),
        ("failure-to-start-<class 'OSError'>", False),
        ("check-worker-ttl-1795249445.79", False),
        ("", False),
    ],
)
def test_a_reason_says_whether_somebody_asked(reason, asked):
    """Code may give a reason of its own; those that Dask gives by itself are known."""
    assert is_stop_request(reason) is asked
