"""Explaining in forked children, in many threads at once and in signal handlers: nothing is waited for that nobody ends."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

import workerdiag
from workerdiag import LogText
from workerdiag.matching.prefilter import LiteralScan
from workerdiag.matching.regex import Generation, pattern

DEATH = "2026-05-04 11:22:33,444 - distributed.nanny - INFO - Worker process 7012 was killed by signal 11\n"
CHILD_S = 60.0

posix = pytest.mark.skipif(sys.platform == "win32", reason="forks and signals of POSIX")


def answer(text: str = DEATH) -> str:
    """The answer to a log, in one string."""
    return workerdiag.explain(logs=[LogText(text)], timeout="60s").to_json()


def runs_well(script: str) -> bool:
    """Whether a script that forks ends well, in time: in a process of its own, as coverage, too, has a lock."""
    done = subprocess.run([sys.executable, "-c", script], timeout=CHILD_S, check=False, capture_output=True)
    return done.returncode == 0


def test_threads_get_the_answer_of_one_call():
    """Sixteen at once do not mix up what they scan."""
    texts = [DEATH.replace("7012", str(each)) for each in range(7000, 7016)]
    alone = list(map(answer, texts))
    with ThreadPoolExecutor(16) as pool:
        assert list(pool.map(answer, texts)) == alone


@pytest.mark.slow
@posix
def test_a_child_explains_though_its_parent_was_forked_while_it_explained():
    """Other threads are in the midst of a scan, of a pattern or of hiding a secret at the time of each fork."""
    assert runs_well(f"""
import os, threading
import workerdiag

def answer(text):
    return workerdiag.explain(logs=[workerdiag.LogText(text)], timeout="60s").to_json()

def explain_on():
    while not stop.is_set():
        answer({DEATH!r} * 300 + "password=hunter2 ")

expected, stop = answer({DEATH!r}), threading.Event()
threads = [threading.Thread(target=explain_on) for _ in range(2)]
for thread in threads:
    thread.start()
worst = 0
for _ in range(5):
    child = os.fork()
    if child == 0:
        os._exit(0 if answer({DEATH!r}) == expected else 1)
    worst = max(worst, os.waitpid(child, 0)[1])
stop.set()
for thread in threads:
    thread.join()
os._exit(1 if worst else 0)
""")


@posix
def test_a_child_makes_anew_what_finds_secrets():
    """RE2 locks what its patterns have learnt, and a thread may hold such a lock at the time of a fork."""
    assert runs_well("""
import os
from workerdiag.redaction import secrets

secrets.redact_text("password=x")
made = secrets._engine.cache_info().currsize
child = os.fork()
if child == 0:
    os._exit(0 if made and not secrets._engine.cache_info().currsize else 1)
os._exit(1 if os.waitpid(child, 0)[1] else 0)
""")


@posix
def test_a_signal_handler_may_scan_in_the_midst_of_a_scan():
    """A handler that runs between two hits of a scan finds what a scan of its own finds."""
    scan = LiteralScan(["killed", "signal"])
    expected = scan.hits(DEATH.encode()).packed
    begun: list[bool] = []
    within: list[Sequence[int]] = []

    def handle(number, frame):
        if not begun:  # the timer may go off in the handler, too
            begun.append(True)
            within.append(scan.hits(DEATH.encode()).packed)

    before = signal.signal(signal.SIGALRM, handle)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
        for _ in range(1000):
            assert len(scan.hits(DEATH.encode() * 200).packed) == 200 * len(expected)
            if within:
                break
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)

    assert within == [expected]


@posix
def test_a_signal_handler_may_explain_while_something_is_explained():
    """The answer in the handler is the one that it would be without."""
    expected = answer()
    begun: list[bool] = []
    within: list[str] = []

    def handle(number, frame):
        if not begun:
            begun.append(True)
            within.append(answer())

    before = signal.signal(signal.SIGALRM, handle)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.002)
        for _ in range(100):
            if begun:
                break
            answer(DEATH * 100)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)

    assert within == [expected]


def test_patterns_are_compiled_anew_in_a_child():
    """What RE2 has locked in the parent, nobody unlocks in the child."""
    text = pattern("was killed by signal")
    before = text._ascii
    Generation.begin()

    assert text.search("it was killed by signal 9") is not None
    assert text._ascii is not before or before is None
