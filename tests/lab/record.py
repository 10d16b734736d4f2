"""Records a fault as a case for ``tests/test_cases.py``: ``python -m tests.lab.record [FAULT]...``.

A case holds the logs of scheduler and workers, the traceback that the user saw, the
kernel log if it decides, and ``meta.toml`` with the expected explanation.
It contains nothing about the recording machine.
"""

from __future__ import annotations

import json
import platform
import re
import shutil
import sys
import tempfile
import time
import traceback
import uuid
from collections.abc import Mapping
from pathlib import Path

import click
import distributed
from attrs import frozen

from .catalogue import Aftermath
from .cluster import IMPORT_ROOT, Lab
from .faults import FAULTS
from .kernel import own_group

CASES = Path(__file__).resolve().parents[1] / "cases"

#: At most this many bytes are kept of a log's end, which has the death.
MOST_BYTES = 64 * 2**10


@frozen
class Truth:
    """The expected explanation of a case, from its logs alone."""

    #: Ids of causes, or an outcome; several if the logs leave it open.
    expected: tuple[str, ...]
    #: Seconds from the exception to the last relevant log line.
    settle_s: float = 1.0
    #: Whether nothing went wrong; at most a requested stop is named.
    quiet: bool = False


#: The faults worth keeping. LocalCluster is missing: its log is the whole of this process's.
TRUTHS: Mapping[str, Truth] = {
    "abort": Truth(("signal.abort",)),
    "bystander": Truth(("signal.segfault",)),
    "child-killed": Truth(("no-death",), quiet=True),
    "client-restart": Truth(("exit.client-restart",)),
    "close-by-code": Truth(("exit.closed-by-code",), quiet=True, settle_s=6.0),
    "death-timeout": Truth(("exit.death-timeout",)),
    "failing-unpickle": Truth(("exception.deserialization",)),
    "full-disk": Truth(("exception.disk-full",)),
    "gil-held": Truth(("network.unresponsive",)),
    "kernel-oom": Truth(("kernel.oom-killer",)),
    "lifetime": Truth(("exit.lifetime",)),
    "loop-blocked": Truth(("network.unresponsive",)),
    "missing-module": Truth(("exception.missing-module",)),
    "nanny-memory-fast": Truth(("nanny.memory-terminate",)),
    "nanny-memory-slow": Truth(("nanny.memory-terminate",)),
    "node-stopped": Truth(("network.unresponsive",), settle_s=32),  # the scheduler waits 30 s
    "noisy": Truth(("no-death",), quiet=True),
    "nothing-wrong": Truth(("no-death",), quiet=True),
    "orderly-end": Truth(("exit.scheduler-closed",), quiet=True),
    "os-exit-0": Truth(("code.process-exit",)),
    "os-exit-1": Truth(("code.process-exit",)),
    "os-exit-3": Truth(("code.process-exit",)),
    "paused-for-ever": Truth(("memory.paused",)),
    "plugin-exits": Truth(("exception.preload-failed", "code.process-exit")),
    "quiet-restart": Truth(("exit.client-restart",), quiet=True),
    "quiet-retirement": Truth(("exit.scheduler-retired",), quiet=True),
    "retire-workers": Truth(("exit.scheduler-retired",)),
    "scheduler-killed": Truth(("exit.scheduler-lost",)),
    "segfault": Truth(("signal.segfault",)),
    "segfault-four-times": Truth(("signal.segfault",)),
    "segfault-without-nanny": Truth(("unknown",)),
    "sigint-nanny": Truth(("exit.keyboard-interrupt",), settle_s=10),  # 8 s for the task, then SIGKILL
    "sigint-worker": Truth(("exit.keyboard-interrupt",)),
    "sigkill-nanny": Truth(("external.nanny-lost", "unknown"), settle_s=3),
    "sigkill-worker": Truth(("external.sigkill",)),
    "sigterm-nanny": Truth(("exit.sigterm",), settle_s=10),
    "sigterm-worker": Truth(("exit.sigterm",)),
    "sys-exit": Truth(("code.process-exit",)),
    "task-error": Truth(("no-death",), quiet=True),
    "worker-stopped": Truth(("network.unresponsive",)),
}


def record(fault: str) -> Path:
    """Provoke *fault* and write its case; return the folder."""
    scratch = Path(tempfile.mkdtemp(prefix="workerdiag-lab-"))
    case = CASES / fault
    try:
        with Lab(scratch) as lab:
            aftermath = FAULTS[fault](lab)
            time.sleep(TRUTHS[fault].settle_s)
            texts = {daemon.log.name: daemon.log.read_text(errors="replace") for daemon in lab.daemons.values()}
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    texts |= _of_the_user(aftermath)
    shutil.rmtree(case, ignore_errors=True)
    case.mkdir(parents=True)
    for name, text in texts.items():
        (case / name).write_text(_bounded(scrubbed(text, scratch)))
    (case / "meta.toml").write_text(_meta(fault))
    return case


def scrubbed(text: str, scratch: Path) -> str:
    """Return *text* without paths and names of this machine."""
    group = own_group("memory")
    paths = {
        str(scratch): "/home/user/job",
        str(IMPORT_ROOT): "/home/user/code",
        sys.prefix: "/home/user/venv",
        sys.base_prefix: "/home/user/python",
        str(Path.home()): "/home/user",
        **({group: "/user"} if group and group != "/" else {}),
    }
    for path, instead in sorted(paths.items(), key=lambda pair: -len(pair[0])):
        text = text.replace(path, instead)
    text = text.replace(f"{uuid.getnode():012x}", "0" * 12)  # the network card, in names of clients
    text = text.replace(platform.release(), "6.x")
    return re.sub(rf"(?<![\w-]){re.escape(platform.node())}(?![\w-])", "host", text)


def _of_the_user(aftermath: Aftermath) -> dict[str, str]:
    """Return the text of the user's terminal, and the kernel log if the fault has one."""
    texts = {}
    if aftermath.exc is not None:
        texts["client.log"] = "".join(traceback.format_exception(aftermath.exc))
    if "kernel" in aftermath.facts:
        texts["kernel.log"] = aftermath.facts["kernel"].text
    return texts


def _bounded(text: str) -> str:
    if len(text) <= MOST_BYTES:
        return text
    return text[-MOST_BYTES:].split("\n", 1)[1]


def _meta(fault: str) -> str:
    about = (FAULTS[fault].__doc__ or "").strip()
    return (
        f'about = "{about}"\n'
        f"expected = {json.dumps(TRUTHS[fault].expected)}\n"
        f"quiet = {json.dumps(TRUTHS[fault].quiet)}\n"
        f'distributed = "{distributed.__version__}"\n'
        f'python = "{platform.python_version()}"\n'
    )


@click.command()
@click.argument("faults", nargs=-1, type=click.Choice(list(TRUTHS)), metavar="[FAULT]...")
def main(faults: tuple[str, ...]) -> None:
    """Record FAULTs, or all that are worth keeping, anew."""
    for fault in faults or TRUTHS:
        click.echo(record(fault))


if __name__ == "__main__":
    main()
