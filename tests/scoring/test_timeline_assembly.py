"""The time around the deaths, from whatever tells of it."""

from __future__ import annotations

from workerdiag.correlation.assemble import assemble
from workerdiag.model.diagnosis import Match
from workerdiag.model.evidence import MemoryReading, ProcessExit, TasksAtLoss
from workerdiag.model.identity import Identity
from workerdiag.model.timeline import MemoryLimits, MemorySample, ProcessHistory, TaskSpan
from workerdiag.scoring.timeline_assembly import MAX_HISTORIES, MAX_MOMENTS, make_timeline

T0 = 1_795_000_000.0
WHO = Identity(worker="tcp://10.0.0.4:1001", pid=7)


def died(identity=WHO, when=T0):
    """The exit of a process."""
    return ProcessExit(identity=identity, signal=9, when=when, reporter="flight recorder")


def mark(owner, role, line, text="x", when=None, identity=None, **captures):
    """A landmark in a worker's log."""
    identity = identity or Identity()
    return Match(
        owner=owner,
        role=role,
        text=text,
        captures=captures,
        origin="worker.log",
        line=line,
        last_line=line,
        stream="nanny",
        when=when,
        identity=identity,
    )


def timeline_of(*evidence, marks=()):
    """The timeline of what these tell."""
    incident = assemble(list(marks), evidence)
    return make_timeline([each.end for each in incident.cases], incident)


def test_what_the_recorder_sampled_is_carried_as_it_is():
    """Samples, limits and tasks reach the diagnosis, with the time of the death."""
    known = ProcessHistory(
        identity=WHO,
        samples=(MemorySample(at=T0 - 2, process_bytes=5),),
        limits=MemoryLimits(worker_bytes=10, pause_fraction=0.8),
        tasks=(TaskSpan(key="x", started_at=T0 - 3),),
        recorded=True,
        when=T0,
    )
    (history,) = timeline_of(died(), known).histories
    assert history.samples == known.samples
    assert history.limits == known.limits
    assert history.tasks == known.tasks
    assert history.recorded


def test_without_samples_heartbeats_and_readings_tell_some_moments():
    """A reading has a time, and the tasks of the last heartbeat began some seconds before the death."""
    reading = MemoryReading(identity=WHO, rss_bytes=50, limit_bytes=100, when=T0 - 1)
    loss = TasksAtLoss(identity=WHO, tasks=("a", "b"), seconds=(4.0, None), threads=("", ""), crashed=(None, None))
    (history,) = timeline_of(died(), reading, loss).histories
    assert [(each.at, each.process_bytes) for each in history.samples] == [(T0 - 1, 50)]
    assert history.limits.worker_bytes == 100
    assert history.tasks == (TaskSpan(key="a", started_at=T0 - 4),)
    assert not history.recorded


def test_a_workers_own_log_tells_of_it_without_its_name():
    """A pause and a budget that was exceeded are of the process whose death comes next in that log."""
    marks = [
        mark("worker.paused", "pause", 3, when=T0 - 2, rss="80 MiB", limit="100 MiB"),
        mark("nanny.memory-budget", "trouble", 4, when=T0 - 1, percent="95", identity=WHO),
        mark("nanny.killed-by-signal", "death", 5, when=T0, pid="7", signal="9", identity=WHO),
    ]
    timeline = timeline_of(marks=marks)
    (history,) = timeline.histories
    assert [each.process_bytes for each in history.samples] == [80 * 2**20, (95 * 2**20)]
    assert history.limits == MemoryLimits(worker_bytes=100 * 2**20, terminate_fraction=0.95)
    assert [(each.kind, each.identity.worker) for each in timeline.moments] == [
        ("pause", WHO.worker),
        ("trouble", WHO.worker),
    ]


def test_a_log_of_several_workers_tells_of_nobody():
    """Where two workers started before the death, a pause without a name may be of either."""
    marks = [
        mark("worker.start", "start", 1, when=T0 - 9, identity=Identity(worker="tcp://10.0.0.4:1001")),
        mark("worker.start", "start", 2, when=T0 - 9, identity=Identity(worker="tcp://10.0.0.4:1002")),
        mark("worker.paused", "pause", 3, when=T0 - 2, rss="80 MiB", limit="100 MiB"),
        mark("nanny.killed-by-signal", "death", 5, when=T0, pid="7", signal="9", identity=WHO),
    ]
    timeline = timeline_of(marks=marks)
    assert timeline.histories == ()
    assert [each.identity.worker for each in timeline.moments if each.kind == "pause"] == [None]


def test_moments_are_near_the_deaths_each_once_and_bounded():
    """A day of logs gives a handful of moments, not all of them."""
    far = mark("worker.paused", "pause", 1, when=T0 - 4000)
    twice = [mark("worker.resumed", "resume", line, when=T0 - line / 10) for line in (2, 3)]
    many = [mark("x", "trouble", line, when=T0 - 250 + 2.5 * line) for line in range(4, 104)]
    timeline = timeline_of(died(), marks=[far, *twice, *many])
    assert len([each for each in timeline.moments if each.kind == "resume"]) == 1
    assert len(timeline.moments) == MAX_MOMENTS
    assert min(each.at for each in timeline.moments) >= T0 - 300
    assert [each.at for each in timeline.moments] == sorted(each.at for each in timeline.moments)


def test_of_many_deaths_the_first_have_a_history():
    """A crash loop of hundreds does not make a diagnosis of megabytes."""
    who = [Identity(worker=f"tcp://10.0.0.4:{n}", pid=n) for n in range(1, 40)]
    exits = [died(each, T0 + number) for number, each in enumerate(who)]
    readings = [MemoryReading(identity=each, rss_bytes=9, when=T0 - 1) for each in who]
    histories = timeline_of(*exits, *readings).histories
    assert [each.identity.pid for each in histories] == list(range(1, MAX_HISTORIES + 1))


def test_without_deaths_there_is_nothing_to_draw():
    """No history and no moment."""
    timeline = timeline_of(MemoryReading(identity=WHO, rss_bytes=9, when=T0))
    assert timeline.histories == timeline.moments == ()


def test_without_deaths_the_memory_of_a_paused_worker_is_told():
    """A standstill has a victim, too: the worker that takes no new tasks."""
    marks = [mark("worker.paused", "pause", 3, when=T0, rss="80 MiB", limit="100 MiB")]
    (history,) = timeline_of(marks=marks).histories
    assert [each.process_bytes for each in history.samples] == [80 * 2**20]
    assert history.limits.worker_bytes == 100 * 2**20


def test_the_kernel_tells_of_the_control_group_and_its_limit():
    """Where the kernel killed, its report has what the group used and might use; without a time, at the death."""
    usage = Match(
        owner="kernel.oom-killer",
        sign="kernel-says-moderate",
        captures={"usage_kb": "900", "limit_kb": "1000"},
        origin="dmesg",
        line=1,
        last_line=1,
        stream="kernel",
        identity=Identity(pid=7),
    )
    killed = mark("nanny.killed-by-signal", "death", 5, when=T0, pid="7", signal="9", identity=WHO)
    (history,) = timeline_of(marks=[usage, killed]).histories
    assert history.samples == (MemorySample(at=T0, group_bytes=900 * 1024),)
    assert history.limits.group_bytes == 1000 * 1024
