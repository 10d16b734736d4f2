"""
Calls into SDKs that may hang, ask for credentials or fail in their own words: each becomes a gap.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator
from importlib import import_module
from typing import Any

from attrs import define, field, frozen

from workerdiag.model.evidence import Evidence, Gap
from workerdiag.sources.run import collect_all

#: Of the budget, so much is for asking; the rest for ending in time.
_ASKING = 0.85
#: One request may take so much of the time that is left, and at most so long.
_REQUEST_SHARE = 0.5
_REQUEST_S = 5.0
#: Of an error's text; some SDKs quote the whole answer.
_MOST_SAID = 1000
#: How the SDKs name their errors (botocore.exceptions, azure.core.exceptions,
#: google.api_core.exceptions, aiohttp) and the services their codes, the first that fits.
_REASONS: tuple[tuple[str, re.Pattern[str]], ...] = tuple(
    (reason, re.compile(pattern, re.IGNORECASE))
    for reason, pattern in (
        ("not-installed", r"^(?:ModuleNotFound|Import)Error"),
        ("timed-out", r"time(?:d[ -]?)?out|DeadlineExceeded"),
        (
            "forbidden",
            (
                r"credential|AccessDenied|Unauthori[sz]ed|Forbidden|AuthFailure|Expired?Token|InvalidClientTokenId"
                r"|permission|SignatureDoesNotMatch|RefreshError|AADSTS|not authorized"
                r"|Authenticat|AuthorizationFailed|OptInRequired|\b40[13]\b"
            ),
        ),
        ("expired", r"NotFound|InvalidInstanceID|not found|no longer exists|DoesNotExist|\b404\b"),
        (
            "unreachable",
            (
                r"Connect|ServiceRequestError|Unavailable|RetryError|NoRegion|Throttl|TooManyRequests|RequestLimit"
                r"|OSError|Name or service|\b(?:429|5\d\d)\b"
            ),
        ),
    )
)


@frozen(kw_only=True)
class Step:
    """
    One question to a provider: it may fail, and the next is asked all the same.
    """

    #: The call as the provider's documentation names it, e.g. ``ec2:DescribeInstances``.
    what: str
    #: The command by which a person would ask the same.
    remedy: str
    ask: Callable[[], Iterable[Evidence]]


class Patience:
    """
    How much time is left for the requests to one provider.
    """

    def __init__(self, budget_s: float) -> None:
        self._deadline = time.monotonic() + budget_s

    def left_s(self) -> float:
        """
        Seconds until the answer must be there.
        """
        return max(0.0, self._deadline - time.monotonic())

    def request_s(self) -> float:
        """
        Seconds that one request may take.
        """
        return max(0.1, min(_REQUEST_S, _REQUEST_SHARE * self.left_s()))


def needed(module: str) -> Any:
    """
    A module of an SDK.

    Raises:
        ImportError: It is not installed.
    """
    return import_module(module)


def bounded(
    name: str, extra: str, steps: Callable[[Patience], Iterable[Step]], *, budget_s: float
) -> Iterator[Evidence]:
    """
    What the *steps* answer, asked one after the other in a thread that is left behind when time is up.

    A step that fails is a `Gap`; the rest is not asked where it would fail for the same reason.

    Args:
        name: What gaps call the source.
        extra: The extra of workerdiag that brings the SDK.
        steps: Makes the questions; it runs in that thread, so it may import and connect.
        budget_s: Seconds for all of it.
    """
    asking_s = _ASKING * budget_s
    patience = Patience(asking_s)
    asked = _Asked(name, lambda: _answers(name, extra, lambda: steps(patience)))
    yield from collect_all([asked], budget_s=asking_s)


@define
class _Asked:
    name: str
    _pieces: Callable[[], Iterator[Evidence]] = field(alias="pieces")

    def collect(self, *, budget_s: float) -> Iterator[Evidence]:  # noqa: ARG002  a source's method
        return self._pieces()


def _answers(name: str, extra: str, steps: Callable[[], Iterable[Step]]) -> Iterator[Evidence]:
    step: Step | None = None
    try:
        planned = list(steps())
    except Exception as problem:  # noqa: BLE001  SDKs raise anything, from a broken profile to no region
        yield why_unanswered(name, name, problem, extra=extra)
        return
    for step in planned:
        try:
            yield from step.ask()
        except Exception as problem:  # noqa: BLE001  as above
            gap = why_unanswered(name, step.what, problem, extra=extra, remedy=step.remedy)
            yield gap
            if gap.reason in ("not-installed", "timed-out") or "credential" in gap.detail.lower():
                return


def why_unanswered(name: str, what: str, problem: Exception, *, extra: str = "", remedy: str = "") -> Gap:
    """
    The gap that a failed call leaves, with the command that would fix or replace it.
    """
    said = f"{type(problem).__name__} {_code(problem)}: {str(problem)[:_MOST_SAID]}"
    reason = next((reason for reason, pattern in _REASONS if pattern.search(said)), "malformed")
    if reason == "not-installed" and extra:
        remedy = f"pip install 'workerdiag[{extra}]'"
    return Gap(source=name, reason=reason, detail=f"{what}: {said}"[:500], remedy=remedy)


def _code(problem: Exception) -> str:
    """
    The code that the service answered, where the SDK keeps it apart from the text.
    """
    response = getattr(problem, "response", None)
    if isinstance(response, dict):
        return str(response.get("Error", {}).get("Code", ""))
    code = getattr(problem, "code", None) or getattr(problem, "status_code", None)
    return str(code) if isinstance(code, int | str) else ""
