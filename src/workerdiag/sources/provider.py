"""
Questions to providers, through SDKs and over HTTP: bounded in time, and a gap where one is not answered.

An SDK may hang, want credentials, or fail in words of its own.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from importlib import import_module
from typing import Any, ClassVar, Protocol

from attrs import frozen

from workerdiag.deadline import Deadline
from workerdiag.errors import error_text
from workerdiag.model.evidence import Evidence, Gap
from workerdiag.model.scene import Terms
from workerdiag.model.vocabulary import GapReason
from workerdiag.sources.runner import take_in_time

#: One request may take so much of the time that is left, and at least and at most these seconds.
_REQUEST_SHARE = 0.5
_MIN_REQUEST_S, _REQUEST_S = 0.1, 5.0
#: Of an error's text; some SDKs quote the whole answer.
_MAX_ERROR_CHARS = 1000
#: How the SDKs name their errors (botocore.exceptions, azure.core.exceptions,
#: google.api_core.exceptions, aiohttp) and the services their codes, the first that fits.
_REASONS: Mapping[GapReason, str] = {
    "not-installed": r"^(?:ModuleNotFound|Import)Error",
    "timed-out": r"time(?:d[ -]?)?out|DeadlineExceeded",
    "forbidden": (
        r"credential|AccessDenied|Unauthori[sz]ed|Forbidden|AuthFailure|Expired?Token|InvalidClientTokenId"
        r"|permission|SignatureDoesNotMatch|RefreshError|AADSTS|not authorized"
        r"|Authenticat|AuthorizationFailed|OptInRequired|\b40[13]\b"
    ),
    "expired": r"NotFound|InvalidInstanceID|not found|no longer exists|DoesNotExist|\b404\b",
    "unreachable": (
        r"Connect|ServiceRequestError|Unavailable|RetryError|NoRegion|Throttl|TooManyRequests|RequestLimit"
        r"|OSError|Name or service|\b(?:429|5\d\d)\b"
    ),
}


@frozen(kw_only=True)
class ProviderQuery:
    """
    One question to a provider: it may fail, and the next is asked all the same.
    """

    #: The call as the provider's documentation names it, e.g. ``ec2:DescribeInstances``.
    what: str
    #: The command by which a person would ask the same.
    remedy: str
    #: Asks it; may raise whatever the SDK raises.
    ask: Callable[[], Iterable[Evidence]]


def request_timeout_s(deadline: Deadline) -> float:
    """
    Seconds that one request may take.
    """
    return deadline.share(_REQUEST_SHARE, at_least_s=_MIN_REQUEST_S, at_most_s=_REQUEST_S).left_s


def import_sdk(module: str) -> Any:
    """
    A module of an SDK.

    Raises:
        ImportError: It is not installed.
    """
    return import_module(module)


def query_provider(
    name: str, extra: str, questions: Callable[[Deadline], Iterable[ProviderQuery]], *, budget_s: float
) -> Iterator[Evidence]:
    """
    What is answered to the *questions*, asked in turn in a thread that is left behind when time is up.

    One that fails is a `Gap`; the rest is not asked where it would fail for the same reason.

    Args:
        name: What gaps call the source.
        extra: The extra of workerdiag that brings the SDK.
        questions: Makes them; it runs in that thread, so it may import and connect.
        budget_s: Seconds for all of it.
    """
    deadline = Deadline.of_budget(budget_s)
    yield from take_in_time(name, lambda: _run_queries(name, extra, partial(questions, deadline)), deadline)


class ProviderSource(Protocol):
    """
    A source whose evidence comes from one provider's queries.
    """

    name: ClassVar[str]
    terms: ClassVar[Terms]

    def collect(self, *, budget_s: float) -> Iterator[Evidence]:
        """
        Run the queries in turn, within *budget_s* seconds.
        """
        yield from query_provider(self.name, self.terms.extra, self._questions, budget_s=budget_s)

    def _questions(self, deadline: Deadline) -> Iterator[ProviderQuery]: ...


def _run_queries(
    name: str, extra: str, questions: Callable[[], Iterable[ProviderQuery]]
) -> Iterator[Evidence]:
    try:
        planned = list(questions())
    except Exception as problem:  # noqa: BLE001  SDKs raise anything, from a broken profile to no region
        yield _query_gap(name, name, problem, extra=extra)
        return
    for question in planned:
        try:
            yield from question.ask()
        except Exception as problem:  # noqa: BLE001  as above
            gap = _query_gap(name, question.what, problem, extra=extra, remedy=question.remedy)
            yield gap
            if gap.reason in ("not-installed", "timed-out") or "credential" in gap.detail.lower():
                return


def _query_gap(name: str, what: str, problem: Exception, *, extra: str = "", remedy: str = "") -> Gap:
    """
    The gap that a failed call leaves, with the command that would fix or replace it.
    """
    description = f"{type(problem).__name__} {_error_code(problem)}: {error_text(problem)[:_MAX_ERROR_CHARS]}"
    reason: GapReason = next(
        (reason for reason, words in _REASONS.items() if re.search(words, description, re.IGNORECASE)),
        "malformed",
    )
    if reason == "not-installed" and extra:
        remedy = f"pip install 'workerdiag[{extra}]'"
    return Gap(source=name, reason=reason, detail=f"{what}: {description}"[:500], remedy=remedy)


def _error_code(problem: Exception) -> str:
    """
    The code that the service answered, where the SDK keeps it apart from the text.
    """
    response = getattr(problem, "response", None)
    if isinstance(response, dict):
        error = response.get("Error")
        return str(error.get("Code", "")) if isinstance(error, dict) else ""
    code = getattr(problem, "code", None) or getattr(problem, "status_code", None)
    return str(code) if isinstance(code, int | str) else ""
