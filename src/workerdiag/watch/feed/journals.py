"""Reads the journal of a scheduler that is gone: deaths that it appended to a file or a store."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from pathlib import Path

from workerdiag.incidents.incident import watched_deaths
from workerdiag.recorder.journal import MAX_FILE_BYTES, MAX_OBJECTS
from workerdiag.sources.recorder.records import RecordParser
from workerdiag.watch.feed.death_feed import StoredDeaths
from workerdiag.wire.messages import DeathMessage
from workerdiag.wire.recorded_death import RecordedDeath, merge_messages

#: Number of the newest messages to keep while reading all: some 6 MB, and seconds to compare them.
_MAX_MESSAGES = 4000
#: Number of dead workers with a known time, for counting those that are not kept.
_MAX_COUNTED = 100_000
_BLOCK_BYTES = 2**20
#: Address and pid: successive workers of a nanny may have the same address.
_Worker = tuple[str | None, int | None]


def read_journal(target: str, *, since: float | None, lookback_s: float) -> StoredDeaths:
    """Return the newest deaths in a journal, and the number of further ones.

    Args:
        target: The value of ``workerdiag.recorder.append-to``.
        since: Earliest time, in seconds since the epoch; None: *lookback_s* seconds before the last death.
        lookback_s: Used without *since*.

    Raises:
        OSError: It cannot be read.
        ImportError: The library of its store is not installed.
    """
    blocks = _store_blocks(target) if "://" in target else _file_blocks(Path(target).expanduser())
    counted: dict[_Worker, float] = {}
    messages = heapq.nlargest(_MAX_MESSAGES, _counting(_messages(blocks), counted), key=_time)
    last = _time(messages[0]) if messages else 0.0
    first = last - lookback_s if since is None else since
    deaths = merge_messages(sorted((each for each in messages if _time(each) >= first), key=_time))
    wanted = {worker for worker, when in counted.items() if when >= first}
    missed = wanted - {_worker(each) for each in messages}
    return StoredDeaths(deaths=watched_deaths(deaths), missed_count=len(missed))


def _counting(messages: Iterable[DeathMessage], counted: dict[_Worker, float]) -> Iterator[DeathMessage]:
    """Yield the messages, and store the last time of each worker in *counted*."""
    for each in messages:
        if len(counted) < _MAX_COUNTED:
            counted[_worker(each)] = max(_time(each), counted.get(_worker(each), 0.0))
        yield each


def _worker(message: DeathMessage) -> _Worker:
    return message.identity.worker, message.identity.pid


def _time(message: DeathMessage) -> float:
    return RecordedDeath.of(message).time


def _messages(files: Iterable[Iterable[bytes]]) -> Iterator[DeathMessage]:
    """Yield the messages in files. Torn lines, such as the last one, are skipped."""
    for blocks in files:
        parser = RecordParser()
        for block in blocks:
            yield from (record.message for record in parser.take(block))
        yield from (record.message for record in parser.end())


def _file_blocks(path: Path) -> Iterator[Iterator[bytes]]:
    """Yield the blocks of the rotated file, and then of the current one."""
    aside = path.with_name(f"{path.name}.1")
    for each in (aside, path) if aside.exists() else (path,):
        yield _blocks_of(each)


def _blocks_of(path: Path) -> Iterator[bytes]:
    left = 2 * MAX_FILE_BYTES
    with path.open("rb") as file:
        while left > 0 and (block := file.read(min(left, _BLOCK_BYTES))):
            left -= len(block)
            yield block


def _store_blocks(target: str) -> Iterator[list[bytes]]:
    """Yield the newest objects of a store. Their names end with the start time of the scheduler."""
    import fsspec

    filesystem, folder = fsspec.core.url_to_fs(target)
    names = [str(each) for each in filesystem.ls(folder, detail=False) if str(each).endswith(".jsonl")]
    newest = sorted(names, key=lambda name: name.rsplit("-", 2)[-2:])[-MAX_OBJECTS:]
    for name in newest:
        yield [filesystem.cat_file(name)]
