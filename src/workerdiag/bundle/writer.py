"""Writes a death bundle: all or nothing, nothing in it that should not leave."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from workerdiag.bundle.bug_report import configuration, versions
from workerdiag.bundle.evidence_json import (
    CONFIGURATION,
    DIAGNOSIS,
    EVIDENCE,
    KIND,
    LEFT_OUT,
    LOG,
    MANIFEST,
    SCHEMA,
    VERSIONS,
    log_to_dict,
    piece_to_dict,
)
from workerdiag.bundle.kept_evidence import KeptEvidence, KeptLog
from workerdiag.errors import BundleError, error_text
from workerdiag.model.diagnosis import Findings
from workerdiag.redaction.objects import redact_object
from workerdiag.rendering.json import to_dict

#: Takes out what must not leave.
Hide = Callable[[Any], Any]
#: Every file has this time: the same content makes the same bytes.
_TIME = (1980, 1, 1, 0, 0, 0)


def write_bundle(
    findings: Findings, kept_evidence: KeptEvidence | None, path: Path, *, redact: bool = True
) -> Path:
    """Write a bundle to *path*, replacing what is there once the new one is whole; see ``Diagnosis.save``.

    Raises:
        BundleError: It cannot be written there; nothing is left behind.
    """
    if kept_evidence is None:
        note = "this diagnosis was read back from text: there is no evidence beside it"
        kept_evidence = KeptEvidence(left_out=(note,))
    contents = list(_bundle_files(findings, kept_evidence, redact=redact))
    try:
        _write_atomically(path, contents)
    except OSError as problem:
        raise BundleError(str(path), *_write_failure(problem, path)) from problem
    return path


def _bundle_files(findings: Findings, kept_evidence: KeptEvidence, *, redact: bool) -> Iterator[tuple[str, bytes]]:
    hide: Hide = redact_object if redact else lambda value: value
    evidence, logs = _evidence_files(kept_evidence, hide)
    files = [
        (DIAGNOSIS, _json_bytes(hide(to_dict(findings)))),
        (EVIDENCE, _json_bytes(evidence)),
        (VERSIONS, _json_bytes(hide(versions()))),
        (CONFIGURATION, _json_bytes(hide(configuration()))),
        *logs,
    ]
    manifest = {
        "kind": KIND,
        "schema": SCHEMA,
        "workerdiag": hide(findings.version),
        "knowledge": hide(findings.knowledge),
        "saved_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "hidden": ["secrets"] if redact else [],
        "left_out": hide(list(kept_evidence.left_out)),
        "files": {name: len(content) for name, content in files},
    }
    return iter([(MANIFEST, _json_bytes(manifest)), *files])


def _evidence_files(kept_evidence: KeptEvidence, hide: Hide) -> tuple[dict[str, object], list[tuple[str, bytes]]]:
    """What goes into ``evidence.json``, and name and text of the logs."""
    plain: list[object] = []
    logs: list[tuple[str, bytes]] = []
    for item in kept_evidence.items:
        if not isinstance(item, KeptLog):
            plain.append(hide(piece_to_dict(item)))
            continue
        name = LOG.format(number=len(logs) + 1)
        texts = [hide(part.data) for part in item.parts]
        logs.append((name, _text_with_cut_lines(item, texts)))
        plain.append(hide(log_to_dict(item, name, [len(each) for each in texts])))
    return {"schema": SCHEMA, "pieces": plain}, logs


def _text_with_cut_lines(log: KeptLog, texts: Sequence[bytes]) -> bytes:
    """The text of a log, with a line for a person wherever lines were left out."""
    marked: list[bytes] = []
    following = 1
    for part, text in zip(log.parts, texts, strict=True):
        if part.first_line > following or marked:
            marked.append(LEFT_OUT.format(first=following, last=part.first_line - 1).encode())
        marked.append(text)
        following = part.first_line + text.count(b"\n")
    return b"".join(marked)


def _json_bytes(value: object) -> bytes:
    return json.dumps(value, indent=1, default=str).encode("ascii") + b"\n"


def _write_atomically(path: Path, contents: Sequence[tuple[str, bytes]]) -> None:
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, "it is a folder")
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=".workerdiag-", suffix=".zip")
    try:
        with os.fdopen(handle, "wb") as file:
            with zipfile.ZipFile(file, "w") as archive:
                for member, content in contents:
                    archive.writestr(_member_info(member), content, compresslevel=6)
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            Path(name).unlink()
        raise


def _member_info(name: str) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name, date_time=_TIME)
    info.compress_type = zipfile.ZIP_DEFLATED
    info.external_attr = 0o600 << 16  # readable by its owner
    info.create_system = 3  # Unix, on every system, so that the bytes are the same
    return info


def _write_failure(problem: OSError, path: Path) -> tuple[str, str]:
    if isinstance(problem, FileNotFoundError):
        return f"the folder {path.parent} does not exist", "create it first"
    if isinstance(problem, NotADirectoryError):
        return f"{path.parent} is not a folder", "give a path in a folder"
    if isinstance(problem, IsADirectoryError):
        return "it is a folder", "give the path of a file, such as death.zip"
    if problem.errno in (errno.ENOSPC, errno.EDQUOT):
        return "the disk is full", "save it elsewhere"
    if isinstance(problem, PermissionError) or problem.errno == errno.EROFS:
        return "it may not be written there", "save it elsewhere"
    return error_text(problem), "save it elsewhere"
