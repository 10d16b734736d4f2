"""The memory account of a death: what filled the limit, the reason, and the changes that help."""

from __future__ import annotations

from attrs.validators import and_, ge, le

from workerdiag.model.normalize import normalize_fields
from workerdiag.model.vocabulary import CureKind, MemoryReason
from workerdiag.values import evolve, field, frozen

#: Copies of the largest piece that a function makes while it runs: of NumPy or pandas, and of the caller's own.
KNOWN_COPIES, UNKNOWN_COPIES = 1, 3
PROBABILITY = and_(ge(0.0), le(1.0))


@frozen(kw_only=True, field_transformer=normalize_fields)
class MemoryTerm:
    """One term of the account."""

    #: None if it is not known.
    bytes: int | None = None
    #: Where it was seen, or how it was worked out; empty if it is not known.
    origin: str = ""
    #: What would show it; empty if it is known.
    missing: str = ""


@frozen(kw_only=True, field_transformer=normalize_fields)
class ReasonChance:
    """A reason with its probability and what speaks for it."""

    reason: MemoryReason
    #: The same in a few words.
    title: str = ""
    probability: float = field(validator=PROBABILITY)
    #: One sentence with the numbers.
    why: str = ""


@frozen(kw_only=True, field_transformer=normalize_fields)
class MemoryAccount:
    """What a worker's memory was filled with when it came to its limit."""

    #: The limit in force, and the most that a process is known to have held at its end.
    limit: MemoryTerm = MemoryTerm()
    held: MemoryTerm = MemoryTerm()
    #: Results that the worker stored, in memory and on disk.
    stored: MemoryTerm = MemoryTerm()
    spilled: MemoryTerm = MemoryTerm()
    #: What a worker holds before it does anything.
    floor: MemoryTerm = MemoryTerm()
    #: What was left while no task ran, without stored results.
    left: MemoryTerm = MemoryTerm()
    #: What the tasks that ran at the end had asked for since they began, filled or not.
    asked: MemoryTerm = MemoryTerm()
    #: What one task takes, gives, and needs besides while it runs.
    inputs: MemoryTerm = MemoryTerm()
    output: MemoryTerm = MemoryTerm()
    copies: MemoryTerm = MemoryTerm()
    #: All that together, as it was measured in a replay.
    measured: MemoryTerm = MemoryTerm()
    #: Data of the caller's process that is inside the graph.
    in_graph: MemoryTerm = MemoryTerm()
    #: What the whole result takes that comes together in one place.
    result: MemoryTerm = MemoryTerm()
    #: How many tasks ran at the same time, at most; None if not known.
    tasks_at_once: int | None = None
    #: The step whose tasks need most, as ``matmul: pieces of 8000 x 8000 float64``; empty if not known.
    step: str = ""
    #: Where the caller's program computed, as ``function (file:line)``.
    line: str = ""
    #: The likeliest reason; None if nothing tells.
    reason: MemoryReason | None = None
    #: All that come into question, the likeliest first; what is missing to 1 is for none of them.
    reasons: tuple[ReasonChance, ...] = ()
    #: What would tell, where nothing does.
    would_tell: str = ""

    @property
    def task_bytes(self) -> int | None:
        """What one task holds while it runs; None if a part of it is not known."""
        if self.inputs.bytes is None or self.output.bytes is None:
            return None
        return self.inputs.bytes + self.output.bytes + (self.copies.bytes or 0)


@frozen(kw_only=True, field_transformer=normalize_fields)
class Cure:
    """A change after which the work should succeed."""

    kind: CureKind
    #: Bytes for ``worker-memory`` and ``piece-size``, a number for ``threads``; None for changes without a number.
    value: int | None = None
    #: What to do, in words.
    do: str
    #: The change as one would type it, with the caller's own names.
    change: str
    #: The sum behind it.
    why: str
    #: How likely it suffices.
    probability: float = field(validator=PROBABILITY)
    cost: str = ""


