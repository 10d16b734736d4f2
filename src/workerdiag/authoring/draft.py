"""A draft of a rule, from a log that no rule explains. TODO marks what the author must decide.

Lines that healthy clusters write too or that a rule knows are left out; the grave and those near an end come first.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence

from workerdiag.matching.literals import NoLiteralError, literals
from workerdiag.matching.log_lines import ParsedLine, parse_line
from workerdiag.matching.match import search
from workerdiag.model.diagnosis import RECOGNITION_ROLE
from workerdiag.model.evidence import LogChunk
from workerdiag.model.rules import Rulebook
from workerdiag.values import evolve, frozen

#: Characters of a line that are read.
_LINE_CHARS = 400

#: What differs from run to run, with the pattern that stands for it; the first that fits.
_VARIABLE_PARTS = (
    (re.compile(r"\b\w+://[^\s'\",;<>()]+"), r"\w+://\S+"),
    (re.compile(r"(?:/[\w.@+-]+){2,}/?|[A-Z]:\\[\w\\.@+-]+"), r"[\w./\\@:+-]+"),
    (re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f-]{14,}\b"), r"[0-9a-f-]+"),
    (re.compile(r"\b0x[0-9a-fA-F]+\b|\b[0-9a-f]{12,}\b"), r"[0-9a-fx]+"),
    (re.compile(r"\d[\d.,:]*\d|\d"), r"[\d.,:]+"),
    (re.compile(r"(?<!\w)'[^']{1,80}'(?!\w)|\"[^\"]{1,80}\""), r"""['"][^'"]+['"]"""),
)
#: A header of a logger that `parse_line` does not know: time, name, level.
_FOREIGN_HEADER = re.compile(
    r"^[\d\s:.,T/+Z\[\]-]{8,40}[\w.\[\] -]{0,80}?\b(DEBUG|INFO|WARNING|ERROR|CRITICAL)\b[\]\s:|-]*"
)
_ANY_VARIABLE_PART = re.compile("|".join(f"({shape.pattern})" for shape, _ in _VARIABLE_PARTS))


@frozen(kw_only=True)
class UnusualLine:
    """A line that neither healthy clusters write nor a rule knows."""

    template: str
    text: str
    where: str
    score: float
    times: int = 1


def unusual_lines(chunks: Sequence[LogChunk], book: Rulebook, *, quiet: Collection[str]) -> list[UnusualLine]:
    """The unusual lines of some logs, not among *quiet* templates, the most telling first, each once."""
    matches = search(chunks, book).matches
    # a mark of who writes, or of what a writer calls an error, does not mean that a rule knows the words
    telling = [each for each in matches if each.role not in (RECOGNITION_ROLE, "error")]
    known = {(each.origin, line) for each in telling for line in range(each.line, each.last_line + 1)}
    roles = ("death", "self-closed", "removal", "restart", "blame")
    ends = [(each.origin, each.line) for each in matches if each.role in roles and not each.sign]
    found: dict[str, UnusualLine] = {}
    for origin, number, line in _parsed_lines(chunks):
        message = _FOREIGN_HEADER.sub("", line.message[:_LINE_CHARS])
        shape = line_template(message)
        if (origin, number) in known or shape in quiet or not _has_words(shape):
            continue
        worth = _line_score(line, any(where == origin and 0 <= end - number <= 40 for where, end in ends))
        before = found.get(shape)
        if before is None:
            found[shape] = UnusualLine(
                template=shape, text=message.strip(), where=f"{origin}:{number}", score=worth
            )
        else:
            found[shape] = evolve(before, score=max(worth, before.score), times=before.times + 1)
    return sorted(found.values(), key=lambda each: (-each.score, each.times, each.where))


def draft_rule(lines: Sequence[UnusualLine]) -> str:
    """A rule file in TOML with the unusual lines as signs, to be finished by a person."""
    signs = [sign for each in lines for sign in _sign_toml(each, len(lines))]
    return _HEAD + "\n".join(signs[:6])


def line_template(text: str) -> str:
    """*text* without what differs from run to run: numbers, addresses, paths, quoted names."""
    return _ANY_VARIABLE_PART.sub("<>", text.strip()[:_LINE_CHARS])


def line_pattern(text: str) -> str:
    """An RE2 pattern for all lines like *text*."""
    pieces, at = [], 0
    for found in _ANY_VARIABLE_PART.finditer(text):
        pieces += [_escape_pattern(text[at : found.start()]), _VARIABLE_PARTS[(found.lastindex or 1) - 1][1]]
        at = found.end()
    return "".join((*pieces, _escape_pattern(text[at:])))


_HEAD = """\
# TODO: choose family and name; the file is causes/<family>/<name>.toml
id = "TODO.todo"
revision = 1
title = "TODO: what happened, in one line"
why = "TODO: what happens and why, in words a data scientist understands"
ends = "crashed"      # TODO: stopped raised killed crashed never-started standstill disconnected
blame = "unknown"     # TODO: task configuration environment platform operator nobody unknown
retry = "unknown"     # TODO: safe unsafe unknown
status = "experimental"
references = []       # TODO: documentation, issue

