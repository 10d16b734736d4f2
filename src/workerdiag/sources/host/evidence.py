"""Converts a machine's probe answers to evidence, attributed to the dead workers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import inf

from attrs import evolve

from workerdiag.model.dask import Reply
from workerdiag.model.evidence import Event, Evidence, LogChunk, MemoryReading
from workerdiag.model.identity import Identity
from workerdiag.model.normalize import EventValue
from workerdiag.sources.host.kernel_lines import (
    SIGKILL,
    AttributedLines,
    KernelLog,
    format_lines,
    has_oom_kill,
)
from workerdiag.sources.host.remote_call import Answer
from workerdiag.sources.host.respondents import Respondent, Subject

_Fields = dict[str, EventValue]

#: A file system with less than this free, or less than a thousandth, is full.
FULL_BYTES = 4 * 2**20
FULL_SHARE = 0.001
#: A process with this share of its descriptors open is about to run out of them.
NEARLY_ALL_SHARE = 0.95
#: Accuracy of the clock comparison, in seconds.
SKEW_S = 10.0
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
    is_complete = log.same_pid_namespace and covers_deaths(answer)
    for subject, lines in zip(respondent.subjects, attributed.own, strict=True):
        if subject.own and group.get("version"):
            silent = is_complete and not lines and (subject.pid is not None or subject.when is not None)
            spared = silent or not respondent.is_about_dead or not log.may_have_ended_by(SIGKILL, subject)
            yield from _cgroup_events(group, subject, killed=has_oom_kill(lines), spared=spared)
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


def is_doubtful(answer: Answer, respondent: Respondent) -> bool:
    """Whether a kill in the kernel log may be a victim's although no pid or cgroup says so."""
    return kernel_log(answer).leaves_doubt(respondent.subjects)


def with_noted_pids(
    subjects: Sequence[Subject], ends: Sequence[tuple[int, int, float]]
) -> tuple[Subject, ...]:
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
    """Return pid, signal and time of the exits that nannies logged, the latest first."""
    exits = answer.get("nannies", {}).get("ends", ())
    return [(int(pid), int(signal), float(when)) for pid, signal, when in exits]


def covers_deaths(answer: Answer) -> bool:
    """Whether the kernel log covers the time from before the deaths until now."""
    return bool(answer.get("kernel", {}).get("reaches_back"))


def _kernel_chunks(attributed: AttributedLines, respondent: Respondent) -> Iterator[Evidence]:
    origin = f"kernel log of {respondent.title}"
    for subject, lines in zip(respondent.subjects, attributed.own, strict=True):
        if lines:
            of = subject.pid or subject.identity.worker or subject.identity.name
            data = format_lines(lines)
            yield LogChunk(
                origin=f"{origin}, process {of}", data=data, stream="kernel", identity=subject.identity
            )
    if attributed.common and respondent.same_machine:
        identity = Identity(host=respondent.subjects[0].identity.host)
        yield LogChunk(
            origin=origin, data=format_lines(attributed.common), stream="kernel", identity=identity
        )


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
        fields["restarted_after_death"] = "yes" if started > subject.when - SKEW_S else "no"
    return Event(topic="host", fields=fields, identity=subject.identity)


def _limit_fields(limits: Reply) -> _Fields:
    """Return the finite limits; processor time also if unlimited."""
    fields: _Fields = {name: value for name, value in limits.items() if value is not None}
    if "cpu_soft" in limits:
        fields["cpu_limited"] = "no" if limits["cpu_soft"] is None and limits["cpu_hard"] is None else "yes"
    opened, most = limits.get("open_files"), limits.get("nofile_soft")
    if isinstance(opened, int) and isinstance(most, int) and most:
        fields["open_files_share"] = round(opened / most, 3)
        fields["descriptors_left"] = "no" if opened >= NEARLY_ALL_SHARE * most else "yes"
    return fields


def _disk_fields(disk: Reply) -> _Fields:
    fields: _Fields = {name: disk[name] for name in ("what", "path", "problem", "read_only") if name in disk}
    size, free = disk.get("size_bytes"), disk.get("free_bytes")
    if isinstance(size, int) and isinstance(free, int) and size:
        fields |= {"size_bytes": size, "free_bytes": free}
        fields["full"] = "yes" if free < FULL_BYTES or free < FULL_SHARE * size else "no"
    inodes, left = disk.get("inodes"), disk.get("free_inodes")
    if isinstance(inodes, int) and isinstance(left, int) and inodes:
        fields |= {"free_inodes": left, "inodes_full": "yes" if left == 0 else "no"}
    return fields
