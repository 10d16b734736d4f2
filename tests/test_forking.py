"""
Explaining in forked children, in many threads at once and in signal handlers: nothing is waited for that nobody ends.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
import warnings
from concurrent.futures import ThreadPoolExecutor

import pytest

import workerdiag
from workerdiag import LogText
from workerdiag.matching import literal_scan
from workerdiag.matching.literal_scan import LiteralScan
from workerdiag.matching.regex import Generation, pattern

DEATH = "2026-05-04 11:22:33,444 - distributed.nanny - INFO - Worker process 7012 was killed by signal 11\n"
CHILD_S = 60.0

posix = pytest.mark.skipif(sys.platform == "win32", reason="forks and signals of POSIX")


def answer(text: str = DEATH) -> str:
    """
    The answer to a log, in one string.
    """
    return workerdiag.explain(logs=[LogText(text)], timeout="60s").to_json()


def is_done(child: int) -> bool:
    """
    Whether a child ended well, in time; one that hangs is killed.
    """
    until = time.monotonic() + CHILD_S
    while time.monotonic() < until:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return os.waitstatus_to_exitcode(status) == 0
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return False


def test_threads_get_the_answer_of_one_call():
    """
    Sixteen at once do not mix up what they scan.
    """
    texts = [DEATH.replace("7012", str(each)) for each in range(7000, 7016)]
    alone = list(map(answer, texts))
    with ThreadPoolExecutor(16) as pool:
        assert list(pool.map(answer, texts)) == alone


@posix
def test_a_child_explains_though_its_parent_was_forked_while_it_explained():
    """
    Another thread is in the midst of a scan or of a pattern at the time of each fork.
    """
    expected = answer()
    stop = threading.Event()

    def explain_on():
        while not stop.is_set():
            answer(DEATH * 300)

    threads = [threading.Thread(target=explain_on, daemon=True) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(5):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)  # of forks with threads, since 3.12
                child = os.fork()
            if child == 0:
                os._exit(0 if answer() == expected else 1)
            assert is_done(child)
    finally:
        stop.set()
        for thread in threads:
            thread.join()


@posix
def test_a_child_hides_secrets_though_a_thread_hid_some_at_the_time_of_the_fork():
    """
    What finds secrets is made anew in a child, like all patterns of RE2.
    """
    from workerdiag.redaction import hints

    list(hints.look_hints("password=x"))
    made = hints._engine.cache_info().currsize
    child = os.fork()
    if child == 0:
        os._exit(0 if made and hints._engine.cache_info().currsize == 0 else 1)

    assert is_done(child)


@posix
def test_a_signal_handler_may_scan_in_the_midst_of_a_scan():
    """
    A handler that runs between two hits of a scan finds what a scan of its own finds.
    """
    scan = LiteralScan(["killed", "signal"])
    expected = scan.hits(DEATH.encode())
    within: list[list[tuple[int, int]]] = []

    def handle(number, frame):
        if not within:
            within.append(scan.hits(DEATH.encode()))

    before = signal.signal(signal.SIGALRM, handle)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
        for _ in range(1000):
            assert len(scan.hits(DEATH.encode() * 200)) == 200 * len(expected)
            if within:
                break
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)

    assert within == [expected]


@posix
def test_a_signal_handler_may_explain_while_something_is_explained():
    """
    The answer in the handler is the one that it would be without.
    """
    expected = answer()
    within: list[str] = []

    def handle(number, frame):
        if not within:
            within.append(answer())

    before = signal.signal(signal.SIGALRM, handle)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.002)
        while not within:
            answer(DEATH * 100)
    finally:
        signal.signal(signal.SIGALRM, before)

    assert within == [expected]


def test_scratch_space_is_given_back_and_not_heaped_up():
    """
    A thousand scans one after the other need one.
    """
    if not literal_scan.database.available():
        pytest.skip("without hyperscan there is none")
    scan = LiteralScan(["killed"])
    for _ in range(1000):
        scan.hits(b"killed")

    assert len(scan._spare) == 1


def test_patterns_are_compiled_anew_in_a_child():
    """
    What RE2 has locked in the parent, nobody unlocks in the child.
    """
    text = pattern("was killed by signal")
    before = text._ascii
    Generation.begin()

    assert text.search("it was killed by signal 9") is not None
    assert text._ascii is not before or before is None
