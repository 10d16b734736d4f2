"""The control group of a process: which one it is, and what it counts and allows."""

from __future__ import annotations

import pytest

from workerdiag import procfs_and_cgroups
from workerdiag.procfs_and_cgroups import ControlGroup, MemoryCounters

V1 = {
    "memory.usage_in_bytes": "500",
    "memory.limit_in_bytes": "9223372036854771712",
    "memory.max_usage_in_bytes": "800",
    "memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 2",
}
V2 = {
    "memory.current": "500",
    "memory.max": "max",
    "memory.peak": "800",
    "memory.events": "low 0\noom 1\noom_kill 2",
}


def tree(root, files):
    """A folder of control files."""
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


@pytest.fixture
def kernel_says(monkeypatch):
    """What the kernel says of this process: its groups, and what is mounted as root, place and kind."""

    def say(groups, *mounts):
        files = {
            "/proc/self/cgroup": "\n".join(groups),
            "/proc/self/mountinfo": "".join(
                f"{number} 31 0:32 {root} {place} rw - {kind}\n"
                for number, (root, place, kind) in enumerate(mounts)
            ),
        }
        read = procfs_and_cgroups._read_text
        monkeypatch.setattr(procfs_and_cgroups, "_read_text", lambda path: files.get(str(path)) or read(path))

    return say


def group_at(folder, version, mount=None):
    """A group in that folder."""
    return ControlGroup(folder=folder, mount=mount or folder, path="/", version=version)


def test_groups_of_both_versions_are_told():
    """Each controller has its path, version 2 the empty name, and one mount may have several controllers."""
    text = "5:cpu,cpuacct:/job7\n4:memory:/job7/step0\n1:name=systemd:/x\n0::/user.slice\n"
    assert dict(procfs_and_cgroups.group_paths(text.splitlines())) == {
        "cpu": "/job7",
        "cpuacct": "/job7",
        "memory": "/job7/step0",
        "name=systemd": "/x",
        "": "/user.slice",
    }


@pytest.mark.parametrize(
    ("line", "kind", "files"),
    [("0::/pod/app", "cgroup2 cgroup2 rw", V2), ("5:cpu,memory:/pod/app", "cgroup cgroup rw,memory", V1)],
)
@pytest.mark.parametrize("is_outside", [True, False])
def test_counters_of_both_versions(tmp_path, kernel_says, line, kind, files, is_outside):
    """They come with the least limit of the groups above; in a container the group is what is mounted."""
    own = tree(tmp_path / "pod/app" if is_outside else tmp_path, files)
    if is_outside:
        (own.parent / list(files)[1]).write_text("1000")
    kernel_says(["1:name=systemd:/x", line], ("/", tmp_path, kind))
    group = procfs_and_cgroups.find_memory_group()
    assert (group.version, group.folder) == (2 if files is V2 else 1, own)
    assert group.memory_counters() == MemoryCounters(500, 1000 if is_outside else None, 2, 800)


def test_a_group_that_counts_nothing_is_none(tmp_path, kernel_says):
    """The root of version 2 has no memory.current."""
    kernel_says(["0::/"], ("/", tree(tmp_path, {"cgroup.controllers": "memory"}), "cgroup2 cgroup2 rw"))
    assert procfs_and_cgroups.find_memory_group() is None
    assert procfs_and_cgroups.read({})["is_root"] is True


def test_version_2_counts_kills_refusals_and_pressure(tmp_path, kernel_says):
    """The counters of memory.events, the peak, the pressure and the refused processes are told."""
    files = {
        "memory.current": "1\n",
        "memory.events": "low 0\nhigh 17\nmax 225\noom 4\noom_kill 4\noom_group_kill 0\n",
        "memory.peak": "419430400\n",
        "memory.swap.max": "max\n",
        "memory.pressure": "some avg10=1.00 avg60=0 total=1\nfull avg10=74.10 avg60=0 total=1\n",
        "cgroup.events": "populated 1\n",
        "cgroup.controllers": "memory pids\n",
        "pids.events": "max 3\n",
    }
    kernel_says(["0::/"], ("/", tree(tmp_path, files), "cgroup2 cgroup2 rw"))
    facts = procfs_and_cgroups.read({})
    assert (facts["high"], facts["oom_kill"], facts["peak_bytes"], facts["full_avg10"]) == (
        17,
        4,
        419430400,
        74.1,
    )
    assert (facts["is_root"], facts["swap_limit_bytes"], facts["pids_refused"]) == (False, None, 3)
    assert "memory_limit_bytes" not in facts


def test_a_kill_in_a_group_below_is_none_of_this_group(tmp_path):
    """Version 2 counts it in memory.events of all groups above, and not in memory.events.local."""
    files = {
        "memory.events": "max 5\noom 2\noom_kill 2\n",
        "memory.events.local": "max 0\noom 0\noom_kill 0\n",
    }
    assert group_at(tree(tmp_path, files), 2).events() == {"max": 5, "oom": 2, "oom_kill": 0}


def test_a_kernel_that_counts_no_kills_has_no_count(tmp_path):
    """Those before 4.13 have none in memory.oom_control."""
    tree(tmp_path, {"memory.oom_control": "oom_kill_disable 0\nunder_oom 0\n"})
    assert group_at(tmp_path, 1).events() == {}


def test_the_tightest_limit_above_counts(tmp_path):
    """A Slurm step has none of its own: the job's is what kills; "max" and the largest number are none."""
    limits = {
        "memory.max": "max\n",
        "slurm/job7/memory.max": "500000000\n",
        "slurm/job7/step0/memory.max": "max\n",
        "slurm/memory.max": "9223372036854771712\n",
    }
    mount = tree(tmp_path, limits)
    group = group_at(mount / "slurm/job7/step0", 2, mount)
    assert group.memory_limit() == (500_000_000, "/slurm/job7")


def test_a_group_is_looked_for_in_every_mount_before_the_mounts_themselves(tmp_path, kernel_says):
    """A part of the hierarchy may be mounted over the whole: the counters of that part's root are not ours."""
    mount = tree(tmp_path / "memory", {"memory.usage_in_bytes": "1", "job7/step0/memory.usage_in_bytes": "5"})
    kinds = "cgroup cgroup rw,memory"
    kernel_says(["4:memory:/batch/job7/step0"], ("/", mount, kinds), ("/batch", mount, kinds))
    assert procfs_and_cgroups.find_memory_group() == (mount / "job7/step0", mount, "/batch/job7/step0", 1)


def test_without_proc_there_is_no_group(monkeypatch):
    """As on macOS: nothing is known and nothing fails."""
    monkeypatch.setattr(procfs_and_cgroups, "_read_text", lambda _: "")
    assert procfs_and_cgroups.find_memory_group() is None
    assert procfs_and_cgroups.read({}) == {}
