"""The machine that a worker died on. Each test makes one promise about what `HostSource` tells of it."""

from __future__ import annotations

import asyncio
import gc
import time
import warnings
from functools import cache
from types import SimpleNamespace

import pytest
from attrs import evolve
from distributed.utils import sync

import workerdiag
from workerdiag.deadline import Deadline
from workerdiag.matching.scan import Matcher
from workerdiag.model.evidence import Event, Gap, Inspected, LogChunk, MemoryReading
from workerdiag.model.identity import Identity
from workerdiag.model.scene import Location, Scene, Victim
from workerdiag.pipeline import diagnose
from workerdiag.rulebook.load import load_rulebook
from workerdiag.sources.host.kernel_lines import KernelLog, answer_evidence, format_lines
from workerdiag.sources.host.respondents import Respondent, Subject, find_locations, respondents
from workerdiag.sources.host.source import HostSource, kernel_gap, machine_gap

DIED = 1_795_000_000.0
NANNY = "tcp://10.0.0.7:41001"
WORKER = Identity(worker="tcp://10.0.0.7:38211", pid=4711, nanny=NANNY, host="10.0.0.7")
SUBJECT = Subject(identity=WORKER, when=DIED, own=True)
#: A memory cgroup kill as Linux 6.1 words it, and as 4.4 did.
KILL = (
    "python invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0",
    "memory: usage 585936kB, limit 585936kB, failcnt 112",
    "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,oom_memcg=/job7,task_memcg=/job7/step0,task=python,pid={pid},uid=0",
    "Memory cgroup out of memory: Killed process {pid} (python) total-vm:956004kB, anon-rss:537468kB, file-rss:20308kB, shmem-rss:0kB, UID:0 pgtables:1228kB oom_score_adj:0",
)
OLD_KILL = (
    "python invoked oom-killer: gfp_mask=0x24000c0, order=0, oom_score_adj=0",
    "Task in /job7/step0 killed as a result of limit of /job7",
    "memory: usage 585936kB, limit 585936kB, failcnt 112",
    "Memory cgroup out of memory: Kill process {pid} (python) score 977 or sacrifice child",
    "Killed process {pid} (python) total-vm:956004kB, anon-rss:537468kB, file-rss:20308kB",
)
SEGFAULT = "python[{tid}]: segfault at 0 ip 00007f1c22334455 sp 00007f1c1fffe4d0 error 4 in libnetcdf.so.19[7f1c22300000+120000]"


def kill(pid, *, at=DIED, lines=KILL):
    """The lines of one kill, as a probe gives them."""
    return tuple((at + 0.0001 * index, line.format(pid=pid)) for index, line in enumerate(lines))


def own(lines, *subjects, **known):
    """The lines that are taken for the first of *subjects*."""
    return KernelLog(lines=tuple(lines), **known).about(subjects or (SUBJECT,)).own[0]


def respondent(*subjects, role="nanny", **known):
    """A nanny on the dead worker's machine."""
    place = Location(role=role, identity=Identity(nanny=NANNY, host="10.0.0.7"), hostname="node7", boot_id="b-1")
    return Respondent(place=place, subjects=subjects or (SUBJECT,), **known)


def answer(lines=(), *, group=None, **parts):
    """What a machine answers whose kernel log could be read wholly."""
    kernel = {
        "lines": [list(each) for each in lines],
        "reaches_back": True,
        "same_pid_namespace": True,
        "read_from": "/dev/kmsg",
    }
    return {"kernel": kernel, "control_groups": group or {}, "machine": {}} | parts


def evidence_in(said, *subjects, **known):
    """The evidence in an answer."""
    return list(answer_evidence(said, respondent(*subjects, **known)))


def events(evidence, topic):
    """The fields of the events of one topic."""
    return [each.fields for each in evidence if isinstance(each, Event) and each.topic == topic]


# ---------------------------------------------------------------------------- whose a kernel line is


