"""Queries of providers about machines, and whether what they return belongs to a dead worker.

An SDK may hang, require credentials, or raise its own errors: queries are bounded in time, and each failure
is a gap. Times are in seconds since the epoch; *missed* is always when the worker was noticed to be gone.
"""

from __future__ import annotations

import datetime as dt
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, ClassVar, Literal

from workerdiag.deadline import Deadline
from workerdiag.errors import error_text
from workerdiag.guard import guarded
from workerdiag.model.evidence import Evidence, Gap, LogChunk
from workerdiag.model.identity import Identity
from workerdiag.model.scene import Scene, Terms, Victim
from workerdiag.model.vocabulary import GapReason
from workerdiag.sources.runner import take_in_time
from workerdiag.values import evolve, frozen

#: A worker is missed at most this many seconds after its machine ended: ``distributed.scheduler.worker-ttl``
#: is 5 minutes (distributed/distributed.yaml, 2026.8.0), and closing may take a while.
MISSED_S = 900.0
#: Maximum difference of a provider's and a scheduler's clock. It must stay below 15 s, after which
#: ``SpecCluster`` itself stops the machine of a lost worker (deploy/spec.py, 2026.8.0).
SKEW_S = 10.0
#: A worker may leave this many seconds before its spot machine is reclaimed: AWS's notice is two minutes
#: (Amazon EC2 user guide, "Spot Instance interruption notices"), and reclaiming takes a while.
NOTICE_S = 180.0

_UTC_TIME = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d")
#: ``printk`` prefixes each line with the seconds since boot (man 1 dmesg).
_STAMP = re.compile(r"\[ *(?P<seconds>\d{1,9}\.\d{6})\]")


def to_timestamp(value: object) -> float | None:
    """Return seconds since the epoch of a datetime, an ISO 8601 text or a number; the default zone is UTC."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    if isinstance(value, str):
        try:
            value = dt.datetime.fromisoformat(value)
        except ValueError:
            return None
    if isinstance(value, dt.datetime):
        return (value if value.tzinfo else value.replace(tzinfo=dt.UTC)).timestamp()
    return None


def timestamp_in(text: str | None) -> float | None:
    """Return the first UTC time in *text*, such as ``User initiated (2026-05-04 11:22:33 GMT)``."""
    found = _UTC_TIME.search(text or "")
    return to_timestamp(found.group()) if found else None


def missed_at(scene: Scene, victim: Victim, *, provider_ahead_s: float = 0.0) -> float | None:
    """Return when the *victim* was noticed to be gone, by the provider's clock; None if unknown."""
    if victim.when is None:
        return None
    return victim.when - scheduler_ahead_s(scene) + provider_ahead_s


def scheduler_ahead_s(scene: Scene) -> float:
    """Return by how many seconds the scheduler's clock is ahead of the caller's; 0 if not measured."""
    ahead = (each.clock_ahead_s for each in scene.locations if each.role == "scheduler")
    return next((each for each in ahead if each is not None), 0.0)


def may_be_workers_machine(missed: float | None, *, began: float | None, ended: float | None = None) -> bool:
    """Whether a machine that ran from *began* to *ended* can be that of a worker *missed* then.

    Addresses are reused: a machine started after the death, or gone long before it, is another one.
    """
    if missed is None:
        return True
    if began is not None and began > missed + SKEW_S:
        return False
    return ended is None or ended > missed - MISSED_S


def may_be_reason(missed: float | None, happened: float | None, *, notice_s: float = 0.0) -> bool:
    """Whether what *happened* to a machine can be the reason why its worker was *missed*, not a consequence.

    The worker may have left *notice_s* earlier. An unknown time (None) excludes nothing.
    """
    if missed is None or happened is None:
        return True
    return missed - MISSED_S <= happened <= missed + SKEW_S + notice_s


def without_pid(identity: Identity) -> Identity:
    """Return the identity without its pid, which differs between a container and its host."""
    return evolve(identity, pid=None)


def scene_of_lost_machines(scene: Scene) -> Scene | None:
    """Return the *scene* with only the victims on whose host no process answers, or None without any.

    A machine that answers is probed itself, not through its provider.
    """
    living = {each.identity.host for each in scene.locations}
    lost = tuple(each for each in scene.victims if each.identity.host not in living)
    return None if scene.victims and not lost else evolve(scene, victims=lost)


def victim_hosts(scene: Scene) -> Iterator[str]:
    """Yield the names and addresses of the victims' machines, as Dask knows them."""
    yield from (each.identity.host for each in scene.victims if each.identity.host)


def known_machine_names(scene: Scene) -> Iterator[str]:
    """Yield the same, and the hostnames of machines that answered."""
    yield from victim_hosts(scene)
    yield from (each.hostname for each in scene.locations if each.hostname)


def provider_chunk(
    origin: str, record: Mapping[str, object], identity: Identity, *, keys: Iterable[str] | None = None
) -> LogChunk:
    """Return a record, or some *keys* of it, as the provider's command line prints it: JSON, ISO 8601 times."""

    def plain(value: object) -> object:
        return value.isoformat() if isinstance(value, dt.datetime) else str(value)

    text = json.dumps(pick_keys(record, keys), indent=4, default=plain, ensure_ascii=False)
    return LogChunk(origin=origin, data=f"{text}\n".encode(), identity=identity)


def pick_keys(record: Mapping[str, object], keys: Iterable[str] | None = None) -> dict[str, object]:
    """Return the *keys* of a record that have a value, in this order; None stands for all keys."""
    wanted = record if keys is None else keys
    return {key: record[key] for key in wanted if record.get(key) not in (None, "", [], {})}


