"""What we advise to type changes no answer: the same question after each command is answered as before."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

import pytest
from distributed import Client, LocalCluster, wait

import workerdiag

from .processes import PATIENCE_S

pytestmark = [pytest.mark.lab, pytest.mark.timeout(300)]

#: Commands of rules and shared advice that can be typed on a healthy cluster after a task failed.
COMMANDS: dict[str, Callable[[Client, object], object]] = {
    "recreate the error": lambda client, future: client.recreate_error_locally(future),
    "recreate the task": lambda client, future: client.recreate_task_locally(future),
    "versions": lambda client, _: client.get_versions(check=True),
    "logs of nannies": lambda client, _: client.get_worker_logs(nanny=True),
    "call stacks": lambda client, _: client.call_stack(),
    "story": lambda client, future: client.story(future.key),
    "events": lambda client, _: client.get_events("worker-restart-memory"),
    "a function on the workers": lambda client, _: client.run(os.getpid),
    "rebalance": lambda client, _: client.rebalance(),
    "the recorder": lambda client, _: workerdiag.install(client),
    "restart a worker": lambda client, _: client.restart_workers([_any_worker(client)]),
    "retire a worker": lambda client, _: client.retire_workers([_any_worker(client)]),
    "restart all": lambda client, _: client.restart(),
}


def _any_worker(client: Client) -> str:
    return next(iter(client.scheduler_info(n_workers=-1)["workers"]))


def test_what_we_advise_changes_no_answer():
    """A death lies around and a task has failed on its own: after each command both are told as before."""
    with (
        LocalCluster(n_workers=3, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        worker = _any_worker(client)
        os.kill(client.run(os.getpid, workers=[worker])[worker], signal.SIGSEGV)
        client.wait_for_workers(3, timeout=PATIENCE_S)
        future = client.submit(divmod, 1, 0)
        wait(future, timeout=PATIENCE_S)
        caught = future.exception(timeout=PATIENCE_S)

        def answers() -> list[object]:
            found = [workerdiag.explain(each, client, timeout="30s") for each in (caught, None)]
            return [(each.outcome, each.top.id if each.top else None) for each in found]

        before = answers()
        assert before[1] == ("explained", "signal.segfault")
        for name, command in COMMANDS.items():
            try:
                command(client, future)
            except ZeroDivisionError:
                assert name.startswith("recreate")
            assert answers() == before, name