[[mitigation]]
do = "TODO: what to change"

"""


def _parsed_lines(chunks: Iterable[LogChunk]) -> Iterator[tuple[str, int, ParsedLine]]:
    texts: dict[str, bytes] = {}
    for chunk in chunks:
        texts[chunk.origin] = texts.get(chunk.origin, b"") + chunk.data
    for origin, data in texts.items():
        for number, raw in enumerate(data.split(b"\n")[:200_000], 1):
            if raw.strip() and not raw.startswith(b"    "):  # code that a traceback quotes
                yield origin, number, parse_line(raw[: 4 * _LINE_CHARS])


def _has_words(shape: str) -> bool:
    """Whether a line has words of its own: not a traceback's frame, a rule of dashes, a table."""
    words = re.findall(r"[A-Za-z]{3,}", shape.replace("<>", ""))
    frame = shape.lstrip().startswith(("File ", "Traceback", "^", "~", "|", "+", "at "))
    return len(words) >= 2 and not frame


def _line_score(line: ParsedLine, near_an_end: bool) -> float:  # noqa: FBT001
    raised = re.search(r"\b\w*(?:Error|Exception|Killed|Abort|Fatal|fault)\b", line.text) is not None
    stranger = _FOREIGN_HEADER.match(line.text)
    level = line.level or (stranger[1] if stranger else "")
    gravity = {"CRITICAL": 5, "ERROR": 4, "WARNING": 2, "INFO": 0, "DEBUG": 0}.get(level, 1)
    return gravity + 3 * raised + 2 * near_an_end


def _sign_toml(line: UnusualLine, among: int) -> Iterator[str]:
    pattern = line_pattern(line.text)
    try:
        literals(pattern)
    except NoLiteralError:
        return
    name = "-".join(re.findall(r"[a-z0-9]+", line.template.lower().replace("<>", ""))[:5]) or "said"
    times = "once" if line.times == 1 else f"{line.times} times"
    yield (
        f"[[sign]]  # {line.where}, seen {times}; unusual lines: {among}\n"
        f'kind = "log"\nname = {_toml_string(name)}\npattern = {_toml_string(pattern)}\n'
        'grade = "weak"  # TODO: decisive strong moderate weak hint\n'
        f"seen = [{_toml_string(line.text)}]\nlookalikes = []  # TODO: lines that are not for this rule\n"
    )


def _escape_pattern(text: str) -> str:
    return re.sub(r"([.^$*+?{}\[\]|()\\])", r"\\\1", text)


def _toml_string(text: str) -> str:
    """*text* as a TOML string: literal where it can be, as patterns read better so."""
    if "'" not in text and all(char.isprintable() for char in text):
        return f"'{text}'"
    plain = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + "".join(char if char.isprintable() else f"\\U{ord(char):08x}" for char in plain) + '"'
