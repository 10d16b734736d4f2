"""What a store that speaks S3 refuses, loses or changes between two triages; read in this process by s3fs."""

from __future__ import annotations

import gzip
import random

import pytest

pytest.importorskip("s3fs", reason="s3fs needs another botocore than boto3 does: nox -s lab_s3")
pytest.importorskip("localbucket")

from support.s3_server import SECRET, s3_store
from support.triage_work import nanny_log, triage_here
from workerdiag.triage.outcome import TriageFolder
from workerdiag.triage.scan import ScanSettings
from workerdiag.triage.work import TriageWork

pytestmark = pytest.mark.lab


@pytest.fixture
def store(tmp_path):
    with s3_store(tmp_path / "store") as store:
        yield store


def put_logs(store, count, **wanted):
    """So many logs of two deaths each, every fifth packed."""
    for seed in range(count):
        text = nanny_log(2, seed=seed, **wanted).encode()
        if seed % 5 == 4:
            store.put(f"run-{seed}/nanny.log.gz", gzip.compress(text))
        else:
            store.put(f"run-{seed}/nanny.log", text)


def triaged(store, tmp_path, *urls, **wanted):
    """Deaths and inputs of a triage of URLs."""
    return triage_here(urls, tmp_path, storage_options=store.storage_options, **wanted)[:2]


def test_broken_objects_change_no_other_row(store, tmp_path):
    """Torn, binary, vanished, forbidden and cut off: a row each that says why, and all others as without them."""
    put_logs(store, 15, calm=2)
    alone = triaged(store, tmp_path / "alone", store.url())
    text = nanny_log(2, seed=200).encode()
    store.put("torn.log.gz", gzip.compress(text)[:-30])
    store.put("binary.log", random.Random(1).randbytes(4096))
    store.put("vanished.log", text, "vanished")
    store.put("forbidden.log", text, "forbidden")
    store.put("cut.log", text, "torn")
    deaths, inputs = triaged(store, tmp_path / "out", store.url())
    broken = {each.url.rpartition("/")[2]: each for each in inputs if each.status != "done"}
    assert {name: each.status for name, each in broken.items()} == {
        "torn.log.gz": "failed",
        "binary.log": "not-a-log",
        "vanished.log": "failed",
        "forbidden.log": "failed",
        "cut.log": "failed",
    }
    assert "no such file" in broken["vanished.log"].reason
    assert "forbidden" in broken["forbidden.log"].reason
    assert all(each.reason for each in broken.values())
    names = {each.url for each in broken.values()}
    assert [each for each in deaths if each.url not in names] == list(alone[0])
    assert [each for each in inputs if each.url not in names] == list(alone[1])


def test_only_objects_that_changed_are_read_again(store, tmp_path):
    """The tag of an object tells, also where size and name stay; what failed is tried again."""
    put_logs(store, 4)
    store.put("run-9/nanny.log", nanny_log(1, seed=9).encode(), "forbidden")
    first, _ = triaged(store, tmp_path / "out", store.url())
    store.troubles.clear()
    store.put("run-2/nanny.log", nanny_log(2, seed=2).replace("signal 11", "signal 06").encode())
    settings = ScanSettings(storage_options=store.storage_options)
    kept = TriageFolder(tmp_path / "out", "jsonl")
    again = TriageWork(given=(store.url(),), settings=settings, memory_bytes=2**31, folder=kept)
    assert [part.file.url for _, part in again.jobs()] == [store.url(f"run-{n}/nanny.log") for n in (2, 9)]
    deaths, _ = triaged(store, tmp_path / "out", store.url())
    assert (len(first), len(deaths)) == (8, 9)


def test_a_store_that_does_not_answer_is_a_row(tmp_path):
    """The error is that of the URL, not of the triage."""
    with s3_store(tmp_path / "store") as store:
        pass
    deaths, inputs = triaged(store, tmp_path / "out", store.url("a.log"))
    assert (deaths, [each.status for each in inputs]) == ((), ["failed"])


def test_no_secret_of_a_store_is_kept(store, tmp_path):
    """Neither in tables nor in what is kept of parts."""
    put_logs(store, 2)
    triaged(store, tmp_path / "out", store.url())
    kept = b"".join(path.read_bytes() for path in (tmp_path / "out").rglob("*") if path.is_file())
    assert SECRET.encode() not in kept
