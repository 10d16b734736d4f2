"""Keeps a bounded copy of the evidence while it passes by on its way to the pipeline.

A small log is kept whole. Of a large one stay its beginning, its end, and every message that shows a sign, with a
few lines around it; where there are many logs, less of each.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import accumulate

from workerdiag.model.evidence import Event, Evidence, LogChunk, LogExcerpt, TasksAtLoss
from workerdiag.model.identity import NO_IDENTITY, Identity
from workerdiag.model.vocabulary import Stream
from workerdiag.values import define, evolve, field, frozen

#: What is kept of all log text, and of all other pieces from their start and from their end.
MAX_TEXT_BYTES = 6 * 2**20
MAX_PIECES_BYTES = 2**20
MAX_PIECES = 5_000
#: After text was made less, so much of what it may have is left free.
_FREE_SHARE = 0.25
_PIECE_BYTES = 400
_FIELD_BYTES = 120
#: What a text takes beside its characters, as one of many in a tuple.
_TEXT_BYTES = 60


class EvidenceTap:
    """What passes by, kept in at most 8 MiB: see `Kept`. One for each call of `explain`."""

    def __init__(self) -> None:
        self._count = 0
        self._first: list[tuple[int, Evidence]] = []
        self._last: deque[tuple[int, int, Evidence]] = deque()
        self._first_bytes = self._last_bytes = self._left_out = 0
        #: Logs that passed, and the last two: of the one before the last more may be found.
        self._settled: list[tuple[int, LogCopy]] = []
        self._open: list[tuple[int, LogCopy]] = []
        self._text_bytes = 0

    def tee(self, evidence: Iterable[Evidence]) -> Iterator[Evidence]:
        """The *evidence*, as it is."""
        origin = None
        for piece in evidence:
            self._count += 1
            if not isinstance(piece, LogChunk):
                origin = None
                self._retain(piece)
            else:
                if piece.origin != origin:
                    self._settle(all_but=1)
                    self._open.append((self._count, LogCopy(piece)))
                origin = piece.origin
                self._open[-1][1].take(piece)
            yield piece

    def on_match(self, origin: str, sign: tuple[str, str], message: LogExcerpt) -> None:
        """Keep a message that shows *sign* (`workerdiag.matching.messages.MatchObserver`)."""
        for _, log in reversed(self._open):
            if log.origin == origin:
                log.on_match(sign, message)
                return

    def kept_evidence(self) -> KeptEvidence:
        """What was kept of all that has passed."""
        self._settle(all_but=0)
        items = [(at, text.kept_evidence()) for at, text in self._settled]
        pieces = [*self._first, *((at, piece) for at, _, piece in self._last)]
        ordered = sorted([*items, *pieces], key=lambda item: item[0])
        count = self._left_out
        notes = (f"{count} pieces of evidence were not kept: they were too many or too long",) if count else ()
        return KeptEvidence(items=tuple(item for _, item in ordered), left_out=notes)

    def _settle(self, *, all_but: int) -> None:
        while len(self._open) > all_but:
            at, log = self._open.pop(0)
            log.close()
            self._settled.append((at, log))
            self._text_bytes += log.size_bytes
        if self._text_bytes > MAX_TEXT_BYTES:
            self._shrink_logs()

    def _shrink_logs(self) -> None:
        texts = [text for _, text in self._settled]
        while self._text_bytes > (1 - _FREE_SHARE) * MAX_TEXT_BYTES:
            texts.sort(key=lambda text: text.size_bytes, reverse=True)
            for text in texts:
                before = text.size_bytes
                text.shrink()
                self._text_bytes += text.size_bytes - before
                if self._text_bytes <= (1 - _FREE_SHARE) * MAX_TEXT_BYTES:
                    return

    def _retain(self, piece: Evidence) -> None:
        size = _piece_size(piece)
        if size > MAX_PIECES_BYTES // 4:
            self._left_out += 1
        elif len(self._first) < MAX_PIECES and self._first_bytes + size <= MAX_PIECES_BYTES:
            self._first.append((self._count, piece))
            self._first_bytes += size
        else:
            self._last.append((self._count, size, piece))
            self._last_bytes += size
            while len(self._last) > MAX_PIECES or self._last_bytes > MAX_PIECES_BYTES:
                self._last_bytes -= self._last.popleft()[1]
                self._left_out += 1


def _piece_size(piece: Evidence) -> int:
    if isinstance(piece, Event):
        texts: Iterable[object] = piece.fields.values()
        size = _PIECE_BYTES + _FIELD_BYTES * len(piece.fields)
    elif isinstance(piece, TasksAtLoss):
        inputs = (each.key for facts in piece.facts for each in facts.inputs)
        texts = (*piece.tasks, *piece.threads, *piece.assigned, *piece.gave_up, *inputs)
        size = _PIECE_BYTES + _TEXT_BYTES * len(texts)
    else:
        texts = (getattr(piece, name, None) for name in ("text", "detail", "remedy", "place"))
        size = _PIECE_BYTES + sum(map(len, getattr(piece, "executing", None) or ()))
    return size + sum(len(each) for each in texts if type(each) is str)


#: Bytes kept of the beginning, of the end and of messages, from the roomiest to nothing at all.
SIZES = (
    (32 * 1024, 256 * 1024, 1024 * 1024),
    (4 * 1024, 32 * 1024, 128 * 1024),
    (1024, 4 * 1024, 32 * 1024),
    (0, 1024, 8 * 1024),
    (0, 0, 0),
)
_HEAD_BYTES, _TAIL_BYTES, _MESSAGE_BYTES = SIZES[0]
#: Of one sign, at most this many messages from the start of the log, and as many from its end.
_MESSAGES_PER_END = 400


def head_excerpt(excerpt: LogExcerpt, size: int) -> LogExcerpt:
    """At most the first *size* bytes."""
    if len(excerpt.data) <= size:
        return excerpt
    newline = excerpt.data.rfind(b"\n", 0, size)
    return excerpt.part(0, newline + 1 if newline >= 0 else size)


def tail_excerpt(excerpt: LogExcerpt, size: int) -> LogExcerpt:
    """At most the last *size* bytes."""
    length = len(excerpt.data)
    if length <= size:
        return excerpt
    newline = excerpt.data.find(b"\n", length - size - 1, length - 1)
    return excerpt.part(newline + 1 if newline >= 0 else length - size, length)


def merge_excerpts(excerpts: Iterable[LogExcerpt]) -> Iterator[LogExcerpt]:
    """The excerpts of one log in its order; those that overlap or follow each other as one."""
    joined: list[bytes] = []
    start = line = end = 0
    for each in sorted(excerpts):
        if not each.data or (joined and each.end <= end):
            continue
        if joined and each.start <= end:
            joined.append(each.data[end - each.start :])
        else:
            if joined:
                yield LogExcerpt(start, line, b"".join(joined))
            joined, start, line = [each.data], each.start, each.line
        end = each.end
    if joined:
        yield LogExcerpt(start, line, b"".join(joined))


@define
class _OutermostMessages:
    """Where the first and the last messages with one sign begin."""

    first: list[int] = field(factory=list)
    last: deque[int] = field(factory=lambda: deque(maxlen=_MESSAGES_PER_END))

    def add(self, start: int) -> None:
        (self.first if len(self.first) < _MESSAGES_PER_END else self.last).append(start)

    def ranked(self) -> Iterator[tuple[int, int]]:
        """Each with its distance from the nearest end: the outermost tell most."""
        both = (*self.first, *self.last)
        for index, start in enumerate(both):
            yield min(index, len(both) - 1 - index), start


class LogCopy:
    """What is kept of one log: its beginning, its end, and the messages that show a sign."""

    def __init__(self, like: LogChunk) -> None:
        self._like = evolve(like, data=b"")
        self.origin = like.origin
        self._read_bytes = 0
        #: Once it was read: its beginning and its end, and the index into `SIZES` of the last shrinking.
        self._ends: tuple[LogExcerpt, ...] = ()
        self._size = -1
        #: Place and line of the next byte.
        self._end, self._line = 0, 1
        self._head: list[LogExcerpt] = []
        #: One byte more than is wanted tells whether the last line is whole; so do the last bytes.
        self._head_room = _HEAD_BYTES + 1
        #: The last chunks, with the newlines up to the end of each.
        self._tail: deque[tuple[LogExcerpt, int]] = deque()
        self._tail_bytes = 0
        self._messages: dict[int, LogExcerpt] = {}
        self._message_bytes = 0
        self._signs: defaultdict[tuple[str, str], _OutermostMessages] = defaultdict(_OutermostMessages)

    def take(self, chunk: LogChunk) -> None:
        """Take the next bytes."""
        if chunk.first_line is not None:
            self._line = chunk.first_line
            self._end += self._end > 0  # joins with nothing before it
        excerpt = LogExcerpt(self._end, self._line, chunk.data)
        self._end = excerpt.end
        self._line += chunk.newline_count
        self._read_bytes += len(chunk.data)
        if self._head_room:
            head = excerpt.part(0, self._head_room)
            self._head.append(head)
            self._head_room -= len(head.data)
            excerpt = excerpt.part(len(head.data), len(excerpt.data))
        self._tail.append((excerpt, self._line))
        self._tail_bytes += len(excerpt.data)
        while self._tail_bytes - len(self._tail[0][0].data) > _TAIL_BYTES:
            self._tail_bytes -= len(self._tail.popleft()[0].data)

    def _tail_excerpts(self) -> Iterator[LogExcerpt]:
        """The last chunks, the first of them without what is too much; its line is counted from the end."""
        for excerpt, end_line in self._tail:
            data = excerpt.data[-_TAIL_BYTES - 1 :]
            yield LogExcerpt(excerpt.end - len(data), end_line - data.count(b"\n"), data)

    def on_match(self, sign: tuple[str, str], message: LogExcerpt) -> None:
        """Keep a message that shows *sign*."""
        self._signs[sign].add(message.start)
        known = self._messages.get(message.start)
        if known is None or known.end < message.end:
            self._messages[message.start] = message
            self._message_bytes += len(message.data) - (len(known.data) if known else 0)
            if self._message_bytes > 2 * _MESSAGE_BYTES:
                self._keep(self._ranked(), _MESSAGE_BYTES)

    @property
    def size_bytes(self) -> int:
        """What is kept, once it was read."""
        return sum(len(each.data) for each in (*self._ends, *self._messages.values()))

    def close(self) -> None:
        """Note that no more will be found in it. The most telling messages come first from now on."""
        self._ends = tuple(merge_excerpts((*self._head, *self._tail_excerpts())))
        self._messages = {each.start: each for each in self._ranked()[:1000]}
        self._head.clear()
        self._tail.clear()
        self._signs.clear()
        if self._read_bytes > _HEAD_BYTES + _TAIL_BYTES:
            self.shrink()

    def shrink(self) -> None:
        """Keep less of it, if there is anything left."""
        if self._size + 1 >= len(SIZES) or not self._ends:
            return
        self._size += 1
        head, tail, room_bytes = SIZES[self._size]
        self._ends = head_excerpt(self._ends[0], head), tail_excerpt(self._ends[-1], tail)
        self._keep(list(self._messages.values()), room_bytes)

    def kept_evidence(self) -> KeptLog:
        """The log as it is handed on."""
        excerpts = merge_excerpts((*self._ends, *self._messages.values()))
        return KeptLog(
            origin=self.origin,
            stream=self._like.stream,
            identity=self._like.identity,
            read_bytes=self._read_bytes,
            parts=tuple(excerpts),
        )

    def _ranked(self) -> list[LogExcerpt]:
        """The messages, those first that stand at an end for one of their signs."""
        ranked = sorted(each for ends in self._signs.values() for each in ends.ranked())
        starts = dict.fromkeys(start for _, start in ranked)
        return [self._messages[start] for start in starts if start in self._messages]

    def _keep(self, messages: Sequence[LogExcerpt], room_bytes: int) -> None:
        """Keep those of the *messages* for which there is room, the first ones first."""
        ends = accumulate(len(each.data) for each in messages)
        self._messages = {each.start: each for each, end in zip(messages, ends, strict=True) if end <= room_bytes}
        self._message_bytes = sum(len(each.data) for each in self._messages.values())


@frozen(kw_only=True)
class KeptLog:
    """What was kept of one log: all of it, or its beginning, its end, and the messages that say something."""

    origin: str
    stream: Stream | None = None
    identity: Identity = NO_IDENTITY
    #: Bytes that were read of it.
    read_bytes: int = 0
    #: In the order of the text; between them lines were left out.
    parts: tuple[LogExcerpt, ...] = ()

    def chunks(self) -> Iterator[LogChunk]:
        """Its parts as they are read again; the line numbers are those of the log as it was."""
        for index, part in enumerate(self.parts):
            goes_on = index == 0 and part.line == 1
            yield LogChunk(
                origin=self.origin,
                data=part.data,
                stream=self.stream,
                identity=self.identity,
                first_line=None if goes_on else part.line,
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
        note = "the evidence stayed in the process that called explain()"
        return partial(KeptEvidence, left_out=(note,)), ()

    def __copy__(self) -> KeptEvidence:
        return self

    def __deepcopy__(self, _: object) -> KeptEvidence:
        return self
