"""Where black boxes lie: those of the dead are found, those of the living are left alone."""

from __future__ import annotations

import os
import shutil
import signal
import stat
import time
from pathlib import Path

import pytest

from workerdiag import procfs_and_cgroups
from workerdiag.recorder.box import directories
from workerdiag.recorder.box.directories import BoxName
from workerdiag.recorder.box.layout import fault_path
from workerdiag.recorder.box.writer import BoxWriter

pytestmark = pytest.mark.skipif(not hasattr(os, "posix_fallocate"), reason="a black box needs Linux")

DAY_S = 24 * 3600


def box_of_the_dead(folder, **identity):
    """Path of the box of a child that was killed."""
    pid = os.fork()
    if pid == 0:
        try:
            BoxWriter.create(folder, **identity).open_fault()
            os.kill(os.getpid(), signal.SIGKILL)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL
    (path,) = directories.find_boxes([folder], pid=pid)
    return path


@pytest.fixture
def writer(tmp_path):
    """The box of this process, which lives."""
    box = BoxWriter.create(tmp_path)
    yield box
    box.close(remove=True)


# --------------------------------------------------------------------------------------- names


@pytest.mark.parametrize(
    ("identity", "name", "read"),
    [
        ({"host": "node-1", "pid": "7", "started_ms": "12"}, "node-1-7-12.box", BoxName("node-1", 7, 12)),
        ({"host": "a/b c", "pid": "7"}, "a_b_c-7-0.box", BoxName("a_b_c", 7, 0)),
        ({"host": "é" * 99, "pid": "7"}, "_" * 64 + "-7-0.box", BoxName("_" * 64, 7, 0)),
    ],
)
def test_a_name_can_be_read_back(identity, name, read):
    """Any host's name makes a file's name from which host, pid and start can be told."""
    assert directories.box_name(identity) == name
    assert directories.parse_box_name(Path(name)) == read
    assert directories.parse_box_name(Path(directories.box_name(identity, 3))) == read


@pytest.mark.parametrize("name", ["x.box", "a-1-2.box.fault", ".a-1-2.box.1.new", "a-1-2.box\n", "a-1-2.txt"])
def test_other_names_are_no_boxes(name):
    """What else lies in the folder is not taken for a box."""
    assert directories.parse_box_name(Path(name)) is None


# ------------------------------------------------------------------------------------- folders


def test_the_environment_names_the_folder_then_dask_does(tmp_path, monkeypatch):
    """One variable in a container image, or one line of configuration, is enough."""
    import dask.config

    with dask.config.set({f"workerdiag.{directories.SETTING}": str(tmp_path / "configured")}):
        assert directories.box_directories() == (tmp_path / "configured",)
        monkeypatch.setenv(directories.VARIABLE, str(tmp_path / "environment"))
        assert directories.writable_directory() == tmp_path / "environment"
    assert (tmp_path / "environment").is_dir()


@pytest.fixture
def temporary(tmp_path, monkeypatch):
    """A folder for temporary files of one's own."""
    monkeypatch.delenv(directories.VARIABLE, raising=False)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(directories, "_SHARED_MEMORY", tmp_path / "shm")
    return tmp_path


def test_by_default_boxes_lie_among_the_temporary_files(temporary):
    """In a folder that is this user's alone."""
    folder = directories.writable_directory()
    assert folder == temporary / f"workerdiag-{os.getuid()}"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_where_room_may_be_lost_shared_memory_is_used(temporary, monkeypatch):
    """With temporary files on btrfs or NFS the box goes where room can be kept."""
    kinds = {temporary: "btrfs", temporary / "shm": "tmpfs"}
    monkeypatch.setattr(directories, "filesystem_type", lambda folder: kinds[folder.parent])
    assert directories.writable_directory().parent == temporary / "shm"


