"""What `LogSource` promises of inputs that are there, are not there, or are not what they seem."""

from __future__ import annotations

import builtins
import bz2
import gzip
import io
import lzma
import os
import threading
import time
import tracemalloc
from pathlib import Path

import fsspec
import pytest
import zstandard

from support.hanging_peers import gives_up
from workerdiag.model.evidence import Gap, Inspected, LogChunk, LogText
from workerdiag.sources.logs.inputs import url_without_secrets
from workerdiag.sources.logs.source import LogSource

LINE = b"2026-11-21 17:11:43,105 - distributed.nanny - INFO - Worker process 23057 exited with status 3\n"
DEATH = "2026-05-04 11:22:34,000 - distributed.nanny - INFO - Worker process 7 was killed by signal 11"


def read(*inputs, budget_s=10.0, **options):
    """Text by origin, places looked at wholly, and gaps."""
    texts: dict[str, bytes] = {}
    places, gaps = [], []
    for each in LogSource(inputs, **options).collect(budget_s=budget_s):
        if isinstance(each, LogChunk):
            texts[each.origin] = texts.get(each.origin, b"") + each.data
        elif isinstance(each, Inspected):
            places.append(each.place)
        else:
            assert isinstance(each, Gap)
            gaps.append(each)
    return texts, places, gaps


def zstd(data):
    """One frame of it."""
    return zstandard.ZstdCompressor().compress(data)


@pytest.mark.parametrize(
    "given",
    [lambda path: path, str, lambda path: str(path.parent / "*.log"), lambda path: path.parent],
    ids=["Path", "str", "glob", "folder"],
)
def test_a_file_is_read_wholly_however_it_is_named(tmp_path, given):
    """Path, text, pattern and folder all lead to the file, under its path."""
    path = tmp_path / "worker.log"
    path.write_bytes(LINE)
    assert read(given(path)) == ({str(path): LINE}, ["log"], [])