@pytest.mark.parametrize("lines", [KILL, OLD_KILL])
def test_a_kill_belongs_to_the_process_it_names(lines):
    """All lines of the kill of the worker's own pid are given to that worker, in old and new wordings."""
    assert own(kill(4711, lines=lines)) == kill(4711, lines=lines)


def test_the_kill_of_another_process_is_nobodys():
    """A kill at the same moment of another pid, also in the same group, is not given at all."""
    told = KernelLog(lines=kill(999), group="/job7/step0").about([SUBJECT])
    assert (told.own, told.common) == (((),), ())


def test_a_pid_that_was_used_before_is_not_the_worker():
    """The kill of a process that had the pid long before is not the worker's."""
    assert own(kill(4711, at=DIED - 4000)) == ()


def test_two_workers_get_a_kill_each():
    """Kills close together are told apart by their pids."""
    other = evolve(SUBJECT, identity=evolve(WORKER, worker="tcp://10.0.0.7:5", pid=4800))
    lines = (*kill(4800), *kill(4711, at=DIED + 0.01))
    found = KernelLog(lines=lines).about([SUBJECT, other])
    assert found.own == (kill(4711, at=DIED + 0.01), kill(4800))


@pytest.mark.parametrize(
    ("group", "at", "is_own"),
    [
        ("/job7/step0", DIED, True),
        ("/job8/step0", DIED, False),
        ("/job7/step0", DIED - 60, False),
        ("/", DIED, True),
    ],
)
def test_in_a_container_a_kill_is_known_by_moment_and_group(group, at, is_own):
    """Where the kernel's pids are not those seen here, the time must fit, and the group if it is known."""
    assert bool(own(kill(90211, at=at), same_pid_namespace=False, group=group)) is is_own


@pytest.mark.parametrize(
    ("tid", "at", "is_own"), [(4711, 0, True), (4725, 0.5, True), (3000, 0, False), (4725, 90, False)]
)
def test_a_crash_belongs_to_who_died_then_with_threads_numbered_so(tid, at, is_own):
    """The kernel names the thread that crashed: a thread's number is above its process's, and the time must fit."""
    assert bool(own([(DIED + at, SEGFAULT.format(tid=tid))])) is is_own


@pytest.mark.parametrize(
    ("line", "signal", "is_own"),
    [
        (SEGFAULT.format(tid=4725), 11, True),
        (SEGFAULT.format(tid=4725), 6, False),
        (SEGFAULT.format(tid=4725), 0, False),
        (
            "traps: python[4725] trap invalid opcode ip:7f1c sp:7ffd error:0 in libfaiss.so[7f1c+1000]",
            4,
            True,
        ),
        (
            "traps: python[4725] trap invalid opcode ip:7f1c sp:7ffd error:0 in libfaiss.so[7f1c+1000]",
            11,
            False,
        ),
        (
            "traps: python3.9[4725] general protection fault ip:7efe sp:7efe error:0 in libffi.so.7[7efe+7000]",
            11,
            True,
        ),
    ],
)
def test_a_crash_is_of_who_died_by_its_signal(line, signal, is_own):
    """Where the nanny noted another signal, or an exit, the crash was another process's."""
    assert bool(own([(DIED, line)], signals={4711: signal})) is is_own


def test_a_worker_without_a_known_pid_is_found_by_the_moment_of_its_end():
    """Dask forgets the pids of workers lost before: the nanny's note of that second has it, and with it the kernel's line."""
    nameless = Subject(identity=Identity(worker="tcp://10.0.0.7:38000", host="10.0.0.7"), when=DIED - 3, own=False)
    ends = [[4711, 15, DIED], [4690, 9, DIED - 2.9]]
    said = answer([*kill(4690, at=DIED - 3), (DIED - 2.8, SEGFAULT.format(tid=4699))], nannies={"ends": ends})
    chunks = [each for each in evidence_in(said, SUBJECT, nameless) if isinstance(each, LogChunk)]
    assert [each.identity.worker for each in chunks] == ["tcp://10.0.0.7:38000"]
    assert b"segfault" not in chunks[0].data


