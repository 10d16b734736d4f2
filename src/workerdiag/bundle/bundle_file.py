"""The file of a death bundle: written all or nothing, and read back whatever became of it on the way.

There is nothing in it that should not leave. It is read in memory only, within bounds, as far as it goes; the names
in it lead nowhere.
"""

from __future__ import annotations

import contextlib
import errno
import io
import json
import os
import tempfile
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from workerdiag.bundle.bug_report import configuration, versions
from workerdiag.bundle.evidence_json import UnknownKindError, evidence_converter, piece_from_dict, piece_to_dict
from workerdiag.bundle.kept_evidence import KeptEvidence, KeptLog
from workerdiag.errors import BadReportError, BundleError, describe_error, error_text
from workerdiag.guard import guarded
from workerdiag.model.diagnosis import Findings
from workerdiag.model.evidence import Evidence, Gap, LogExcerpt
from workerdiag.model.identity import Identity
from workerdiag.model.vocabulary import as_stream
from workerdiag.redaction.objects import redact_object
from workerdiag.rendering.json import from_json, to_dict
from workerdiag.values import evolve, field, frozen

#: Shape of the bundle; one more whenever a reader could notice. Readers of an older number still try.
SCHEMA = 1
#: What ``manifest.json`` says under ``kind``: this, and no name of a file, makes a zip archive a bundle.
KIND = "workerdiag death bundle"

MANIFEST = "manifest.json"
DIAGNOSIS = "diagnosis.json"
EVIDENCE = "evidence.json"
VERSIONS = "versions.json"
CONFIGURATION = "configuration.json"

#: Value of ``kind`` for a log in ``evidence.json``; every other one is the name of an evidence class.
LOG_KIND = "Log"

#: Stands in a log's file where lines were left out.
LEFT_OUT = "[workerdiag: lines {first} to {last} were left out here]\n"

#: What a reader takes, in bytes unpacked: of one file, and of all together. A writer keeps 8 MiB,
#: of which 6 MiB are log text and 1 MiB are pieces.
MAX_FILE_BYTES = 8 * 2**20
MAX_BYTES = 24 * 2**20
MAX_FILES = 5_000
#: Commas and brackets in one JSON file: each can take some hundred bytes of memory.
MAX_JSON_MARKS = 500_000
#: Pieces of evidence, and parts of one log. A writer keeps 10,000 pieces.
MAX_PIECES = 20_000
MAX_PARTS = 10_000

#: Takes out what must not leave.
Hide = Callable[[Any], Any]


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
        name = f"logs/{len(logs) + 1:04}.txt"
        texts = [hide(part.data) for part in item.parts]
        logs.append((name, _text_with_cut_lines(item, texts)))
        plain.append(hide(_log_to_dict(item, name, [len(each) for each in texts])))
    return {"schema": SCHEMA, "pieces": plain}, logs


def _text_with_cut_lines(log: KeptLog, texts: Sequence[bytes]) -> bytes:
    marked: list[bytes] = []
    following = 1
    for part, text in zip(log.parts, texts, strict=True):
        if part.line > following or marked:
            marked.append(LEFT_OUT.format(first=following, last=part.line - 1).encode())
        marked.append(text)
        following = part.line + text.count(b"\n")
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
                    info = zipfile.ZipInfo(member, date_time=(1980, 1, 1, 0, 0, 0))
                    info.compress_type = zipfile.ZIP_DEFLATED
                    info.external_attr = 0o600 << 16  # readable by its owner
                    info.create_system = 3  # Unix, on every system, so that the bytes are the same
                    archive.writestr(info, content, compresslevel=6)
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            Path(name).unlink()
        raise


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


def _log_to_dict(log: KeptLog, file: str, sizes: list[int]) -> dict[str, object]:
    """Everything about a log but its text, which is in *file*, in parts of these many bytes."""
    return {
        "kind": LOG_KIND,
        "file": file,
        "origin": log.origin,
        "stream": log.stream,
        "identity": evidence_converter().unstructure(log.identity),
        "read_bytes": log.read_bytes,
        "parts": [{"first_line": part.line, "bytes": size} for part, size in zip(log.parts, sizes, strict=True)],
    }


def _log_from_dict(plain: Mapping[str, Any]) -> tuple[KeptLog, list[tuple[int, int]]]:
    """The log that `_log_to_dict` described, without its text, and first line and bytes of its parts."""
    read = evidence_converter().structure
    log = KeptLog(
        origin=read(plain["origin"], str),
        stream=as_stream(plain.get("stream")),
        identity=read(plain.get("identity") or {}, Identity),
        read_bytes=read(plain.get("read_bytes", 0), int),
    )
    return log, [
        (max(1, read(each["first_line"], int)), max(0, read(each["bytes"], int))) for each in plain["parts"]
    ]


_MAX_SMALL_BYTES = 256 * 1024
_DAMAGED = "copy or download it again"