def test_a_folder_that_others_can_write_to_is_not_used(temporary):
    """Nobody can put boxes into our folder, nor a link in its place."""
    shared = temporary / f"workerdiag-{os.getuid()}"
    shared.mkdir()
    shared.chmod(0o777)
    assert directories.writable_directory() != shared
    (temporary / "shm").mkdir(exist_ok=True)
    shutil.rmtree(temporary / "shm")
    (temporary / "shm").mkdir()
    (temporary / "shm" / shared.name).symlink_to(temporary)
    with pytest.raises(OSError, match="not this user's alone"):
        directories.writable_directory()


def test_a_box_is_never_in_the_workers_local_directory(tmp_path, monkeypatch):
    """The nanny deletes that before anybody could read the box."""
    monkeypatch.setenv(directories.VARIABLE, str(tmp_path / "worker-1" / "boxes"))
    with pytest.raises(OSError, match="local directory"):
        directories.writable_directory(str(tmp_path / "worker-1"))


def test_the_kind_of_a_file_system_is_known():
    """As the kernel lists it; nothing is claimed of a folder that is not there."""
    assert directories.filesystem_type(Path("/proc/self")) == "proc"
    assert directories.filesystem_type(Path("/nowhere/at/all")) == ""


# ------------------------------------------------------------------------------------- finding


def test_boxes_of_the_dead_are_found_and_those_of_the_living_are_not(tmp_path, writer):
    """The next process on the host reports what a worker and its nanny could not."""
    dead = box_of_the_dead(tmp_path)
    assert directories.find_orphans([tmp_path]) == (dead,)
    assert not directories.is_orphan(writer.path)
    assert set(directories.find_boxes([tmp_path])) == {dead, writer.path}


def test_a_living_process_is_not_an_orphan_however_its_box_is_called(tmp_path, writer):
    """The lock counts, which holds across containers with pids of their own."""
    other = tmp_path / "elsewhere-1-2.box"
    other.hardlink_to(writer.path)
    assert directories.find_orphans([tmp_path]) == ()
    writer.identify(pid="1", started_ms="2", pid_namespace="pid:[1]")
    assert directories.find_orphans([tmp_path]) == ()
    other.unlink()


def test_a_child_that_survives_does_not_hide_the_death(tmp_path):
    """A descriptor that was passed on keeps the lock; pid and start say that the worker is gone."""
    import fcntl

    dead = box_of_the_dead(tmp_path)
    with dead.open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert directories.is_orphan(dead)


def test_a_pid_that_was_used_again_is_another_process(tmp_path):
    """Only pid and start together are the process."""
    started = procfs_and_cgroups.process_start_ms(os.getpid())
    assert procfs_and_cgroups.is_running(os.getpid(), started)
    assert not procfs_and_cgroups.is_running(os.getpid(), started - 10)
    assert procfs_and_cgroups.process_start_ms(2**22 + 1) is None


def test_a_zombie_is_gone():
    """A process that ended and was not waited for writes nothing any more."""
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    started = procfs_and_cgroups.process_start_ms(pid)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    assert not procfs_and_cgroups.is_running(pid, started)
    os.waitpid(pid, 0)


def test_after_a_restart_of_the_machine_all_are_dead(tmp_path):
    """A box of an earlier boot of this host needs no look at pids."""
    box = BoxWriter.create(tmp_path, boot_id="earlier")
    assert directories.is_orphan(box.path)
    box.close(remove=True)


def test_a_box_of_another_machine_is_dead_when_it_is_silent(tmp_path):
    """On a shared volume nobody's pids can be looked up; a recorder that lives writes every second."""
    box = BoxWriter.create(tmp_path, boot_id="other", host="elsewhere")
    box.stage("running")
    assert not directories.is_orphan(box.path)
    assert directories.is_orphan(box.path, now=time.time() + directories.SILENCE_S + 1)
    box.close(remove=True)


def test_the_latest_box_of_a_pid_comes_first(tmp_path):
    """The nanny finds the box of the process that it just saw end."""
    for started in (5, 30, 4):
        (tmp_path / f"host-77-{started}.box").touch()
    (tmp_path / "host-78-99.box").touch()
    assert [each.name for each in directories.find_boxes([tmp_path], pid=77)] == [
        "host-77-30.box",
        "host-77-5.box",
        "host-77-4.box",
    ]


