"""Everything workerdiag raises on purpose.

Errors carry their facts as attributes, word themselves, and survive being pickled by Dask (hence not frozen and
not keyword-only).
"""

from __future__ import annotations

from typing import ClassVar, cast

from attrs import AttrsInstance, define, fields, has

#: What an error says can be all of what it could not read; nobody reads more than this.
_MAX_CHARS = 64 * 1024


def utf8_safe(text: str) -> str:
    r"""Return the *text* in valid UTF-8: half a surrogate pair becomes its escape, ``\udce9``.

    A file name that is not UTF-8 has such halves, and no file, terminal or JSON accepts them.
    """
    text = str.__str__(text)  # of an enumeration whose members are text, its value
    return text if text.isascii() else text.encode("utf-8", errors="backslashreplace").decode("utf-8")


def describe_error(problem: BaseException, *, most_chars: int = 500) -> str:
    """Return ``ValueError: its message`` as printable text, whatever its ``str()`` does."""
    kind = utf8_safe(type(problem).__name__)
    message = error_text(problem)
    return f"{kind}: {message}"[:most_chars] if message else kind[:most_chars]


def describe_connection_error(problem: BaseException) -> str:
    """Return `describe_error`, with the system's error: to Dask every failure to connect is a time-out."""
    reason = system_error(problem)
    return f"{describe_error(problem)}: {reason}" if reason else describe_error(problem)


def system_error(problem: BaseException) -> str:
    """Return the error of the system from which *problem* comes, e.g. "Connection refused"; empty without one."""
    origin = problem
    while (earlier := origin.__cause__ or origin.__context__) is not None:
        origin = earlier
    return utf8_safe((isinstance(origin, OSError) and origin is not problem and origin.strerror) or "")


def error_text(problem: BaseException) -> str:
    """The beginning of an error's own message; empty if it has none."""
    try:
        return utf8_safe(str(problem)[:_MAX_CHARS]).strip()
    except Exception as worse:  # noqa: BLE001  its class may be of anybody
        return f"<str() of it raised {utf8_safe(type(worse).__name__)}>"


class WorkerdiagError(Exception):
    """Base of everything raised on purpose."""

    #: What it says, with its facts by name in braces; what to do follows in brackets.
    _sentence: ClassVar[str] = ""

    def __str__(self) -> str:
        if not self._sentence:
            return super().__str__()
        facts = self._facts()
        return f"{self._sentence.format(**facts)}{_in_brackets(str(facts.get('remedy', '')))}"

    def __reduce__(self) -> tuple[object, ...]:
        """How to make it again elsewhere: from its facts, however they were given."""
        return type(self), tuple(self._facts().values()) if has(type(self)) else self.args

    def _facts(self) -> dict[str, object]:
        kind = cast("type[AttrsInstance]", type(self))
        return {each.name: getattr(self, each.name) for each in fields(kind)}


def _in_brackets(remedy: str) -> str:
    return f" ({remedy})" if remedy else ""


@define(eq=False)
class UnusableFileError(WorkerdiagError):
    """Base class of errors that name a file or place, say why it cannot be used, and what to do about it."""

    name: str
    why: str
    #: What the caller can do about it.
    remedy: str = ""
    _sentence = "cannot use {name}: {why}"


@define(eq=False)
class UnusableRequestError(WorkerdiagError):
    """Base class of errors that say why a request cannot be fulfilled, and what to do about it."""

    why: str
    #: What the caller can do about it.
    remedy: str = ""
    _sentence = "{why}"


class UnreadableInputError(UnusableFileError):
    """One input (a path, a URL, an open file) could not be read."""

    _sentence = "cannot read {name}: {why}"


class BundleError(UnusableFileError):
    """A death bundle cannot be written, or a file cannot be read as one."""

    _sentence = "cannot use {name} as a death bundle: {why}"


class BadBoxError(UnusableFileError):
    """A file is not a black box that this version can read, or cannot be read at all."""

    _sentence = "cannot read {name} as a black box: {why} (give a file that ends in .box, or its folder)"


class KitError(UnusableFileError):
    """A kit cannot be written, read or replayed."""


class TableError(UnusableFileError):
    """A table of triage cannot be written or read."""

    _sentence = "cannot use {name} for tables: {why}"


class StateFileError(UnusableFileError):
    """The file in which the watcher keeps its state cannot be opened, read or written; it is left as it is."""

    _sentence = "cannot use {name} as the watcher's state: {why}"


class BadReportError(UnusableRequestError):
    """A JSON text is not a diagnosis that this version can read back."""

    _sentence = "not a workerdiag diagnosis: {why} (give the text that Diagnosis.to_json() returned)"


class TriageError(UnusableRequestError):
    """Triage cannot continue, or a part of it is not possible."""


@define(eq=False)
class RuleFileError(WorkerdiagError):
    """Files of rules do not say what we can understand."""

    #: The folder or file that was being loaded.
    place: str
    #: All problems at once, each with file and key: ``a.toml: .sign[0].grade: ...``.
    problems: tuple[str, ...]

    def __str__(self) -> str:
        count = len(self.problems)
        head = f"cannot use {self.place}: {count} problem{'s' if count != 1 else ''}"
        return "\n  ".join((head, *self.problems))


@define(eq=False)
class InstallError(WorkerdiagError):
    """The flight recorder cannot be installed on a cluster; nothing of it is."""

    #: Which processes cannot, by address or name: the first few of them.
    where: tuple[str, ...]
    why: str
    remedy: str = ""

    def __str__(self) -> str:
        return f"cannot install the recorder on {', '.join(self.where)}: {self.why}{_in_brackets(self.remedy)}"


@define(eq=False)
class SchedulerUnreachableError(WorkerdiagError):
    """The scheduler does not answer; it may again."""

    address: str
    problem: str
    _sentence = "the scheduler at {address} does not answer: {problem} (check the address and that it runs)"


@define(eq=False)
class ClusterEndedError(WorkerdiagError):
    """The cluster was closed on purpose: no more deaths will come from it."""

    address: str
    _sentence = "the cluster at {address} was closed"


@define(eq=False)
class StateInUseError(WorkerdiagError):
    """Another watcher has the state file."""

    #: Path of the file.
    name: str
    #: The process that has it: ``pid 4711 on host-a``.
    holder: str
    _sentence = "another watcher uses {name}: {holder} (end that one, or give this one a state file of its own)"