@frozen(kw_only=True, eq=False)
class Bundle:
    """What is in a death bundle."""

    #: Path or other name under which it was found.
    name: str
    manifest: Mapping[str, object]
    #: The diagnosis as it was saved; None if it cannot be read.
    findings: Findings | None = None
    kept_evidence: KeptEvidence = field(factory=KeptEvidence)
    #: Of the process that wrote it.
    versions: Mapping[str, str] = field(factory=dict)
    configuration: Mapping[str, str] = field(factory=dict)
    #: What could not be read of it.
    gaps: tuple[Gap, ...] = ()

    def evidence(self) -> Iterator[Evidence]:
        """The evidence, to be judged again, and what was not kept or could not be read of it."""
        yield from self.kept_evidence.evidence()
        yield from self.gaps
        for note in self.kept_evidence.left_out:
            yield Gap(source=self.name, place="workerdiag", reason="expired", detail=note)


def bundle_evidence(name: str, data: bytes) -> tuple[Evidence, ...] | None:
    """The evidence in a zip archive, None if that is no death bundle; raises BundleError as `read_bundle` does."""
    bundle = read_bundle(name, data)
    return tuple(bundle.evidence()) if bundle else None


def read_bundle(name: str, data: bytes) -> Bundle | None:
    """What is in a zip archive; None if that is no death bundle.

    Nothing is written to disk, and memory stays bounded. What is damaged, or of a version that is
    not known yet, is a gap.

    Raises:
        BundleError: It is one, or it is damaged, and nothing in it can be read.
    """
    archive = Archive(data)
    archive.enter_folder(MANIFEST)
    manifest = _parse_file(archive, MANIFEST, _MAX_SMALL_BYTES)
    if manifest is None and archive.is_damaged:
        raise BundleError(name, "the zip cannot be read: it is damaged or cut off", "copy or download it again")
    if not isinstance(manifest, dict) or manifest.get("kind") != KIND:
        return None
    reader = _BundleReader(name, archive)
    findings = reader.findings()
    kept_evidence = reader.kept_evidence(manifest)
    if findings is None and not kept_evidence.items:
        why = "; ".join(archive.problems[:3]) or "it holds neither a diagnosis nor evidence"
        raise BundleError(name, why, _DAMAGED)
    return Bundle(
        name=name,
        manifest=manifest,
        findings=findings,
        kept_evidence=kept_evidence,
        versions=reader.texts(VERSIONS),
        configuration=reader.texts(CONFIGURATION),
        gaps=tuple(reader.gaps(manifest)),
    )


class _BundleReader:
    def __init__(self, name: str, archive: Archive) -> None:
        self._name = name
        self._archive = archive
        self._unknown: Counter[str] = Counter()
        self._malformed = 0
        self._read_files: set[str] = set()

    def findings(self) -> Findings | None:
        content = self._archive.read(DIAGNOSIS)
        if content is None or not _is_parsable(content):
            return None
        try:
            return Findings(**from_json(content.decode("utf-8")))
        except (BadReportError, UnicodeDecodeError) as problem:
            self._archive.note(f"{DIAGNOSIS}: {problem}"[:300])
            return None

    def kept_evidence(self, manifest: Mapping[str, object]) -> KeptEvidence:
        content = _parse_file(self._archive, EVIDENCE)
        pieces = content.get("pieces") if isinstance(content, dict) else None
        items = self._items(pieces) if isinstance(pieces, list) else ()
        left_out = manifest.get("left_out")
        notes = left_out[:20] if isinstance(left_out, list) else []
        return KeptEvidence(items=tuple(items), left_out=tuple(str(each)[:300] for each in notes))

    def texts(self, file: str) -> dict[str, str]:
        content = _parse_file(self._archive, file, _MAX_SMALL_BYTES)
        if not isinstance(content, dict):
            return {}
        return {
            str(key)[:200]: "" if each is None else str(each)[:500] for key, each in list(content.items())[:500]
        }

    def gaps(self, manifest: Mapping[str, object]) -> Iterator[Gap]:
        problems = [*self._archive.problems[:5]]
        if self._malformed:
            problems.append(f"{self._malformed} pieces of evidence are malformed and were skipped")
        if problems:
            yield self._bundle_gap("; ".join(problems), _DAMAGED)
        newer = []
        schema = manifest.get("schema")
        if schema != SCHEMA:
            newer.append(f"it has schema {str(schema)[:20]}, and this version reads {SCHEMA}")
        if self._unknown:
            kinds = ", ".join(sorted(self._unknown)[:5])
            newer.append(f"{self._unknown.total()} pieces of unknown kinds were skipped ({kinds})")
        if newer:
            yield self._bundle_gap("; ".join(newer), "upgrade workerdiag, or use the version that wrote it")

    def _bundle_gap(self, detail: str, remedy: str) -> Gap:
        source = f"bundle {self._name}"
        return Gap(source=source, place="log", reason="malformed", detail=detail[:500], remedy=remedy)

    def _items(self, pieces: list[object]) -> Iterator[Evidence | KeptLog]:
        if len(pieces) > MAX_PIECES:
            self._archive.note(f"of {len(pieces)} pieces of evidence the first {MAX_PIECES} were read")
        for plain in pieces[:MAX_PIECES]:
            with guarded("reading a piece of evidence") as reading:
                if isinstance(plain, dict) and plain.get("kind") == LOG_KIND:
                    yield self._log(plain)
                else:
                    yield piece_from_dict(plain)
            if isinstance(reading.problem, UnknownKindError):
                self._unknown[str(reading.problem)] += 1
            elif reading.problem is not None:
                self._malformed += 1

    def _log(self, plain: Mapping[str, object]) -> KeptLog:
        log, parts = _log_from_dict(plain)
        file = str(plain["file"]) if parts else ""
        if file in self._read_files:
            self._archive.note(f"{file}: it is named for more than one log")
            return log
        self._read_files.add(file)
        text = self._archive.read(file) if parts else b""
        if text is None:
            self._archive.note(f"the text of {log.origin} is missing")
            return log
        return evolve(log, parts=_log_parts(text, parts))


