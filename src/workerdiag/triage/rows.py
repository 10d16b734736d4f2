"""
The rows of the two tables that triage writes: deaths, and the inputs they were found in.
"""

from __future__ import annotations

from typing import Final, Literal

from attrs import field, frozen
from attrs.validators import and_, ge, in_, le

from workerdiag.model.normalize import normalize_fields
from workerdiag.model.vocabulary import Outcome, Verdict

#: Shape of the tables; one more whenever a reader could notice.
TABLE_SCHEMA: Final = 1

#: How the reading of one part ended: ``done`` it was read to its end, ``empty`` there is nothing in it,
#: ``not-a-log`` it is none of what is read, or nothing in its text is known,
#: ``failed`` it could not be read, or not wholly.
InputStatus = Literal["done", "empty", "not-a-log", "failed"]


@frozen(kw_only=True, field_transformer=normalize_fields)
class DeathRow:
    """
    One death of a worker, with what is thought of it. None: not known.
    """

    #: Key of the watched case or the repeats it belongs to: equal for deaths of the same trouble.
    case: str
    #: Id of the likeliest cause and its family, or None if no cause is likelier than that it is unknown.
    cause: str | None = None
    family: str | None = None
    probability: float = field(default=0.0, validator=and_(ge(0.0), le(1.0)))
    outcome: Outcome
    blame: Verdict = "unknown"
    #: Whether somebody asked the worker to stop, so that nobody needs to act.
    stop_requested: bool = False
    host: str | None = None
    #: Addresses of the worker and its nanny, as Dask wrote them.
    worker: str | None = None
    nanny: str | None = None
    #: Name that the worker was given.
    name: str | None = None
    pid: int | None = None
    #: Seconds since 1970 (UTC).
    died_at: float | None = None
    exit_code: int | None = None
    signal: int | None = None
    distributed_version: str | None = None
    #: Such as ``3.12``.
    python_version: str | None = None
    #: Address of the scheduler of the run.
    scheduler: str | None = None
    #: Id of the cluster run: equal for all rows whose logs were judged together.
    run: str
    #: Where the death is first reported: the input, and the first byte of that message in its unpacked text.
    url: str
    offset: int = field(validator=ge(0))
    #: Seconds of the tasks that ran on the worker and were lost with it.
    lost_compute_s: float | None = None
    rss_bytes: int | None = None
    limit_bytes: int | None = None
    #: The strongest evidence for the cause, in its own words.
    evidence: str = ""
    #: Release of the knowledge base that judged it.
    knowledge: str

    @property
    def order(self) -> tuple[object, ...]:
        """
        By what deaths are sorted in a table: where they are reported, then who died.
        """
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
    """
    One part of an input, and what became of reading it: together the rows are the manifest.
    """

    url: str
    #: What tells whether the input is still the same: its tag in a store, or size and time; None: not known.
    etag: str | None = None
    size_bytes: int | None = None
    #: Seconds since 1970 (UTC).
    modified_at: float | None = None
    #: The part: from this byte up to, without, that one; None where the input is read to its end.
    first_byte: int = field(default=0, validator=ge(0))
    end_byte: int | None = None
    status: InputStatus = field(validator=in_(("done", "empty", "not-a-log", "failed")))
    #: Why it is not ``done``, or what was left out because there was too much of it, for a person.
    reason: str = ""
    #: Bytes that were read of the file, and lines of its text.
    read_bytes: int = field(default=0, validator=ge(0))
    lines: int = field(default=0, validator=ge(0))
    #: Id of the cluster run that its text belongs to; None where nothing of it is known.
    run: str | None = None
    #: Release of the knowledge base that searched it.
    knowledge: str

    @property
    def order(self) -> tuple[object, ...]:
        """
        By what inputs are sorted in a table.
        """
        return self.url, self.first_byte
