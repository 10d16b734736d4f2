"""Workers that never start working: no scheduler, a missing module, an argument that cannot be unpickled."""

from __future__ import annotations

import importlib
import sys

from . import tasks
from .catalogue import Aftermath, fault
from .cluster import Lab, arrived

MODULE = "workerdiag_lab_only_here"


@fault
def death_timeout(lab: Lab) -> Aftermath:
    """A worker waits for a scheduler that does not exist, and gives up."""
    daemon = lab.worker("--death-timeout", "3s")
    status = daemon.ended()
    return Aftermath(logs=(daemon.log,), facts={"status": status})


@fault
def killed_while_starting(lab: Lab) -> Aftermath:
    """A preload kills the worker process; the nanny gives up, and a client waits for workers."""
    preload = lab.folder / "killing.py"
    preload.write_text(
        "import multiprocessing, os\nif multiprocessing.parent_process():\n    os.kill(os.getpid(), 9)\n"
    )
    lab.scheduler()
    client = lab.client(workers=0)
    daemon = lab.worker("--preload", str(preload))
    daemon.ended()
    waiting = arrived(client, client.submit(tasks.nap, 0, key="nap"))
    return Aftermath(client=client, logs=(daemon.log,), facts={"futures": [waiting]})


@fault
def missing_module(lab: Lab) -> Aftermath:
    """A task needs a module that client and scheduler have, but the worker lacks."""
    folder = lab.folder / "only-here"
    folder.mkdir()
    (folder / f"{MODULE}.py").write_text("def work():\n    return 1\n")
    sys.path.insert(0, str(folder))
    lab.callback(sys.path.remove, str(folder))
    lab.callback(sys.modules.pop, MODULE)
    lab.scheduler(PYTHONPATH=lab.import_path(folder))
    daemon = lab.worker()
    client = lab.client()
    future = client.submit(importlib.import_module(MODULE).work, key="work")
    status = daemon.ended()
    return Aftermath(client=client, logs=(daemon.log,), facts={"status": status, "futures": [future]})


@fault
def failing_unpickle(lab: Lab) -> Aftermath:
    """An argument cannot be unpickled on the worker."""
    lab.scheduler()
    daemon = lab.worker()
    client = lab.client()
    future = client.submit(tasks.use, tasks.UnreadableOnWorkers(), key="use")
    status = daemon.ended()
    return Aftermath(client=client, logs=(daemon.log,), facts={"status": status, "futures": [future]})
