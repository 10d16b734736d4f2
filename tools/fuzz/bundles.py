"""Death bundles: whole, hostile, and with a file in them that was tampered with."""

from __future__ import annotations

import io
import tempfile
import warnings
import zipfile
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path

import workerdiag
from fuzz import corpus
from fuzz.scripts import Script
from workerdiag import LogText
from workerdiag.bundle.bundle_file import EVIDENCE, KIND, MANIFEST

_MOST_MEMBER_BYTES = 10**6
_LINK = 0o120777 << 16
_ODD_NAMES = ("/etc/passwd", "../../../tmp/x", "C:\\x", "\0", "logs/../manifest.json", "a/" * 2000, "CON", "")


@cache
def bundles() -> tuple[bytes, ...]:
    """Bundles of some recorded deaths, packed and not, and hostile ones."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "death.zip")
        made = []
        for log in corpus.logs()[::40]:
            workerdiag.explain(logs=LogText(log.decode("utf-8", "replace"))).save(path)
            made += [path.read_bytes(), _packed(_members(path.read_bytes()))]
    return (*made, *_hostile(_members(made[0])))


@cache
def _members(bundle: bytes) -> Mapping[str, bytes]:
    try:
        with zipfile.ZipFile(io.BytesIO(bundle)) as archive:
            return {
                each.filename: archive.read(each)
                for each in archive.infolist()[:50]
                if each.filename and each.file_size < _MOST_MEMBER_BYTES
            }
    except (zipfile.BadZipFile, RuntimeError):
        return {}


def with_member(bundle: bytes, script: Script, changed: Callable[[bytes], bytes]) -> bytes:
    """The bundle with one of its files changed, its checksums made anew."""
    members = dict(_members(bundle))
    if not members:
        return changed(bundle)
    name = script.one_of(sorted(members))
    members[name] = changed(members[name])
    return _packed(members, zipfile.ZIP_STORED if script.number() % 2 else zipfile.ZIP_DEFLATED)


def _packed(members: Mapping[str, bytes], method: int = zipfile.ZIP_STORED) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", method, compresslevel=1) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return content.getvalue()


def _hostile(members: Mapping[str, bytes]) -> tuple[bytes, ...]:
    """Bombs, links, names that lead elsewhere, methods that no bundle uses."""
    deep = b'{"kind": "%s", "schema": 1, "pieces": %s}' % (KIND.encode(), b"[" * 50_000)
    manifest = members[MANIFEST]
    return (
        _bomb(members),
        _packed({**members, EVIDENCE: b'{"pieces": [' + b"[]," * 400_000 + b"[]]}"}, zipfile.ZIP_DEFLATED),
        _packed({**members, EVIDENCE: deep}),
        _packed({MANIFEST: deep}),
        _packed({**members, EVIDENCE: corpus.PICKLE, "data.pkl": corpus.PICKLE}),
        _packed(members, zipfile.ZIP_BZIP2),
        _packed(members, zipfile.ZIP_LZMA),
        _packed({**members, "inner.zip": _packed(members)}),
        _packed({MANIFEST: manifest, **{f"logs/{number}": b"" for number in range(6000)}}),
        b"#!/bin/sh\n" * 50 + _packed(members),
        _links(members),
        _odd_names(members),
    )


def _bomb(members: Mapping[str, bytes]) -> bytes:
    content, zeros = io.BytesIO(), bytes(10**6)
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(MANIFEST, members[MANIFEST])
        for name in set(members) - {MANIFEST}:
            with archive.open(name, "w") as file:
                for _ in range(30):
                    file.write(zeros)
    return content.getvalue()


def _links(members: Mapping[str, bytes]) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for name, data in members.items():
            info = zipfile.ZipInfo(name)
            if name != MANIFEST:
                info.create_system, info.external_attr = 3, _LINK
                data = b"/etc/passwd"  # noqa: PLW2901  what the link leads to
            archive.writestr(info, data)
    return content.getvalue()


def _odd_names(members: Mapping[str, bytes]) -> bytes:
    content = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(content, "w") as archive:
        warnings.simplefilter("ignore")  # the same name twice
        for name, data in (*members.items(), *((name, b"x") for name in _ODD_NAMES), *members.items()):
            archive.writestr(zipfile.ZipInfo(name), data)
    return content.getvalue()
