"""Triage on real clusters: what one process finds is found by many, whatever dies on the way."""

from __future__ import annotations

import gzip
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from distributed import Client, LocalCluster

import workerdiag
from support.triage_work import nanny_log, triage_here
from workerdiag.triage.parts import ALIGNMENT

pytestmark = [pytest.mark.lab, pytest.mark.timeout(600)]

STORE = Path(__file__).parents[1] / "support" / "triage_store"
PATIENCE_S = 120.0


@pytest.fixture(scope="module")
def tally(tmp_path_factory):
    """Where ``tallied://`` notes the bytes of each read."""
    return tmp_path_factory.mktemp("tally") / "tally"


@pytest.fixture(scope="module")
def cluster(tally):
    """Two workers that read ``tallied://``, as do the processes that they start."""
    path = os.pathsep.join((str(STORE), os.environ.get("PYTHONPATH", ""), *sys.path))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", path)
        patch.syspath_prepend(STORE)  # processes that are spawned get the path of this one
        patch.setenv("TALLY", str(tally))
        with LocalCluster(n_workers=2, threads_per_worker=2, dashboard_address="127.0.0.1:0") as cluster:
            yield cluster


@pytest.fixture
def client(cluster):
    """A client of that cluster."""
    with Client(cluster, set_as_default=False) as client:
        yield client


def write_logs(folder, count, **wanted):
    """Logs of so many runs, every fourth packed."""
    folder.mkdir()
    for seed in range(count):
        text = nanny_log(3, seed=seed, **wanted).encode()
        name, content = (f"{seed}.log.gz", gzip.compress(text)) if seed % 4 == 3 else (f"{seed}.log", text)
        (folder / name).write_bytes(content)
    return folder


def tallied(folder):
    """The same folder where reads are noted."""
    return f"tallied://{folder}"


@pytest.fixture(autouse=True)
def _tallied_here(monkeypatch):
    """The client lists the files."""
    import fsspec

    monkeypatch.syspath_prepend(STORE)
    fsspec.register_implementation("tallied", "store.TalliedFiles", clobber=True)


def test_a_cluster_finds_what_one_process_finds(client, tmp_path):
    """Recall and precision of planted deaths are 1, in parts as in whole files, and two runs make equal bytes."""
    folder = write_logs(tmp_path / "logs", 6, calm=400)
    alone, inputs, _ = triage_here([folder], tmp_path / "alone", form="parquet")
    found = workerdiag.triage(folder, client, output=tmp_path / "one", part_bytes=ALIGNMENT)
    workerdiag.triage([folder], client, output=tmp_path / "two", part_bytes=ALIGNMENT)
    assert len(found.deaths) == 18
    assert found.deaths == alone
    assert len(found.inputs) > len(inputs)
    for table in ("deaths.parquet", "inputs.parquet"):
        assert (tmp_path / "one" / table).read_bytes() == (tmp_path / "two" / table).read_bytes()


def test_a_part_that_kills_its_worker_costs_no_other_part(client, tmp_path):
    """The deadly input is a row that says what happened; each innocent one beside it is read."""
    folder = write_logs(tmp_path / "logs", 6)
    alone, _, _ = triage_here([tallied(folder)], tmp_path / "alone")
    (folder / "2-deadly.log").write_text(nanny_log(2, seed=50))
    found = workerdiag.triage(tallied(folder), client, share=1)
    deadly = [each for each in found.inputs if "deadly" in each.url]
    assert [(each.status, "SIGKILL" in each.reason) for each in deadly] == [("failed", True)]
    assert {each.status for each in found.inputs if "deadly" not in each.url} == {"done"}
    assert found.deaths == alone


def test_a_file_that_kills_the_worker_of_its_batch_costs_no_other_file(client, tmp_path):
    """Of hundreds of small files, which go in batches, each has its row, and only the deadly one has failed."""
    folder = tmp_path / "logs"
    folder.mkdir()
    text = nanny_log(1, seed=1, calm=0)
    for seed in range(300):
        (folder / f"{seed:03}.log").write_text(text.replace(":40002", f":{40002 + seed}"))
    alone, inputs, _ = triage_here([tallied(folder)], tmp_path / "alone")
    (folder / "001-deadly.log").write_text(text)
    found = workerdiag.triage(tallied(folder), client, output=tmp_path / "out", form="jsonl", share=1)
    failed = [each for each in found.inputs if each.status == "failed"]
    assert [("deadly" in each.url, "SIGKILL" in each.reason) for each in failed] == [(True, True)]
    assert (found.deaths, len(found.inputs)) == (alone, 301)
    assert [each for each in found.inputs if each not in failed] == list(inputs)


