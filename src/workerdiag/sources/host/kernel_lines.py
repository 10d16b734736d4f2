"""Converts a machine's probe answers to evidence, and attributes its kernel log's lines to the dead workers.

The kernel logs every process of the machine. A kill counts for the worker with its pid; where pids cannot be
compared (a container has its own), for a worker that died at that moment in that cgroup. A crash line
names the thread, so it counts by time and signal. A nanny logs every signal that ends its worker, so a
worker without a logged signal was not ended by one.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from math import inf

from workerdiag.model.dask import Reply
from workerdiag.model.evidence import Event, Evidence, LogChunk, MemoryReading
from workerdiag.model.identity import Identity
from workerdiag.model.normalize import EventValue
from workerdiag.sources.host.remote_call import Answer
from workerdiag.sources.host.respondents import Respondent, Subject
from workerdiag.values import evolve, field, frozen

_Fields = dict[str, EventValue]

#: A nanny and the scheduler notice a worker's exit within this many seconds of each other.
NOTED_S = 2.0
_GROUP_FIELDS = tuple(
    """
    version path limit_of memory_limit_bytes high_limit_bytes swap_limit_bytes current_bytes peak_bytes
    failcnt oom high max oom_group_kill full_avg10 pids_current pids_limit pids_refused
    """.split()
)


def answer_evidence(answer: Answer, respondent: Respondent) -> Iterator[Evidence]:
    """Yield the evidence in one machine's answer, the most important first."""
    respondent = evolve(respondent, subjects=with_noted_pids(respondent.subjects, _noted_exits(answer)))
    log = kernel_log(answer)
    attributed = log.about(respondent.subjects)
    yield from _kernel_chunks(attributed, respondent)
    group = answer.get("control_groups", {})
    is_complete = log.same_pid_namespace and bool(answer.get("kernel", {}).get("reaches_back"))
    for subject, lines in zip(respondent.subjects, attributed.own, strict=True):
        if subject.own and group.get("version"):
            silent = is_complete and not lines and (subject.pid is not None or subject.when is not None)
            spared = silent or not respondent.is_about_dead or not log.may_have_ended_by(SIGKILL, subject)
            killed = any(_KILLED_PID.search(text) for _, text in lines)
            yield from _cgroup_events(group, subject, killed=killed, spared=spared)
    if respondent.same_machine:
        yield from _machine_events(answer.get("machine", {}), respondent)


def kernel_log(answer: Answer) -> KernelLog:
    """Return the kernel log and the nannies' logged exits in an answer; no lines if the log was unreadable."""
    section, groups = answer.get("kernel", {}), answer.get("control_groups", {})
    return KernelLog(
        lines=tuple((float(when), str(text)) for when, text in section.get("lines", ())),
        same_pid_namespace=bool(section.get("same_pid_namespace")),
        group=str(groups.get("path", "")),
        pids_group=str(groups.get("pids_path", "")),
        drift_s=float(section.get("drift_s", 0.0)),
        signals={pid: signal for pid, signal, _ in reversed(_noted_exits(answer))},
        noted_until=float(answer.get("nannies", {}).get("noted_until", 0.0)),
    )


def with_noted_pids(subjects: Sequence[Subject], ends: Sequence[tuple[int, int, float]]) -> tuple[Subject, ...]:
    """Return the dead workers; one without a pid gets that of the exit logged when it died."""
    used_pids = {each.identity.pid for each in subjects}
    found = []
    for each in subjects:
        near = [
            (abs(when - each.when), pid)
            for pid, _, when in ends
            if each.identity.pid is None and each.when is not None and pid not in used_pids
        ]
        apart, pid = min(near, default=(inf, 0))
        if apart <= NOTED_S:
            used_pids.add(pid)
        found.append(evolve(each, noted_pid=pid if apart <= NOTED_S else None))
    return tuple(found)


def _noted_exits(answer: Answer) -> list[tuple[int, int, float]]:
    exits = answer.get("nannies", {}).get("ends", ())
    return [(int(pid), int(signal), float(when)) for pid, signal, when in exits]


