"""
Which lines of a machine's kernel log are about which of the dead.

The kernel tells of every process of the machine. A kill counts for the worker with that process
id; where pids cannot be compared (a container has its own), for one that died at that moment
in that control group. A crash names the thread, so it counts by its time.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator, Sequence

from attrs import frozen

from workerdiag.sources.host.respondents import Mourned

#: The kernel and the scheduler notice one death within so many seconds; their clocks were compared.
SAME_MOMENT_S = 15.0
#: What a disk or the whole machine does so long before a death may have led to it.
BEFORE_S = 300.0
AFTER_S = 15.0
#: A group's other processes that were killed so close to a death are part of it.
TOGETHER_S = 2.0

_BEGINS = re.compile(r"invoked oom-killer", re.IGNORECASE)
_OF_KILL = re.compile(
    r"invoked oom-killer|oom-kill:|out of memory|killed process|oom_reaper:|killed as a result of limit"
    r"|memory\.oom\.group|memory: usage",
    re.IGNORECASE,
)
_KILLED = re.compile(r"(?:kill(?:ed)? process |,pid=|reaped process )(\d+)", re.IGNORECASE)
_GROUP = re.compile(r"(?:task_memcg=|oom_memcg=|Tasks? in )(/[^\s,]*)")
_LIMITED_GROUP = re.compile(r"(?:oom_memcg=|as a result of limit of )(/[^\s,]*)")
_OF_CRASH = re.compile(
    r"\[(?P<thread>\d+)\]:? (?:segfault at|general protection|trap |bus error|unhandled signal)"
    r"|unexpected fatal signal"
)
_PYTHON = re.compile(r"(?:\(|task=|^)(?:python|dask|pt_main|ipykernel|jupyter)", re.IGNORECASE | re.MULTILINE)

KernelLine = tuple[float, str]


@frozen(kw_only=True)
class Told:
    """
    What a kernel log tells of the dead of one machine.
    """

    #: The lines of each of the dead, in the order in which these were given.
    own: tuple[tuple[KernelLine, ...], ...]
    #: Lines about the machine, near the time of a death.
    common: tuple[KernelLine, ...]


@frozen(kw_only=True)
class KernelLog:
    """
    A kernel log with what is known of how its names compare with those of the dead.
    """

    lines: tuple[KernelLine, ...]
    #: Whether the pids of the dead are those that the kernel uses.
    comparable: bool = True
    #: Path of the memory control group of who was asked; empty or ``/``: the kernel knows it by another.
    group: str = ""
    #: How wrong its times may be, in seconds.
    drift_s: float = 0.0

    def about(self, mourned: Sequence[Mourned]) -> Told:
        """
        The lines that are about *mourned* or their machine; those about other processes are left out.
        """
        own: list[list[KernelLine]] = [[] for _ in mourned]
        common: list[KernelLine] = []
        for block in self._blocks():
            index = self._whose(block, mourned)
            if index is not None:
                own[index] += block
            elif self._concerns_all(block, mourned):
                common += block
        return Told(own=tuple(tuple(each) for each in own), common=tuple(common))

    def _blocks(self) -> Iterator[list[KernelLine]]:
        """
        All lines of one OOM kill together; every other line by itself.
        """
        block: list[KernelLine] = []
        for line in self.lines:
            of_kill = _OF_KILL.search(line[1]) is not None
            if block and (_BEGINS.search(line[1]) or line[0] - block[-1][0] > TOGETHER_S):
                yield block
                block = []
            if of_kill:
                block.append(line)
            else:
                yield [line]
        if block:
            yield block

    def _whose(self, block: Sequence[KernelLine], mourned: Sequence[Mourned]) -> int | None:
        if _OF_KILL.search(block[0][1]):
            return self._killed(block, mourned)
        if found := _OF_CRASH.search(block[0][1]):
            return self._crashed(block[0][0], found["thread"], mourned)
        return None

    def _killed(self, block: Sequence[KernelLine], mourned: Sequence[Mourned]) -> int | None:
        text, when = _text(block), block[-1][0]
        pids = {int(pid) for pid in _KILLED.findall(text)}
        near = self._near(when, mourned)
        if self.comparable:
            for index, each in enumerate(mourned):
                if each.whose.pid in pids and (each.when is None or abs(each.when - when) <= BEFORE_S):
                    return index
            near = [index for index in near if mourned[index].whose.pid is None]
        return near[0] if near and _PYTHON.search(text) and self._fits(text) else None

    def _crashed(self, when: float, thread: str | None, mourned: Sequence[Mourned]) -> int | None:
        """
        Whose thread crashed: threads are numbered after their process.
        """
        for index in self._near(when, mourned):
            pid = mourned[index].whose.pid
            if not (self.comparable and pid is not None and thread is not None and int(thread) < pid):
                return index
        return None

    def _near(self, when: float, mourned: Sequence[Mourned]) -> list[int]:
        """
        Those who died at that moment, the nearest first.
        """
        apart = [
            (abs(each.when - when), index) for index, each in enumerate(mourned) if each.when is not None
        ]
        return [index for seconds, index in sorted(apart) if seconds <= SAME_MOMENT_S + self.drift_s]

    def _fits(self, text: str) -> bool:
        """
        Whether a kill was in our group, so far as both know it by the same path.
        """
        named = _GROUP.findall(text)
        known = self.group not in ("", "/") and not self.group.startswith("/..")
        return not known or not named or any(_is_within(each, self.group) for each in named)

    def _concerns_all(self, block: Sequence[KernelLine], mourned: Sequence[Mourned]) -> bool:
        """
        Whether it tells of the machine before a death, or of another kill in the same, limited group.
        """
        when, text = block[-1][0], _text(block)
        if _OF_CRASH.search(text):
            return False
        if not _OF_KILL.search(text):
            return any(each.when is not None and -AFTER_S <= each.when - when <= BEFORE_S for each in mourned)
        limited = [each for each in _LIMITED_GROUP.findall(text) if each != "/"]
        ours = any(_is_within(self.group, each) for each in limited)
        return ours and any(
            each.own and each.when is not None and abs(each.when - when) <= TOGETHER_S for each in mourned
        )


def as_text(lines: Iterable[KernelLine]) -> bytes:
    """
    The lines as ``dmesg --time-format=iso`` prints them, in UTC.
    """
    return "".join(f"{_iso(when)} {text}\n" for when, text in lines).encode("utf-8", errors="replace")


def tells_of_a_kill(lines: Iterable[KernelLine]) -> bool:
    """
    Whether one of them says that the kernel killed for want of memory.
    """
    return any(_KILLED.search(text) for _, text in lines)


def _text(block: Iterable[KernelLine]) -> str:
    return "\n".join(text for _, text in block)


def _is_within(path: str, group: str) -> bool:
    return path == group or path.startswith(group.rstrip("/") + "/")


def _iso(when: float) -> str:
    microseconds = round(when * 1e6)
    return (
        time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(microseconds // 1_000_000))
        + f",{microseconds % 1_000_000:06d}+00:00"
    )