#: One of whom Dask no longer knows the process id, as neighbours and its own nanny can speak of it.
NAMELESS = Subject(identity=evolve(WORKER, pid=None), when=DIED, own=False)


@pytest.mark.parametrize(
    ("group", "is_own"),
    [("/job7/step0", True), ("/job7", False), ("/job7/step0/child", False), ("/job8", False), ("/", False)],
)
def test_a_kill_of_a_nameless_worker_was_in_the_very_group_of_who_was_asked(group, is_own):
    """A kill at that moment in a group below, above or beside it, or with no known group, is a stranger's."""
    assert bool(own(kill(90211), NAMELESS, group=group)) is is_own


@pytest.mark.parametrize(("ends", "is_own"), [([], False), ([[4711, 9, DIED]], True), ([[4711, 15, DIED]], False)])
def test_a_nanny_notes_each_signal_that_ends_its_worker(ends, is_own):
    """Kernel and counters convict only a worker whose nanny, which notes each signal, noted SIGKILL for it."""
    said = answer(
        kill(90211),
        group={**LIMITED, "oom_kill": 1},
        nannies={"ends": ends, "noted_until": DIED + 5},
    )
    said["kernel"]["same_pid_namespace"] = False
    found = evidence_in(said, evolve(NAMELESS, own=True))
    assert any(isinstance(each, LogChunk) for each in found) is is_own
    assert ("oom_kill" in events(found, "cgroup")[0]) is is_own


@pytest.mark.parametrize(
    ("text", "is_told"),
    [
        ("cgroup: fork rejected by pids controller in /job7/step0", True),
        ("cgroup: fork rejected by pids controller in /job8", False),
        ("NVRM: Xid (PCI:0000:3b:00): 31, pid=4711, name=python, Ch 00000008", True),
        ("NVRM: Xid (PCI:0000:3b:00): 31, pid=4800, name=train, Ch 00000008", False),
        ("Memory failure: 0x3f: Killing python:4711 due to hardware memory corruption", True),
        ("Memory failure: 0x3f: Killing java:4800 due to hardware memory corruption", False),
        ("CPU Watchdog Timeout (hard): python[4725]", True),
        ("CPU Watchdog Timeout (hard): python[800]", False),
        ("INFO: task java:4800 blocked for more than 120 seconds.", True),
    ],
)
def test_what_happened_to_another_process_or_group_is_not_told(text, is_told):
    """A line of the minutes before is left out where it names a stranger; a disk that hangs is everybody's."""
    log = KernelLog(lines=((DIED - 1, text),), group="/mem", pids_group="/job7/step0").about([SUBJECT])
    assert bool(log.own[0] or log.common) is is_told


def test_a_crash_of_a_stranger_is_not_of_a_worker_that_its_nanny_saw_leave():
    """A worker of which its nanny noted no signal did not crash, whatever did at that moment."""
    lines = [(DIED, SEGFAULT.format(tid=90211))]
    leaving = evolve(NAMELESS, own=True)
    assert own(lines, leaving, noted_until=DIED + 5) == ()
    assert own(lines, leaving, noted_until=DIED - 5) != ()


@pytest.mark.parametrize(
    ("at", "name", "pid", "is_own"),
    [
        (-0.2, "python", None, True),
        (-1.2, "python", None, False),
        (-0.8, "python", 4711, True),
        (-9, "python", 4711, False),
        (0, "chrome", None, False),
        (-0.1, "Dask-Default-Th", None, True),
    ],
)
def test_of_a_worker_without_a_nanny_a_crash_is_told_by_the_very_moment(at, name, pid, is_own):
    """Another program, or another Python seconds before, crashed by itself."""
    line = (DIED + at, SEGFAULT.format(tid=4725).replace("python", name))
    alone = evolve(NAMELESS, identity=evolve(WORKER, pid=pid))
    assert bool(own([line], alone)) is is_own


