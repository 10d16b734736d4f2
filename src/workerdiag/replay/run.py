"""Replays a kit: computes the inputs, runs each task in a process under the limit, and comes to a verdict."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from math import ceil
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from workerdiag.deadline import Deadline
from workerdiag.errors import KitError
from workerdiag.model.replay import KitContent, RecipeGapReason, ThreadNeed
from workerdiag.procfs_and_cgroups import find_memory_group, host_available_bytes, process_memory
from workerdiag.replay.outcome import Replay, ReplayedTask, ReplayEnd, ReplayObstacle, ReplayVerdict
from workerdiag.units import format_bytes
from workerdiag.values import frozen

_CHILD = Path(__file__).with_name("child.py")
#: Tasks that are replayed of one kit.
_MAX_TASKS = 6
#: As nannies have it: seconds between two looks, and the share of the limit where they end a worker
#: (``distributed.worker.memory.monitor-interval`` and ``.terminate``).
_LOOK_S, _TERMINATE = 0.1, 0.95
#: What nannies give their workers (``distributed.nanny.pre-spawn-environ``).
_WORKER_ENVIRONMENT = {
    "MALLOC_TRIM_THRESHOLD_": "65536",
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
}


def replay_kit(
    content: KitContent, recipe: bytes, data: bytes, *, memray: str | os.PathLike[str] | None, timeout_s: float
) -> Replay:
    """Replay the tasks of a kit.

    Raises:
        KitError: memray is wanted, and is not installed or cannot write there.
    """
    if memray is not None and importlib.util.find_spec("memray") is None:
        raise KitError(str(memray), "memray is not installed here", "pip install memray")
    if not process_memory(os.getpid()):
        return _no_replay(content, "another-system", "a replay needs Linux: it reads /proc")
    if not recipe:
        return _no_replay(content, "incomplete", content.problem or "the kit has no recipe")
    here, there = "{}.{}".format(*sys.version_info), ".".join(content.versions.get("python", "").split(".")[:2])
    if there and here != there:
        return _no_replay(content, "another-python", f"the kit is of Python {there}, and this is {here}")
    with TemporaryDirectory(prefix="workerdiag-replay-") as folder:
        stage = _Stage(content, Path(folder), Deadline.after(timeout_s))
        return _replay(stage, recipe, data, memray)


def _no_replay(
    content: KitContent, obstacle: ReplayObstacle, detail: str, tasks: Sequence[ReplayedTask] = ()
) -> Replay:
    return Replay(
        verdict="cannot-replay",
        task=content.killed,
        obstacle=obstacle,
        detail=detail,
        tasks=tuple(tasks),
        limit_bytes=content.limit_bytes,
    )


@frozen(kw_only=True)
class _Run:
    end: ReplayEnd
    exit_code: int | None
    answer: Mapping[str, Any]
    detail: str


class _Stage:
    """Where the tasks of a kit are replayed: a folder, the time, and what the machine can give."""

    def __init__(self, content: KitContent, folder: Path, deadline: Deadline) -> None:
        self.content = content
        self.deadline = deadline
        self.ceiling_bytes = _machine_bytes()
        self.fraction = content.terminate_fraction or _TERMINATE
        self._folder = folder
        self._paths = {
            key: str(folder / f"task-{number}.pickle") for number, key in enumerate(content.tasks[:_MAX_TASKS])
        }

    def prepare(self, recipe: bytes, data: bytes) -> _Run:
        places = {"recipe": recipe, "data": data}
        for name, part in places.items():
            (self._folder / name).write_bytes(part)
        return self._in_process(
            kind="prepare",
            recipe=str(self._folder / "recipe"),
            data=str(self._folder / "data") if data else "",
            tasks=list(self._paths),
            paths=self._paths,
            key_chars=500,  # as keys of the wire are cut
        )

    def run(self, key: str, *, is_limited: bool, memray: str | None = None) -> ReplayedTask:
        limit = self.content.limit_bytes if is_limited else None
        most = self.fraction * limit if limit is not None else None
        found = self._in_process(most_bytes=most, kind="run", path=self._paths[key], memray=memray)
        return ReplayedTask(
            key=key,
            end=found.end,
            base_bytes=found.answer.get("base_bytes"),
            inputs_bytes=found.answer.get("inputs_bytes", 0),
            peak_bytes=found.answer.get("peak_bytes"),
            exit_code=found.exit_code,
            detail=found.detail,
        )

    def kills(self, task: ReplayedTask) -> bool:
        """Whether a task ended a worker with the limit of the kit, or would if the nanny looked at that moment."""
        limit, peak = self.content.limit_bytes, task.peak_bytes
        return task.end in ("over-limit", "crashed") or (
            limit is not None and peak is not None and peak > self.fraction * limit
        )

    def need(self, base: int, own: Iterable[int]) -> int:
        """The limit with which tasks live that take *own* besides the *base* of a worker."""
        return ceil((base + sum(own)) / self.fraction)

    def _in_process(self, most_bytes: float | None = None, **job: object) -> _Run:
        answer, errors = self._folder / "answer.json", self._folder / "errors"
        answer.unlink(missing_ok=True)
        paper = self._folder / "job.json"
        paper.write_text(
            json.dumps({**job, "answer": str(answer), "modules": self.content.modules}), encoding="utf-8"
        )
        path = os.pathsep.join(each or str(Path.cwd()) for each in sys.path)
        with errors.open("wb") as file:
            process = subprocess.Popen(  # noqa: S603  this Python, and a file of ours
                [sys.executable, "-P", "-X", "faulthandler", str(_CHILD), str(paper)],
                env={**os.environ, **_WORKER_ENVIRONMENT, "PYTHONPATH": path},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=file,
                start_new_session=True,
            )
            try:
                end, held = self._watch(process, answer, most_bytes)
            finally:
                _end(process)
        said = json.loads(answer.read_text(encoding="utf-8")) if answer.exists() else {}
        if end is None and "raised" in said:
            end = "raised"
        if end is None and process.returncode == -signal.SIGKILL and held > self.ceiling_bytes // 2:
            end = "over-machine"  # the kernel was faster
        lines = errors.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        return _Run(
            end=end or ("crashed" if process.returncode else "returned"),
            exit_code=(process.returncode or None) if end is None else None,
            answer=said,
            detail=str(said.get("raised") or (lines[-1][:300] if lines else "")),
        )

    def _watch(
        self, process: subprocess.Popen[bytes], answer: Path, most_bytes: float | None
    ) -> tuple[ReplayEnd | None, int]:
        """Look at a process as a nanny does; returns why it has to end, None if it ended, and what it held last."""
        held = 0
        while process.poll() is None:
            held = process_memory(process.pid).get("VmRSS", held)
            if most_bytes is not None and held > most_bytes and answer.exists():  # then the task runs
                return "over-limit", held
            if held > self.ceiling_bytes:
                return "over-machine", held
            if self.deadline.is_over:
                return "timed-out", held
            with suppress(subprocess.TimeoutExpired):
                process.wait(_LOOK_S)
        return None, held


def _end(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _machine_bytes() -> int:
    """What a process may take here without harm to others."""
    host = host_available_bytes()
    group = find_memory_group()
    counters = group.memory_counters() if group is not None else None
    room = [host] if host is not None else []
    if counters is not None and counters.limit_bytes and counters.current_bytes is not None:
        room.append(counters.limit_bytes - counters.current_bytes)
    return int(0.9 * min(room, default=sys.maxsize))


def _replay(stage: _Stage, recipe: bytes, data: bytes, memray: str | os.PathLike[str] | None) -> Replay:
    content = stage.content
    prepared = stage.prepare(recipe, data)
    if prepared.end != "returned":
        obstacle = _OBSTACLES.get(prepared.end, "inputs-failed")
        return _no_replay(content, obstacle, f"computing the inputs {_ENDED[prepared.end]}: {prepared.detail}")
    ready = prepared.answer["ready"]
    if content.killed not in ready:
        return _no_replay(
            content, "incomplete", _missing_sentence(content, prepared.answer["missing"][content.killed])
        )
    found = [stage.run(content.killed, is_limited=True)]
    first = found[0]
    if first.end == "over-machine":
        detail = f"the limit is more than this machine can give now: {format_bytes(stage.ceiling_bytes)}"
        return _no_replay(content, "machine-too-small", detail, found)
    if first.end != "crashed":
        found += [
            stage.run(key, is_limited=True) for key in ready if key != first.key and not stage.deadline.is_over
        ]
    killer = next(filter(stage.kills, found), first)
    if killer.end in ("raised", "timed-out"):
        obstacle = _OBSTACLES.get(killer.end, "task-raised")
        return _no_replay(content, obstacle, f"task {killer.key} {_ENDED[killer.end]}: {killer.detail}", found)
    measured = [each if each.end != "over-limit" else stage.run(each.key, is_limited=False) for each in found]
    if memray is not None:
        recorded = stage.run(killer.key, is_limited=False, memray=str(Path(memray).absolute()))
        if recorded.end == "raised":
            raise KitError(str(memray), recorded.detail, "give the path of a new file")
    return _judged(stage, killer, measured)


_ENDED: Mapping[ReplayEnd, str] = {
    "raised": "raised an error here",
    "crashed": "ended its process",
    "over-machine": "took all the memory that this machine can give",
    "timed-out": "took all the time",
}
_OBSTACLES: Mapping[ReplayEnd, ReplayObstacle] = {"over-machine": "machine-too-small", "timed-out": "timed-out"}
_REASONS: Mapping[RecipeGapReason, str] = {
    "no-recipe": "it is data that was scattered, or whose task is forgotten; Kit.with_inputs(client) gathers it",
    "too-large": "it has too much data inside",
    "too-many": "it has too many ancestors",
}


def _missing_sentence(content: KitContent, keys: Sequence[str]) -> str:
    reasons = {each.key: each.reason for each in content.gaps}
    known = next((f": {_REASONS[reasons[key]]}" for key in keys if key in reasons), "")
    return f"the kit cannot compute {', '.join(keys)}{known}"


def _judged(stage: _Stage, killer: ReplayedTask, measured: Sequence[ReplayedTask]) -> Replay:
    """The verdict, by how the tasks ended under the limit, and by their peaks."""
    content, limit = stage.content, stage.content.limit_bytes
    own = {each.key: each.own_bytes for each in measured if each.own_bytes is not None}
    base = max((each.worker_bytes for each in measured if each.peak_bytes is not None), default=0)
    together = [[own.get(key, 0) for key in death.tasks] for death in content.deaths]
    largest = sorted(own.values(), reverse=True)
    threads = content.nthreads or 1
    needs = max(stage.need(base, each) for each in (*together, largest[:threads]))
    is_whole = all(key in own for key in content.tasks[:_MAX_TASKS])
    verdict: ReplayVerdict = "does-not-kill"
    if stage.kills(killer):
        verdict = "kills-alone"
    elif limit is not None and max(stage.need(base, each) for each in (*together, [])) > limit:
        verdict = "only-in-company"
    of_memory = killer.end != "crashed"
    beyond = max([needs, *(stage.ceiling_bytes for each in measured if each.end == "over-machine")])
    return Replay(
        verdict=verdict,
        task=killer.key,
        tasks=tuple(measured),
        limit_bytes=limit,
        peak_bytes=next(each.peak_bytes for each in measured if each.key == killer.key),
        needs_memory_bytes=needs if of_memory and is_whole else None,
        needs_more_than_bytes=beyond if of_memory and not is_whole else None,
        table=tuple(_table(stage, base, largest, threads)) if of_memory and is_whole else (),
    )


def _table(stage: _Stage, base: int, largest: Sequence[int], threads: int) -> Iterator[ThreadNeed]:
    """The limits for one thread and more; tasks that were not measured are taken to be as large as the largest."""
    for count in sorted({1, 2, 4, threads}):
        if count <= threads:
            own = [*largest[:count], *[largest[0]] * max(0, count - len(largest))]
            yield ThreadNeed(threads=count, memory_bytes=stage.need(base, own))
