"""Whether a rule's message is one that given templates can make.

Two ways, of which one is enough. A template, its gaps filled with usual values, is matched by
the rule's pattern; or the templates make all words that the pattern insists on in one of the
rule's `seen` lines. The second way knows what stands in gaps: ``Reason: nanny-close``.
"""

from __future__ import annotations

import builtins
import re
import signal
from collections.abc import Collection, Container, Iterator, Mapping, Sequence
from itertools import product
from typing import TYPE_CHECKING

from attrs import frozen
from fixed_text import LEAST_LETTERS, fixed_runs

from workerdiag.matching.literals import NoLiteralError, literals
from workerdiag.matching.log_lines import parse_line
from workerdiag.matching.regex import pattern
from workerdiag.model.rules import Landmark, LogSign

if TYPE_CHECKING:
    from templates import Template

#: What stands in most gaps; the last ones only where there are few gaps.
_PLAIN = ("17", "tcp://10.0.0.1:8786", "word", "'tcp://10.0.0.1:8786'", "17.5")
#: What stands in some gaps; of which, only the code around it would tell.
_SPECIAL = (
    "0",
    "SIGTERM",
    "Status.running",
    "<WorkerState 'tcp://10.0.0.1:8786', name: word, status: running, memory: 0, processing: 0>",
    "Nanny",
    "Worker",
)
_MOST_FILLINGS = 90
#: What a fixed text of a pattern may have from a gap: numbers, and ``type(self).__name__``.
_IN_GAPS = re.compile(r"\d+|\b(?:nanny|worker)\b")
#: Fixed letters that make a text with spaces a sentence; anything less only stands in its gaps.
_SENTENCE_LETTERS = 7
#: A word that is found wherever it stands: ``CommClosedError``, ``nanny-close``.
_TELLING = re.compile(r"[A-Z]\w*[a-z][A-Z]\w*|\w+[-_.]\w[\w.-]*")

#: Names that Python fills gaps with: no release of distributed has to say them. It has to where
#: one begins the text of an exception.
_OF_PYTHON = re.compile(
    r"\b(?:"
    + "|".join(
        sorted(
            each for each in (*vars(builtins), *signal.Signals.__members__) if each[0].isupper() and len(each) > 4
        )
    )
    + r")\b(?!: )|<class '[\w.]+'>"
)
#: What may stand around the text of a gap: quotes of ``%r``, and blanks.
_AROUND = " '\"()[]<>.,:;"

#: A pattern for a traceback. Which functions an error passes through may change with any release.
_OF_FRAMES = re.compile(r"\\.py\b|, line |\bin (?:\(\?:)?[a-z]+_[a-z]|\bin \(\?:\w+\|")
#: What an object or a string looks like where it is shown.
_SHOWN = re.compile(r"<[A-Z]\w+ [^<>\n]*|(?P<quote>['\"])[\w-]+(?P=quote)")

Span = tuple[int, int]


@frozen(kw_only=True)
class TemplateSpans:
    """What one template makes of a line: the characters it fixes, and those in its gaps."""

    fixed: tuple[Span, ...]
    gaps: tuple[Span, ...] = ()
    #: Whether it says something only in the gap of another template.
    only_in_gap: bool = False


class TemplateMatch:
    """One rule, held against all templates there are, of whatever release.

    Args:
        said: Every template with its lower-case text.
    """

    def __init__(self, rule: LogSign | Landmark, templates: Mapping[Template, str]) -> None:
        text = any_of(rule)
        runs = fixed_runs(text)
        self._plainly = frozenset(_filled(rule, templates, runs, _PLAIN))
        self._filled = self._plainly | frozenset(_filled(rule, templates, runs, _SPECIAL + _PLAIN[:2]))
        lines = [line for seen in rule.seen if (line := _SeenLine(text, message(seen), runs)).insisted]
        self._made = [(line, {each: made for each in templates if (made := line.made_by(each))}) for line in lines]
        own = [line.text.lower() for line, made in self._made if _makes_all(line.insisted, made)]
        #: Whether every alternative of the pattern is distributed's own wording.
        self.is_wholly_own = (
            self.is_in(templates)
            and not _OF_FRAMES.search(text)
            and all(any(each in text for text in (*own, *templates.values())) for each in _literals(text))
        )

    def is_in(self, templates: Container[object], *, surely: bool = False) -> bool:
        """Whether a release with these *templates* can say it.

        What an object looks like (``<WorkerState ...>``) does not tell in which gaps it stands:
        *surely* leaves out what the pattern wants to see of one.
        """
        if any(each in templates for each in (self._plainly if surely else self._filled)):
            return True
        return any(
            _makes_all(line.insisted, {each: part for each, part in made.items() if each in templates})
            for line, made in self._made
            if not (surely and line.wants_shown)
        )

    def wordings(self, templates: Container[object]) -> frozenset[Template]:
        """Of the messages that it matches, those in *templates*."""
        return frozenset(each for each in self._filled if each in templates)


def any_of(rule: LogSign | Landmark) -> str:
    """The patterns of *rule* as one; several of them without the names of their groups, which may repeat."""
    if rule.pattern:
        return rule.pattern
    return "|".join(map(_alternative, rule.patterns))


def _alternative(text: str) -> str:
    """A pattern as a part of another one: without names of groups, its flags for itself alone."""
    flags, rest = found.groups() if (found := re.match(r"[(][?]([a-z]+)[)](.*)", text, re.DOTALL)) else ("", text)
    return f"(?{flags}:{re.sub(r'[(][?]P<[a-z_]+>', '(', rest)})"


