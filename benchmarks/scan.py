"""
Speed and memory on logs of any size, beside what the machine can do at best.

    python benchmarks/scan.py [--mib 10,100,1024]

Every size is read in a process of its own, whose peak memory is the kernel's ``VmHWM``. The
largest file has one line of 100 MB. ``rg`` is compared where it is installed.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import logs
from rows import Row, publish

MIB = 1024 * 1024
LONG_LINE = 100_000_000

EXPLAIN = """
import json, sys, time
import workerdiag
path = sys.argv[1]
workerdiag.explain(logs=[workerdiag.LogText("")])
began = time.perf_counter()
diagnosis = workerdiag.explain(logs=[path], timeout="600s")
taken = time.perf_counter() - began
assert diagnosis.outcome == "explained" and not diagnosis.gaps, diagnosis
peak = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(json.dumps([taken, int(peak.split()[1]) / 1024]))
"""


def rows(sizes: list[int]) -> Iterator[Row]:
    """
    For every size speed and peak memory; for the middle one the comparison.
    """
    with tempfile.TemporaryDirectory(prefix="workerdiag-bench-") as folder:
        for mib in sizes:
            path = Path(folder, f"{mib}.log")
            long_line = LONG_LINE if mib == max(sizes) and mib * MIB > 2 * LONG_LINE else 0
            logs.write(path, mib * MIB, long_line=long_line)
            taken_s, peak_mib = explained(path)
            label = f"{mib} MiB" + (", a line of 100 MB in it" if long_line else "")
            yield Row(what=f"explain {label}: speed", measured=mib * 1.048576 / taken_s, unit="MB/s")
            yield Row(what=f"explain {label}: peak memory", measured=peak_mib, unit="MiB", goal=200)
            if mib == sizes[len(sizes) // 2]:
                yield from compared(path, mib * 1.048576, taken_s)
            path.unlink()


def explained(path: Path) -> tuple[float, float]:
    """
    Seconds that `explain` took on *path*, and the peak memory of its process in MiB.
    """
    command = [sys.executable, "-c", EXPLAIN, str(path)]
    run = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    taken_s, peak_mib = json.loads(run.stdout)
    return taken_s, peak_mib


def compared(path: Path, megabytes: float, taken_s: float) -> Iterator[Row]:
    """
    The same file by hyperscan alone with the same literals, and by ``rg`` with the same patterns.
    """
    bare_s = scanned_s(path)
    yield Row(what="bare hyperscan, same literals: speed", measured=megabytes / bare_s, unit="MB/s")
    yield Row(what="explain took, of bare hyperscan's time", measured=taken_s / bare_s, unit="x")
    if shutil.which("rg"):
        rg_s = searched_s(path)
        yield Row(what="rg, same patterns, one thread: speed", measured=megabytes / rg_s, unit="MB/s")
        yield Row(what="explain is faster than rg", measured=rg_s / taken_s, unit="x", goal=3, at_least=True)


def scanned_s(path: Path) -> float:
    """
    Seconds for hyperscan over the file in blocks of 1 MiB, all literals of all rules, hits not used.
    """
    import hyperscan

    import workerdiag
    from workerdiag.matching.scan.literals import literals
    from workerdiag.rulebook.compiled import patterns

    texts = sorted({each for text in patterns(workerdiag.load_rulebook()) for each in literals(text)})
    database = hyperscan.Database(mode=hyperscan.HS_MODE_BLOCK)
    database.compile(
        expressions=[text.encode() for text in texts],
        ids=list(range(len(texts))),
        elements=len(texts),
        flags=hyperscan.HS_FLAG_CASELESS,
        literal=True,
    )
    began = time.perf_counter()
    with path.open("rb") as file:
        while block := file.read(MIB):
            database.scan(block, match_event_handler=lambda *_: None)
    return time.perf_counter() - began


def searched_s(path: Path) -> float:
    """
    Seconds for ripgrep over the file with every pattern of every rule.
    """
    import workerdiag
    from workerdiag.rulebook.compiled import patterns

    found = patterns(workerdiag.load_rulebook())
    one_line = [text for text in found if "\n" not in text and r"\n" not in text]
    wanted = "\n".join(re.sub(r"\(\?P<\w+>", "(?:", text) for text in one_line)  # a name may stand once only
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write(wanted)
        file.flush()
        began = time.perf_counter()
        done = subprocess.run(
            ["rg", "-j1", "-c", "-i", "-f", file.name, str(path)], capture_output=True, text=True, check=False
        )
        taken_s = time.perf_counter() - began
    if done.returncode > 1:  # 0: something found, 1: nothing found, 2: it could not search
        raise SystemExit(f"rg refused the patterns, so there is nothing to compare with: {done.stderr[:500]}")
    return taken_s


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument(
        "--mib", default="10,100,1024", type=lambda text: [int(each) for each in text.split(",")]
    )
    publish(rows(parser.parse_args().mib))
