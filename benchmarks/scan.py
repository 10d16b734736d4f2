"""Speed and memory on logs of any size, beside what the machine can do at best, in CPU seconds.

    python benchmarks/scan.py [--mib 10,300,1024]

Every file is read in a process of its own, whose peak memory is the kernel's ``VmHWM``. The
largest has one line of 100 MB. ``rg`` is of the dependency group ``bench``; without it, or where it
refuses the patterns, the benchmark fails.
"""

from __future__ import annotations

import argparse
import gzip
import json
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import logs
from rows import Row, publish

MIB = 1024 * 1024
LONG_LINE = 100_000_000
#: Sizes of the logs that are read packed, and of the one that is mostly landmarks.
PACKED_MIB = 100
LANDMARKS_MIB = 300

EXPLAIN = """
import json, sys, time
import workerdiag
path = sys.argv[1]
workerdiag.explain(logs=[workerdiag.LogText("")])
began = time.process_time()
diagnosis = workerdiag.explain(logs=[path], timeout="600s")
taken = time.process_time() - began
assert diagnosis.deaths and not diagnosis.gaps, diagnosis
peak = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(json.dumps([taken, int(peak.split()[1]) / 1024]))
"""


def rows(sizes: list[int]) -> Iterator[Row]:
    """For every size speed and peak memory, how both grow, and for the middle one the comparison."""
    with tempfile.TemporaryDirectory(prefix="workerdiag-bench-") as folder:
        speeds = []
        for mib in sizes:
            path = Path(folder, f"{mib}.log")
            long_line = LONG_LINE if mib == max(sizes) and mib * MIB > 2 * LONG_LINE else 0
            logs.write(path, mib * MIB, long_line=long_line)
            label = f"{mib} MiB" + (", a line of 100 MB in it" if long_line else "")
            taken_s, measured = explained(path, label)
            yield from measured
            speeds.append(megabytes(path) / taken_s)
            if mib == sizes[len(sizes) // 2]:
                yield from compared(path, taken_s)
            path.unlink()
        if len(sizes) > 1:
            yield Row(
                what=f"a byte of {sizes[-1]} MiB costs, of one of {sizes[0]} MiB",
                measured=speeds[0] / speeds[-1],
                unit="x",
                goal=1.1,
            )
        path = Path(folder, "landmarks.log")
        logs.write(path, LANDMARKS_MIB * MIB, messages=logs.landmarks)
        yield from explained(path, f"{LANDMARKS_MIB} MiB of landmarks", at_least=25)[1]
        path.unlink()
        path = Path(folder, "packed.log")
        logs.write(path, PACKED_MIB * MIB)
        yield from packed(path)


def explained(path: Path, label: str, at_least: float | None = None) -> tuple[float, list[Row]]:
    """Seconds that `explain` took on *path*, and rows of its speed and of the peak memory of its process."""
    command = [sys.executable, "-c", EXPLAIN, str(path)]
    run = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    taken_s, peak_mib = json.loads(run.stdout)
    speed = megabytes(path) / taken_s
    return taken_s, [
        Row(what=f"explain {label}: speed", measured=speed, unit="MB/s", goal=at_least, at_least=True),
        Row(what=f"explain {label}: peak memory", measured=peak_mib, unit="MiB", goal=150),
    ]


def megabytes(path: Path) -> float:
    """Size of the file."""
    return path.stat().st_size / 1e6


def compared(path: Path, taken_s: float) -> Iterator[Row]:
    """The same file by hyperscan alone with the same literals, and by ``rg`` with the same patterns."""
    bare_s, rg_s = scanned_s(path), searched_s(path)
    yield Row(what="bare hyperscan, same literals: speed", measured=megabytes(path) / bare_s, unit="MB/s")
    yield Row(what="explain took, of bare hyperscan's time", measured=taken_s / bare_s, unit="x", goal=1.5)
    yield Row(what="rg, same patterns, one thread: speed", measured=megabytes(path) / rg_s, unit="MB/s")
    yield Row(what="explain is faster than rg", measured=rg_s / taken_s, unit="x", goal=3, at_least=True)


def scanned_s(path: Path) -> float:
    """Seconds for hyperscan over the file in blocks of 1 MiB, all literals of all rules, hits not used."""
    import hyperscan

    import workerdiag
    from workerdiag.matching.literals import literals
    from workerdiag.rulebook.load import patterns

    texts = sorted({each for text in patterns(workerdiag.load_rulebook()) for each in literals(text)})
    database = hyperscan.Database(mode=hyperscan.HS_MODE_BLOCK)
    database.compile(
        expressions=[text.encode() for text in texts],
        ids=list(range(len(texts))),
        elements=len(texts),
        flags=hyperscan.HS_FLAG_CASELESS,
        literal=True,
    )
    began = time.process_time()
    with path.open("rb") as file:
        while block := file.read(MIB):
            database.scan(block, match_event_handler=lambda *_: None)
    return time.process_time() - began


def searched_s(path: Path) -> float:
    """Seconds for ripgrep over the file with every pattern of every rule that is about one line."""
    import workerdiag
    from workerdiag.rulebook.load import patterns

    if shutil.which("rg") is None:
        raise SystemExit("there is no rg to compare with: pip install --group bench, or install ripgrep")
    found = patterns(workerdiag.load_rulebook())
    wanted = "\n".join(map(in_language_of_rg, filter(is_of_one_line, found)))
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write(wanted)
        file.flush()
        began = _children_s()
        done = subprocess.run(
            ["rg", "-j1", "-c", "-i", "--regex-size-limit", "1G", "-f", file.name, str(path)],
            capture_output=True,
            text=True,
            check=False,
        )
        taken_s = _children_s() - began
    if done.returncode or not int(done.stdout):  # every log has deaths: nothing found is nothing searched
        raise SystemExit(f"rg searched nothing, so there is nothing to compare with: {done.stderr[:500]}")
    return taken_s


def is_of_one_line(pattern: str) -> bool:
    """Whether ``rg`` can search for it: it names no line end."""
    return "\n" not in pattern and r"\n" not in pattern


def in_language_of_rg(pattern: str) -> str:
    """A group's name may stand once only there, and quotes need no backslash."""
    return re.sub(r"\\(['\"])", r"\1", re.sub(r"\(\?P<\w+>", "(?:", pattern))


def _children_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def packed(path: Path) -> Iterator[Row]:
    """A log in gzip and in zstd: what `explain` takes beside its time for the plain one is the unpacking alone."""
    import zstandard

    plain_s, _ = explained(path, "plain")
    data = path.read_bytes()
    unpack: dict[str, tuple[Callable[[bytes], bytes], Callable[[Path], Iterable[bytes]]]] = {
        "gz": (gzip.compress, _gunzipped),
        "zst": (
            zstandard.ZstdCompressor().compress,
            _unzstd,
        ),
    }
    for ending, (pack, unpacked) in unpack.items():
        file = path.with_suffix(f".{ending}")
        file.write_bytes(pack(data))
        taken_s, _ = explained(file, ending)
        began = time.process_time()
        for _ in unpacked(file):
            pass
        alone_s = time.process_time() - began
        yield Row(
            what=f"explain {PACKED_MIB} MiB in .{ending} took, of its time for plain text and the unpacking",
            measured=taken_s / (plain_s + alone_s),
            unit="x",
            goal=1.1,
        )


def _gunzipped(path: Path) -> Iterator[bytes]:
    with gzip.open(path) as file:
        while block := file.read(MIB):
            yield block


def _unzstd(path: Path) -> Iterator[bytes]:
    import zstandard

    with path.open("rb") as file:
        yield from zstandard.ZstdDecompressor().read_to_iter(file)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--mib", default="10,300,1024", type=lambda text: [int(each) for each in text.split(",")])
    publish(rows(parser.parse_args().mib))
