"""Black boxes of processes that were killed."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

DYING = """
import os, signal, sys
from workerdiag.recorder.box.writer import BoxWriter
box = BoxWriter.create(sys.argv[1], slots=2, worker="tcp://10.0.0.4:1", nanny="tcp://10.0.0.4:2")
box.stage(*sys.argv[2].split(": "))
box.started(0, "nap", 7, "thread-7")
box.line(b"the last words")
if sys.argv[3]:
    with box.open_fault() as file:
        file.write(sys.argv[3].encode())
print(box.path, os.getpid(), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
DUMP = "Fatal Python error: Segmentation fault\n\nCurrent thread 0x0000000000000007 (most recent call first):\n"


def left_by_a_dead_process(folder, *, stage="running", dump=""):
    """Return the box of a process that was killed while a task ran, and its pid."""
    run = subprocess.run(
        [sys.executable, "-c", DYING, str(folder), stage, dump], capture_output=True, text=True, check=False
    )
    assert run.returncode == -signal.SIGKILL, run.stderr
    path, pid = run.stdout.split()
    return Path(path), int(pid)
