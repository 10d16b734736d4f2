"""Triage of objects behind a server that speaks S3, read by s3fs."""

from __future__ import annotations

import gzip
import socket
import subprocess
import sys
import time

import pytest
from attrs import evolve
from distributed import Client, LocalCluster

import workerdiag
from support.triage_work import nanny_log, triage_here
from workerdiag.triage.parts import ALIGNMENT

pytest.importorskip("s3fs", reason="s3fs needs another botocore than boto3 does: nox -s lab_s3")
pytest.importorskip("localbucket")
pytestmark = [pytest.mark.lab, pytest.mark.timeout(600)]

PATIENCE_S = 60.0


@pytest.fixture
def store(tmp_path):
    """The folder of a server's buckets, and what fsspec needs to ask it."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    root = tmp_path / "buckets"
    (root / "logs").mkdir(parents=True)
    command = [sys.executable, "-m", "localbucket", str(root), "--port", str(port)]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as server:
        until_s = time.monotonic() + PATIENCE_S
        while socket.socket().connect_ex(("127.0.0.1", port)):
            assert time.monotonic() < until_s
            time.sleep(0.05)
        yield root / "logs", {"endpoint_url": f"http://127.0.0.1:{port}", "key": "key", "secret": "secret"}
        server.terminate()


def test_objects_are_triaged_as_local_files_are(store, tmp_path):
    """The same deaths at the same places, by ranges and packed; the tag of each object is in the manifest."""
    bucket, options = store
    for seed in range(4):
        (bucket / f"run-{seed}").mkdir()
        text = nanny_log(3, seed=seed, calm=700).encode()
        (bucket / f"run-{seed}" / "nanny.log").write_bytes(text)
        (bucket / f"run-{seed}" / "packed.log.gz").write_bytes(gzip.compress(nanny_log(2, seed=seed + 50).encode()))
    (bucket / "run-3" / "torn.log.gz").write_bytes(gzip.compress(nanny_log(2, seed=90).encode())[:50])
    alone, _, _ = triage_here([bucket], tmp_path / "alone", folders=f"{bucket}/*/")
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address="127.0.0.1:0") as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        found, again = (
            workerdiag.triage(
                ["s3://logs/", "s3://logs/run-0/vanished.log"],
                client,
                output=tmp_path / name,
                runs="s3://logs/*/",
                part_bytes=ALIGNMENT,
                storage_options=options,
            )
            for name in ("one", "two")
        )
    here = [evolve(each, url=each.url.replace(str(bucket), "s3://logs"), run="") for each in alone]
    assert [evolve(each, run="") for each in found.deaths] == here
    assert (len(here), found.deaths) == (20, again.deaths)
    assert (tmp_path / "one/inputs.parquet").read_bytes() == (tmp_path / "two/inputs.parquet").read_bytes()
    bad = {each.url: each.status for each in found.inputs if each.status != "done"}
    assert bad == {"s3://logs/run-0/vanished.log": "failed", "s3://logs/run-3/torn.log.gz": "failed"}
    assert all(each.etag for each in found.inputs if not each.url.endswith("vanished.log"))