@pytest.mark.parametrize(("drift_s", "at", "is_own"), [(1.1, -0.1, True), (300.0, -0.1, True), (300.0, -9, False)])
def test_a_crash_is_told_on_a_machine_that_has_been_up_for_days(drift_s, at, is_own):
    """The clock of the kernel's log may have drifted either way or not at all; a minute is no very moment even so."""
    line = (DIED + at, SEGFAULT.format(tid=4725))
    alone = evolve(NAMELESS, identity=evolve(WORKER, pid=4711))
    assert bool(own([line], alone, drift_s=drift_s)) is is_own
    assert own([line], evolve(NAMELESS, own=True), drift_s=drift_s) != ()


@pytest.mark.parametrize(("noted", "is_own"), [({4711: 11}, True), ({}, False), ({4711: 6}, False)])
def test_a_crash_of_minutes_before_is_the_workers_only_where_its_nanny_noted_that_signal(noted, is_own):
    """After a month the kernel's clock may be two minutes off; another process may have crashed then."""
    line = (DIED - 100, SEGFAULT.format(tid=4725))
    worker = evolve(NAMELESS, own=True, identity=evolve(WORKER, pid=4711))
    assert bool(own([line], worker, drift_s=130.0, signals=noted)) is is_own


def test_a_kill_in_the_group_of_workers_that_live_was_another_processs():
    """The counter of a group in which nobody of Dask's died convicts no one."""
    said = answer(group={**LIMITED, "oom_kill": 1})
    living = evolve(SUBJECT, when=None, identity=evolve(WORKER, pid=None))
    (fields,) = events(evidence_in(said, living, is_about_dead=False), "cgroup")
    assert "oom_kill" not in fields


def test_two_workers_that_crash_at_once_get_a_line_each():
    """One line is of one process: the first death has the first line, also where another is a little nearer."""
    other = evolve(SUBJECT, identity=evolve(WORKER, worker="tcp://10.0.0.7:5", pid=4700), when=DIED + 0.01)
    first, second = ((DIED - 0.02 + 0.015 * n, SEGFAULT.format(tid=4725 + n)) for n in range(2))
    assert KernelLog(lines=(first, second)).about([other, SUBJECT]).own == ((second,), (first,))


def test_two_nameless_workers_that_are_killed_at_once_get_a_kill_each():
    """One kill is of one process where only the moment and the group tell whose it was."""
    other = evolve(NAMELESS, identity=evolve(NAMELESS.identity, worker="tcp://10.0.0.7:5"), when=DIED + 0.3)
    lines = (*kill(90211), *kill(90212, at=DIED + 0.1))
    found = KernelLog(lines=lines, group="/job7/step0").about([NAMELESS, other]).own
    assert [len(each) for each in found] == [len(KILL), len(KILL)]


def test_of_two_crashes_the_nearer_one_counts():
    """A worker crashes once: what else crashed in those seconds was something else."""
    lines = [(DIED - 9, SEGFAULT.format(tid=4719)), (DIED - 0.1, SEGFAULT.format(tid=4725))]
    assert own(lines) == (lines[1],)


def test_a_disk_that_failed_before_is_told_of_the_machine():
    """What disks and the machine did in the minutes before is given as the machine's; what was hours ago is not."""
    lines = [(DIED - 7000, "I/O error, dev sda, sector 1"), (DIED - 20, "I/O error, dev sda, sector 2")]
    assert KernelLog(lines=tuple(lines)).about([SUBJECT]).common == (lines[1],)


def test_kernel_lines_are_written_as_dmesg_writes_them():
    """Times are in UTC, in the form that people paste too."""
    assert format_lines([(0.25, "text")]) == b"1970-01-01T00:00:00,250000+00:00 text\n"


