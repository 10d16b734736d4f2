"""Logs of clusters whose workers end in many ways, in Dask's words, with the true causes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime

from attrs import define, field

from workerdiag import LogText

_NOON = datetime(2026, 5, 4, 12, tzinfo=UTC).timestamp()
#: How a worker may end: the cause, and the signal and the exit status that its nanny reports, if any.
WAYS: Mapping[str, tuple[str, int | None, int | None]] = {
    "kill": ("external.sigkill", 9, None),
    "segfault": ("signal.segfault", 11, None),
    "exit": ("code.process-exit", None, 3),
    "silent exit": ("code.process-exit", None, 0),
    "kernel": ("kernel.oom-killer", 9, None),
    "nanny": ("nanny.memory-terminate", 15, None),
    "retire": ("exit.scheduler-retired", None, None),
    "code": ("exit.closed-by-code", None, None),
    "code, slowly": ("exit.closed-by-code", 9, None),
}
#: The ways that somebody asked for.
REQUESTED = frozenset({"retire", "code", "code, slowly"})
#: Seconds until a nanny has its next worker.
_AGAIN_S = 1.5


def _line(second: float, logger: str, text: str, level: str) -> str:
    when = datetime.fromtimestamp(_NOON + second, tz=UTC)
    return f"{when:%Y-%m-%d %H:%M:%S},{when.microsecond // 1000:03d} - distributed.{logger} - {level} - {text}"


@define
class SimulatedNanny:
    """A nanny with its current worker."""

    number: int
    #: Seconds by which its machine's clock is ahead.
    ahead_s: float
    worker: str = ""
    pid: int = 0
    ready: float = 0.0
    closed: bool = False
    lines: list[tuple[float, str]] = field(factory=list)

    @property
    def address(self) -> str:
        return f"tcp://10.0.0.{self.number}:3000{self.number}"

    def log(self, second: float, logger: str, text: str, level: str = "INFO") -> None:
        self.lines.append((second, _line(second + self.ahead_s, logger, text, level)))


class SimulatedCluster:
    """A cluster of three nannies that starts at second 0."""

    def __init__(self, *, skew_s: float = 0.0) -> None:
        self.nannies = [SimulatedNanny(number, skew_s * number) for number in range(1, 4)]
        #: How each worker ended, by address.
        self.truth: dict[str, str] = {}
        self._scheduler = [(0.0, _line(0, "scheduler", "State start", "INFO"))]
        self._kernel: list[str] = []
        self._started = 0
        for each in self.nannies:
            each.log(0.5, "nanny", f"        Start Nanny at: {each.address!r}")
            self._start(each, 1.0)

    def end(self, nanny: SimulatedNanny, second: float, way: str) -> None:
        """End the nanny's worker, if it has one by then."""
        if nanny.closed or nanny.ready > second:
            return
        self.truth[nanny.worker] = way
        if way == "retire":
            self._retire(nanny, second)
            return
        if way in REQUESTED:
            self._kill_by_nanny(nanny, second, slowly=way != "code")
            return
        _, signal, status = WAYS[way]
        if way == "kernel":
            self._kernel.append(
                f"[{second:.6f}] Out of memory: Killed process {nanny.pid} (python) total-vm:9141244kB"
            )
        if way == "nanny":
            text = f"Worker {nanny.worker} (pid={nanny.pid}) exceeded 95% memory budget. Restarting..."
            nanny.log(second - 0.1, "nanny.memory", text, "WARNING")
        self._removed(nanny, second + 0.01, "handle-worker-cleanup")
        if way != "silent exit":
            how = f"was killed by signal {signal}" if signal else f"exited with status {status}"
            nanny.log(second + 0.02, "nanny", f"Worker process {nanny.pid} {how}")
        nanny.log(second + 0.05, "nanny", "Restarting worker (status=Status.running)", "WARNING")
        self._start(nanny, second + 0.8)

    def close(self, second: float) -> None:
        """End the program that owns the cluster: it closes the nannies, then the scheduler."""
        for nanny in (each for each in self.nannies if not each.closed):
            nanny.log(second, "nanny", f"Closing Nanny at {nanny.address!r}. Reason: nanny-close")
            nanny.log(second + 0.01, "nanny", "Nanny asking worker to close. Reason: nanny-close")
        self._log(second + 0.1, "Closing scheduler. Reason: unknown")

    def restart(self, second: float) -> None:
        """Let a client restart all workers; none closes in time."""
        stimulus = f"client-restart-{_NOON}"
        self._log(second, f"Restarting workers and releasing all keys (stimulus_id='{stimulus}')")
        for number, nanny in enumerate(self.nannies):
            moment = second + 0.01 + number / 100
            nanny.log(moment, "nanny", f"Nanny asking worker to close. Reason: {stimulus}")
            self._killed_after_asking(nanny, moment)

    def logs(self, *, shared: bool = False) -> list[LogText]:
        """Return the logs of the scheduler, of each nanny or one for all, and of the kernel if it has any."""
        each = [nanny.lines for nanny in self.nannies]
        texts = [_text(line for lines in each for line in lines)] if shared else map(_text, each)
        logs = [LogText(_text(self._scheduler), "scheduler"), *(LogText(text, "nanny") for text in texts)]
        return logs + ([LogText("\n".join(self._kernel), "kernel")] if self._kernel else [])

    def _start(self, nanny: SimulatedNanny, second: float) -> None:
        self._started += 1
        nanny.worker, nanny.pid = f"tcp://10.0.0.{nanny.number}:{40000 + self._started}", 7000 + self._started
        nanny.ready = second + _AGAIN_S
        nanny.log(second + 0.1, "worker", f"      Start worker at: {nanny.worker}")
        self._log(second + 0.4, f"Register worker addr: {nanny.worker} name: w{nanny.number}")

    def _kill_by_nanny(self, nanny: SimulatedNanny, second: float, *, slowly: bool) -> None:
        nanny.log(second, "nanny", "Nanny asking worker to close. Reason: nanny-kill")
        nanny.log(second + 0.01, "worker", f"Stopping worker at {nanny.worker}. Reason: nanny-kill")
        if slowly:
            self._killed_after_asking(nanny, second)
            return
        self._removed(nanny, second + 0.02, "handle-worker-cleanup")
        nanny.log(second + 0.03, "nanny", "Worker closed")
        nanny.log(second + 0.05, "nanny", "Restarting worker (status=Status.running)", "WARNING")
        self._start(nanny, second + 0.8)

    def _killed_after_asking(self, nanny: SimulatedNanny, second: float) -> None:
        """Simulate the kill of a busy worker: its nanny waits for four seconds."""
        self._removed(nanny, second + 0.02, "handle-worker-cleanup")
        nanny.log(second + 4, "nanny", "Worker process still alive after 4.0 seconds, killing", "WARNING")
        nanny.log(second + 4.02, "nanny", f"Worker process {nanny.pid} was killed by signal 9")
        nanny.log(second + 4.05, "nanny", "Restarting worker (status=Status.running)", "WARNING")
        self._start(nanny, second + 4.8)

    def _retire(self, nanny: SimulatedNanny, second: float) -> None:
        self._log(second, f"Retire worker addresses (stimulus_id='retire-workers-{_NOON}') ('{nanny.worker}',)")
        self._removed(nanny, second + 0.01, "retire-workers")
        self._log(second + 0.02, f"Retired worker '{nanny.worker}' (stimulus_id='retire-workers-{_NOON}')")
        nanny.log(second + 0.03, "nanny", f"Closing Nanny at {nanny.address!r}. Reason: nanny-close")
        nanny.log(second + 0.04, "nanny", "Nanny asking worker to close. Reason: nanny-close")
        nanny.log(second + 0.2, "nanny", f"Nanny at {nanny.address!r} closed.")
        nanny.closed = True

    def _removed(self, nanny: SimulatedNanny, second: float, stimulus: str) -> None:
        text = f"Remove worker addr: {nanny.worker} name: w{nanny.number} (stimulus_id='{stimulus}-{_NOON}')"
        self._log(second, text)

    def _log(self, second: float, text: str) -> None:
        self._scheduler.append((second, _line(second, "scheduler", text, "INFO")))


def _text(lines: Iterable[tuple[float, str]]) -> str:
    return "\n".join(line for _, line in sorted(lines, key=lambda each: each[0])) + "\n"
