"""
Everything workerdiag raises on purpose.

Errors carry their facts as attributes, word themselves, and survive being
pickled by Dask (hence not frozen and not keyword-only).
"""

from __future__ import annotations

import threading
from typing import ClassVar

from attrs import define, fields, has

#: What an error says can be all of what it could not read; nobody reads more than this.
_MAX_CHARS = 64 * 1024


def utf8_safe(text: str) -> str:
    r"""
    The *text* as UTF-8 can have it: half a surrogate pair becomes its escape, ``\udce9``.

    A file name that is no UTF-8 has such halves, and no file, terminal or JSON takes them.
    """
    text = str.__str__(text)  # an object of a subclass may do anything
    return text if text.isascii() else text.encode("utf-8", errors="backslashreplace").decode("utf-8")


def describe_error(problem: BaseException, *, most_chars: int = 500) -> str:
    """
    ``ValueError: what it says``, in text that can be shown, whatever its own ``str()`` does.
    """
    kind = utf8_safe(type(problem).__name__)
    message = error_text(problem)
    return f"{kind}: {message}"[:most_chars] if message else kind[:most_chars]


def error_text(problem: BaseException) -> str:
    """
    What an error says of itself, the beginning of it; empty if it says nothing.
    """
    try:
        return utf8_safe(str.__getitem__(str(problem), slice(_MAX_CHARS))).strip()
    except BaseException as worse:  # it runs foreign code
        if is_from_keyboard(worse):
            raise
        return f"<str() of it raised {utf8_safe(type(worse).__name__)}>"


def is_from_keyboard(problem: BaseException) -> bool:
    """
    Whether it can be the ^C of the user, which only the main thread gets, and not one that code raised.
    """
    return isinstance(problem, KeyboardInterrupt) and threading.current_thread() is threading.main_thread()


def _in_brackets(remedy: str) -> str:
    return f" ({remedy})" if remedy else ""


class WorkerdiagError(Exception):
    """
    Base of everything raised on purpose.
    """

    def __reduce__(self) -> tuple[object, ...]:
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
class UnusableFileError(WorkerdiagError):
    """
    Base of those that name a file or place, say why it cannot be used, and what to do about it.
    """

    name: str
    why: str
    #: What the caller can do about it.
    remedy: str = ""
    _problem: ClassVar[str] = "cannot use {}"

    def __str__(self) -> str:
        return f"{self._problem.format(self.name)}: {self.why}{_in_brackets(self.remedy)}"


@define(eq=False)
class RuleFileError(WorkerdiagError):
    """
    Files of rules, or of known issues, do not say what we can understand.
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
class UnreadableInputError(UnusableFileError):
    """
    One input (a path, a URL, an open file) could not be read.
    """

    _problem = "cannot read {}"


@define(eq=False)
class BadReportError(WorkerdiagError):
    """
    A JSON text is not a diagnosis that this version can read back.
    """

    why: str

    def __str__(self) -> str:
        return f"not a workerdiag diagnosis: {self.why} (give the text that Diagnosis.to_json() returned)"


@define(eq=False)
class BadBoxError(WorkerdiagError):
    """
    A file is no black box that this version can read, or cannot be read at all.
    """

    #: Path of the file; empty if there was none.
    name: str
    why: str

    def __str__(self) -> str:
        name = self.name or "the bytes"
        return f"cannot read {name} as a black box: {self.why} (give a file that ends in .box, or its folder)"


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
        return (
            f"cannot install the recorder on {', '.join(self.where)}: {self.why}{_in_brackets(self.remedy)}"
        )


@define(eq=False)
class BundleError(UnusableFileError):
    """
    A death bundle cannot be written, or a file cannot be read as one.
    """

    _problem = "cannot use {} as a death bundle"


@define(eq=False)
class TableError(UnusableFileError):
    """
    A table of triage cannot be written or read.
    """

    _problem = "cannot use {} as a table"


@define(eq=False)
class TriageError(WorkerdiagError):
    """
    Triage cannot go on, or one part of it cannot be done.
    """

    why: str
    #: What the caller can do about it.
    remedy: str = ""

    def __str__(self) -> str:
        return f"{self.why}{_in_brackets(self.remedy)}"


@define
class SchedulerUnreachableError(WorkerdiagError):
    """
    The scheduler does not answer; it may again.
    """

    address: str
    problem: str

    def __str__(self) -> str:
        return (
            f"the scheduler at {self.address} does not answer: {self.problem}"
            " (check the address and that it runs)"
        )


@define
class ClusterEndedError(WorkerdiagError):
    """
    The cluster was closed on purpose: no more deaths will come from it.
    """

    address: str

    def __str__(self) -> str:
        return f"the cluster at {self.address} was closed"


@define(eq=False)
class StateFileError(UnusableFileError):
    """
    The file in which the watcher keeps its state cannot be opened, read or written; it is left as it is.
    """

    _problem = "cannot use {} as the watcher's state"


@define(eq=False)
class StateInUseError(WorkerdiagError):
    """
    Another watcher has the state file.
    """

    #: Path of the file.
    name: str
    #: The process that has it: ``pid 4711 on host-a``.
    holder: str

    def __str__(self) -> str:
        return (
            f"another watcher uses {self.name}: {self.holder}"
            " (end that one, or give this one a state file of its own)"
        )


@define(eq=False)
class SilenceError(WorkerdiagError):
    """
    A silence cannot be made as it was asked for.
    """

    why: str

    def __str__(self) -> str:
        return f"cannot silence: {self.why}"


@define(eq=False)
class NoSuchCaseError(WorkerdiagError):
    """
    A case is not open, or not known.
    """

    case_id: str

    def __str__(self) -> str:
        return f"there is no open case {self.case_id} (workerdiag watch status lists them)"


@define(eq=False)
class QuietHoursError(WorkerdiagError):
    """
    Quiet hours cannot be understood.
    """

    why: str

    def __str__(self) -> str:
        return f"cannot keep quiet hours: {self.why}"