# ------------------------------------------------------------------------------------- what it means


@cache
def known():
    """The shipped rules, and their patterns, compiled once."""
    book = load_rulebook()
    return book, Matcher(book)


def judged(evidence):
    """What is concluded from *evidence*."""
    book, matcher = known()
    return diagnose(evidence, book, matcher=matcher)


def explained(evidence, signal):
    """The explanation of one death by *signal*, of which the nanny tells, with what the machine tells."""
    when = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(DIED))
    line = f"{when},500 - distributed.nanny - INFO - Worker process 4711 was killed by signal {signal}\n"
    nanny = LogChunk(origin="nanny log", data=line.encode(), stream="nanny", identity=Identity(nanny=NANNY))
    return judged([nanny, Inspected(place="nanny log"), *evidence])


LIMITED = {"version": 2, "path": "/job7/step0", "memory_limit_bytes": 600_000_000, "limit_of": "/job7"}


@pytest.mark.parametrize(
    ("said", "cause"),
    [
        (answer(kill(4711), group={**LIMITED, "oom_kill": 1}), "kernel.oom-killer"),
        (answer(kill(4711)), "kernel.oom-killer"),
        (
            answer(kernel={"problems": {"dmesg": "Operation not permitted"}}, group={**LIMITED, "oom_kill": 2}),
            "kernel.oom-killer",
        ),
        (answer(group={**LIMITED, "oom_kill": 0}), "external.sigkill"),
        (answer(kill(999), group={**LIMITED, "oom_kill": 0}), "external.sigkill"),
        (answer(group={**LIMITED, "oom_kill": 3}), "external.sigkill"),
        (answer(), "external.sigkill"),
    ],
    ids=["log+counter", "log", "counter", "neither", "another-process", "kills-of-before", "silence"],
)
def test_a_kill_for_memory_is_told_from_a_plain_kill(said, cause):
    """A SIGKILL is the kernel's where its log or the worker's own group says so, and else it is not."""
    evidence = evidence_in(said)
    if "lines" in said["kernel"]:
        evidence.append(Inspected(place="kernel log", identity=WORKER))
    findings = explained(evidence, 9)
    assert (findings.outcome, findings.top.id) == ("explained", cause)
    assert findings.top.probability > 0.9
    assert all(each.probability < 0.05 for each in findings.causes[1:])


def test_a_segfault_is_told_with_library_and_address():
    """The kernel's line shows in the evidence, and the library in what to do."""
    findings = explained(evidence_in(answer([(DIED, SEGFAULT.format(tid=4725))])), 11)
    assert findings.top.id == "signal.segfault"
    assert any("segfault at 0 ip" in clue.text for clue in findings.top.evidence)
    assert any("libnetcdf.so.19" in advice.do for advice in findings.top.mitigations)


def test_the_limit_that_killed_is_told():
    """A counted kill under a limit gives the limit as what was in force for this worker."""
    evidence = evidence_in(answer(kill(4711), group={**LIMITED, "oom_kill": 1}))
    assert [each for each in evidence if isinstance(each, MemoryReading)] == [
        MemoryReading(identity=WORKER, limit_bytes=600_000_000)
    ]


def test_a_group_without_a_limit_does_not_convict():
    """A kill counted in a login session may have been a browser's: it is told as one in the group."""
    said = answer(kernel={"problems": {}}, group={"version": 2, "path": "/user.slice", "oom_kill": 1})
    (fields,) = events(evidence_in(said), "cgroup")
    assert ("oom_kill" in fields, fields["oom_kill_in_group"]) == (False, 1)


def test_a_neighbours_group_is_not_the_workers():
    """Another worker's nanny speaks for the machine, not for the group, limits and directory of the dead one."""
    disk = {"path": "/scratch", "what": "local directory", "size_bytes": 10, "free_bytes": 0}
    said = answer(group={**LIMITED, "oom_kill": 1}, machine={"limits": {"open_files": 1}, "disks": [disk]})
    evidence = evidence_in(said, evolve(SUBJECT, own=False), role="neighbour")
    assert [events(evidence, topic) for topic in ("cgroup", "limits", "disk")] == [[], [], []]