@pytest.mark.slow
@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress, zstd])
@pytest.mark.parametrize("parts", [1, 2])
def test_packed_files_are_known_by_their_content(tmp_path, pack, parts):
    """Whatever its name, a packed file gives its text; several streams in one file follow each other."""
    path = tmp_path / "worker.log"
    path.write_bytes(pack(LINE * 12_000) * parts)
    assert read(path) == ({str(path): LINE * 12_000 * parts}, ["log"], [])


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress, zstd])
def test_a_packed_file_that_is_cut_off_gives_what_is_there(tmp_path, pack):
    """What could be unpacked is used, and the loss is a gap; it does not count as looked at."""
    path = tmp_path / "worker.log.gz"
    body = b"".join(b"%d %s" % (number * 7919 % 100_003, LINE) for number in range(12_000))
    packed = pack(body)
    path.write_bytes(packed[: len(packed) * 3 // 4])
    texts, places, gaps = read(path)
    assert body.startswith(texts[str(path)])
    assert places == []
    assert [(gap.source, gap.reason) for gap in gaps] == [(str(path), "malformed")]
    assert f"{len(texts[str(path)]):,} bytes were read" in gaps[0].detail


def test_a_damaged_gzip_file_gives_what_comes_before_the_damage(tmp_path):
    """Flipped bytes in the middle do not take the beginning with them."""
    path = tmp_path / "worker.log"
    packed = bytearray(gzip.compress(os.urandom(200_000).hex().encode() + LINE))
    packed[len(packed) // 2 :: 50] = bytes(len(packed[len(packed) // 2 :: 50]))
    path.write_bytes(packed)
    texts, _, gaps = read(path)
    assert len(texts[str(path)]) > 50_000
    assert gaps[0].reason == "malformed"


def test_without_the_zstd_package_the_gap_names_the_extra(tmp_path, monkeypatch):
    """What is missing to read a file can be installed by pasting the remedy."""
    path = tmp_path / "worker.log"
    path.write_bytes(zstd(LINE))
    real = builtins.__import__

    def without(name, *args, **options):
        if name in ("zstandard", "compression"):
            raise ImportError(name)
        return real(name, *args, **options)

    monkeypatch.setattr(builtins, "__import__", without)
    texts, _, gaps = read(path, LogText("still read"))
    assert texts == {"LogText 1": b"still read"}
    assert (gaps[0].reason, gaps[0].remedy) == ("not-installed", "pip install 'workerdiag[zstd]'")


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-8-sig"])
def test_text_with_a_byte_order_mark_becomes_utf_8(tmp_path, encoding):
    """Logs as Windows writes them read like any other."""
    path = tmp_path / "worker.log"
    mark = "\ufeff" if encoding.endswith(("le", "be")) else ""
    text = "größe ✓\n" * 200_000
    path.write_bytes((mark + text).encode(encoding))
    texts, _, gaps = read(path)
    assert (texts[str(path)].decode().lstrip("\ufeff"), gaps) == (text, [])


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-be", "utf-32"])
@pytest.mark.parametrize("is_wide_first", [True, False])
def test_text_added_in_another_encoding_is_read(tmp_path, encoding, is_wide_first):
    """On Windows one shell writes UTF-16, and what another adds to it with ``>>`` is ASCII."""
    path = tmp_path / "worker.log"
    wide = "\ufeff" if encoding == "utf-16-be" and is_wide_first else ""
    parts = [f"{wide}{LINE.decode()}\n".encode(encoding), DEATH.encode() + b"\n"]
    path.write_bytes(b"".join(parts if is_wide_first else reversed(parts)))
    texts, _, gaps = read(path)
    told = texts[str(path)].decode(errors="replace")
    assert LINE.decode() in told
    assert DEATH in told
    assert gaps == []


@pytest.mark.parametrize(
    "content",
    [
        b"\x7fELF" + bytes(range(256)) * 40,
        bytes(100_000),
        b"PK\x03\x04" + LINE,
        gzip.compress(os.urandom(50_000)),
    ],
    ids=["program", "zeros", "zip", "packed noise"],
)
def test_what_is_no_text_is_not_searched(tmp_path, content):
    """A binary file is a gap that says so."""
    path = tmp_path / "core.log"
    path.write_bytes(content)
    texts, places, gaps = read(path)
    assert (texts, places) == ({}, [])
    assert gaps[0].reason == "malformed"
    assert "looks binary" in gaps[0].detail


def test_odd_bytes_do_not_make_a_log_binary(tmp_path):
    """Invalid UTF-8, colour, backspaces, and the hole that a truncated file begins with, are all text."""
    path = tmp_path / "worker.log"
    content = bytes(4096) + b"\x1b[31m\xff\xfe gr\xf6\xdfe \x08|\x08/\r\n" + LINE
    path.write_bytes(content)
    assert read(path)[0] == {str(path): content}


def test_each_input_that_cannot_be_read_is_a_gap_and_the_others_are_used(tmp_path, monkeypatch):
    """Missing, empty, forbidden and wordless inputs are named, with why and what to do."""
    good, empty, secret = tmp_path / "good.log", tmp_path / "empty.log", tmp_path / "secret.log"
    good.write_bytes(LINE)
    empty.touch()
    secret.touch()
    bare = tmp_path / "bare"
    bare.mkdir()
    (bare / "model.bin").write_bytes(b"weights")
    real = Path.open

    def open_(self, *args, **options):
        if self == secret:
            raise PermissionError(13, "Permission denied", str(self))
        return real(self, *args, **options)

    monkeypatch.setattr(Path, "open", open_)
    source = LogSource(
        [
            tmp_path / "gone.log",
            empty,
            secret,
            bare,
            str(tmp_path / "*.nope"),
            "a\nb",
            3,
            "gibberish://x/y",
            good,
        ]
    )
    evidence = list(source.collect(budget_s=10))
    gaps = [each for each in evidence if isinstance(each, Gap)]
    assert [gap.reason for gap in gaps] == [
        "unreachable",
        "never-recorded",
        "forbidden",
        "unreachable",
        "unreachable",
        "malformed",
        "malformed",
        "malformed",
    ]
    assert all(gap.place == "log" and gap.detail and gap.remedy for gap in gaps)
    assert "LogText" in gaps[5].remedy
    assert [each.origin for each in evidence if isinstance(each, LogChunk)] == [str(good)]
    assert source.has_read_any


def test_nothing_readable_is_told_apart():
    """The command line exits with 2 if, and only if, nothing could be read."""
    source = LogSource(["/no/such/file"])
    list(source.collect(budget_s=30))
    assert not source.has_read_any


def test_a_folder_gives_its_logs_and_nothing_else(tmp_path):
    """By name or by content; neither hidden files nor folders nor other files."""
    for name in (
        "worker.log.1",
        "slurm-12.out",
        "job.e123",
        "stderr",
        ".hidden.log",
        "catalog.json",
        "run.py",
    ):
        (tmp_path / name).write_bytes(b"text\n")
    (tmp_path / "worker-0").write_bytes(LINE)
    (tmp_path / "deeper.log").mkdir()
    texts, _, gaps = read(tmp_path)
    assert sorted(Path(each).name for each in texts) == [
        "job.e123",
        "slurm-12.out",
        "stderr",
        "worker-0",
        "worker.log.1",
    ]
    assert gaps == []


def test_an_empty_file_of_a_folder_is_no_gap_beside_one_that_was_written(tmp_path):
    """Slurm makes a .out for each job, and Dask writes to the .err; alone it is told as ever."""
    (tmp_path / "dask-worker-1.out").touch()
    assert [each.reason for each in read(tmp_path)[2]] == ["never-recorded"]
    (tmp_path / "dask-worker-1.err").write_bytes(LINE)
    texts, _, gaps = read(tmp_path)
    assert [Path(each).name for each in texts] == ["dask-worker-1.err"]
    assert gaps == []


def test_open_files_are_read_from_where_they_stand_and_stay_open(tmp_path):
    """Text and binary, by name if they have one."""
    path = tmp_path / "worker.log"
    path.write_bytes(b"skipped\n" + LINE)
    with path.open("rb") as binary, path.open() as text:
        binary.readline()
        text.readline()
        memory = io.StringIO("größe\n")
        texts, places, _ = read(binary, text, memory, io.BytesIO(gzip.compress(LINE)))
        assert not binary.closed
        assert not text.closed
    assert texts == {
        str(path): LINE,
        f"{path} (2)": LINE,
        "<file 3>": "größe\n".encode(),
        "<file 4>": LINE,
    }
    assert len(places) == 4


def test_a_path_given_twice_is_read_once(tmp_path, monkeypatch):
    """The same lines twice would be the same death twice."""
    path = tmp_path / "worker.log"
    path.write_bytes(LINE)
    monkeypatch.chdir(tmp_path)
    assert list(read(path, "worker.log", str(tmp_path / "*.log"))[0].values()) == [LINE]


def test_log_text_brings_its_stream_and_its_worker():
    """What the caller says of a text goes with every chunk of it."""
    chunks = list(
        LogSource(
            [LogText("a", "nanny", "tcp://10.0.0.4:1"), LogText("b", worker="worker-7"), LogText("c")],
            stream="worker",
        ).collect(budget_s=30)
    )[::2]
    assert [(each.origin, each.stream, each.identity.worker, each.identity.name) for each in chunks] == [
        ("LogText 1", "nanny", "tcp://10.0.0.4:1", None),
        ("LogText 2", "worker", None, "worker-7"),
        ("LogText 3", "worker", None, None),
    ]


def test_standard_input_is_read_to_its_end(monkeypatch):
    """``-`` is what is piped in."""
    out, into = os.pipe()
    os.write(into, gzip.compress(LINE))
    os.close(into)
    with os.fdopen(out) as piped:
        monkeypatch.setattr("sys.stdin", piped)
        assert read("-", "-") == ({"<stdin>": LINE}, ["log"], [])


def test_urls_go_through_fsspec():
    """One file, a pattern and a folder of any file system that fsspec knows."""
    files = fsspec.filesystem("memory")
    files.pipe({"/logs/a.log": LINE, "/logs/b.log.gz": gzip.compress(LINE), "/logs/data.parquet": b"PAR1"})
    both = {"memory:///logs/a.log": LINE, "memory:///logs/b.log.gz": LINE}
    assert list(read("memory://logs/a.log")[0].values()) == [LINE]
    assert [*read("memory://logs/*.log*")[0].values()] == [*both.values()]
    assert [*read("memory://logs")[0].values()] == [*both.values()]
    assert [gap.reason for gap in read("memory://logs/none.log", "memory://none/*.log")[2]] == ["unreachable"] * 2
    files.rm("/logs", recursive=True)


@pytest.mark.parametrize(
    ("url", "command"),
    [
        ("s3://bucket/worker.log", "pip install 'fsspec[s3]'"),
        ("https://host/worker.log", "pip install 'fsspec[http]'"),
    ],
)
def test_a_protocol_whose_package_is_missing_is_named(monkeypatch, url, command):
    """Reading from S3 or the web needs a package, and the remedy is the command that installs it."""

    def missing(name):
        raise ImportError(f"{name} is not installed")

    monkeypatch.setattr("fsspec.core.get_filesystem_class", missing)
    gap = read(url)[2][0]
    assert (gap.reason, gap.remedy) == ("not-installed", command)


def test_a_protocol_that_nobody_knows_is_a_mistake_in_the_url():
    """Nothing can be installed for it."""
    gap = read("s4://bucket/worker.log")[2][0]
    assert (gap.reason, gap.detail) == ("malformed", "fsspec does not know this kind of URL")
    assert "s3://" in gap.remedy


def test_names_of_urls_hold_no_secrets():
    """Reports are pasted into issues: passwords and signatures must not be in them."""
    assert url_without_secrets("https://me:pw@host/a.log?X-Sig=abc&v=1") == "https://host/a.log?X-Sig=...&v=..."
    assert url_without_secrets("s3://bucket/a.log") == "s3://bucket/a.log"
    assert url_without_secrets("/plain/path?x=1") == "/plain/path?x=1"


class Endless(io.RawIOBase):
    """A file without end, one line."""

    def readable(self):
        """As any file that was opened for reading."""
        return True

    def readinto(self, buffer):
        """As much as is wanted."""
        buffer[:] = b"x" * len(buffer)
        return len(buffer)


@gives_up
def test_time_is_kept_and_the_bytes_read_are_told():
    """A file too large for the budget is read as far as time allows."""
    texts, places, gaps = read(Endless(), LogText("never reached"), budget_s=0.3)
    assert places == []
    assert gaps[0].reason == "timed-out"
    assert f"{len(texts['<file 1>']):,} bytes" in gaps[0].detail
    assert "LogText" in gaps[1].detail


def test_memory_is_bounded_whatever_comes(tmp_path):
    """An endless line, and a file that unpacks to a hundred times its size, take a few MiB."""
    bomb = tmp_path / "bomb.log"
    bomb.write_bytes(zstd(b"y" * 100 * 2**20))
    tracemalloc.start()
    for _ in LogSource([bomb, Endless()]).collect(budget_s=0.5):
        pass
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 40 * 2**20


@gives_up
def test_an_input_that_hangs_does_not_cost_the_others(tmp_path):
    """A pipe whose writer says no more is left alone while there is time for the rest."""
    out, into = os.pipe()
    good = tmp_path / "good.log"
    good.write_bytes(LINE)
    with os.fdopen(out, "rb", buffering=0) as silent, os.fdopen(into, "wb", buffering=0) as writer:
        writer.write(LINE)
        texts, _, gaps = read(silent, good, budget_s=2.5)
    assert list(texts.values()) == [LINE, LINE]
    assert [(gap.reason, f"{len(LINE):,} bytes" in gap.detail) for gap in gaps] == [("timed-out", True)]


def test_whoever_stops_listening_stops_the_reading():
    """No thread goes on reading when its text is not wanted any more."""
    pieces = LogSource([Endless()]).collect(budget_s=30)
    next(pieces)
    pieces.close()
    for _ in range(50):
        if not any(thread.name == "workerdiag-log" for thread in threading.enumerate()):
            return
        time.sleep(0.05)
    pytest.fail("still reading")