def _filled(
    rule: LogSign | Landmark, templates: Mapping[Template, str], runs: Collection[str], fillers: Sequence[str]
) -> Iterator[Template]:
    """Templates that the rule's pattern matches when they are filled."""
    wanted = pattern(any_of(rule))
    unless = pattern(rule.unless) if rule.unless else None
    for template in templates_with(runs, templates):
        if any(
            wanted.search(text) and not (unless and unless.search(text)) for text in fillings(template, fillers)
        ):
            yield template


def templates_with(runs: Collection[str], templates: Mapping[Template, str]) -> Iterator[Template]:
    """Templates that have one of the fixed texts of a pattern, or what of it does not stand in gaps."""
    parts = {part for run in runs for part in _IN_GAPS.split(run) if sum(map(str.isalpha, part)) >= LEAST_LETTERS}
    return (template for template, lowered in templates.items() if any(part in lowered for part in parts))


class _SeenLine:
    """A `seen` line, and which of its characters the pattern insists on."""

    def __init__(self, rule_pattern: str, text: str, runs: Collection[str]) -> None:
        self.text = text
        found = pattern(rule_pattern).search(text)
        start, end = found.span() if found else (0, 0)
        span = text[start:end].lower()
        free = {at for each in _OF_PYTHON.finditer(text) for at in range(*each.span())}
        #: Positions of letters that the pattern names.
        self.insisted = frozenset(
            start + at + offset
            for run in runs
            for at in _places(run, span)
            for offset, char in enumerate(run)
            if char.isalpha() and start + at + offset not in free
        )
        #: Whether some of them show what an object looks like.
        self.wants_shown = any(
            each in self.insisted for shown in _SHOWN.finditer(text) for each in range(*shown.span())
        )

    def made_by(self, template: Template) -> TemplateSpans | None:
        """What *template* makes of this line; None when it is no part of it."""
        if any(piece.strip() not in self.text for piece in template):
            return None
        text = "".join(template).strip()
        if " " in text and sum(map(str.isalpha, text)) >= _SENTENCE_LETTERS:
            return self._sentence(template)
        if hasattr(builtins, text) or (len(template) > 1 and not _TELLING.search(text)):
            return None
        shape = r"(?<![\w-])" + "(.*?)".join(f"({_loose(piece)})" for piece in template) + r"(?![\w-])"
        return self._made(shape, only_in_gap=not _TELLING.search(text))

    def _sentence(self, template: Template) -> TemplateSpans | None:
        shape = "(.*?)".join(f"({_loose(piece)})" for piece in template)
        return self._made(shape if template[-1].strip() else f"{shape}(.*)", only_in_gap=False)

    def _made(self, shape: str, *, only_in_gap: bool) -> TemplateSpans | None:
        fixed: list[Span] = []
        gaps: list[Span] = []
        for each in re.finditer(shape, self.text):
            for group in range(1, (each.re.groups or 0) + 1):
                (gaps if group % 2 == 0 else fixed).append(each.span(group))
        if not fixed:
            return None
        known = [*map(self._stripped, gaps), *filter(self._is_quoted, fixed)]
        return TemplateSpans(fixed=tuple(fixed), gaps=tuple(known), only_in_gap=only_in_gap)

    def _is_quoted(self, span: Span) -> bool:
        """Whether a text is shown as a value: then there is a gap, whoever left it."""
        around = self.text[max(0, span[0] - 1) : span[0]] + self.text[span[1] : span[1] + 1]
        return around in {"''", '""'}

    def _stripped(self, span: Span) -> Span:
        text = self.text[slice(*span)]
        start = span[0] + len(text) - len(text.lstrip(_AROUND))
        return start, start + len(text.strip(_AROUND))


def _makes_all(insisted: Collection[int], by: Mapping[Template, TemplateSpans]) -> bool:
    gaps = {span for made in by.values() for span in made.gaps}
    spans = [span for made in by.values() for span in made.fixed if not made.only_in_gap or span in gaps]
    return all(any(start <= each < end for start, end in spans) for each in insisted)


def fillings(template: Template, fillers: Sequence[str] = _PLAIN) -> Iterator[str]:
    """Texts that *template* may make, with *fillers* in its gaps."""
    gaps = len(template) - 1
    count = next((each for each in range(len(fillers), 1, -1) if each**gaps <= _MOST_FILLINGS), 0)
    choices = product(fillers[:count], repeat=gaps) if count else ((each,) * gaps for each in fillers)
    for choice in choices:
        yield "".join(piece + fill for piece, fill in zip(template, (*choice, ""), strict=True))


def message(line: str) -> str:
    """A `seen` text without what loggers and others put before each of its lines."""
    return "\n".join(parse_line(each.encode()).message for each in line.splitlines())


def _places(run: str, text: str) -> Iterator[int]:
    at = text.find(run)
    while at >= 0:
        yield at
        at = text.find(run, at + 1)


def _loose(piece: str) -> str:
    """A regex for *piece* that takes any blanks for its blanks; at its ends there may be none."""
    return r"\s+".join(map(re.escape, piece.split()))


def _literals(text: str) -> tuple[str, ...]:
    """The literals of a pattern; the pattern itself where its alternatives together have no small set of them."""
    try:
        return literals(text)
    except NoLiteralError:
        return (text,)
