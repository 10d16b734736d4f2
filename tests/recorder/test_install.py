"""`workerdiag.install` and `workerdiag.uninstall`, on clusters that are there in name only."""

from __future__ import annotations

import asyncio
import pickle

import pytest

import workerdiag
from workerdiag.errors import InstallError
from workerdiag.recorder import install, nanny, worker
from workerdiag.recorder.recording import recorder_status
from workerdiag.wire import PLUGIN_NAME

HERE, THERE = "tcp://10.0.0.4:1", "tcp://10.0.0.5:1"


class FakeClient:
    """A cluster of two workers, as far as it is asked."""

    status = "running"

    def __init__(self, *, missing_on=(), forbidden=False, failing=None):
        self.missing_on = missing_on
        self.forbidden = forbidden
        self.failing = failing
        self.plugins = []

    def sync(self, call, *arguments, **options):
        return asyncio.run(call(*arguments, **options))

    async def run_on_scheduler(self, function, *arguments):
        if self.forbidden:
            raise ValueError("The 'run_function' handler has been explicitly disallowed in Scheduler")
        if function is install.remove_from_scheduler:
            self.plugins = [each for each in self.plugins if each != "scheduler"]
            return None
        if "scheduler" in self.missing_on:
            raise ModuleNotFoundError("No module named 'workerdiag'")
        return function(*arguments)

    async def run(self, function, *arguments, nanny=False, on_error):
        assert on_error == "return"
        if function is recorder_status and not nanny:
            return {
                HERE: {"is_recording": True, "missing": {}},
                THERE: {"is_recording": False, "missing": {"box": "no black box"}},
            }
        if arguments:
            gone = ModuleNotFoundError("No module named 'workerdiag'")
            return {each: gone if each in self.missing_on and nanny else 1 for each in (HERE, THERE)}
        return {HERE: {"is_recording": True, "missing": {}}, THERE: OSError("closed")}

    async def register_plugin(self, plugin, name):
        assert name == PLUGIN_NAME
        assert type(pickle.loads(pickle.dumps(plugin))) is type(plugin)
        kind = type(plugin).__name__.removeprefix("Recorder").lower()
        if kind == self.failing:
            raise RuntimeError("no")
        self.plugins.append(kind)

    async def unregister_worker_plugin(self, name, *, nanny=False):
        kind = "nanny" if nanny else "worker"
        if name != PLUGIN_NAME or kind not in self.plugins:
            raise ValueError(f"The {kind} plugin {name} does not exist")
        self.plugins.remove(kind)


def test_a_closed_client_is_told_of():
    """The error says that, and not which attribute of distributed is None by then."""
    client = FakeClient()
    client.status = "closed"
    with pytest.raises(InstallError, match="the client is closed"):
        install.install(client)


def test_installing_tells_where_it_records_and_what_it_does_without():
    """As the processes themselves say, one by one."""
    client = FakeClient()
    installed = workerdiag.install(client)
    assert client.plugins == ["scheduler", "nanny", "worker"]
    assert (installed.scheduler, installed.workers, installed.nannies) == (True, (HERE,), (HERE,))
    assert installed.missing == {
        THERE: ("no black box",),
        f"nanny of {THERE}": ("it does not answer: closed",),
    }
    assert str(installed).splitlines()[0] == (
        "The flight recorder runs in 1 worker, 1 nanny and the scheduler; workers that join later record too."
    )
    installed.uninstall()
    assert client.plugins == []


@pytest.mark.parametrize("where", ["scheduler", THERE])
def test_where_workerdiag_is_missing_nothing_is_installed(where):
    """The error names the place and what to do."""
    client = FakeClient(missing_on=(where,))
    with pytest.raises(InstallError, match=rf"{where}.*No module named 'workerdiag' \(install workerdiag"):
        workerdiag.install(client)
    assert client.plugins == []


def test_an_install_error_names_the_first_few_places():
    """A large cluster without workerdiag makes no large message, and the error survives being pickled."""
    problem = install._missing_package_error([f"worker-{n}" for n in range(1000)], ImportError("no"))
    assert problem.where == (*[f"worker-{n}" for n in range(5)], "995 more")
    assert str(pickle.loads(pickle.dumps(problem))) == str(problem)


def test_a_scheduler_that_runs_no_foreign_code_is_done_without():
    """Workers and nannies record all the same, and `missing` says why the scheduler does not."""
    client = FakeClient(forbidden=True)
    installed = workerdiag.install(client)
    assert client.plugins == ["nanny", "worker"]
    assert not installed.scheduler
    assert "blocked-handlers" in installed.missing["scheduler"][0]
    workerdiag.uninstall(client)
    assert client.plugins == []


def test_the_scheduler_can_be_left_out():
    """Then nothing is even asked there."""
    client = FakeClient(missing_on=("scheduler",))
    assert not workerdiag.install(client, scheduler=False).scheduler
    assert client.plugins == ["nanny", "worker"]


def test_what_fails_half_way_is_taken_back():
    """The caller gets the error of the cluster, and the cluster is as before."""
    client = FakeClient(failing="worker")
    with pytest.raises(RuntimeError, match="no"):
        workerdiag.install(client)
    assert client.plugins == []


def test_plugins_are_known_by_one_name_and_installed_once():
    """Dask ignores an idempotent plugin whose name it knows."""
    for plugin in (worker.RecorderWorker(), nanny.RecorderNanny()):
        assert (plugin.name, plugin.idempotent) == (PLUGIN_NAME, True)


def test_what_is_no_client_is_refused():
    """A wrong argument is told at once, in words."""
    with pytest.raises(TypeError, match=r"client must be a distributed\.Client, got str"):
        workerdiag.install("tcp://10.0.0.1:8786")