def _kernel_chunks(attributed: AttributedLines, respondent: Respondent) -> Iterator[Evidence]:
    origin = f"kernel log of {respondent.title}"
    for subject, lines in zip(respondent.subjects, attributed.own, strict=True):
        if lines:
            of = subject.pid or subject.identity.worker or subject.identity.name
            data, title = format_lines(lines), f"{origin}, process {of}"
            yield LogChunk(origin=title, data=data, stream="kernel", identity=subject.identity)
    if attributed.common and respondent.same_machine:
        data, identity = format_lines(attributed.common), Identity(host=respondent.subjects[0].identity.host)
        yield LogChunk(origin=origin, data=data, stream="kernel", identity=identity)


def _cgroup_events(group: Reply, subject: Subject, *, killed: bool, spared: bool) -> Iterator[Evidence]:
    """Yield the counters of the cgroup that the dead process was in.

    A kill counted there may be another process's, or an old one. It counts only if the cgroup has its own
    limit and neither the kernel log nor the nanny contradicts.
    """
    fields: _Fields = {name: group[name] for name in _GROUP_FIELDS if group.get(name) is not None}
    limit, count = group.get("memory_limit_bytes"), group.get("oom_kill")
    is_root = bool(group.get("is_root"))
    fields["is_root"] = is_root
    if isinstance(count, int):
        own = count == 0 or killed or (limit is not None and not is_root and not spared)
        fields["oom_kill" if own else "oom_kill_of_others" if spared else "oom_kill_in_group"] = count
    yield Event(topic="cgroup", fields=fields, identity=subject.identity)
    if isinstance(limit, int) and fields.get("oom_kill"):
        yield MemoryReading(identity=subject.identity, limit_bytes=limit)


def _machine_events(machine: Reply, respondent: Respondent) -> Iterator[Evidence]:
    for text in machine.get("cores", ()):
        for subject in respondent.subjects:
            if f"PID: {subject.pid} " in text:
                origin = f"coredumpctl info {subject.pid}"
                yield LogChunk(origin=origin, data=text.encode(), identity=subject.identity)
    for subject in respondent.subjects:
        listens = machine.get("listening", {}).get(subject.identity.nanny)
        if listens in ("yes", "no"):
            yield Event(topic="nanny-state", fields={"listening": listens}, identity=subject.identity)
        if machine.get("host"):
            yield _host_event(machine["host"], respondent, subject)
        if subject.own and machine.get("limits"):
            yield Event(topic="limits", fields=_limit_fields(machine["limits"]), identity=subject.identity)
        for disk in machine.get("disks", ()):
            if subject.own or disk.get("what") != "local directory":
                yield Event(topic="disk", fields=_disk_fields(disk), identity=subject.identity)


def _host_event(host: Reply, respondent: Respondent, subject: Subject) -> Event:
    fields: _Fields = {"hostname": respondent.place.hostname, "boot_id": respondent.place.boot_id}
    fields |= {name: host[name] for name in ("uptime_s", "suspended_s", "cpus", "full_avg10") if name in host}
    total, available = host.get("MemTotal"), host.get("MemAvailable")
    if total and available is not None:
        fields |= {"total_bytes": total, "available_bytes": available}
        fields["available_percent"] = round(100 * available / total, 1)
    if subject.when is not None and "uptime_s" in host and "now" in host:
        started = float(host["now"]) - float(host["uptime_s"])
        fields["restarted_after_death"] = "yes" if started > subject.when - 10.0 else "no"  # as clocks differ
    return Event(topic="host", fields=fields, identity=subject.identity)


def _limit_fields(limits: Reply) -> _Fields:
    """Return the finite limits; processor time also if unlimited."""
    fields: _Fields = {name: value for name, value in limits.items() if value is not None}
    if "cpu_soft" in limits:
        fields["cpu_limited"] = "no" if limits["cpu_soft"] is None and limits["cpu_hard"] is None else "yes"
    opened, most = limits.get("open_files"), limits.get("nofile_soft")
    if isinstance(opened, int) and isinstance(most, int) and most:
        fields["open_files_share"] = round(opened / most, 3)
        fields["descriptors_left"] = "no" if opened >= 0.95 * most else "yes"
    return fields