def _log_parts(text: bytes, described: list[tuple[int, int]]) -> tuple[LogExcerpt, ...]:
    """The parts of a log's text without our marks; text that somebody has edited is taken as one."""
    whole = (LogExcerpt(0, 1, text),)
    if len(described) > MAX_PARTS:
        return whole
    parts, at = [], 0
    for index, (first_line, size) in enumerate(described):
        if index or first_line > 1:
            line_end = text.find(b"\n", at)
            if line_end < 0 or not text.startswith(b"[workerdiag: lines ", at):
                return whole
            at = line_end + 1
        parts.append(LogExcerpt(at, first_line, text[at : at + size]))
        at += size
    return tuple(parts) if at == len(text) else whole


def _parse_file(archive: Archive, name: str, *most: int) -> object:
    """What a JSON file holds; None if it is not there or is none."""
    content = archive.read(name, *most)
    if content is None:
        return None
    if not _is_parsable(content):
        archive.note(f"{name}: it has too many values")
        return None
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as problem:
        archive.note(f"{name}: not JSON ({problem})"[:200])
        return None


def _is_parsable(content: bytes) -> bool:
    """Whether parsing it takes a bounded multiple of its size."""
    return sum(map(content.count, (b",", b"[", b"{"))) <= MAX_JSON_MARKS


#: PKWARE's APPNOTE.TXT 6.3.10, section 4.3.7: local file header; 4.3.12: signature of central headers.
_LOCAL_MARK = b"PK\x03\x04"
_CENTRAL_MARK = b"PK\x01\x02"


class Archive:
    """The files of a zip archive."""

    def __init__(self, data: bytes) -> None:
        #: What could not be read, a sentence each.
        self.problems: list[str] = []
        #: Whether it begins as an archive and its list of files cannot be read.
        self.is_damaged = False
        self._left = MAX_BYTES
        self._zip: zipfile.ZipFile | None = None
        self._prefix = ""
        if data.count(_CENTRAL_MARK) > MAX_FILES:
            self.note(f"it has more than {MAX_FILES} files")
            return
        with guarded("opening a bundle"):
            self._zip = zipfile.ZipFile(io.BytesIO(data))
        self.is_damaged = self._zip is None and data.startswith(_LOCAL_MARK)

    def note(self, problem: str) -> None:
        """Note what could not be read; of very many the first few."""
        if len(self.problems) < 50:
            self.problems.append(problem[:300])

    def enter_folder(self, name: str) -> None:
        """Look for all files in the folder in which *name* is found: a bundle may have been packed again."""
        names = self._zip.namelist() if self._zip else ()
        found = [each for each in names if each == name or each.endswith(f"/{name}")]
        if found:
            self._prefix = min(found, key=len).removesuffix(name)

    def read(self, name: str, most: int = MAX_FILE_BYTES) -> bytes | None:
        """What is in the file; None if there is none, or if it cannot be read. At most *most* bytes."""
        most = min(most, self._left)
        content = None
        with guarded("reading a bundle") as reading:
            content = self._content(self._prefix + name, most)
        if reading.problem is not None:
            self.note(f"{name}: {describe_error(reading.problem)}"[:200])
        if content is None:
            return None
        if len(content) > most:
            self.note(f"{name}: it is too large")
            return None
        self._left -= len(content)
        return content

    def _content(self, name: str, most: int) -> bytes | None:
        if self._zip is None:
            return None
        try:
            info = self._zip.getinfo(name)
        except KeyError:
            return None
        if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise ValueError("its compression method is not one that bundles use")
        with self._zip.open(info) as file:
            return file.read(most + 1)
