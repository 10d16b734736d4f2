"""Which reports are about one death: by identity, else by time, else by how they complete each other."""

from __future__ import annotations

from collections.abc import Iterable
from math import inf

from attrs import evolve

from workerdiag.model.incident import Lifetimes
from workerdiag.model.normalize import decimal
from workerdiag.model.process_end import ProcessEnd
from workerdiag.model.rules import STILL_ALIVE

#: Seconds within which two observers report one death.
SAME_MOMENT_S = 3.0
#: Seconds within which reports are paired in their order, not with the nearest. Of 247 workers that died four
#: at a time, below nannies that shared a log, order paired 191 with their exits, and nearness 143.
SAME_ORDER_S = 0.1
#: Seconds between ends of one pid from which they are two processes: pids are used again.
SAME_PROCESS_S = 600.0
#: Seconds after a nanny's report from which a worker that still writes is another one.
_AFTER_S = 0.5
#: Landmarks of programs that started a process and report only how it ended.
SERVICE_LANDMARKS = ("container.", "launcher.")


def find_same_end(
    end: ProcessEnd, others: Iterable[tuple[int, ProcessEnd]], lifetimes: Lifetimes, *, no_times: bool
) -> int | None:
    """The number of the one of *others* that is the same death as *end*, or None.

    With *no_times*, no times can be compared, so a report may complete another by their order alone.
    """
    others = list(others)
    for number, other in others:
        if other.identity.same_process(end.identity) and _distance_s(end, other) <= SAME_PROCESS_S:
            return number
    timed = [
        (max(0.0, distance_s - SAME_ORDER_S), other.when, number)
        for number, other in others
        if end.when is not None
        and other.when is not None
        and (distance_s := _distance_s(end, other)) <= SAME_MOMENT_S
        and _may_be_one(end, other, lifetimes)
    ]
    if timed:
        return min(timed)[2]
    if end.when is None or no_times:
        return next((number for number, other in others if _is_complementary(end, other)), None)
    return None


def time_span(end: ProcessEnd) -> tuple[float, float]:
    """The first and last time at which *end* is reported; a stop begins with its request."""
    times = [end.when or 0.0]
    for each in end.marks if end.stop_requested else ():
        if each.when is not None:
            waited_s = decimal(each.captures.get("seconds")) if each.owner == STILL_ALIVE else None
            times += [each.when, each.when - (waited_s or 0.0)]
    return min(times), max(times)


def is_kernel_only(end: ProcessEnd) -> bool:
    """Whether only the kernel reports the end."""
    return end.reporters == ("kernel log",)


def _is_complementary(end: ProcessEnd, other: ProcessEnd) -> bool:
    """Whether one knows the exit and the other does not, or both report the same one."""
    if other.identity.conflicts_with(end.identity) or _needs_no_kernel(end, other):
        return False
    if end.exit_known and other.exit_known:
        return end.signal == other.signal and end.status == other.status
    return end.exit_known or other.exit_known


def _may_be_one(end: ProcessEnd, other: ProcessEnd, lifetimes: Lifetimes) -> bool:
    """Whether both can be one death. The pids of a container and of the kernel may differ."""
    if end.exit_known and other.exit_known and end.signal != other.signal and _is_service_only(end):
        return False
    if _needs_no_kernel(end, other) or _is_beside_a_stop(end, other) or _is_beside_a_stop(other, end):
        return False
    if _outlived(end, other, lifetimes) or _outlived(other, end, lifetimes):
        return False
    if not other.identity.conflicts_with(end.identity):
        return True
    one, two = evolve(end.identity, pid=None), evolve(other.identity, pid=None)
    by_kernel = is_kernel_only(end) != is_kernel_only(other)
    return by_kernel and end.signal == other.signal and not one.conflicts_with(two)


def _needs_no_kernel(one: ProcessEnd, two: ProcessEnd) -> bool:
    """Whether one left in order, and only the kernel reports the other."""
    in_order = any(each.deregistered or each.stop_requested for each in (one, two))
    return in_order and is_kernel_only(one) != is_kernel_only(two)


def _is_beside_a_stop(death: ProcessEnd, stop: ProcessEnd) -> bool:
    """Whether *death* is not that of the worker that stopped on request.

    It was a crash, and no name shows that they are one process; or the worker still wrote after that report.
    """
    if death.stop_requested or stop.exit_known or not stop.stop_requested:
        return False
    names = {name for each in death.identities for name in (each.nanny, each.pid)} - {None}
    is_nameless = names.isdisjoint(name for each in stop.identities for name in (each.nanny, each.pid))
    return (death.crashed and is_nameless) or _wrote_after(stop, death)


def _wrote_after(worker: ProcessEnd, death: ProcessEnd) -> bool:
    """Whether a worker wrote a line well after a nanny had reported that death.

    Both have the clock of one machine. Corrected times of two logs differ by less.
    """
    reports = (each.when for each in death.marks if each.role == "death" and each.stream == "nanny")
    last_report = max((when for when in reports if when is not None), default=inf)
    return any(
        each.stream == "worker" and (each.when or 0.0) > last_report + _AFTER_S for each in worker.marks
    )


def _distance_s(one: ProcessEnd, two: ProcessEnd) -> float:
    """Seconds between two time spans: a worker that closes slowly is removed before its process ends."""
    if one.when is None or two.when is None:
        return 0.0
    (one_from, one_to), (two_from, two_to) = time_span(one), time_span(two)
    return max(0.0, one_from - two_to, two_from - one_to)


def _outlived(other: ProcessEnd, kernels: ProcessEnd, lifetimes: Lifetimes) -> bool:
    """Whether one still wrote after all that the kernel reports of the other."""
    if not is_kernel_only(kernels) or is_kernel_only(other):
        return False
    return all(lifetimes.outlived(other.addresses, line, other.when) for line in kernels.marks)


def _is_service_only(end: ProcessEnd) -> bool:
    return all(each.owner.startswith(SERVICE_LANDMARKS) for each in end.marks)
