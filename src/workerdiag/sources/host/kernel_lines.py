"""Attributes the lines of a machine's kernel log to dead workers.

The kernel logs every process of the machine. A kill counts for the worker with its pid; where pids cannot be
compared (a container has its own), for a worker that died at that moment in that cgroup. A crash line
names the thread, so it counts by time and signal. A nanny logs every signal that ends its worker, so a
worker without a logged signal was not ended by one.
"""

from __future__ import annotations

import re
import time
from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence

from attrs import field, frozen

from workerdiag.sources.host.respondents import Subject

#: The kernel and the scheduler notice a death within this many seconds of each other, on compared clocks.
SAME_MOMENT_S = 15.0
#: The same for a process of unknown pid, which only the time can identify.
NAMELESS_S = 5.0
#: A disk or machine failure at most this many seconds before a death may have led to it.
BEFORE_S = 300.0
AFTER_S = 15.0
#: The scheduler notices an exit at most this many seconds before the kernel logs the crash.
NOTICED_S = 2.0
#: The same for a process whose exit no nanny logged: any other crash may be another program's.
UNLOGGED_S = 1.0
#: The kernel logs the lines of one kill within this many seconds.
TOGETHER_S = 2.0

_OOM_BEGINNING = re.compile(r"invoked oom-killer", re.IGNORECASE)
_OOM_LINE = re.compile(
    r"invoked oom-killer|oom-kill:|out of memory|killed process|oom_reaper:|killed as a result of limit"
    r"|memory\.oom\.group|memory: usage",
    re.IGNORECASE,
)
_KILLED_PID = re.compile(r"(?:kill(?:ed)? process |,pid=|reaped process )(\d+)", re.IGNORECASE)
#: The killed process's cgroup, which may be below the one at its limit.
_GROUP = re.compile(r"(?:task_memcg=|Tasks? in )(/[^\s,]*)")
_CRASH_LINE = re.compile(
    r"\[(?P<thread>\d+)\]:? (?:segfault at|general protection|trap |bus error|unhandled signal)"
    r"|CPU Watchdog Timeout \(\w+\): .{1,20}\[(?P<timed>\d+)\]|unexpected fatal signal"
)
_PYTHON_CRASH = re.compile(r"(?:traps: )?(?:python|dask|pt_main|Dask-)", re.IGNORECASE)
#: The signal by the kernel's message: arch/x86/kernel/traps.c, arch/arm64/mm/fault.c, kernel/time.
SIGKILL, SIGSEGV = 9, 11
_SIGNALS = {
    "invalid opcode": 4,
    "divide error": 8,
    "bus error": 7,
    "simd exception": 8,
    "Timeout (soft)": 24,
    "Timeout (hard)": SIGKILL,
}
_REFUSED_FORK = re.compile(r"fork rejected by pids controller in (\S+)")
#: The NVIDIA driver's "Xid (PCI:0000:3b:00): 31, pid=4711, name=python", and mm/memory-failure.c.
_NAMED_PID = re.compile(r"\bXid\b.{1,60}\bpid='?(\d+)|Memory failure: .{1,40}[Kk]illing .{1,20}:(\d+) ")
_PYTHON = re.compile(r"(?:\(|task=|^)(?:python|dask|pt_main|ipykernel|jupyter)", re.IGNORECASE | re.MULTILINE)

KernelLine = tuple[float, str]


@frozen(kw_only=True)
class AttributedLines:
    """The kernel lines about one machine's dead workers."""

    #: The lines of each dead worker, in the order given.
    own: tuple[tuple[KernelLine, ...], ...]
    #: Lines about the machine, near the time of a death.
    common: tuple[KernelLine, ...]


