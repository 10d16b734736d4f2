"""Evidence that was kept: pieces as they were, and of each log the parts that matter."""

from __future__ import annotations

from collections.abc import Iterator

from attrs import field, frozen

from workerdiag.model.evidence import Evidence, LogChunk
from workerdiag.model.identity import NO_IDENTITY, Identity
from workerdiag.model.vocabulary import Stream


@frozen(kw_only=True)
class LogPart:
    """Lines of a log that follow each other."""

    #: Number of the first of them, counted from 1.
    first_line: int
    data: bytes = field(repr=lambda data: f"<{len(data)} bytes>")


@frozen(kw_only=True)
class KeptLog:
    """What was kept of one log: all of it, or its beginning, its end, and the messages that say something."""

    origin: str
    stream: Stream | None = None
    identity: Identity = NO_IDENTITY
    #: Bytes that were read of it.
    read_bytes: int = 0
    #: In the order of the text; between them lines were left out.
    parts: tuple[LogPart, ...] = ()

    def chunks(self) -> Iterator[LogChunk]:
        """Its parts as they are read again; the line numbers are those of the log as it was."""
        for index, part in enumerate(self.parts):
            goes_on = index == 0 and part.first_line == 1
            yield LogChunk(
                origin=self.origin,
                data=part.data,
                stream=self.stream,
                identity=self.identity,
                first_line=None if goes_on else part.first_line,
            )


class KeptEvidence:
    """What was kept of all evidence, in the order in which it came.

    It can be megabytes, with secrets in them. So it is not pickled along, and no class of attrs, whose
    fields would go wherever those of a diagnosis go.
    """

    __slots__ = ("items", "left_out")

    def __init__(self, *, items: tuple[Evidence | KeptLog, ...] = (), left_out: tuple[str, ...] = ()) -> None:
        self.items = items
        #: What was not kept, a sentence each.
        self.left_out = left_out

    def evidence(self) -> Iterator[Evidence]:
        """The evidence, to be judged again."""
        for item in self.items:
            if isinstance(item, KeptLog):
                yield from item.chunks()
            else:
                yield item

    def __reduce__(self) -> tuple[object, ...]:
        return _empty_copy, ()

    def __copy__(self) -> KeptEvidence:
        return self

    def __deepcopy__(self, _: object) -> KeptEvidence:
        return self


def _empty_copy() -> KeptEvidence:
    return KeptEvidence(left_out=("the evidence stayed in the process that called explain()",))
