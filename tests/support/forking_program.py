"""Runs a program again and again, to be killed: mostly as forks of a process that has imported all that it needs.

The program calls `serve` where it is started without arguments.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import Protocol, Self

_LONG_S = 900.0
#: Seconds until a new process sends something: a watcher first loads the rules and judges.
_FIRST_WORD_S = 60.0


class Receiver(Protocol):
    """Somebody who keeps what was received."""

    @property
    def requests(self) -> Sequence[object]:
        """Everything until now."""


def serve(main: Callable[..., object]) -> None:
    """Call *main* with each line's words in a fork of its own. Print its process id before, and ``ended`` after it."""
    for line in sys.stdin:
        pid = os.fork()
        if not pid:
            print(os.getpid(), flush=True)  # noqa: T201  it is a program
            main(*line.split())
            os._exit(0)
        os.waitpid(pid, 0)
        print("ended", flush=True)  # noqa: T201  as above


def moment_of(
    receiver: Receiver, *, sending_s: float = 0.7, other_s: float = 3.0
) -> Callable[[subprocess.Popen[str]], None]:
    """Return a function that waits for a random moment in the life of a process that prints ``ready``.

    Mostly one of the *sending_s* seconds since it sent something; sometimes of the *other_s* since it got ready,
    or began to import and to open its files.
    """

    def wait(child: subprocess.Popen[str]) -> None:
        said_before, dice = len(receiver.requests), random.random()
        if dice < 0.9:
            assert child.stdout is not None
            assert child.stdout.readline() == "ready\n"
        end = time.monotonic() + _FIRST_WORD_S
        while dice < 0.7 and len(receiver.requests) == said_before and time.monotonic() < end:
            time.sleep(0.01)
        time.sleep(random.uniform(0, sending_s if dice < 0.7 else other_s))

    return wait


class ForkingProgram:
    """Processes of one program: new, which takes seconds, or forked.

    Args:
        path: The program.
        arguments: Its first arguments.
    """

    def __init__(self, path: str, *arguments: str) -> None:
        self._path = path
        self._arguments = arguments
        self._forking = self._started()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._forking.stdin is not None
        self._forking.stdin.close()
        assert self._forking.wait(_LONG_S) == 0

    def finish(self, *more: str) -> None:
        """Run a new process to its end, with *more* arguments."""
        assert self._started(*self._arguments, *more).wait(_LONG_S) == 0

    def kill_one(self, wait: Callable[[subprocess.Popen[str]], None], *more: str, is_new: bool) -> None:
        """Start a process with *more* arguments, and kill it after *wait*, which may read its standard output."""
        if is_new:
            with self._started(*self._arguments, *more) as child:
                wait(child)
                child.kill()
            return
        assert self._forking.stdin is not None
        assert self._forking.stdout is not None
        self._forking.stdin.write(f"{' '.join((*self._arguments, *more))}\n")
        self._forking.stdin.flush()
        pid = int(self._forking.stdout.readline())
        wait(self._forking)
        os.kill(pid, signal.SIGKILL)
        while self._forking.stdout.readline() != "ended\n":
            pass

    def _started(self, *arguments: str) -> subprocess.Popen[str]:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        pipe = subprocess.PIPE
        return subprocess.Popen(
            [sys.executable, self._path, *arguments], stdin=pipe, stdout=pipe, text=True, env=environment
        )
