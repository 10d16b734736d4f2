"""Reads deaths from the state file of a watcher, which may run meanwhile, as rows of a table."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from functools import cache
from pathlib import Path
from typing import Any, get_args
from urllib.parse import quote

from attrs import frozen

from workerdiag.errors import StateFileError, describe_error, error_text, utf8_safe
from workerdiag.guard import guarded
from workerdiag.incidents.incident import APPLICATION_ID, BLIND_KEY, SCHEMA_VERSION
from workerdiag.model.identity import Identity
from workerdiag.model.vocabulary import Verdict
from workerdiag.triage.tables import DeathRow

_BUSY_S = 10.0
#: Deaths that are judged and have no case were no incident.
_DEATHS = """
SELECT id, cluster, at, is_expected OR (is_judged AND case_id IS NULL), identity, case_id
FROM death ORDER BY at, id
"""
_REMEDY = "give a state file that `workerdiag watch` of this version wrote, with its -wal and -shm files"
#: The beginning of the place of a death that a watcher saw; the rest is its id.
WATCHED = "watched:"


def read_watched_deaths(path: Path) -> Iterator[DeathRow | str]:
    """Yield the deaths and stops in a watcher's state file, oldest first, and what is wrong with invalid ones.

    The place of a death is its id, which is the same in each state file.

    Raises:
        StateFileError: It cannot be read, or not to its end, or is another kind of file.
    """
    with _reading(path) as connection:
        cases = dict(connection.execute("SELECT id, body FROM watch_case"))
        read_case = cache(lambda id_: _case(cases.get(id_)))
        for *values, case_id in connection.execute(_DEATHS):
            with guarded("reading a kept death") as reading:
                row = _row(*values, case=read_case(case_id))
            if reading.problem is None:
                yield row
            else:
                yield f"death {utf8_safe(str(values[0]))}: {describe_error(reading.problem)}"


def blind_clusters(path: Path) -> tuple[tuple[str, str], ...]:
    """Return the clusters for which the watcher was blind, and why.

    Raises:
        StateFileError: As for `read_watched_deaths`.
    """
    with _reading(path) as connection:
        rows = connection.execute(
            "SELECT cluster, json_extract(body, '$.what') FROM watch_case"
            " WHERE json_valid(body) AND json_extract(body, '$.key') = ? ORDER BY cluster",
            (BLIND_KEY,),
        )
        return tuple((str(cluster), str(title or "")) for cluster, title in rows)


@frozen
class _Case:
    key: str = ""
    cause: str | None = None
    probability: float = 0.0
    blame: Verdict = "unknown"
    #: Seconds lost by worker, as far as its last diagnosis has them.
    costs: tuple[tuple[Identity, float], ...] = ()


def _case(body: str | None) -> _Case:
    if body is None:
        return _Case()
    said: dict[str, Any] = json.loads(body)
    diagnosis = json.loads(said.get("diagnosis_json") or "{}")
    return _Case(
        key=said.get("key", ""),
        cause=said.get("cause"),
        probability=said.get("probability", 0.0),
        blame=said["blame"] if said.get("blame") in get_args(Verdict) else "unknown",
        costs=tuple(_costs(diagnosis.get("timeline", {}).get("histories", ()))),
    )


def _costs(histories: Iterable[dict[str, Any]]) -> Iterator[tuple[Identity, float]]:
    for each in histories:
        running = [task for task in each["tasks"] if task["ended_at"] is None]
        if each["when"] is not None and running:
            yield (
                Identity(**each["identity"]),
                sum(max(0.0, each["when"] - task["started_at"]) for task in running),
            )


def _row(id_: str, cluster: str, at: float, is_expected: int, identity: str, *, case: _Case) -> DeathRow:
    who = Identity(**json.loads(identity))
    return DeathRow(
        case=case.key or f"not judged: {id_}",
        cause=case.cause,
        family=case.cause.partition(".")[0] if case.cause is not None else None,
        probability=case.probability,
        outcome="explained" if case.cause is not None else "unknown",
        blame=case.blame,
        stop_requested=bool(is_expected),
        host=who.host,
        worker=who.worker,
        nanny=who.nanny,
        name=who.name,
        pid=who.pid,
        died_at=float(at),
        scheduler=cluster,
        run=cluster,
        lost_compute_s=next((cost_s for worker, cost_s in case.costs if worker.same_process(who)), None),
        url=f"{WATCHED}{id_}",
        offset=0,
        knowledge="",
    )


@contextmanager
def _reading(path: Path) -> Iterator[sqlite3.Connection]:
    name = utf8_safe(str(path))
    place = path.absolute()
    # Without this file nobody has it open; a read-only folder needs no lock then.
    mode = "mode=ro" if Path(f"{place}-wal").exists() else "immutable=1"
    try:
        with closing(
            sqlite3.connect(f"file:{quote(os.fsencode(place))}?{mode}", uri=True, timeout=_BUSY_S)
        ) as connection:
            application, version = (
                connection.execute(f"PRAGMA {each}").fetchone()[0] for each in ("application_id", "user_version")
            )
            if application != APPLICATION_ID:
                raise StateFileError(name, "it is not the state of a watcher", _REMEDY)
            if version != SCHEMA_VERSION:
                why = f"its tables have version {version}; this workerdiag reads version {SCHEMA_VERSION}"
                raise StateFileError(name, why, _REMEDY)
            yield connection
    except sqlite3.Error as problem:
        raise StateFileError(name, error_text(problem), _REMEDY) from problem