def test_broken_inputs_change_no_other_rows(client, tmp_path):
    """Of a hundred inputs five are torn, binary, vanished, forbidden or empty: a row each, all others as without."""
    folder = write_logs(tmp_path / "logs", 95, calm=2)
    alone, _, _ = triage_here([tallied(folder)], tmp_path / "alone")
    packed = gzip.compress(nanny_log(2, seed=200).encode())
    (folder / "torn.log.gz").write_bytes(packed[:40])
    (folder / "binary.log").write_bytes(bytes(range(256)) * 20)
    (folder / "forbidden.log").write_text(nanny_log(2, seed=201))
    (folder / "empty.log").touch()
    found = workerdiag.triage([tallied(folder), tallied(folder / "vanished.log")], client)
    broken = {each.url.rpartition("/")[2]: each for each in found.inputs if each.status != "done"}
    assert {name: each.status for name, each in broken.items()} == {
        "torn.log.gz": "failed",
        "binary.log": "not-a-log",
        "forbidden.log": "failed",
        "empty.log": "empty",
        "vanished.log": "failed",
    }
    assert all(each.reason for each in broken.values())
    assert (len(found.deaths), found.deaths) == (95 * 3, alone)


def wait_until_nothing_reads(tally):
    """Wait for parts that were being read when the client died: workers end them."""
    size = -1
    while size != (size := tally.stat().st_size):
        time.sleep(2)


CLIENT = """
import sys
from distributed import Client
import fsspec, workerdiag
if __name__ == "__main__":
    client = Client(sys.argv[1], set_as_default=False)
    workerdiag.triage(sys.argv[2], client, output=sys.argv[3], form="jsonl", share=0.1)
"""


def test_a_client_that_is_killed_goes_on_where_it_was(cluster, client, tmp_path, tally):
    """After kill -9 half-way the same call reads at most 1.05 times the rest, and writes what one run would."""
    folder = tmp_path / "logs"
    folder.mkdir()
    for seed in range(40):
        (folder / f"{seed:02}-slow.log").write_text(nanny_log(1, seed=seed, calm=300))
    kept = tmp_path / "out" / "parts"
    command = [
        sys.executable,
        "-c",
        CLIENT,
        cluster.scheduler_address,
        tallied(folder),
        str(tmp_path / "out"),
    ]
    with subprocess.Popen(command) as first:
        until_s = time.monotonic() + PATIENCE_S
        while not kept.is_dir() or len(list(kept.glob("*.marks"))) < 20:
            assert time.monotonic() < until_s
            time.sleep(0.02)
        first.send_signal(signal.SIGKILL)
    wait_until_nothing_reads(tally)
    sizes = {path.name: path.stat().st_size for path in folder.iterdir()}
    done = len(list(kept.glob("*.marks")))
    rest_bytes = sum(sizes.values()) * (40 - done) / 40
    tally.unlink()
    found = workerdiag.triage(tallied(folder), client, output=tmp_path / "out", form="jsonl", share=1)
    read_bytes = sum(map(int, tally.read_text().split()))
    assert (20 <= done < 40, len(found.deaths)) == (True, 40)
    assert read_bytes <= 1.05 * rest_bytes
    whole = triage_here([tallied(folder)], tmp_path / "whole")
    assert (found.deaths, found.inputs) == whole[:2]


def test_an_interrupted_command_says_that_it_goes_on(tmp_path):
    """After Ctrl-C, which the terminal sends to all processes, there is one answer and no traceback of a worker."""
    folder, out = tmp_path / "logs", tmp_path / "out"
    folder.mkdir()
    for seed in range(60):
        (folder / f"{seed:02}.log").write_text(nanny_log(1, seed=seed, calm=20_000))
    command = [
        sys.executable,
        "-m",
        "workerdiag",
        "triage",
        str(folder),
        "--output",
        str(out),
        "--format",
        "csv",
    ]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True) as process:
        until_s = time.monotonic() + PATIENCE_S
        while not list(out.glob("parts/*.marks")):
            assert time.monotonic() < until_s
            time.sleep(0.02)
        os.killpg(process.pid, signal.SIGINT)
        _, said = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130
    assert "the same command resumes from here" in said
    assert "Traceback" not in said


def test_workers_without_workerdiag_are_told(tmp_path, monkeypatch):
    """The error names a worker and what to do."""
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\nsys.modules['workerdiag'] = None\n"  # so that nobody can import it
    )
    log = tmp_path / "a.log"
    log.write_text(nanny_log(1, seed=1))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join((str(tmp_path), *sys.path)))
    with (
        LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address="127.0.0.1:0") as cluster,
        Client(cluster, set_as_default=False) as client,
        pytest.raises(workerdiag.TriageError, match=r"not installed on tcp://.*PipInstall"),
    ):
        workerdiag.triage(log, client)