@frozen(kw_only=True)
class KernelLog:
    """A kernel log, and how its pids, cgroups and times compare with the victims'."""

    lines: tuple[KernelLine, ...]
    #: Whether the kernel uses the same pids as the victims.
    same_pid_namespace: bool = True
    #: Memory cgroup path of the answering process; empty or ``/`` if the kernel uses another path.
    group: str = ""
    #: The same for its pids cgroup.
    pids_group: str = ""
    #: Maximum error of its times, in seconds.
    drift_s: float = 0.0
    #: The signals that ended processes, by pid, as their nanny logged them; 0 for a voluntary exit.
    signals: Mapping[int, int] = field(factory=dict, hash=False)
    #: The answering nanny's log has every signal that ended its workers before this time.
    noted_until: float = 0.0

    def about(self, subjects: Sequence[Subject]) -> AttributedLines:
        """Return the lines about *subjects* or their machine, without those about other processes."""
        own: list[list[KernelLine]] = [[] for _ in subjects]
        common: list[KernelLine] = []
        crashes: list[KernelLine] = []
        for block in self._blocks():
            if _CRASH_LINE.search(block[0][1]):
                crashes += block
            elif _OOM_LINE.search(block[0][1]):
                killed = self._victim_of_kill(
                    block, subjects, taken={n for n, each in enumerate(own) if each}
                )
                if killed is not None:
                    own[killed] += block
            elif found := _REFUSED_FORK.search(block[0][1]):
                for index, each in enumerate(subjects):
                    if _may_lead_to(block[0][0], [each]) and _is_group(self.pids_group, [found[1]], each):
                        own[index] += block
            elif _may_lead_to(block[0][0], subjects) and not self._names_stranger(block[0][1], subjects):
                common += block
        for index, line in self._crash_lines(crashes, subjects).items():
            own[index].append(line)
        return AttributedLines(own=tuple(tuple(each) for each in own), common=tuple(common))

    def leaves_doubt(self, subjects: Sequence[Subject]) -> bool:
        """Whether a process other than the nanny reports a kill at the moment of a death.

        That process may be in another pid namespace, so pids do not compare.
        """
        kills = [block[-1][0] for block in self._blocks() if _OOM_LINE.search(block[0][1])]
        others = [each for each in subjects if not each.own]
        return any(self._near(when, others) for when in kills)

    def _blocks(self) -> Iterator[list[KernelLine]]:
        """Yield all lines of one OOM kill together, and every other line by itself."""
        block: list[KernelLine] = []
        for line in self.lines:
            of_kill = _OOM_LINE.search(line[1]) is not None
            if block and (_OOM_BEGINNING.search(line[1]) or line[0] - block[-1][0] > TOGETHER_S):
                yield block
                block = []
            if of_kill:
                block.append(line)
            else:
                yield [line]
        if block:
            yield block

    def _victim_of_kill(
        self, block: Sequence[KernelLine], subjects: Sequence[Subject], *, taken: Container[int]
    ) -> int | None:
        """Return the index of the worker that an OOM kill ended, or None; workers in *taken* match by pid only."""
        text, when = _joined_text(block), block[-1][0]
        pids = {int(pid) for pid in _KILLED_PID.findall(text)}
        near = self._near(when, subjects, within_s=NAMELESS_S)
        if self.same_pid_namespace:
            for index, each in enumerate(subjects):
                if each.pid in pids and (each.when is None or abs(each.when - when) <= BEFORE_S):
                    return index
            near = [index for index in near if subjects[index].pid is None]
        fitting = (
            index
            for index in near
            if index not in taken
            and self.may_have_ended_by(SIGKILL, subjects[index])
            and _is_group(self.group, _GROUP.findall(text), subjects[index])
        )
        return next(fitting, None) if _PYTHON.search(text) else None

    def may_have_ended_by(self, signal: int, subject: Subject) -> bool:
        """Whether no nanny logged another exit of *subject* than by *signal*."""
        noted = self.signals.get(subject.pid or 0)
        if noted is not None:
            return noted == signal
        return not subject.own or subject.when is None or subject.when > self.noted_until

    def _crash_lines(self, lines: Iterable[KernelLine], subjects: Sequence[Subject]) -> dict[int, KernelLine]:
        """Return the crash line of each death: the nearest, in the order of the deaths, no line twice."""
        candidates = {line: list(self._crash_candidates(line, subjects)) for line in lines}
        found: dict[int, KernelLine] = {}
        for line, index in sorted(
            ((line, index) for line, indices in candidates.items() for index in indices),
            key=lambda pair: abs(pair[0][0] - (subjects[pair[1]].when or 0.0)),
        ):
            if index not in found and line not in found.values():
                found[index] = line
        by_time = sorted(found, key=lambda index: subjects[index].when or 0.0)
        in_order = dict(zip(by_time, sorted(found.values()), strict=True))
        return in_order if all(index in candidates[line] for index, line in in_order.items()) else found

    def _crash_candidates(self, line: KernelLine, subjects: Sequence[Subject]) -> Iterator[int]:
        """Yield the workers that may have crashed: the signal fits, and the thread id is no lower than the pid.

        A crash is noticed once the core is written. If no nanny logged a worker's exit, only a Python that
        crashed at the same moment counts. The clock's full drift applies only if a nanny logged the signal.
        """
        found = _CRASH_LINE.search(line[1])
        thread = found["thread"] or found["timed"] if found else None
        signal = next((number for word, number in _SIGNALS.items() if word in line[1]), SIGSEGV)
        for index, each in enumerate(subjects):
            pid = each.pid
            if each.when is None or not self.may_have_ended_by(signal, each):
                continue
            in_order = not self.same_pid_namespace or pid is None or thread is None or int(thread) >= pid
            is_logged = each.own or each.noted_pid is not None
            earliest_s = SAME_MOMENT_S if is_logged else UNLOGGED_S
            latest_s = NOTICED_S if is_logged else UNLOGGED_S
            fits = is_logged or _PYTHON_CRASH.match(line[1]) is not None
            is_noted = self.signals.get(pid or 0) == signal
            drift_s = self.drift_s if is_noted else min(self.drift_s, earliest_s)
            if fits and in_order and -earliest_s - drift_s <= line[0] - each.when <= latest_s + drift_s:
                yield index

    def _near(
        self, when: float, subjects: Sequence[Subject], *, within_s: float = SAME_MOMENT_S
    ) -> list[int]:
        apart = [
            (abs(each.when - when), index) for index, each in enumerate(subjects) if each.when is not None
        ]
        return [index for seconds, index in sorted(apart) if seconds <= within_s + self.drift_s]

    def _names_stranger(self, text: str, subjects: Iterable[Subject]) -> bool:
        found = _NAMED_PID.search(text)
        pids = {each.pid for each in subjects}
        named = {int(each) for each in found.groups() if each} if found else set()
        return self.same_pid_namespace and None not in pids and bool(named) and named.isdisjoint(pids)


