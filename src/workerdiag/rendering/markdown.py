"""A diagnosis as Markdown, for issues, chats and notebooks (CommonMark, and GitHub's dialect).

Everything is escaped unless this module made it: the template's output goes through `escape`.
"""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING

from workerdiag.model.diagnosis import Findings
from workerdiag.rendering.html import template_source
from workerdiag.rendering.outline import outline
from workerdiag.rendering.sparkline import memory_lines
from workerdiag.rendering.wording import CODE_SPAN, printable_object

if TYPE_CHECKING:
    from jinja2 import Environment

#: Shows nothing; stands inside ``@name`` and ``#12``, which GitHub looks for in the text as rendered.
_BREAK = "&#8203;"
_SPECIAL = re.compile(
    r"(?P<entity>[&<>])"
    r"|(?P<reference>@|\#|GH-)"
    r"|(?P<escaped>[\\`*_{}\[\]|~!$]|:(?=//)|\.(?=[A-Za-z])|^[-+=]|(?<=^\d)[.)]|(?<=^\d\d)[.)])"
)
#: What becomes a link: an address that needs no escaping inside ``<>``.
_ADDRESS = re.compile(r"https?://[!#-;=?-\[\]_a-z~]+")


class TrustedMarkdown(str):
    """Markdown that this module made and that must not be escaped."""

    __slots__ = ()


def render_markdown(findings: Findings) -> str:
    """The findings as Markdown, with headings of the third level; what others wrote is fenced or escaped."""
    template = _markdown_environment().get_template("report.md.j2")
    memory = memory_lines(printable_object(findings))
    return template.render(report=outline(findings), memory=memory).strip() + "\n"


def escape(text: object) -> str:
    """Text as Markdown that shows it, on one line. What stands in a pair of backticks becomes code."""
    if isinstance(text, TrustedMarkdown):
        return text
    parts = enumerate(CODE_SPAN.split(" ".join(str(text).split())))
    return "".join(
        (f"`{part}`" if part.strip() else part) if at % 2 else _SPECIAL.sub(_escape_match, part)
        for at, part in parts
    )


def _escape_match(found: re.Match[str]) -> str:
    if entity := found["entity"]:
        return html.escape(entity)
    if reference := found["reference"]:
        return ("\\#" if reference == "#" else reference) + _BREAK
    return "\\" + found[0]


def code_block(lines: Sequence[str], indent: int) -> TrustedMarkdown:
    """The lines as a code block that none of them can end, *indent* columns to the right."""
    longest = max((len(run) for line in lines for run in re.findall("`+", line)), default=0)
    fence = "`" * max(3, longest + 1)
    return TrustedMarkdown("\n".join(" " * indent + line for line in (f"{fence}text", *lines, fence)))


def link(address: str) -> TrustedMarkdown:
    """Return a link to a page, or the escaped text if it is not a plain web address."""
    return TrustedMarkdown(f"<{address}>") if _ADDRESS.fullmatch(address) else TrustedMarkdown(escape(address))


@cache
def _markdown_environment() -> Environment:
    from jinja2 import Environment, FunctionLoader

    environment = Environment(
        loader=FunctionLoader(template_source),
        autoescape=False,  # noqa: S701  finalize escapes for Markdown
        finalize=escape,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals.update(fenced=code_block, linked=link, made=TrustedMarkdown)
    return environment
