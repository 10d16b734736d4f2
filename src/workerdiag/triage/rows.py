"""The rows of the two tables that triage writes: deaths, and the inputs they were found in."""

from __future__ import annotations

from typing import Final, Literal

from attrs import field, frozen
from attrs.validators import and_, ge, in_, le

from workerdiag.model.normalize import normalize_fields
from workerdiag.model.vocabulary import Outcome, Verdict

#: Version of the table format; it grows with each change that a reader could notice.
TABLE_SCHEMA: Final = 1

#: How the reading of one part ended. ``done``: it was read to its end. ``empty``: it is empty. ``not-a-log``:
#: its format is not supported, or nothing in its text is recognized. ``failed``: it could not be read
#: completely.
InputStatus = Literal["done", "empty", "not-a-log", "failed"]


@frozen(kw_only=True, field_transformer=normalize_fields)
class DeathRow:
    """One death of a worker, with its likeliest cause. None means not known."""

    #: Key of its watched case or its repeats; equal for deaths of the same trouble.
    case: str
    #: Id and family of the likeliest cause; None if "unknown" is likelier than any cause.
    cause: str | None = None
    family: str | None = None
    probability: float = field(default=0.0, validator=and_(ge(0.0), le(1.0)))
    outcome: Outcome
    blame: Verdict = "unknown"
    #: Whether somebody asked the worker to stop; nobody needs to act then.
    stop_requested: bool = False
    host: str | None = None
    #: Addresses of the worker and its nanny, as Dask wrote them.
    worker: str | None = None
    nanny: str | None = None
    #: The worker's name, if it was given one.
    name: str | None = None
    pid: int | None = None
    #: Seconds since 1970 (UTC).
    died_at: float | None = None
    exit_code: int | None = None
    signal: int | None = None
    distributed_version: str | None = None
    #: Python version, such as ``3.12``.
    python_version: str | None = None
    #: Address of the scheduler of the run.
    scheduler: str | None = None
    #: Id of the cluster run: equal for all rows whose logs were judged together.
    run: str
    #: Where the death is first reported: the input, and the byte offset of that message in its unpacked text.
    url: str
    offset: int = field(validator=ge(0))
    #: Run time of the tasks that were lost with the worker, in seconds.
    lost_compute_s: float | None = None
    rss_bytes: int | None = None
    limit_bytes: int | None = None
    #: The strongest evidence for the cause, quoted.
    evidence: str = ""
    #: Release of the knowledge base that judged the death.
    knowledge: str

    @property
    def order(self) -> tuple[object, ...]:
        """The sort key of deaths in a table: where they are reported, then who died."""
        return (
            self.url,
            self.offset,
            self.worker or "",
            self.pid or 0,
            self.died_at or 0.0,
            self.case,
            self.run,
        )


@frozen(kw_only=True, field_transformer=normalize_fields)
class InputRow:
    """One part of an input, and how reading it ended. All rows together are the manifest."""

    url: str
    #: Changes with the input's content: its tag in a store, or size and time; None: not known.
    etag: str | None = None
    size_bytes: int | None = None
    #: Seconds since 1970 (UTC).
    modified_at: float | None = None
    #: First byte of the part, and the byte after its last one; None: the part ends with the input.
    first_byte: int = field(default=0, validator=ge(0))
    end_byte: int | None = None
    status: InputStatus = field(validator=in_(("done", "empty", "not-a-log", "failed")))
    #: Why it is not ``done``, or what was left out because it was too much, in words.
    reason: str = ""
    #: Number of bytes read from the file, and of lines of its text.
    read_bytes: int = field(default=0, validator=ge(0))
    lines: int = field(default=0, validator=ge(0))
    #: Id of the cluster run of its text; None if not known.
    run: str | None = None
    #: Release of the knowledge base that searched the part.
    knowledge: str

    @property
    def order(self) -> tuple[object, ...]:
        """The sort key of inputs in a table."""
        return self.url, self.first_byte
