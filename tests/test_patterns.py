"""Patterns run by Python's `re` take time in proportion to the text, whatever its content."""

from __future__ import annotations

import importlib
import re
import time
from pathlib import Path

import pytest

import workerdiag

PACKAGE = Path(workerdiag.__file__).parent
#: How a pattern is run: anywhere in a text, or only where it begins.
ANYWHERE = {"search", "finditer", "findall", "sub", "subn", "split"}
AT_START = {"match", "fullmatch"}
#: A name, and the method of it that is taken.
RUN = re.compile(rf"(\w+)\s*\.({'|'.join(sorted(ANYWHERE | AT_START))})\b")
CHARS = 2 * 1024
#: Twice the text may take four times as long on a busy machine; where time grows with its square, 8 times
#: the text takes 64 times as long.
TIMES_LONGER, TIMES_SLOWER = 8, 32
#: A linear pattern takes microseconds for `CHARS`; what is as quick as this is not run again.
QUICK_S = 0.002
UNITS = (
    *'a 0 a0 - a- a-0 = / /a ./ a. a: a.c. " \' \\" \\ ( [ { } 0- x@ :// a://b a= a_ _ A Aa , :: 1. < > % $'.split(),
    *(" ", " a", " \n", "\n", "\t", "a b", '{"', "abcd-", "[ 1.0] ", "T[1] ", "pid=1,", "Worker process 1 "),
)


def patterns_run():
    """Each pattern that a module holds by name, with how the package runs it."""
    texts = {path: path.read_text() for path in sorted(PACKAGE.rglob("*.py"))}
    used = {}
    for name, method in (found for text in texts.values() for found in RUN.findall(text)):
        used.setdefault(name, set()).add(method)
    for path in (path for path, text in texts.items() if "re.compile(" in text):
        dotted = ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__")
        for name, value in vars(importlib.import_module(dotted)).items():
            if isinstance(value, re.Pattern):
                yield pytest.param(value, used.get(name, ANYWHERE), id=f"{dotted}.{name}")


def seconds(pattern, text, *, anywhere):
    """CPU time of one run, the least of three."""
    taken = []
    for _ in range(3):
        begun = time.process_time()
        if anywhere:
            for _ in pattern.finditer(text):
                pass
        else:
            pattern.match(text)
            pattern.fullmatch(text)
        taken.append(time.process_time() - begun)
        if taken[-1] < QUICK_S:
            break
    return min(taken)


@pytest.mark.parametrize(("pattern", "methods"), list(patterns_run()))
def test_a_pattern_takes_time_in_proportion_to_the_text(pattern, methods):
    """Eight times the text does not take 64 times as long, whatever piece it repeats."""
    is_bytes = isinstance(pattern.pattern, bytes)
    source = pattern.pattern.decode() if is_bytes else pattern.pattern
    words = re.findall(r"[A-Za-z_]{3,}", source)
    for unit in (*UNITS, *words, *(f"{word} " for word in words)):
        text = (unit * CHARS)[:CHARS]
        short, long = (f"{text * times}!" for times in (1, TIMES_LONGER))
        if is_bytes:
            short, long = short.encode(), long.encode()
        anywhere = not methods.isdisjoint(ANYWHERE)
        once = seconds(pattern, short, anywhere=anywhere)
        if once >= QUICK_S:
            assert seconds(pattern, long, anywhere=anywhere) <= TIMES_SLOWER * once, unit