def _disk_fields(disk: Reply) -> _Fields:
    fields: _Fields = {name: disk[name] for name in ("what", "path", "problem", "read_only") if name in disk}
    size, free = disk.get("size_bytes"), disk.get("free_bytes")
    if isinstance(size, int) and isinstance(free, int) and size:
        fields |= {"size_bytes": size, "free_bytes": free}
        fields["full"] = "yes" if free < 4 * 2**20 or free < 0.001 * size else "no"
    inodes, left = disk.get("inodes"), disk.get("free_inodes")
    if isinstance(inodes, int) and isinstance(left, int) and inodes:
        fields |= {"free_inodes": left, "inodes_full": "yes" if left == 0 else "no"}
    return fields


#: The kernel and the scheduler notice a death within this many seconds of each other, on compared clocks.
SAME_MOMENT_S = 15.0
#: A disk or machine failure at most this many seconds before a death may have led to it.
BEFORE_S = 300.0
#: If no nanny logged the exit, the crash is at most this many seconds away: any other may be another program's.
UNLOGGED_S = 1.0

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
                taken = {index for index, each in enumerate(own) if each}
                killed = self._victim_of_kill(block, subjects, taken=taken)
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
        """Whether a kill at the moment of a death may be that death, although no pid or cgroup says so.

        A process other than the nanny reports it, which may be in another pid namespace.
        """
        kills = [block[-1][0] for block in self._blocks() if _OOM_LINE.search(block[0][1])]
        others = [each for each in subjects if not each.own]
        return any(self._near(when, others) for when in kills)

    def _blocks(self) -> Iterator[list[KernelLine]]:
        """Yield all lines of one OOM kill together, and every other line by itself."""
        block: list[KernelLine] = []
        for line in self.lines:
            of_kill = _OOM_LINE.search(line[1]) is not None
            # The lines of one kill stand this close.
            if block and (_OOM_BEGINNING.search(line[1]) or line[0] - block[-1][0] > 2.0):
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
        text, when = "\n".join(text for _, text in block), block[-1][0]
        pids = {int(pid) for pid in _KILLED_PID.findall(text)}
        near = self._near(when, subjects, within_s=5.0)  # only the time identifies a process of unknown pid
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
            latest_s = 2.0 if is_logged else UNLOGGED_S
            fits = is_logged or _PYTHON_CRASH.match(line[1]) is not None
            is_noted = self.signals.get(pid or 0) == signal
            drift_s = self.drift_s if is_noted else min(self.drift_s, earliest_s)
            if fits and in_order and -earliest_s - drift_s <= line[0] - each.when <= latest_s + drift_s:
                yield index

    def _near(self, when: float, subjects: Sequence[Subject], *, within_s: float = SAME_MOMENT_S) -> list[int]:
        known = ((index, each.when) for index, each in enumerate(subjects) if each.when is not None)
        apart = [(abs(died - when), index) for index, died in known]
        return [index for seconds, index in sorted(apart) if seconds <= within_s + self.drift_s]

    def _names_stranger(self, text: str, subjects: Iterable[Subject]) -> bool:
        found = _NAMED_PID.search(text)
        pids = {each.pid for each in subjects}
        named = {int(each) for each in found.groups() if each} if found else set()
        return self.same_pid_namespace and None not in pids and bool(named) and named.isdisjoint(pids)


def format_lines(lines: Iterable[KernelLine]) -> bytes:
    """Return the lines as ``dmesg --time-format=iso`` prints them, in UTC."""
    return "".join(f"{_iso_time(when)} {text}\n" for when, text in lines).encode("utf-8", errors="replace")


def _iso_time(when: float) -> str:
    return datetime.fromtimestamp(when, UTC).isoformat(timespec="microseconds").replace(".", ",")


def _is_group(group: str, named: Collection[str], subject: Subject) -> bool:
    """Whether *named* has the answering process's cgroup, which the machine's workers share.

    If the kernel uses another path for that cgroup, only the worker's own nanny can tell.
    """
    is_known = group not in ("", "/") and not group.startswith("/..")
    return group in named if is_known and named else subject.own


def _may_lead_to(when: float, subjects: Sequence[Subject]) -> bool:
    return any(each.when is not None and -15.0 <= each.when - when <= BEFORE_S for each in subjects)
