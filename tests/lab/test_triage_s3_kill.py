"""A client that is killed while its workers read from a store that speaks S3 goes on where it was."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time

import pytest
from distributed import Client, LocalCluster

import workerdiag
from support.triage_work import nanny_log, triage_here

pytest.importorskip("s3fs", reason="s3fs needs another botocore than boto3 does: nox -s lab_s3")
pytest.importorskip("localbucket")

from support.s3_server import s3_store

pytestmark = [pytest.mark.lab, pytest.mark.timeout(600)]

PATIENCE_S = 120.0
COUNT = 150

CLIENT = """
import json, sys
from distributed import Client
import workerdiag
if __name__ == "__main__":
    client = Client(sys.argv[1], set_as_default=False)
    workerdiag.triage("s3://logs/", client, output=sys.argv[2], form="jsonl", storage_options=json.loads(sys.argv[3]))
"""


def test_objects_whose_outcome_is_kept_are_not_read_again(tmp_path):
    """After kill -9 half-way the second run reads each object that is left once, and writes what one run would."""
    out = tmp_path / "out"
    with (
        s3_store(tmp_path / "store") as store,
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address="127.0.0.1:0") as cluster,
    ):
        for seed in range(COUNT):
            store.put(f"{seed:03}.log", nanny_log(1, seed=seed, calm=2).encode())
        command = [
            sys.executable,
            "-c",
            CLIENT,
            cluster.scheduler_address,
            str(out),
            json.dumps(store.storage_options),
        ]
        with subprocess.Popen(command) as first:
            until_s = time.monotonic() + PATIENCE_S
            while len(list(out.glob("parts/*.marks"))) < COUNT // 3:
                assert time.monotonic() < until_s
                time.sleep(0.01)
            first.send_signal(signal.SIGKILL)
        count = -1
        while count != (count := len(store.reads)):  # workers end what they were reading
            time.sleep(1)
        left = COUNT - len(list(out.glob("parts/*.marks")))
        store.reads.clear()
        with Client(cluster, set_as_default=False) as client:
            found = workerdiag.triage(
                store.url(), client, output=out, form="jsonl", storage_options=store.storage_options
            )
        read = [key for key, _ in store.reads]
        whole = triage_here([store.url()], tmp_path / "whole", storage_options=store.storage_options)
    assert 0 < left < COUNT
    assert (len(set(read)), len(read)) == (left, left)
    assert (found.deaths, found.inputs) == whole[:2]
