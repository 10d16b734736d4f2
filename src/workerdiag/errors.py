"""
Everything workerdiag raises on purpose.

Errors carry their facts as attributes, word themselves, and survive being
pickled by Dask (hence not frozen and not keyword-only).
"""

from __future__ import annotations

from typing import Any

from attrs import define, fields, has


class WorkerdiagError(Exception):
    """
    Base of everything raised on purpose.
    """

    def __reduce__(self) -> tuple[Any, ...]:
        """
        How to make it again elsewhere: from its facts, however they were given.
        """
        kind = type(self)
        return (
            (kind, tuple(getattr(self, each.name) for each in fields(kind)))
            if has(kind)
            else (kind, self.args)
        )


@define(eq=False)
class RuleFileError(WorkerdiagError):
    """
    Files under ``knowledge/`` do not say what we can understand.
    """

    #: The folder or file that was being loaded.
    place: str
    #: All problems at once, each with file and key: ``a.toml: .sign[0].grade: ...``.
    problems: tuple[str, ...]

    def __str__(self) -> str:
        count = len(self.problems)
        head = f"cannot use {self.place}: {count} problem{'s' if count != 1 else ''}"
        return "\n  ".join((head, *self.problems))


@define(eq=False)
class UnreadableInputError(WorkerdiagError):
    """
    One input (a path, a URL, an open file) could not be read.
    """

    name: str
    why: str
    #: What the caller can do about it.
    remedy: str = ""

    def __str__(self) -> str:
        return f"cannot read {self.name}: {self.why}" + (f" ({self.remedy})" if self.remedy else "")


@define(eq=False)
class BadReportError(WorkerdiagError):
    """
    A JSON text is not a diagnosis that this version can read back.
    """

    why: str

    def __str__(self) -> str:
        return f"not a workerdiag diagnosis: {self.why}"


@define(eq=False)
class BadBoxError(WorkerdiagError):
    """
    A file is no black box that this version can read, or cannot be read at all.
    """

    #: Path of the file; empty if there was none.
    name: str
    why: str

    def __str__(self) -> str:
        return f"cannot read {self.name or 'the bytes'} as a black box: {self.why}"


@define(eq=False)
class InstallError(WorkerdiagError):
    """
    The flight recorder cannot be installed on a cluster; nothing of it is.
    """

    #: Which processes cannot, by address or name: the first few of them.
    where: tuple[str, ...]
    why: str
    remedy: str = ""

    def __str__(self) -> str:
        places = ", ".join(self.where)
        return f"cannot install the recorder on {places}: {self.why}" + (
            f" ({self.remedy})" if self.remedy else ""
        )


@define(eq=False)
class BundleError(WorkerdiagError):
    """
    A death bundle cannot be written, or a file is none that can be read.
    """

    name: str
    why: str
    #: What the caller can do about it.
    remedy: str = ""

    def __str__(self) -> str:
        return f"cannot use {self.name} as a death bundle: {self.why}" + (
            f" ({self.remedy})" if self.remedy else ""
        )
