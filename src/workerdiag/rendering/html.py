"""
A diagnosis as HTML, for notebooks and as a page of its own.
"""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING

from workerdiag.model.diagnosis import Findings
from workerdiag.rendering.outline import outline

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup

#: What stands between two single backticks.
_CODE = re.compile(r"(?<!`)`([^`]+)`(?!`)")


def render_html(findings: Findings, *, page: bool = False, folded: bool = False) -> str:
    """
    The findings as one ``<div>`` with its style in it: no script, no address that is loaded.

    It takes the colours of what is around it, so it can be read on light and on dark. The text
    is ASCII (other characters are written as references), so it shows the same in any encoding.

    Args:
        findings: A `Findings`, or a `workerdiag.Diagnosis`, which is one.
        page: Whether to put a document around it, for a file of its own.
        folded: Whether all sections behind the lead are folded, as in notebooks.
    """
    template = _html_environment().get_template("page.html.j2" if page else "report.html.j2")
    text = template.render(report=outline(findings), folded=folded).strip()
    return text.encode("ascii", "xmlcharrefreplace").decode("ascii")


def prose(text: str) -> Markup:
    """
    Escaped text in which what stands in a pair of backticks is code.
    """
    from markupsafe import Markup, escape

    parts = enumerate(_CODE.split(text))
    return Markup().join(
        Markup("<code>{}</code>").format(part) if at % 2 else escape(part) for at, part in parts
    )


@cache
def _html_environment() -> Environment:
    from jinja2 import Environment, PackageLoader

    environment = Environment(
        loader=PackageLoader("workerdiag.rendering"), autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["prose"] = prose
    return environment