def format_lines(lines: Iterable[KernelLine]) -> bytes:
    """Return the lines as ``dmesg --time-format=iso`` prints them, in UTC."""
    return "".join(f"{_iso_time(when)} {text}\n" for when, text in lines).encode("utf-8", errors="replace")


def has_oom_kill(lines: Iterable[KernelLine]) -> bool:
    """Whether one of the lines reports an OOM kill."""
    return any(_KILLED_PID.search(text) for _, text in lines)


def _is_group(group: str, named: Collection[str], subject: Subject) -> bool:
    """Whether *named* has the answering process's cgroup, which the machine's workers share.

    If the kernel uses another path for that cgroup, only the worker's own nanny can tell.
    """
    is_known = group not in ("", "/") and not group.startswith("/..")
    return group in named if is_known and named else subject.own


def _may_lead_to(when: float, subjects: Sequence[Subject]) -> bool:
    return any(each.when is not None and -AFTER_S <= each.when - when <= BEFORE_S for each in subjects)


def _joined_text(block: Iterable[KernelLine]) -> str:
    return "\n".join(text for _, text in block)


def _iso_time(when: float) -> str:
    microseconds = round(when * 1e6)
    return (
        time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(microseconds // 1_000_000))
        + f",{microseconds % 1_000_000:06d}+00:00"
    )
