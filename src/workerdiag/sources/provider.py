"""Queries of providers through SDKs and HTTP, bounded in time, with a gap for each failure.

An SDK may hang, require credentials, or raise its own errors.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from importlib import import_module
from typing import Any, ClassVar, Literal

from attrs import frozen

from workerdiag.deadline import Deadline
from workerdiag.errors import error_text
from workerdiag.model.evidence import Evidence, Gap
from workerdiag.model.scene import Scene, Terms, Victim
from workerdiag.model.vocabulary import GapReason
from workerdiag.sources.machine_attribution import missed_at, to_timestamp
from workerdiag.sources.runner import take_in_time

#: A module, client or object of a provider's SDK; the SDKs have no types.
Sdk = Any
#: Share of the remaining time that one request may take, with its minimum and maximum in seconds.
_REQUEST_SHARE = 0.5
_MIN_REQUEST_S, _REQUEST_S = 0.1, 5.0
#: Maximum length of an error's text; some SDKs quote the whole response.
_MAX_ERROR_CHARS = 1000
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
    return deadline.share(_REQUEST_SHARE, at_least_s=_MIN_REQUEST_S, at_most_s=_REQUEST_S).left_s


def import_sdk(module: str) -> Sdk:
    """Import a module of an SDK; raises ImportError if it is not installed."""
    return import_module(module)


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
        try:
            planned = list(self._queries(deadline))
        except Exception as problem:  # noqa: BLE001  SDKs raise anything, from a broken profile to no region
            yield self._failure_gap(self.name, *_describe_failure(problem), remedy="")
            return
        for query in planned:
            try:
                yield from query.ask()
            except Exception as problem:  # noqa: BLE001  as above
                failure, description = _describe_failure(problem)
                yield self._failure_gap(query.what, failure, description, remedy=query.remedy)
                if failure in _FATAL:
                    return

    def _failure_gap(self, what: str, failure: Failure, description: str, *, remedy: str) -> Gap:
        if failure == "not-installed" and self.terms.extra:
            remedy = f"pip install 'workerdiag[{self.terms.extra}]'"
        reason: GapReason = "forbidden" if failure == "no-credentials" else failure
        return self._gap(reason, f"{what}: {description}"[:500], remedy)


def _describe_failure(problem: Exception) -> tuple[Failure, str]:
    description = f"{type(problem).__name__} {_error_code(problem)}: {error_text(problem)[:_MAX_ERROR_CHARS]}"
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