def test_what_cannot_be_read_is_no_orphan(tmp_path):
    """Damaged files, folders, pipes and links are passed over, and a missing folder is empty."""
    (tmp_path / "host-1-1.box").write_bytes(b"nothing")
    (tmp_path / "host-2-1.box").mkdir()
    os.mkfifo(tmp_path / "host-3-1.box")
    (tmp_path / "host-4-1.box").symlink_to("/etc/passwd")
    assert directories.find_orphans([tmp_path, tmp_path / "missing"]) == ()
    assert not directories.is_orphan(tmp_path / "host-3-1.box")


# -------------------------------------------------------------------------- reporting, removing


def test_a_reported_box_goes_with_its_companions(tmp_path):
    """Nothing is left of a box that was discarded."""
    dead = box_of_the_dead(tmp_path)
    fault_path(dead).write_text("Fatal")
    directories.discard(dead)
    assert list(tmp_path.iterdir()) == []


def aged(path, age_s):
    os.utime(path, (time.time() - age_s,) * 2)
    return path


def test_old_boxes_of_the_dead_are_removed(tmp_path, writer):
    """After a day a box goes with all that belongs to it; one that lives stays, however long it was silent."""
    fresh = box_of_the_dead(tmp_path)
    old = aged(box_of_the_dead(tmp_path), DAY_S + 60)
    damaged = aged(_made(tmp_path / "host-1-1.box"), DAY_S + 60)
    lost = aged(_made(tmp_path / "host-2-1.box.fault"), DAY_S + 60)
    unfinished = aged(_made(tmp_path / ".host-3-1.box.1.new"), DAY_S + 60)
    foreign = aged(_made(tmp_path / "notes.txt"), DAY_S + 60)
    aged(writer.path, DAY_S * 9)
    assert set(directories.sweep([tmp_path])) == {old, damaged, lost, unfinished}
    left = {fresh, fault_path(fresh), writer.path, foreign}
    assert set(tmp_path.iterdir()) == left


def test_only_so_many_boxes_are_kept(tmp_path, monkeypatch):
    """A worker that dies every second does not fill the disk."""
    monkeypatch.setattr(directories, "MAX_RETAINED_BOXES", 2)
    paths = [aged(box_of_the_dead(tmp_path), age_s) for age_s in (30, 20, 10)]
    assert directories.sweep([tmp_path]) == (paths[0],)
    assert set(directories.find_boxes([tmp_path])) == set(paths[1:])


def test_boxes_of_the_living_take_no_room_from_those_of_the_dead(tmp_path, monkeypatch):
    """On a machine with very many workers the box of one that died stays until somebody has told of it."""
    monkeypatch.setattr(directories, "MAX_RETAINED_BOXES", 2)
    dead = aged(box_of_the_dead(tmp_path), 30)
    living = [BoxWriter.create(tmp_path) for _ in range(3)]
    assert directories.sweep([tmp_path]) == ()
    assert set(directories.find_boxes([tmp_path])) == {dead, *(each.path for each in living)}
    for each in living:
        each.close(remove=True)


def test_a_file_that_goes_while_others_are_looked_at_hides_none_of_them(tmp_path, monkeypatch):
    """On a machine where several workers die at once, their nannies remove boxes beside each other."""
    paths = {_made(tmp_path / f"host-{pid}-1.box") for pid in range(1, 6)}
    gone = []
    scan = os.scandir

    class Vanishing:
        def __init__(self, folder):
            self.entries = scan(folder)

        def __enter__(self):
            return self

        def __exit__(self, *_):
            self.entries.close()

        def __iter__(self):
            for number, entry in enumerate(self.entries):
                if number == 1:
                    Path(entry.path).unlink()
                    gone.append(Path(entry.path))
                yield entry

    monkeypatch.setattr(os, "scandir", Vanishing)
    assert set(directories.find_boxes([tmp_path])) == paths - set(gone)
    assert len(gone) == 1


def _made(path):
    path.write_bytes(b"?")
    return path
