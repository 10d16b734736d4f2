"""Deaths, cases and notices of a watcher, for tests of the code that keeps and sends them."""

from __future__ import annotations

from attrs import define

from workerdiag.incidents import WatchedDeath
from workerdiag.model.evidence import Event, LogChunk, ProcessExit
from workerdiag.model.identity import Identity
from workerdiag.watch.case import WatchedCase

#: Time of everything here, in seconds since the epoch.
NOW = 1_800_000_000.0


@define
class FakeClock:
    """A clock that stands still until it is set."""

    now: float = NOW

    def __call__(self) -> float:
        return self.now


def watched_death(number: int = 1, **changes) -> WatchedDeath:
    identity = Identity(worker=f"tcp://10.0.0.{number}:4000", pid=1000 + number)
    return WatchedDeath(
        **{
            "id": f"epoch-{number}",
            "when": NOW + number,
            "identity": identity,
            "evidence": (
                ProcessExit(identity=identity, signal=9, when=NOW + number),
                Event(topic="worker-state", fields={"status": "gone", "nothing": None}, identity=identity),
                LogChunk(origin="last lines", data=b"not \xff UTF-8\n", stream="worker", identity=identity),
            ),
            **changes,
        }
    )


def watched_case(id_: str = "case-a", **changes) -> WatchedCase:
    return WatchedCase(
        **{
            "id": id_,
            "key": f"key of {id_}",
            "cluster": "prod",
            "state": "firing",
            "what": "Memory limit",
            "opened_at": NOW,
            "last_death_at": NOW,
            "hosts": frozenset({"host-b", "host-a"}),
            "advice": ("Use more.",),
            **changes,
        }
    )


def make_notice(case_id: str = "case-a", sequence: int = 1, **changes) -> WatchedCase:
    return watched_case(
        case_id,
        **{
            "notice_id": f"{case_id}-{sequence}",
            "reason": "new" if sequence == 1 else "escalating",
            "sequence": sequence,
            "title": f"3 workers of prod died ({sequence})",
            "text": "what, how sure, how many",
            "at": NOW,
            "links": {"cause": "https://example.org/cause"},
            **changes,
        },
    )
