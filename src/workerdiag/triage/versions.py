"""Find the versions of Python and distributed that a log names.

Dask does not log its version. Tracebacks show the folder of Python's library, images of Dask show their tag,
and servers whose versions differ log a table of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from attrs import frozen


@frozen(kw_only=True)
class Versions:
    """The first versions that a text names; None: the text names none."""

    #: Python version, such as ``3.12``.
    python: str | None = None
    distributed: str | None = None

    def seen_in(self, data: bytes) -> Versions:
        """Return these versions; fill in unknown ones from *data*."""
        if self.python is not None and self.distributed is not None:
            return self
        return Versions(
            python=self.python or _first_version(_PYTHON, data),
            distributed=self.distributed or _first_version(_DISTRIBUTED, data),
        )

    def or_else(self, other: Versions) -> Versions:
        """Return these versions; fill in unknown ones from *other*."""
        return Versions(python=self.python or other.python, distributed=self.distributed or other.distributed)

    @classmethod
    def common(cls, all_of_them: Iterable[Versions]) -> Versions:
        """Return the versions that all agree on; None where they differ. Unknown versions do not count."""
        given = list(all_of_them)
        return cls(
            python=_only({each.python for each in given}),
            distributed=_only({each.distributed for each in given}),
        )


NO_VERSIONS = Versions()

#: Search the first bytes of a text only: searching all of it would take a third of the time of the marks.
VERSIONS_WITHIN: Final = 16 * 2**20
#: Bytes of the longest text that names a version; a longer table row is cut off.
LONGEST_NAMING: Final = 1024

#: Literals that are quick to find, each with the pattern that begins with it: ``/usr/lib/python3.12/``.
_PYTHON = ((b"/python3.", re.compile(rb"/python(3\.\d{1,2})/")),)
#: An image of Dask (``ghcr.io/dask/dask:2026.8.0-py3.12``), and the last column, the workers, of the table in
#: ``distributed.versions.error_message``.
_DISTRIBUTED = (
    (b"/dask:20", re.compile(rb"/dask:(20\d\d\.\d{1,2}\.\d{1,2})\b")),
    (b"| distributed ", re.compile(rb"\| distributed +\|[^\n]*\| +(20\d\d\.\d{1,2}\.\d{1,2}) +\|\s*\n")),
)
#: The search ends after this many places of a literal that name no version.
_MAX_PLACES = 20


def _first_version(wanted: Iterable[tuple[bytes, re.Pattern[bytes]]], data: bytes) -> str | None:
    for literal, pattern in wanted:
        at = -1
        for _ in range(_MAX_PLACES):
            at = data.find(literal, at + 1)
            if at < 0:
                break
            if found := pattern.match(data, at):
                return found[1].decode()
    return None


def _only(versions: set[str | None]) -> str | None:
    known = versions - {None}
    return known.pop() if len(known) == 1 else None
