"""What machines are asked, and how. Each test makes one promise about the probes and their way to other processes."""

from __future__ import annotations

import ast
import asyncio
import json
import logging
import os
import pickle
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from distributed.utils import sync

import workerdiag.sources.host as package
from support.hanging_peers import gives_up, hanging_script, still_running
from workerdiag import procfs_and_cgroups
from workerdiag.deadline import Deadline
from workerdiag.model.dask import PROCESS_ENDED_BY
from workerdiag.model.identity import Identity
from workerdiag.model.scene import Victim
from workerdiag.sources.host import remote_call
from workerdiag.sources.host.probes import kernel, location, machine, nannies
from workerdiag.sources.host.remote_call import UnreadableAnswerError, probe_elsewhere, probe_here
from workerdiag.sources.host.respondents import DEATH_PROBES, find_locations, is_this_machine

PROBE_FOLDER = Path(package.__file__).parent / "probes"
PROBES = [
    Path(procfs_and_cgroups.__file__),
    *(each for each in PROBE_FOLDER.glob("*.py") if each.stem != "__init__"),
]
linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


# ------------------------------------------------------------------------------------------ what is sent


@pytest.mark.parametrize("path", PROBES, ids=lambda path: path.stem)
def test_a_probe_runs_on_python_3_8_with_the_standard_library(path):
    """Its text is run where other releases of Python live: no newer syntax, no package of ours or others."""
    tree = ast.parse(path.read_text(encoding="utf-8"), feature_version=(3, 8))
    imported = [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
    names = {alias.name.split(".")[0] for node in imported if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module.split(".")[0] for node in imported if isinstance(node, ast.ImportFrom)}
    assert names <= sys.stdlib_module_names


def test_what_is_sent_is_found_by_name_in_any_python_and_answers_in_json():
    """The call that another process gets holds no byte code, and runs without workerdiag."""
    call = remote_call._call_arguments(DEATH_PROBES, {"since_s": 60, "pids": [1], "budget_s": 1})
    sent = call["function"] + call["args"]
    assert b"asyncio.threads" in sent
    assert b"CodeType" not in sent
    program = (
        "import asyncio, pickle, sys; sys.modules['workerdiag'] = None\n"
        f"print(asyncio.run(pickle.loads({call['function']!r})(*pickle.loads({call['args']!r}))))"
    )
    said = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert json.loads(said.stdout).keys() == set(DEATH_PROBES)


def test_a_probe_that_fails_does_not_take_the_others_along(monkeypatch):
    """What raises is a problem of its own; here, and where the text is sent to."""
    monkeypatch.setattr(procfs_and_cgroups, "read", lambda _: 1 / 0)
    told = probe_here(("control_groups", "location"), {})
    assert told["control_groups"] == {"problem": "ZeroDivisionError: division by zero"}
    assert told["location"]["pid"] == os.getpid()
    room = {}
    exec(remote_call._PROBE_RUNNER, room)
    sent = {
        "bad": "def read(asked): return 1 / 0",
        "worse": "def",
        "good": "def read(asked): return {'a': asked}",
    }
    told = json.loads(room["answer"](sent, 5))
    assert told["good"] == {"a": 5}
    assert "ZeroDivisionError" in told["bad"]["problem"]
    assert "SyntaxError" in told["worse"]["problem"]


# ----------------------------------------------------------------------------------------- whereabouts


def test_no_secret_is_among_the_environment(monkeypatch):
    """Handed over are names of jobs and platforms, each listed by itself; tokens that look similar are not."""
    secrets = [
        "SLURM_JWT",
        "AWS_SECRET_ACCESS_KEY",
        "AWS_SESSION_TOKEN",
        "DASK_COILED__TOKEN",
        "COILED_API_TOKEN",
    ]
    for name in [*secrets, "PBS_O_PATH", "PREFECT_API_KEY"]:
        monkeypatch.setenv(name, "hush")
    monkeypatch.setenv("SLURM_JOB_ID", "4711")
    monkeypatch.setenv("PBS_JOBID", "x" * 5000)
    told = location.read({})["environment"]
    assert told["SLURM_JOB_ID"] == "4711"
    assert "hush" not in told.values()
    assert "PBS_JOBID" not in told
    words = ("TOKEN", "SECRET", "PASSW", "KEY", "CREDENTIAL", "JWT", "COOKIE")
    assert not [name for name in location.NAMES if any(word in name for word in words)]


# ------------------------------------------------------------------------------------------- kernel log


def command(folder, name, text):
    """A program of that name, the first on the path."""
    path = folder / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


@pytest.fixture
def on_path(tmp_path, monkeypatch):
    """A folder for programs that are found before all others."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    return folder


def unreadable(*arguments):
    """As kernel.dmesg_restrict makes it."""
    raise PermissionError(1, "Operation not permitted")


@linux
def test_the_journal_is_read_where_the_ring_buffer_may_not_be(on_path, monkeypatch, tmp_path):
    """Members of adm or systemd-journal find the kernel's lines there, with the time of each."""
    monkeypatch.setattr(kernel, "_kmsg", unreadable)
    monkeypatch.setattr(kernel, "_klogctl", unreadable)
    monkeypatch.setattr(kernel, "SYSTEMD", str(tmp_path))
    now = time.time()
    lines = f"{now - 5:.6f} node7 kernel: Out of memory: Killed process 4711 (python) total-vm:1kB\n{now:.6f} node7 kernel: eth0: link up"
    command(on_path, "journalctl", f"cat <<'END'\n{lines}\nEND")
    told = kernel.read({"since_s": 60, "budget_s": 2})
    assert [text for _, text in told["lines"]] == ["Out of memory: Killed process 4711 (python) total-vm:1kB"]
    assert told["lines"][0][0] == pytest.approx(now - 5, abs=0.01)
    assert (told["read_from"], told["reaches_back"], told["drift_s"]) == ("journalctl", True, 0.0)
    assert set(told["problems"]) == {"/dev/kmsg", "dmesg"}


@linux
@gives_up
def test_a_journal_that_hangs_is_ended(on_path, monkeypatch, tmp_path):
    """A command is killed when the time of the probe is up, and what could not be read is said."""
    for name in ("_kmsg", "_klogctl"):
        monkeypatch.setattr(kernel, name, unreadable)
    monkeypatch.setattr(kernel, "SYSTEMD", str(tmp_path))
    monkeypatch.setattr(kernel, "_SYSLOG_FILES", (str(tmp_path / "kern.log"),))
    command(on_path, "journalctl", hanging_script(tmp_path / "pids"))
    told = kernel.read({"since_s": 60, "budget_s": 1.0})
    assert "lines" not in told
    assert "journalctl" in told["problems"]
    assert still_running(tmp_path / "pids") == []


@linux
@pytest.mark.parametrize("stamp", ["%b %d %H:%M:%S", "%Y-%m-%dT%H:%M:%S.000000+00:00"])
def test_the_file_of_a_syslog_daemon_is_the_last_resort(monkeypatch, tmp_path, stamp):
    """Its lines have the machine's own time, in one of two forms, and other programs' lines among them."""
    for name in ("_kmsg", "_klogctl", "_journal"):
        monkeypatch.setattr(kernel, name, unreadable)
    now = time.time()
    before, then = (time.strftime(stamp, time.localtime(now - ago)) for ago in (900, 5))
    log = tmp_path / "kern.log"
    log.write_text(
        f"{before} node7 kernel: [ 1.000000] eth0: link up\n"
        f"{then} node7 kernel: [ 9.000000] python[4711]: segfault at 0 ip 0 sp 0 error 4\n"
        f"{then} node7 cron[1]: out of memory\n"
    )
    monkeypatch.setattr(kernel, "_SYSLOG_FILES", (str(log),))
    told = kernel.read({"since_s": 60})
    assert [text for _, text in told["lines"]] == ["python[4711]: segfault at 0 ip 0 sp 0 error 4"]
    assert told["lines"][0][0] == pytest.approx(now - 5, abs=2)
    assert (told["read_from"], told["reaches_back"]) == ("files", True)


def test_of_a_flood_the_latest_is_kept():
    """A kernel that writes without end is told of in 256 kB."""
    lines = [[float(number), "x" * 1000] for number in range(1000)]
    kept = kernel._latest_lines(lines)
    assert kept[-1] == lines[-1]
    assert sum(len(text) for _, text in kept) <= kernel.MAX_BYTES


# ---------------------------------------------------------------------------------------------- machine


@gives_up
def test_a_disk_that_hangs_is_left_and_said(monkeypatch, request):
    """A network mount whose server is gone does not hold up the other answers."""
    back = threading.Event()
    request.addfinalizer(back.set)
    space = machine._disk_space
    monkeypatch.setattr(machine, "_disk_space", lambda path: back.wait() if str(path) == "/nfs" else space(path))
    nfs, here = machine._disk_facts([("/nfs", "local directory"), (str(Path.cwd()), "temporary")], 0.3)
    assert "no answer" in nfs["problem"]
    assert here["size_bytes"] > 0


def test_a_removed_directory_is_looked_for_further_up(tmp_path):
    """A worker's directory goes with it; the file system is still there."""
    assert machine._disk_space(tmp_path / "gone" / "worker-x")["size_bytes"] > 0


@pytest.mark.parametrize(("ago_s", "is_told"), [(30, True), (90000, False)])
def test_a_core_dump_of_before_is_not_told(on_path, ago_s, is_told):
    """systemd-coredump keeps them for days, and pids come again: only a recent one is of the process in question."""
    stamp = time.strftime("%a %Y-%m-%d %H:%M:%S UTC", time.gmtime(time.time() - ago_s))
    command(on_path, "coredumpctl", f'[ "$3" = 4711 ] && echo "  PID: $3 (python3)\n  Timestamp: {stamp} (now)"')
    cores = machine.read({"pids": [4711, 4712], "since_s": 600})["cores"]
    assert len(cores) == (1 if is_told else 0)


def test_a_port_tells_whether_its_server_is_gone():
    """On its own machine a server that ended refuses connections, and one that lives takes them."""
    import socket

    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"tcp://127.0.0.1:{server.getsockname()[1]}"
        assert machine._listens(address) == "yes"
    assert machine._listens(address) == "no"
    assert machine._listens("inproc://10.0.0.7/1/1") == "unknown"


# ------------------------------------------------------------------------------------ answers of others


def sync_on(loop):
    """The method of a client whose event loop is *loop*."""
    of_client = SimpleNamespace(asyncio_loop=loop, add_callback=loop.call_soon_threadsafe)

    def run(call, *, asynchronous, callback_timeout):
        sync(of_client, call, callback_timeout=callback_timeout)

    return run


def client(answer, *, is_silent=False, status="running"):
    """What of a client is needed: a scheduler whose broadcast gives *answer*, on a loop in another thread."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, daemon=True).start()

    async def heard():
        if is_silent:
            await asyncio.Event().wait()

    async def broadcast(**message):
        await heard()
        return dict.fromkeys(message["workers"], answer)

    async def identity(**options):
        return {"workers": {"tcp://10.0.0.7:9": {"nanny": "tcp://10.0.0.7:41001"}}}

    async def run_function(**call):
        await heard()
        return answer

    scheduler = SimpleNamespace(
        broadcast=broadcast, identity=identity, run_function=run_function, address="tcp://10.0.0.1:8786"
    )
    return SimpleNamespace(scheduler=scheduler, status=status, sync=sync_on(loop))


FORBIDDEN = ValueError(
    "The 'run' handler has been explicitly disallowed in Nanny, possibly due to security concerns."
)


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (pickle.dumps(OSError("Timed out trying to connect")), ConnectionError),
        (pickle.dumps(FORBIDDEN), PermissionError),
        ({"status": "error", "text": "boom"}, ConnectionError),
        ({"status": "OK", "result": 5}, UnreadableAnswerError),
        ({"status": "OK", "result": "x" * 100_000_000}, UnreadableAnswerError),
        ({"status": "OK", "result": "<html>"}, ValueError),
        (None, UnreadableAnswerError),
    ],
    ids=["unreachable", "forbidden", "failed", "number", "100-MB", "garbage", "nothing"],
)
def test_whatever_comes_back_is_an_answer_or_a_problem(answer, problem):
    """Each way in which another process may fail to answer has its own exception, and none else is raised."""
    asked = probe_elsewhere(client(answer), "tcp://10.0.0.7:1", ("location",), {}, Deadline.after(1))
    with pytest.raises(problem):
        asyncio.run(asked)


def test_an_answer_of_a_nanny_is_its_place():
    """Where the nanny is, what its clock says, and its job are told; the scheduler's are as well."""
    told = {
        "now": time.time() + 100,
        "hostname": "node7",
        "boot_id": "b",
        "environment": {"SLURM_JOB_ID": "5"},
        "cgroups": ["0::/a"],
    }
    answer = {"status": "OK", "result": json.dumps({"location": told})}
    victim = Victim(identity=Identity(worker="tcp://10.0.0.7:5", nanny="tcp://10.0.0.7:41001", host="10.0.0.7"))
    places, gaps = find_locations(client(answer), [victim], Deadline.after(2))
    assert (sorted(each.role for each in places), gaps) == (["client", "nanny", "scheduler"], [])
    nanny = next(each for each in places if each.role == "nanny")
    assert (nanny.hostname, nanny.environment, nanny.cgroups) == ("node7", {"SLURM_JOB_ID": "5"}, {"": "/a"})
    assert nanny.clock_ahead_s == pytest.approx(100, abs=1)
    assert nanny.identity.host == "10.0.0.7"


@gives_up
def test_silence_is_not_waited_for():
    """Nannies and schedulers that do not answer are gaps in time, and this process is told of all the same."""
    victim = Victim(identity=Identity(worker="tcp://10.0.0.7:5", nanny="tcp://10.0.0.7:41001", host="10.0.0.7"))
    places, gaps = find_locations(client(None, is_silent=True), [victim], Deadline.after(0.5))
    assert [each.role for each in places] == ["client"]
    assert {each.reason for each in gaps} == {"timed-out"}


@pytest.mark.parametrize("status", ["closed", "connecting"])
def test_a_client_that_is_not_connected_is_not_asked(status):
    """Then only this process is told of, and the cluster's own gaps say why."""
    places, gaps = find_locations(client(None, is_silent=True, status=status), [], Deadline.after(1))
    assert ([each.role for each in places], gaps) == (["client"], [])


@pytest.mark.parametrize(
    ("host", "here"),
    [
        ("127.0.0.1", True),
        ("localhost", True),
        ("::1", True),
        ("192.0.2.7", False),
        ("node7.example", False),
        (None, False),
        ("", False),
    ],
)
def test_own_addresses_are_known_without_asking_anybody(host, here):
    """Loopback and the machine's own addresses are here; names are not looked up."""
    assert is_this_machine(host) is here


def test_places_and_source_do_not_load_dask():
    """To find out that nothing is to be asked costs next to nothing."""
    program = (
        "import sys; from workerdiag.sources.host.source import HostSource; from workerdiag.model.scene import Scene\n"
        "HostSource.of(Scene()); print('distributed' in sys.modules)"
    )
    said = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert said.stdout.strip() == "False"


@pytest.mark.parametrize(
    ("text", "level", "ends", "is_sure"),
    [
        ("Restarting worker", "INFO", [], True),
        ("Restarting worker", "WARNING", [], False),
        ("Worker process 7 was killed by signal 9", "INFO", [[7, 9, 1000.0]], True),
        ("Worker process 7 was killed by unknown signal", "INFO", [], False),
    ],
)
def test_a_nanny_is_silent_of_an_exit_only_where_it_notes_all_others(text, level, ends, is_sure, monkeypatch):
    """Nothing noted means status 0, but with a log of warnings, and where a signal was not learned."""
    nanny = SimpleNamespace(get_logs=lambda **_: [(1000.0, "INFO", text)])
    fake = SimpleNamespace(Nanny=SimpleNamespace(_instances=[nanny]))
    monkeypatch.setitem(sys.modules, "distributed.nanny", fake)
    monkeypatch.setattr(time, "time", lambda: 1100.0)
    logger = logging.getLogger("distributed.nanny")
    before = logger.level
    logger.setLevel(level)
    said = nannies.read({"ended": PROCESS_ENDED_BY})
    logger.setLevel(before)
    assert (said["ends"], said["noted_until"] > 1000.0) == (ends, is_sure)