@pytest.mark.parametrize(
    ("disk", "cause"),
    [
        ({"size_bytes": 40 * 2**20, "free_bytes": 0}, "exception.disk-full"),
        (
            {"size_bytes": 10**12, "free_bytes": 10**11, "inodes": 1000, "free_inodes": 0},
            "exception.disk-full",
        ),
        ({"size_bytes": 10**12, "free_bytes": 10**11, "inodes": 0, "free_inodes": 0}, None),
        ({"problem": "no answer within 0.3 s"}, None),
    ],
    ids=["full", "no-inodes", "inodes-not-counted", "no-answer"],
)
def test_a_full_local_directory_is_named(disk, cause):
    """No room or no inodes where the worker writes is an explanation; file systems without a count of inodes are not full."""
    said = answer(machine={"disks": [{"path": "/scratch/dask", "what": "local directory", **disk}]})
    findings = judged(evidence_in(said, evolve(SUBJECT, when=None)))
    assert {each.id for each in findings.causes if each.id.startswith("exception.disk")} == ({cause} - {None})


@pytest.mark.parametrize(("uptime_s", "restarted"), [(5.0, "yes"), (86400.0, "no")])
def test_a_machine_that_started_after_the_death_is_found_out(uptime_s, restarted):
    """A machine that runs for a shorter time than the worker is dead was restarted."""
    host = {"now": DIED + 120, "uptime_s": uptime_s}
    (fields,) = events(evidence_in(answer(machine={"host": host})), "host")
    assert fields["restarted_after_death"] == restarted


def test_descriptors_that_run_out_are_told():
    """A nanny that has nearly all its descriptors open is about to be refused one."""
    (fields,) = events(evidence_in(answer(machine={"limits": {"open_files": 1020, "nofile_soft": 1024}})), "limits")
    assert fields["descriptors_left"] == "no"


def test_a_core_dump_is_given_to_its_process_alone():
    """What systemd-coredump keeps is the worker's where the pid is the worker's."""
    text = "           PID: {pid} (python3)\n        Signal: 11 (SEGV)\n     Timestamp: Tue 2026-11-17 03:46:40 UTC (2min ago)\n"
    said = answer(machine={"cores": [text.format(pid=4711), text.format(pid=47)]})
    chunks = [each for each in evidence_in(said) if isinstance(each, LogChunk)]
    assert [(each.identity, b"4711" in each.data) for each in chunks] == [(WORKER, True)]
    assert explained(chunks, 11).top.id == "signal.segfault"


# ---------------------------------------------------------------------------------------- whom to ask


def place(role, host, *, nanny=None, boot_id="b-1", ahead=0.0):
    """A place that was asked for its whereabouts."""
    return Location(role=role, identity=Identity(nanny=nanny, host=host), boot_id=boot_id, clock_ahead_s=ahead)


def respondents_for(*places, victim=WORKER):
    """Who speaks for one dead worker, by role, and whether it is sure to be the same machine."""
    found, left = respondents(Scene(victims=(Victim(identity=victim, when=DIED),), locations=places))
    return [(each.place.role, each.same_machine, each.subjects[0].own) for each in found], len(left)


def test_the_victims_own_nanny_is_asked_before_all_others():
    """The nanny knows the worker's group and directory, a neighbour and the scheduler only the machine."""
    own_nanny = place("nanny", "10.0.0.7", nanny=NANNY)
    neighbour = place("neighbour", "10.0.0.7", nanny="tcp://10.0.0.7:9")
    scheduler, client = place("scheduler", "10.0.0.7"), place("client", None)
    assert respondents_for(client, scheduler, neighbour, own_nanny) == ([("nanny", True, True)], 0)
    assert respondents_for(client, scheduler, neighbour) == ([("neighbour", True, False)], 0)
    assert respondents_for(client, scheduler) == ([("scheduler", True, False)], 0)