def console_chunks(
    origin: str, console: str, identity: Identity, *, started: float | None, missed: float | None
) -> Iterator[LogChunk]:
    """Yield the console lines with a kernel time stamp near the death, if there are any and both times are known.

    They have no pid: the kernel's and a container's differ.
    """
    if started is None or missed is None:
        return
    excerpt = []
    for line in console[-(256 * 1024) :].splitlines():
        stamp = _STAMP.search(line)
        if stamp and -150.0 <= float(stamp["seconds"]) - (missed - started) <= 90.0:
            excerpt.append(f"{line[stamp.start() :]}\n")
    if excerpt:
        data = "".join(excerpt).encode()
        yield LogChunk(origin=origin, data=data, stream="kernel", identity=without_pid(identity))


#: A module, client or object of a provider's SDK; the SDKs have no types.
Sdk = Any
#: Why a query failed: the reason of its gap, or that there are no credentials for any query.
Failure = GapReason | Literal["no-credentials"]
#: Failures for which every other query of the same provider would fail.
_FATAL: tuple[Failure, ...] = ("not-installed", "timed-out", "no-credentials")
#: Patterns of the SDKs' error names (botocore.exceptions, azure.core.exceptions,
#: google.api_core.exceptions, aiohttp) and the services' codes; the first match counts.
_FAILURES: Mapping[Failure, str] = {
    "not-installed": r"^(?:ModuleNotFound|Import)Error",
    "timed-out": r"time(?:d[ -]?)?out|DeadlineExceeded",
    "no-credentials": r"credential",
    "forbidden": (
        r"AccessDenied|Unauthori[sz]ed|Forbidden|AuthFailure|Expired?Token|InvalidClientTokenId"
        r"|permission|SignatureDoesNotMatch|RefreshError|AADSTS|not authorized"
        r"|Authenticat|AuthorizationFailed|OptInRequired|\b40[13]\b"
    ),
    "expired": r"NotFound|InvalidInstanceID|not found|no longer exists|DoesNotExist|\b404\b",
    "unreachable": (
        r"Connect|ServiceRequestError|Unavailable|RetryError|NoRegion|Throttl|TooManyRequests|RequestLimit"
        r"|OSError|Name or service|\b(?:429|5\d\d)\b"
    ),
}


@frozen
class ProviderQuery:
    """One query of a provider; its failure does not prevent the next one."""

    #: The call's name in the provider's documentation, e.g. ``ec2:DescribeInstances``.
    what: str
    #: The command with which a person runs the same query.
    remedy: str
    #: Runs the query; may raise anything that the SDK raises.
    ask: Callable[[], Iterable[Evidence]]


def request_timeout_s(deadline: Deadline) -> float:
    """Return the seconds that one request may take."""
    return deadline.share(0.5, at_least_s=0.1, at_most_s=5.0).left_s


@frozen
class ProviderSource(ABC):
    """A source whose evidence comes from the queries of one provider."""

    name: ClassVar[str]
    terms: ClassVar[Terms]

    scene: Scene

    def collect(self, *, budget_s: float) -> Iterator[Evidence]:
        """Run the queries in turn in a helper thread, within *budget_s* seconds.

        A failed query is a `Gap`; the rest is skipped if it would fail for the same reason.
        """
        deadline = Deadline.of_budget(budget_s)
        yield from take_in_time(self.name, partial(self._run, deadline), deadline)

    @abstractmethod
    def _queries(self, deadline: Deadline) -> Iterable[ProviderQuery]:
        """Return the queries in order; this may import the SDK and connect."""

    def _missed(self, victim: Victim, *, provider_ahead_s: float = 0.0) -> float | None:
        return missed_at(self.scene, victim, provider_ahead_s=provider_ahead_s)

    def _is_recent(self, when: object) -> bool:
        """Whether a provider's time is within the relevant time, or unknown."""
        since = self.scene.since or 0.0
        return (to_timestamp(when) or since) >= since

    def _gap(self, reason: GapReason, detail: str, remedy: str) -> Gap:
        return Gap(source=self.name, reason=reason, detail=detail, remedy=remedy)

    def _run(self, deadline: Deadline) -> Iterator[Evidence]:
        planned: list[ProviderQuery] = []
        with guarded(f"connecting to {self.name}") as connecting:  # SDKs raise anything, also without a region
            planned = list(self._queries(deadline))
        if connecting.problem is not None:
            yield self._failure_gap(self.name, *_describe_failure(connecting.problem), remedy="")
        for query in planned:
            with guarded(f"asking {query.what}") as asking:
                yield from query.ask()
            if asking.problem is not None:
                failure, description = _describe_failure(asking.problem)
                yield self._failure_gap(query.what, failure, description, remedy=query.remedy)
                if failure in _FATAL:
                    return

    def _failure_gap(self, what: str, failure: Failure, description: str, *, remedy: str) -> Gap:
        if failure == "not-installed" and self.terms.extra:
            remedy = f"pip install 'workerdiag[{self.terms.extra}]'"
        reason: GapReason = "forbidden" if failure == "no-credentials" else failure
        return self._gap(reason, f"{what}: {description}"[:500], remedy)


def _describe_failure(problem: Exception) -> tuple[Failure, str]:
    description = f"{type(problem).__name__} {_error_code(problem)}: {error_text(problem)[:1000]}"
    found = (each for each, pattern in _FAILURES.items() if re.search(pattern, description, re.IGNORECASE))
    return next(found, "malformed"), description


def _error_code(problem: Exception) -> str:
    """Return the service's error code, if the SDK stores it separately from the text."""
    response = getattr(problem, "response", None)
    if isinstance(response, dict):
        error = response.get("Error")
        return str(error.get("Code", "")) if isinstance(error, dict) else ""
    code = getattr(problem, "code", None) or getattr(problem, "status_code", None)
    return str(code) if isinstance(code, int | str) else ""