@frozen(kw_only=True)
class Step:
    """A step of what was computed, an event ``workload-step``: of its largest piece and of one of its tasks."""

    #: Its name without the hash.
    name: str
    #: The caller's name for it, and the code that made it.
    variable: str = ""
    made_by: str = ""
    piece_bytes: int | None = None
    #: How many pieces.
    pieces: int = 0
    #: What one task takes from other steps, or the text that it reads.
    inputs_bytes: int = 0
    inputs: int = 0
    #: Shapes of the whole and of a piece, the names of the dimensions, and the type; empty for frames.
    shape: tuple[int, ...] = ()
    chunk: tuple[int, ...] = ()
    dims: tuple[str, ...] = ()
    dtype: str = ""
    rows: int | None = None
    row_bytes: int | None = None
    #: Where only bounds of its sizes are known: the lower ones by the upper, which are those above.
    least_share: float | None = None
    #: Whether it takes nothing: its tasks make or read the pieces.
    is_source: bool = False
    #: Whether nobody knows what copies its function makes: it is the caller's own, or its results have no shape.
    is_opaque: bool = False
    #: The argument that sets the size of its pieces where they are made.
    argument: str = ""
    #: Whether Dask made it on the way to the chunks of a rechunk.
    is_between: bool = False
    #: Whether all rows with one key come together in one task, and the share of the most frequent key.
    by_key: bool = False
    key: str = ""
    key_share: float | None = None
    #: What an opaque function was seen to need besides what it takes and gives, at least.
    seen_copies_bytes: int = 0
    #: The whole name, and whether the pieces are in the graph; no part of the event.
    token: str = ""
    is_embedded: bool = False

    @property
    def largest_bytes(self) -> int:
        """The largest piece that one of its tasks takes or gives."""
        return max(self.piece_bytes or 0, self.inputs_bytes // max(self.inputs, 1))

    @property
    def cut_bytes(self) -> int:
        """The size by which the caller cuts it into pieces: that of a piece, or of the text that is read for it."""
        return self.inputs_bytes if self.is_source and self.inputs_bytes else self.piece_bytes or 0

    @property
    def expected_copies_bytes(self) -> int:
        """What its function is expected to need besides what it takes and gives, before anything was seen."""
        if self.is_source and self.inputs_bytes:  # text is copied once, and of the rows a part is made twice
            return self.inputs_bytes + (self.piece_bytes or 0) // 2
        if self.is_source:  # what takes the pieces is a step of its own; but a frame is made of other tables
            return self.largest_bytes * (2 if self.rows else 1)
        return self.largest_bytes * (UNKNOWN_COPIES if self.is_opaque else KNOWN_COPIES)

    @property
    def copies_bytes(self) -> int:
        """What its function needs besides what it takes and gives, as far as that is known."""
        return max(self.expected_copies_bytes, self.seen_copies_bytes)

    @property
    def task_bytes(self) -> int:
        """What one of its tasks holds while it runs."""
        return self.inputs_bytes + (self.piece_bytes or 0) + self.copies_bytes

    @property
    def at_least(self) -> Step:
        """The same with the lower bounds of its sizes."""
        share = self.least_share
        if share is None:
            return self
        return evolve(
            self,
            piece_bytes=int(self.piece_bytes * share) if self.piece_bytes else None,
            inputs_bytes=self.inputs_bytes if self.is_source else int(self.inputs_bytes * share),
            rows=int(self.rows * share) if self.rows else None,
            least_share=None,
        )

    @property
    def describe(self) -> str:
        """``random_sample: pieces of 8000 x 8000 float64``."""
        if self.chunk:
            return f"{self.name}: pieces of {' x '.join(map(str, self.chunk))} {self.dtype}".rstrip()
        if self.rows:
            return f"{self.name}: partitions of {self.rows:,} rows of {self.row_bytes} bytes"
        return self.name
