"""The page of deaths in a real scheduler process, of which a worker is really killed."""

from __future__ import annotations

import json
import os
import re
import signal
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

import workerdiag

from .processes import PATIENCE_S, wait_until

pytestmark = [pytest.mark.lab, pytest.mark.usefixtures("boxes")]

PRELOADS = {
    f"DASK_DISTRIBUTED__{process}__PRELOAD": '["workerdiag.recorder.preload"]'
    for process in ("NANNY", "WORKER", "SCHEDULER")
}
#: Rooms of the package that a scheduler must not load. The command ``dask`` itself loads a few others.
HEAVY = ("correlation", "matching", "pipeline", "rulebook", "scoring")


def http_port(dask_scheduler):
    """The port of the scheduler's web server, which it has also without a dashboard."""
    return dask_scheduler.http_server.port


def loaded_rooms():
    """The rooms of our package that a process has loaded."""
    import sys

    return sorted({name.split(".")[1] for name in sys.modules if name.startswith("workerdiag.")})


class Server:
    """The web server of a client's scheduler."""

    def __init__(self, client):
        self.base = f"http://127.0.0.1:{client.run_on_scheduler(http_port)}"

    def get(self, path):
        with urlopen(f"{self.base}/{path}", timeout=PATIENCE_S) as reply:
            return reply.read().decode()

    def deaths(self):
        return json.loads(self.get("workerdiag/deaths.json"))

    def counted(self):
        """The lines of our counter in the metrics that are not zero."""
        lines = self.get("metrics").splitlines()
        return [line for line in lines if re.match(r"workerdiag_deaths_total\{.*[1-9]\d*\.0$", line)]


def kill_a_worker(client):
    """``kill -9`` of one worker process; its address."""
    address, pid = next(iter(client.run(os.getpid).items()))
    os.kill(pid, signal.SIGKILL)
    return address


@pytest.mark.common
def test_a_killed_worker_is_on_the_page(lab):
    """By configuration alone: a row, a report, one in the counter, and nothing that reasons in the scheduler."""
    lab.scheduler(**PRELOADS)
    lab.worker(name="<b onclick=alert(1)>", env=PRELOADS)
    client = lab.client()
    server = Server(client)
    assert server.deaths()["cases"] == []
    assert "deaths-rows" in server.get("deaths")
    address = kill_a_worker(client)
    (row,) = wait_until(lambda: server.deaths()["cases"], "the death to be judged", within_s=3 * PATIENCE_S)
    assert row["cause"] == "external.sigkill"
    assert [(each["worker"], each["name"]) for each in row["workers"]] == [(address, "<b onclick=alert(1)>")]
    assert max(row["workers"][0]["memory"]["rss_bytes"]) > 2**20
    report = server.get(row["report"])
    assert "SIGKILL" in report
    assert "<b onclick" not in report
    assert not set(client.run_on_scheduler(loaded_rooms)) & set(HEAVY)
    if "dask_scheduler_workers" in server.get("metrics"):  # prometheus-client is installed
        assert len(server.counted()) == 1


def test_install_brings_the_page_and_uninstall_takes_it(lab):
    """On a cluster that runs already, and without a trace afterwards."""
    lab.scheduler()
    lab.worker()
    client = lab.client()
    server = Server(client)
    with pytest.raises(HTTPError):
        server.get("deaths")
    workerdiag.install(client)
    assert server.deaths()["death_count"] == 0
    kill_a_worker(client)
    wait_until(lambda: server.deaths()["death_count"], "the death to be judged", within_s=3 * PATIENCE_S)
    workerdiag.uninstall(client)
    for path in ("deaths", "individual-deaths", "workerdiag/deaths.json"):
        with pytest.raises(HTTPError):
            server.get(path)