def test_a_machine_where_nobody_is_left_is_a_gap():
    """With the scheduler elsewhere and no nanny left there, that is said, with what to type."""
    scene = Scene(victims=(Victim(identity=WORKER),), locations=(place("scheduler", "10.0.0.1"),))
    (gap,) = HostSource.of(scene).collect(budget_s=30)
    assert (gap.reason, gap.source) == ("unreachable", "host 10.0.0.7")
    assert "dmesg" in gap.remedy


def test_a_loopback_address_of_another_machine_is_not_ours():
    """Behind a tunnel the workers' 127.0.0.1 is the scheduler's machine: its boot id tells."""
    victim = evolve(WORKER, host="127.0.0.1", nanny=None)
    here, there = place("client", None, boot_id="b-1"), place("scheduler", "10.0.0.1", boot_id="b-2")
    assert respondents_for(here, there, victim=victim) == ([], 1)
    assert respondents_for(here, evolve(there, boot_id="b-1"), victim=victim) == (
        [("client", True, False)],
        0,
    )


def test_clocks_that_differ_are_compared_before_times_are():
    """The time of death, by the scheduler's clock, is looked for at the same moment by the machine's."""
    places = place("scheduler", "10.0.0.1", ahead=30.0), place("nanny", "10.0.0.7", nanny=NANNY, ahead=-200.0)
    (found,), _ = respondents(Scene(victims=(Victim(identity=WORKER, when=DIED),), locations=places))
    assert found.subjects[0].when == DIED - 230.0


def test_without_anybody_dead_and_without_a_cluster_nothing_is_asked():
    """The source applies where somebody died, or where there is a cluster whose machines can be looked at."""
    assert HostSource.of(Scene()) is None
    assert HostSource.of(Scene(client=object())) is not None
    assert HostSource.of(Scene(victims=(Victim(identity=WORKER),))) is not None


@pytest.mark.slow
@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("end", ["stop", "close"])
@pytest.mark.parametrize("victims", [(), (Victim(identity=WORKER),)])
def test_an_event_loop_that_has_ended_leaves_no_coroutine_behind(end, victims):
    """A client whose loop runs no more is a gap, and nothing is left that was never awaited."""
    loop = asyncio.new_event_loop()
    loop.close() if end == "close" else loop.call_soon(loop.stop)
    of_client = SimpleNamespace(asyncio_loop=loop, add_callback=loop.call_soon_threadsafe)

    def run(call, *, asynchronous, callback_timeout):
        sync(of_client, call, callback_timeout=callback_timeout)

    client = SimpleNamespace(
        sync=run,
        status="running",
        scheduler=SimpleNamespace(address=None),
    )
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        found = list(HostSource(Scene(client=client)).collect(budget_s=0.2))
        _, gaps = find_locations(client, victims, Deadline.after(0.1))
        loop.close()
        gc.collect()

    assert [each.category for each in said] == []
    assert all(isinstance(each, Gap) for each in [*found, *gaps])
    assert found
    assert gaps


# ------------------------------------------------------------------------------------------------ gaps


@pytest.mark.parametrize(
    ("kernel", "reason"),
    [
        ({"problems": {"/dev/kmsg": "PermissionError: [Errno 1] no"}, "forbidden": True}, "forbidden"),
        ({"problems": {"dmesg": "OSError: [Errno 38] the kernel's buffer is hidden here"}}, "never-recorded"),
        ({"lines": [], "reaches_back": False, "read_from": "dmesg"}, "expired"),
        ({"problem": "TimeoutError: it is too long"}, "never-recorded"),
    ],
)
def test_a_kernel_log_that_was_not_read_wholly_is_a_gap(kernel, reason):
    """Why it was not, and what to type on the machine."""
    gap = kernel_gap({"kernel": kernel}, respondent())
    assert gap.reason == reason
    assert "10.0.0.7" in gap.remedy


