"""Converts the logs that a scheduler and its nannies keep to evidence, with times in UTC and an identity."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from datetime import UTC, datetime

from workerdiag.model.dask import is_other_nanny
from workerdiag.model.evidence import Evidence, Gap, Inspected, LogChunk
from workerdiag.model.identity import Identity
from workerdiag.model.vocabulary import Place, Stream
from workerdiag.sources.addresses import host_of
from workerdiag.sources.cluster.queries import ServerLog, ServerLogRecord

#: A scheduler's line that lists lost keys can be megabytes long.
_RECORD_CHARS = 16 * 1024
_ASCTIME = re.compile(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}")
_LOGGERS = {"nanny": "distributed.nanny", "scheduler": "distributed.scheduler"}


def log_evidence(
    log: ServerLog, *, others: Collection[str | None], without: Collection[ServerLogRecord], since: float
) -> list[Evidence]:
    """Return a log as text, then an `Inspected` or a gap.

    There is a gap if the level hides exits, as WARNING does, or if relevant records were not read.

    Args:
        log: The log of the scheduler or of a nanny.
        others: Addresses of all known nannies.
        without: Records that are in the evidence already.
        since: Earlier records are irrelevant, in seconds since the epoch.
    """
    name, records, nanny = log.name, log.records, log.nanny
    place: Place = "nanny log" if nanny else "scheduler log"
    shared = nanny is not None and shares_log(nanny, records, others)
    identity = Identity(nanny=None if shared else nanny, host=host_of(nanny))
    new = (each for each in records if each not in without)
    chunk = records_chunk(name, new, stream="nanny" if nanny else "scheduler", identity=identity)
    evidence: list[Evidence] = [] if chunk is None else [chunk]
    if not any(each.level in ("INFO", "DEBUG") for each in records):
        detail = "its level hides INFO, at which exits are logged" if records else "it is empty"
        remedy = "set logging.distributed: info in Dask's configuration"
        gap = Gap(source=name, place=place, reason="never-recorded", detail=detail, remedy=remedy)
        return [*evidence, gap]
    if log.is_cut and records[0].created > since:
        detail = f"only its last {len(records)} records were read, and relevant ones may be earlier"
        remedy = "give the log of that process: explain(..., logs=[...])"
        return [*evidence, Gap(source=name, place=place, reason="expired", detail=detail, remedy=remedy)]
    return [*evidence, Inspected(place=place, identity=identity)]


def records_chunk(
    origin: str, records: Iterable[ServerLogRecord], *, stream: Stream, identity: Identity
) -> LogChunk | None:
    """Return log records as text, or None if there are none.

    Each record's time is rewritten in UTC: a server writes its local time without a zone, whereas
    events carry seconds since the epoch.
    """
    lines = [_format_record(record, _LOGGERS[stream]) for record in records]
    if not lines:
        return None
    data = "\n".join((*lines, "")).encode("utf-8", errors="replace")
    return LogChunk(origin=origin, data=data, stream=stream, identity=identity)


def _format_record(record: ServerLogRecord, logger: str) -> str:
    moment = datetime.fromtimestamp(record.created, tz=UTC)
    time = f"{moment:%Y-%m-%d %H:%M:%S},{moment.microsecond // 1000:03d}"
    text = record.text[:_RECORD_CHARS]
    rewritten, count = _ASCTIME.subn(time, text)
    if count:
        return rewritten
    if re.match(rf"distributed\.[\w.]+ - {re.escape(record.level)} - ", text):
        return f"{time} - {text}"
    return f"{time} - {logger} - {record.level} - {text}"  # distributed.admin.log-format is customised


def shares_log(nanny: str, records: Iterable[ServerLogRecord], others: Collection[str | None]) -> bool:
    """Whether other nannies write to the same log, so that its lines may be about any worker of the host.

    All nannies in one process share a logger, as in a LocalCluster or ``dask worker --nworkers 4``.
    """
    if any(other and other != nanny and host_of(other) == host_of(nanny) for other in others):
        return True
    return any(is_other_nanny(each.text, nanny) for each in records)
