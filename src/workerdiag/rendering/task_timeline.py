"""Drawings of tasks and moments around the deaths, on one axis of time, and of how likely candidates are."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from markupsafe import Markup

from workerdiag.model.diagnosis import Death, Findings
from workerdiag.model.identity import NO_IDENTITY, Identity
from workerdiag.model.timeline import Moment, MomentKind, ProcessHistory, TaskSpan
from workerdiag.rendering.drawing import Figure, Scale, drawing, element, lanes, offset_text, percent, time_ticks
from workerdiag.rendering.wording import (
    clip,
    exit_text,
    format_percent,
    identity_text,
    one_line,
    pluralize,
    shorten_bytes,
)
from workerdiag.units import format_time
from workerdiag.values import evolve, frozen

#: Dead workers of one drawing, at most, and threads of one worker.
MAX_WORKERS, MAX_THREADS = 6, 8
_MARK_PX, _HEAD_PX, _BAR_PX, _GAP_PX, _AXIS_PX = 22, 20, 18, 4, 28
_MAX_KEY_CHARS = 80
#: The class of text for a phone, and for more than 40 rem, with the least width of a drawing there in pixels.
_WIDTHS_PX: Mapping[str, int] = {"wd-narrow": 320, "wd-wide": 590}
#: Pixels of a character at most, before the text, and under the cross at a bar's end.
_CHAR_PX, _TEXT_AT_PX, _CROSS_PX = 7.2, 5, 7
#: What takes less time is one moment, in seconds.
_LEAST_S = 0.15


@frozen(kw_only=True)
class Lane:
    """One dead worker with its tasks by thread."""

    death: Death
    threads: tuple[tuple[str, tuple[TaskSpan, ...]], ...] = ()


def timeline_figure(findings: Findings) -> Figure | None:
    """The time around the deaths; None where no time is known, or nothing but one death."""
    deaths = sorted((each for each in findings.deaths if each.when is not None), key=lambda each: each.when or 0)
    unasked = [each for each in deaths if not each.stop_requested] or deaths
    if not unasked:
        return None
    first, last = unasked[0].when or 0.0, unasked[-1].when or 0.0
    shown = [_lane(each, findings) for each in unasked[:MAX_WORKERS]]
    spans = [span for lane in shown for _, group in lane.threads for span in group]
    begin = max(first - BEFORE_S, min((span.started_at for span in spans), default=first - BEFORE_S))
    earlier_s = 1.0 if spans else 0.0  # what came just before the first task is drawn
    marks, more = numbered_marks(unasked, findings.timeline.moments, begin - earlier_s)
    begin = min([begin if spans else first, *(each.at for each in marks)])
    end = max(last, *(each.at for each in marks))
    if not spans and end - begin < _LEAST_S:  # a single moment is not a sequence of events
        return None
    margin = max(0.03 * (end - begin), 0.05)
    across = Scale(begin - margin, end + margin)
    return Figure(
        title="What happened when",
        svg=_draw(shown, marks, across, first, findings.blame.task),
        legend=tuple(_legend(spans, findings.blame.task)),
        moments=tuple(f"{offset_text(each.at - first)}: {each.text}" for each in marks),
        more=f"and {more} more" if more else "",
        notes=tuple(_notes(findings, unasked, shown)),
        columns=("Worker", "Thread", "Task", "Began", "Ended") if spans else (),
        rows=tuple(_rows(shown, first)),
    )


def _lane(death: Death, findings: Findings) -> Lane:
    histories = findings.timeline.histories
    known = next((each for each in histories if each.identity.same_process(death.identity)), None)
    return Lane(death=death, threads=tuple(_by_thread(known)) if known is not None else ())


def _by_thread(history: ProcessHistory) -> Iterator[tuple[str, tuple[TaskSpan, ...]]]:
    threads: dict[str, list[TaskSpan]] = {}
    for number, span in enumerate(history.tasks):
        threads.setdefault(span.thread or f"?{number}", []).append(span)
    busiest = sorted(threads, key=lambda name: all(each.ended_at is not None for each in threads[name]))
    for name in busiest[:MAX_THREADS]:
        yield ("" if name.startswith("?") else name), tuple(threads[name])


def _draw(shown: Sequence[Lane], marks: Sequence[Mark], across: Scale, first: float, blamed: str | None) -> Markup:
    places = [across(each.at) for each in marks]
    rows = lanes(places, 0.075)  # the width of a mark on a phone
    top = (max(rows, default=-1) + 1) * _MARK_PX + 6
    heights = [_HEAD_PX + max(1, len(each.threads)) * (_BAR_PX + _GAP_PX) + 6 for each in shown]
    plot_end = top + sum(heights)
    parts: list[Markup] = list(_axis(across, first, top, plot_end))
    for number, (mark, x, row) in enumerate(zip(marks, places, rows, strict=True), 1):
        parts += _numbered_mark(number, mark, x, row * _MARK_PX + 11, plot_end)
    y = float(top)
    for lane, height in zip(shown, heights, strict=True):
        parts += _lane_parts(lane, across, y, blamed)
        y += height
    tasks = sum(len(group) for lane in shown for _, group in lane.threads)
    counts = ((len(shown), "dead worker"), (tasks, "task"), (len(marks), "moment"))
    text = ", ".join(pluralize(count, noun) for count, noun in counts) + "."
    return drawing("What happened when", f"{text} The list below has the moments.", plot_end + _AXIS_PX, parts)


def _axis(across: Scale, first: float, top: float, end: float) -> Iterator[Markup]:
    for offset in time_ticks(across.first - first, across.last - first):
        x = across(first + offset)
        yield element("line", x1=percent(x), x2=percent(x), y1=top, y2=end, class_="wd-grid")
        anchor = "start" if x < 0.06 else "end" if x > 0.94 else "middle"
        yield element("text", offset_text(offset), x=percent(x), y=end + 18, text_anchor=anchor, class_="wd-muted")


def _numbered_mark(number: int, mark: Mark, x: float, y: float, end: float) -> Iterator[Markup]:
    kind = "wd-death" if mark.is_death else "wd-moment"
    yield element("line", x1=percent(x), x2=percent(x), y1=y, y2=end, class_=f"wd-guide {kind}")
    yield element(
        "g",
        element("title", mark.text),
        element("circle", cx=percent(x), cy=y, r=9),
        element("text", number, x=percent(x), y=y + 4, text_anchor="middle"),
        class_=f"wd-mark {kind}",
    )


def _lane_parts(lane: Lane, across: Scale, top: float, blamed: str | None) -> Iterator[Markup]:
    """One worker: its name, a row for each thread, and a cross where it died."""
    name = element("text", who_text(lane.death.identity), x=0, y=14)
    yield element("svg", name, y=top, width="100%", height=_HEAD_PX, class_="wd-worker")
    x_death = across(lane.death.when or 0.0)
    y = top + _HEAD_PX
    for _, spans in lane.threads or [("", ())]:
        yield element("rect", x=0, y=y, width=percent(x_death), height=_BAR_PX, class_="wd-thread")
        for span in spans:
            yield _span_part(span, across, y, lane.death.when or 0.0, blamed)
        y += _BAR_PX + _GAP_PX
    class_ = "wd-cross wd-asked" if lane.death.stop_requested else "wd-cross"
    cross = element("path", d="M-5 -5L5 5M5 -5L-5 5", class_=class_)
    middle = (top + _HEAD_PX + y - _GAP_PX) / 2
    yield element("svg", cross, x=percent(x_death), y=middle, overflow="visible")


def _span_part(span: TaskSpan, across: Scale, y: float, death: float, blamed: str | None) -> Markup:
    begin, end = across(span.started_at), across(span.ended_at if span.ended_at is not None else death)
    width = max(end - begin, 0.006)  # what is shorter is still seen
    key = clip(one_line(span.key), _MAX_KEY_CHARS)
    left_px = _TEXT_AT_PX + (_CROSS_PX if span.ended_at is None else 0)
    return element(
        "svg",
        element("title", f"{key}, {_span_text(span, death)}"),
        element("rect", width="100%", height="100%", rx=2),
        *_labels(key, width, left_px),
        x=percent(begin),
        y=y,
        width=percent(width),
        height=_BAR_PX,
        class_=f"wd-task wd-{_task_kind(span, blamed)}",
    )


def _labels(key: str, share: float, left_px: float) -> Iterator[Markup]:
    """The key, or the beginning of it that fits into a bar, on a phone and on wider screens."""
    shown = {name: _fitting(key, (share * px - left_px) / _CHAR_PX) for name, px in _WIDTHS_PX.items()}
    if len(set(shown.values())) == 1:
        shown = {"": shown["wd-wide"]}
    for name, text in shown.items():
        if text:
            yield element("text", text, x=_TEXT_AT_PX, y=13, class_=name or None)


def _fitting(key: str, chars: float) -> str:
    if len(key) <= chars:
        return key
    return f"{key[: int(chars) - 1]}…" if chars >= 4 else ""


def _task_kind(span: TaskSpan, blamed: str | None) -> str:
    if span.crashed or (span.ended_at is None and blamed is not None and span.key == blamed):
        return "suspect"
    return "running" if span.ended_at is None else "ended"


def _span_text(span: TaskSpan, death: float) -> str:
    took = (span.ended_at if span.ended_at is not None else death) - span.started_at
    text = offset_text(max(0.0, took)).lstrip("+")
    return f"{text}, running at the death" if span.ended_at is None else f"ended after {text}"


def _legend(spans: Sequence[TaskSpan], blamed: str | None) -> Iterator[tuple[str, str]]:
    words = {
        "suspect": "the task that Dask blames, or that crashed",
        "running": "running at the death",
        "ended": "ended earlier",
    }
    kinds = {_task_kind(each, blamed) for each in spans}
    for kind, text in words.items():
        if kind in kinds:
            yield f"task-{kind}", text


def _notes(findings: Findings, deaths: Sequence[Death], shown: Sequence[Lane]) -> Iterator[str]:
    first, last = deaths[0].when or 0.0, deaths[-1].when or 0.0
    yield f"0 s is {format_time(first)} UTC, the {'first ' if len(deaths) > 1 else ''}death."
    if len(deaths) > 1:
        within = f"within {offset_text(last - first).lstrip('+')}" if last - first >= _LEAST_S else "at once"
        more = pluralize(len(deaths) - 1, "more worker")
        yield f"{who_text(deaths[0].identity)} was lost first; {more} followed {within}."
        common = set.intersection(*(set(each.assigned) | set(each.executing or ()) for each in deaths))
        if common:
            yield f"All of them had the task {clip(one_line(min(common)), _MAX_KEY_CHARS)}."
    if len(deaths) > len(shown):
        yield f"Not drawn: {pluralize(len(deaths) - len(shown), 'more death')}."
    if not any(lane.threads for lane in shown):
        yield (
            "Which tasks ran on which thread is unknown: only the flight recorder records it, "
            "`workerdiag.install(client)`."
        )
    elif not any(each.recorded for each in findings.timeline.histories):
        yield "The tasks are those of the last heartbeat; the flight recorder records them exactly."


def _rows(shown: Sequence[Lane], first: float) -> Iterator[tuple[str, ...]]:
    for lane in shown:
        for thread, spans in lane.threads:
            for span in spans:
                ended = offset_text(span.ended_at - first) if span.ended_at is not None else "at the death"
                key = clip(one_line(span.key), _MAX_KEY_CHARS)
                began = offset_text(span.started_at - first)
                yield who_text(lane.death.identity), thread, key, began, ended


#: Limits of the numbers in a drawing: all, and those reserved for other moments than deaths.
MAX_MARKS, _LEAST_OTHERS = 12, 4
#: Moments this long before the first death and after the last one are drawn, in seconds.
BEFORE_S, AFTER_S = 60.0, 5.0
#: What a list of log lines as JSON has behind each line.
_STRING_END = re.compile(r'"[\s,\]}]*$')
_WORDS: Mapping[MomentKind, str] = {
    "start": "{who} started",
    "pause": "{who} paused: too much memory",
    "resume": "{who} resumed",
    "self-closed": "{who} closed itself",
    "stop-request": "{who} was asked to stop",
    "connection-lost": "the scheduler lost the connection to {who}",
    "removal": "the scheduler removed {who}",
    "restart": "the nanny started another worker",
    "blame": "Dask gave up: {text}",
    "trouble": "{text}",
}
#: In words, what says nothing to those who do not know Dask's log.
_PLAINER: Mapping[str, str] = {"End worker": "the command dask worker ended"}
_QUOTED: tuple[MomentKind, ...] = ("blame", "trouble")


@frozen(kw_only=True)
class Mark:
    """A numbered moment."""

    at: float
    text: str
    is_death: bool = False


def numbered_marks(deaths: Sequence[Death], moments: Iterable[Moment], begin: float) -> tuple[list[Mark], int]:
    """The deaths and other *moments* since *begin* that get a number, by time, and how many are left out."""
    first, last = deaths[0].when or 0.0, deaths[-1].when or 0.0
    ends = [
        Mark(at=each.when or 0.0, text=f"{who_text(each.identity)}: {exit_text(each)}", is_death=True)
        for each in deaths
    ]
    if len(ends) > 1:
        ends[0] = evolve(ends[0], text=f"first victim, {ends[0].text}")
    near = [
        each for each in moments if begin <= each.at <= last + AFTER_S and not _is_told_by_a_death(each, deaths)
    ]
    others = [Mark(at=each.at, text=_moment_text(each)) for each in _unique_moments(near)]
    others.sort(key=lambda each: abs(each.at - first))
    kept = ends[: MAX_MARKS - min(len(others), _LEAST_OTHERS)]
    kept += others[: MAX_MARKS - len(kept)]
    left_out = len(ends) + len(others) - len(kept)
    return sorted(kept, key=lambda each: (each.at, each.is_death)), left_out


def _unique_moments(moments: Iterable[Moment]) -> list[Moment]:
    """Return the moments. Of those with the same message within a second, only one stays, preferably a blame."""
    unique: list[Moment] = []
    latest: dict[str, int] = {}
    for each in sorted(moments, key=lambda each: each.at):
        said = _quote(each) if each.kind in _QUOTED else _moment_text(each)
        index = latest.get(said)
        if index is None or each.at - unique[index].at > 1:
            latest[said] = len(unique)
            unique.append(each)
        elif each.kind == "blame":
            unique[index] = each
    return unique


def _is_told_by_a_death(moment: Moment, deaths: Sequence[Death]) -> bool:
    """Whether it is how the scheduler notices one of the deaths, within two seconds."""
    return moment.kind in ("removal", "connection-lost") and any(
        each.identity.worker == moment.identity.worker and abs((each.when or 0.0) - moment.at) <= 2
        for each in deaths
    )


def _moment_text(moment: Moment) -> str:
    return _WORDS[moment.kind].format(who=who_text(moment.identity), text=_quote(moment))


def _quote(moment: Moment) -> str:
    """Its message, without the end of the string that it stood in."""
    text = one_line(shorten_bytes(moment.text))
    whole = _STRING_END.sub("", text) if text.count('"') % 2 else text
    return _PLAINER.get(whole) or clip(whole, 100)


def who_text(identity: Identity) -> str:
    """Return a name of a worker: its address, else whatever is known."""
    if identity == NO_IDENTITY:
        return "a worker"
    return one_line(identity.worker or identity_text(identity))


#: Candidates less likely than this have no bar.
MIN_CHANCE = 0.005
MAX_CANDIDATES, MAX_AGAINST = 6, 3
_HEIGHT_PX = 10


@frozen(kw_only=True)
class CandidateBar:
    """One candidate with its bar."""

    title: str
    #: Id of the cause; empty for something else.
    id: str
    percent: str
    svg: Markup
    #: What speaks against it, a line each.
    against: tuple[str, ...] = ()


def candidate_bars(findings: Findings) -> Iterator[CandidateBar]:
    """A bar for each likely cause and for "something else"; none where no cause is a candidate."""
    likely = [each for each in findings.causes if each.probability >= MIN_CHANCE][:MAX_CANDIDATES]
    for number, cause in enumerate(likely):
        against = tuple(
            f"Against it: {clip(one_line(each.text), 160)}{each.where and f' ({one_line(each.where)})'}"
            for each in (cause.against[:MAX_AGAINST] if number else ())
        )
        bar = share_bar(one_line(cause.title), cause.id, cause.probability, "other" if number else "top")
        yield evolve(bar, against=against)
    if findings.causes and findings.unknown_probability >= MIN_CHANCE:
        yield share_bar("Something else", "", findings.unknown_probability, "unknown")


def share_bar(title: str, id_: str, chance: float, kind: str, *, meaning: str = "Probability of") -> CandidateBar:
    """Return a bar as long as a probability or a share, which is the *meaning* for screen readers."""
    text = format_percent(chance)
    parts = (
        element("rect", width="100%", height=_HEIGHT_PX, rx=2, class_="wd-track"),
        element("rect", width=percent(chance), height=_HEIGHT_PX, rx=2, class_=f"wd-chance wd-{kind}"),
    )
    svg = drawing(text, f"{meaning}: {title}", _HEIGHT_PX, parts)
    return CandidateBar(title=title, id=id_, percent=text, svg=svg)