def test_a_kernel_log_of_one_of_two_machines_is_no_proof_of_silence():
    """Only when the logs of all machines were read wholly may what is not there count."""
    read, unread = answer(), answer(kernel={"problems": {}})
    source = HostSource(Scene(victims=(Victim(identity=WORKER),)))
    both = list(source._kernel_log_evidence([respondent(), respondent()], [read, unread], []))
    one = list(source._kernel_log_evidence([respondent()], [read], []))
    assert [type(each) for each in both] == [Gap]
    assert [type(each) for each in one] == [Inspected]


def test_a_kill_at_that_moment_is_no_silence_where_a_neighbour_speaks():
    """The dead one may have lived in a container of its own, so that its pid was not the kernel's: no claim is made."""
    source = HostSource(Scene(victims=(Victim(identity=WORKER),)))
    neighbour = respondent(evolve(SUBJECT, own=False), role="neighbour")
    assert list(source._kernel_log_evidence([neighbour], [answer(kill(90211))], [])) == []
    assert len(list(source._kernel_log_evidence([neighbour], [answer(kill(90211, at=DIED - 200))], []))) == 1


@pytest.mark.parametrize(
    ("problem", "reason"),
    [
        (TimeoutError("no answer within 3.0 s"), "timed-out"),
        (PermissionError("explicitly disallowed"), "forbidden"),
        (ConnectionError("refused"), "unreachable"),
        (ValueError("Expecting value"), "malformed"),
    ],
)
def test_a_machine_that_cannot_be_asked_is_a_gap(problem, reason):
    """Each way to fail has its reason, and one thing that would help."""
    gap = machine_gap("10.0.0.7", problem)
    assert gap.reason == reason
    assert gap.remedy


@pytest.mark.parametrize(
    "garbage",
    [
        {},
        {"kernel": {"lines": 7}},
        {"kernel": {"lines": 7, "reaches_back": True}},
        {"machine": {"disks": [3]}},
        {"control_groups": {"version": "x", "oom_kill": []}},
        {"kernel": {"lines": [["a", "b"]]}},
    ],
)
def test_an_answer_that_makes_no_sense_harms_nobody(garbage, monkeypatch):
    """Whatever a machine says, the source gives evidence or gaps, and does not raise."""
    scene = Scene(
        victims=(Victim(identity=WORKER, when=DIED),), locations=(place("nanny", "10.0.0.7", nanny=NANNY),)
    )
    source = HostSource.of(scene)
    monkeypatch.setattr(source, "_answers", lambda _: [garbage])
    assert list(source.collect(budget_s=30))


def test_this_machine_answers_in_this_process():
    """For a worker that lived here nobody else is asked, and nothing is left out for want of time."""
    victim = Victim(
        identity=Identity(worker="tcp://127.0.0.1:1", pid=2**22 + 5, host="127.0.0.1"), when=time.time()
    )
    from workerdiag.sources.host.respondents import find_locations

    places, gaps = find_locations(None, [victim], Deadline.after(30.0))
    evidence = list(HostSource.of(Scene(victims=(victim,), locations=tuple(places))).collect(budget_s=30.0))
    assert gaps == []
    assert "timed-out" not in {each.reason for each in evidence if isinstance(each, Gap)}
    assert "without the cluster" in evidence[-1].detail


def test_the_public_explain_takes_the_source(monkeypatch):
    """Given by hand, the source is asked like any other."""
    scene = Scene(victims=(Victim(identity=WORKER),), locations=(place("scheduler", "10.0.0.1"),))
    diagnosis = workerdiag.explain(sources=[HostSource(scene)], timeout=2)
    assert [each.source for each in diagnosis.gaps] == ["host 10.0.0.7"]
