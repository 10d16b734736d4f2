"""
``explain()`` and friends: chooses sources, calls the pipeline, words the result.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, overload

from attrs import field, fields, frozen

from workerdiag.keeping.kept import Kept
from workerdiag.model.diagnosis import Findings
from workerdiag.model.evidence import Evidence, EvidenceSource, Gap, LogText
from workerdiag.model.rules import Rulebook
from workerdiag.rulebook import load_rulebook

if TYPE_CHECKING:
    from distributed import Client

    from workerdiag.keeping.keeper import Keeper
    from workerdiag.matching.scan import Matcher

LogInput = str | Path | IO[str] | IO[bytes] | LogText

#: Of the whole budget, what is live gets this share, the smaller one where there are logs to read
#: as well: it forgets, files do not.
_LIVE_SHARE, _LIVE_SHARE_WITH_LOGS = 0.7, 0.6
#: After this share its text is searched no more, so that judging what was found ends in time.
_SEARCH_SHARE = 0.85


@frozen(kw_only=True)
class Diagnosis(Findings):
    """
    Why a worker died, how sure that is, and what to do; see `Findings` for the fields.

    ``str(diagnosis)`` is the text for a terminal; in a notebook it shows as HTML.
    """

    #: The evidence it rests on, for `save`; no part of its value, its JSON or a pickle of it.
    _kept: Kept | None = field(default=None, eq=False, repr=False)

    def __str__(self) -> str:
        from workerdiag.rendering.text import render_text

        return render_text(self)

    def to_markdown(self) -> str:
        """
        The report as Markdown, everything untrusted escaped.
        """
        from workerdiag.rendering.markdown import render_markdown

        return render_markdown(self)

    def to_html(self) -> str:
        """
        The report as one piece of HTML without outside resources, everything untrusted escaped.
        """
        from workerdiag.rendering.html import render_html

        return render_html(self)

    def _repr_html_(self) -> str:
        return self.to_html()

    def to_dict(self) -> dict[str, Any]:
        """
        The diagnosis as plain values, with the number of its schema under ``schema``.
        """
        from workerdiag.rendering.json import to_dict

        return to_dict(self)

    def to_json(self) -> str:
        """
        The diagnosis as JSON; `from_json` reads it back, equal.
        """
        from workerdiag.rendering.json import to_json

        return to_json(self)

    def save(self, path: str | os.PathLike[str], *, redact: bool = True, anonymous: bool = False) -> Path:
        """
        Write a death bundle: this diagnosis with the evidence it rests on, in one zip file.

        ``explain(logs="death.zip")`` judges it again, by whatever is known then;
        ``workerdiag report death.zip`` makes a bug report of it. Of the evidence at most 8 MiB are
        kept: all that is not text, and of each log its beginning, its end and all messages that
        say something. docs/death-bundle.md has what is in it.

        Args:
            path: The file to write; one that is there is replaced when the new one is whole.
            redact: Hide what looks like a password, key or token.
            anonymous: Also put stand-ins for IP addresses, host names and user names.

        Returns:
            The path.

        Raises:
            BundleError: It cannot be written there; nothing is left behind.
        """
        from workerdiag.bundle.writing import write_bundle

        return write_bundle(self, self._kept, Path(path), redact=redact, anonymous=anonymous)

    @classmethod
    def from_json(cls, text: str) -> Diagnosis:
        """
        The diagnosis that `to_json` wrote.

        Raises:
            BadReportError: The text is something else.
        """
        from workerdiag.rendering.json import from_json

        return cls(**from_json(text))


@overload
def explain(
    exc: BaseException | None = None,
    client: None = None,
    *,
    logs: LogInput | Sequence[LogInput] = (),
    sources: Sequence[EvidenceSource] | None = None,
    rulebook: Rulebook | None = None,
    timeout: str | float = "10s",
) -> Diagnosis: ...
@overload
def explain(
    exc: BaseException | None = None,
    client: Client | None = None,
    *,
    logs: LogInput | Sequence[LogInput] = (),
    sources: Sequence[EvidenceSource] | None = None,
    rulebook: Rulebook | None = None,
    timeout: str | float = "10s",
) -> Any: ...
def explain(
    exc: BaseException | None = None,
    client: Client | None = None,
    *,
    logs: LogInput | Sequence[LogInput] = (),
    sources: Sequence[EvidenceSource] | None = None,
    rulebook: Rulebook | None = None,
    timeout: str | float = "10s",
) -> Any:
    """
    Why did a worker die (or why does work stand still), and what to do now.

    Safe in an ``except`` block: it does not raise, whatever it meets (wrong types of
    arguments aside), is back within *timeout*, and changes nothing on the cluster.

    Args:
        exc: The exception caught, if there was one. Its causes, contexts and members count too.
        client: The client. Without it *exc* and *logs* are looked at, and this machine, if *exc* names a
            worker that lived here.
        logs: Paths, globs, fsspec URLs, ``-``, open files or `LogText`. A death bundle, what the flight
            recorder appended to a file, and black boxes are known by their content.
        sources: Places to ask instead of those that apply by themselves.
        rulebook: What to judge by; None: the shipped knowledge.
        timeout: Seconds in total, or as Dask writes durations (``"10s"``).

    Returns:
        A `Diagnosis`; with an asynchronous client an awaitable of one, as in Dask.

    Raises:
        TypeError: An argument is of a wrong type.
    """
    _check(exc, client, logs, timeout)
    budget_s = _seconds(timeout)
    inputs = [logs] if isinstance(logs, str | Path | LogText) or hasattr(logs, "read") else list(logs)
    asked = _Asked(exc, client, inputs, sources, rulebook, budget_s)
    if client is not None and getattr(client, "asynchronous", False) and sources is None:
        return asked.answer_async()
    return asked.answer()


class _Asked:
    """
    One call of `explain`.
    """

    def __init__(
        self,
        exc: BaseException | None,
        client: Client | None,
        logs: list[Any],
        sources: Sequence[EvidenceSource] | None,
        rulebook: Rulebook | None,
        budget_s: float,
    ) -> None:
        self._exc = exc
        self._client = client
        self._logs = logs
        self._sources = sources
        self._rulebook = rulebook
        self._budget_s = budget_s
        self._deadline = time.monotonic() + budget_s

    def answer(self) -> Diagnosis:
        return self._diagnosed(self._live)

    async def answer_async(self) -> Diagnosis:
        import asyncio

        from workerdiag.gathering import Gathering
        from workerdiag.sources.run import in_time

        facts = self._facts()
        try:
            live = await Gathering(self._client, facts, budget_s=self._live_s()).collect_async()
        except Exception as problem:  # noqa: BLE001  never make it worse
            live = [_failed("cluster", problem)]
        return await asyncio.to_thread(
            self._diagnosed, lambda _: in_time(live, deadline=self._search_until())
        )

    def _diagnosed(self, live: Callable[[list[Evidence]], Iterable[Evidence]]) -> Diagnosis:
        from workerdiag.keeping.keeper import Keeper

        keeper = Keeper()
        try:
            return self._judged(self._evidence(live), keeper)
        except Exception as problem:  # noqa: BLE001  explain() never raises into an except block
            return Diagnosis(
                outcome="unknown",
                summary="workerdiag itself failed; what follows is all it can say.",
                gaps=(_failed("workerdiag", problem),),
                kept=keeper.kept(),
            )

    def _judged(self, evidence: Iterable[Evidence], keeper: Keeper) -> Diagnosis:
        from workerdiag import __version__
        from workerdiag.pipeline import diagnose

        book, matcher = (self._rulebook, None) if self._rulebook else _shipped()
        findings = diagnose(
            keeper.passing(evidence), book, version=__version__, matcher=matcher, witness=keeper
        )
        found = {each.name: getattr(findings, each.name) for each in fields(Findings)}
        return Diagnosis(**found, kept=keeper.kept())

    def _evidence(self, live: Callable[[list[Evidence]], Iterable[Evidence]]) -> Iterator[Evidence]:
        from workerdiag.sources.logs import LogSource
        from workerdiag.sources.run import safely

        facts = self._facts()
        yield from facts
        yield from live(facts)
        if self._logs:
            left_s = max(0.5, self._deadline - time.monotonic())
            source = LogSource(self._logs, unbundle=_unbundled, unbox=_unboxed, facts=facts)
            yield from safely(source.name, lambda: source.collect(budget_s=left_s))

    def _facts(self) -> list[Evidence]:
        from workerdiag.sources.exception import exception_facts
        from workerdiag.sources.run import safely

        exc = self._exc
        return [] if exc is None else list(safely("exception", lambda: exception_facts(exc)))

    def _live(self, facts: list[Evidence]) -> Iterable[Evidence]:
        from workerdiag.sources.run import collect_all, in_time
        from workerdiag.sources.scene import victims_of

        if self._sources is not None:
            return in_time(collect_all(self._sources, budget_s=self._live_s()), deadline=self._search_until())
        if self._client is None and not victims_of(facts):
            return []
        from workerdiag.gathering import Gathering

        found = Gathering(self._client, facts, budget_s=self._live_s()).collect()
        return in_time(found, deadline=self._search_until())

    def _search_until(self) -> float:
        return self._deadline - (1.0 - _SEARCH_SHARE) * self._budget_s

    def _live_s(self) -> float:
        return self._budget_s * (_LIVE_SHARE_WITH_LOGS if self._logs else _LIVE_SHARE)


@lru_cache(maxsize=1)  # frozen values; two callers may share them
def _shipped() -> tuple[Rulebook, Matcher]:
    from workerdiag.matching.scan import Matcher

    book = load_rulebook()
    return book, Matcher(book)


def _unbundled(name: str, data: bytes) -> Sequence[Evidence] | None:
    from workerdiag.bundle.reading import evidence_in

    return evidence_in(name, data)


def _unboxed(place: str, data: bytes, fault: bytes) -> Mapping[str, Any] | None:
    from workerdiag.recorder.reopening import message_in

    return message_in(place, data, fault)


def _failed(name: str, problem: BaseException) -> Gap:
    return Gap(
        source=name,
        reason="malformed",
        detail=f"failed: {type(problem).__name__}: {problem}"[:500],
    )


def _check(exc: object, client: object, logs: object, timeout: object) -> None:
    if exc is not None and not isinstance(exc, BaseException):
        raise TypeError(f"exc must be an exception or None, got {type(exc).__name__}")
    if client is not None and not hasattr(client, "scheduler") and not hasattr(client, "sync"):
        raise TypeError(f"client must be a distributed.Client or None, got {type(client).__name__}")
    if not isinstance(timeout, str | int | float):
        raise TypeError(f'timeout must be seconds or text like "10s", got {type(timeout).__name__}')
    if not (isinstance(logs, str | Path | LogText) or hasattr(logs, "__iter__") or hasattr(logs, "read")):
        raise TypeError(f"logs must be paths, URLs, open files or LogText, got {type(logs).__name__}")


def _seconds(timeout: str | float) -> float:
    """
    A duration in seconds, written as Dask does (dask.utils.parse_timedelta).
    """
    if isinstance(timeout, int | float):
        return float(timeout)
    if plain := re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*s?\s*", timeout):  # spares importing dask
        return float(plain[1])
    from dask.utils import parse_timedelta

    try:
        return float(parse_timedelta(timeout))
    except (ValueError, KeyError):
        raise TypeError(f'timeout must be seconds or text like "10s", got {timeout!r}') from None
