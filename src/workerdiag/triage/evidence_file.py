"""Inputs that hold evidence of deaths in a special format: death bundles, black boxes and death records."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Final, Literal, assert_never

from attrs import field, frozen

from workerdiag.errors import UnreadableInputError
from workerdiag.model.evidence import Evidence, Gap
from workerdiag.sources.logs.formats import MAX_BOX_BYTES, MAX_BUNDLE_BYTES

EvidenceFileKind = Literal["bundle", "box", "records"]
#: Larger files are not read. A scheduler begins a new file of records after 8 MiB.
MOST_BYTES: Final[Mapping[EvidenceFileKind, int]] = {
    "bundle": MAX_BUNDLE_BYTES,
    "box": MAX_BOX_BYTES,
    "records": 128 * 2**20,
}
#: This many messages are compared at a time: messages of one death are near each other.
_TOGETHER = 500


class NotALogError(Exception):
    """The file holds no evidence."""


@frozen
class EvidenceFile:
    """The content of an input that is not text."""

    kind: EvidenceFileKind
    #: Path or URL, without secrets.
    url: str
    data: bytes = field(repr=False)
    #: The faulthandler dump that accompanies a black box.
    fault: bytes = field(default=b"", repr=False)

    def evidence(self) -> Iterator[Evidence]:
        """Yield its evidence. A `Gap` that names the input says what could not be read.

        The black box of a worker that may still run yields nothing.

        Raises:
            NotALogError: It is a zip archive but not a death bundle.
            BundleError, BadBoxError: It is damaged, or has another version.
        """
        match self.kind:
            case "bundle":
                yield from self._bundle()
            case "box":
                yield from self._box()
            case "records":
                yield from self._records()
            case _:
                assert_never(self.kind)

    def _bundle(self) -> Iterator[Evidence]:
        from workerdiag.bundle.reader import bundle_evidence

        pieces = bundle_evidence(self.url, self.data)
        if pieces is None:
            raise NotALogError("it is a zip archive but not a death bundle")
        yield from pieces

    def _box(self) -> Iterator[Evidence]:
        from workerdiag.recorder.box.found_box import death_message
        from workerdiag.sources.recorder.source import death_evidence
        from workerdiag.wire.recorded_death import RecordedDeath

        report = death_message(self.url, self.data, self.fault)
        if report is not None:
            yield from death_evidence([RecordedDeath.of(report)])

    def _records(self) -> Iterator[Evidence]:
        from workerdiag.sources.recorder.records import RecordParser
        from workerdiag.sources.recorder.source import death_evidence
        from workerdiag.wire.recorded_death import merge_messages

        lines = RecordParser()
        records = [*lines.take(self.data), *lines.end()]
        messages = (each.message for each in records)
        while batch := list(islice(messages, _TOGETHER)):
            yield from death_evidence(merge_messages(batch))
        if (broken := lines.gap(self.url)) is not None:
            yield broken


def failure_in(pieces: Iterator[Evidence] | list[Evidence], url: str) -> str:
    """Return what could not be read of the input; empty if it was read to its end."""
    return next((each.detail for each in pieces if isinstance(each, Gap) and each.source == url), "")


def check_size(kind: EvidenceFileKind, url: str, data: bytes) -> None:
    """Check that a container is not too large to read.

    Raises:
        UnreadableInputError: It is larger than `MOST_BYTES` allows.
    """
    if not data:
        raise UnreadableInputError(url, f"it has more than {MOST_BYTES[kind] // 2**20} MiB", "split it")
