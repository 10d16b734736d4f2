"""A zip archive that anybody may have made: read in memory only, within bounds, as far as it goes.

Nothing is written to disk, so the names in it lead nowhere. A file that was cut off has lost the
list of what is in it, which a zip archive has at its end; what is whole before that is still found.
"""

from __future__ import annotations

import io
import zipfile
import zlib
from collections.abc import Iterator
from struct import Struct

from attrs import define, field, frozen

from workerdiag.bundle.layout import MAX_BYTES, MAX_FILE_BYTES, MAX_FILES
from workerdiag.errors import describe_error

#: PKWARE's APPNOTE.TXT 6.3.10, section 4.3.7: local file header; 4.3.12: signature of central headers.
_LOCAL = Struct("<4sHHHHHIIIHH")
_LOCAL_MARK = b"PK\x03\x04"
_CENTRAL_MARK = b"PK\x01\x02"
_DEFLATED, _STORED = 8, 0
_MAX_PROBLEMS = 50
_SIZE_FOLLOWS, _ENCRYPTED = 8, 1


@frozen
class _Packed:
    """Where a file is in an archive that has lost its list."""

    start: int
    size_bytes: int
    method: int


@define
class Archive:
    """The files of a zip archive."""

    _data: bytes = field(repr=False)
    #: What could not be read, a sentence each.
    problems: list[str] = field(factory=list, init=False)
    #: Whether it begins as an archive and its list of files cannot be read.
    is_damaged: bool = field(default=False, init=False)
    _left: int = field(default=MAX_BYTES, init=False)
    _zip: zipfile.ZipFile | None = field(default=None, init=False)
    _recovered: dict[str, _Packed] = field(factory=dict, init=False)
    _prefix: str = field(default="", init=False)

    def __attrs_post_init__(self) -> None:
        """Read the list of files."""
        if self._data.count(_CENTRAL_MARK) > MAX_FILES:
            self.note(f"it has more than {MAX_FILES} files")
            return
        try:
            self._zip = zipfile.ZipFile(io.BytesIO(self._data))
        except Exception:  # noqa: BLE001  whatever zipfile meets in a hostile file
            self.is_damaged = self._data.startswith(_LOCAL_MARK)
            self._recovered = dict(self._scan_files())
            self.note("it is damaged or cut off; what is whole in it was read")

    def note(self, problem: str) -> None:
        """Note what could not be read; of very many the first few."""
        if len(self.problems) < _MAX_PROBLEMS:
            self.problems.append(problem[:300])

    def enter_folder(self, name: str) -> None:
        """Look for all files in the folder in which *name* is found: a bundle may have been packed again."""
        names = self._zip.namelist() if self._zip else list(self._recovered)
        found = [each for each in names if each == name or each.endswith(f"/{name}")]
        if found:
            self._prefix = min(found, key=len).removesuffix(name)

    def read(self, name: str, most: int = MAX_FILE_BYTES) -> bytes | None:
        """What is in the file; None if there is none, or if it cannot be read. At most *most* bytes."""
        most = min(most, self._left)
        try:
            content = self._content(self._prefix + name, most)
        except Exception as problem:  # noqa: BLE001  whatever zipfile and zlib meet in a hostile file
            self.note(f"{name}: {describe_error(problem)}"[:200])
            return None
        if content is None:
            return None
        if len(content) > most:
            self.note(f"{name}: it is too large")
            return None
        self._left -= len(content)
        return content

    def _content(self, name: str, most: int) -> bytes | None:
        if self._zip is None:
            packed = self._recovered.get(name)
            return None if packed is None else self._unpack(packed, most + 1)
        try:
            info = self._zip.getinfo(name)
        except KeyError:
            return None
        if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise ValueError("it is packed in a way that bundles are not")
        with self._zip.open(info) as file:
            return file.read(most + 1)

    def _scan_files(self) -> Iterator[tuple[str, _Packed]]:
        """The files that can be found without the list at the end, as far as they are there."""
        at = 0
        for _ in range(MAX_FILES):
            if self._data[at : at + 4] != _LOCAL_MARK or at + _LOCAL.size > len(self._data):
                return
            _, _, flags, method, _, _, _, size, _, name_size, extra_size = _LOCAL.unpack_from(self._data, at)
            start = at + _LOCAL.size + name_size + extra_size
            if flags & (_SIZE_FOLLOWS | _ENCRYPTED) or method not in (_DEFLATED, _STORED):
                return
            name = self._data[at + _LOCAL.size : at + _LOCAL.size + name_size].decode("utf-8", "replace")
            yield name, _Packed(start, size, method)
            at = start + size

    def _unpack(self, packed: _Packed, most: int) -> bytes:
        """As much of the content as is there and may be had."""
        data = self._data[packed.start : packed.start + packed.size_bytes]
        if packed.method == _STORED:
            return data[:most]
        try:
            return zlib.decompressobj(-zlib.MAX_WBITS).decompress(data, most)
        except zlib.error:
            return b""
