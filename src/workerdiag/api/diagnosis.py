"""
`Diagnosis`: the findings, with the ways to show and keep them.
"""

from __future__ import annotations

import os
from collections.abc import Generator
from pathlib import Path
from typing import Any, Self

from attrs import field, frozen

from workerdiag.bundle.retention.kept_evidence import KeptEvidence
from workerdiag.model.diagnosis import Findings

#: As application/json it would hide the HTML: JupyterLab prefers that (packages/json-extension, rank 0).
_JSON_TYPE = "application/vnd.workerdiag.diagnosis+json"


@frozen(kw_only=True)
class Diagnosis(Findings):
    """
    Why a worker died, how sure that is, and what to do; see `Findings` for the fields.

    ``str(diagnosis)`` is one screen, `to_text` has all; notebooks show its HTML, and keep all forms.
    """

    #: The evidence it rests on, for `save`; no part of its value, its JSON or a pickle of it.
    _kept_evidence: KeptEvidence | None = field(default=None, eq=False, repr=False)

    def __await__(self) -> Generator[Any, None, Self]:
        """
        Itself, so that ``await explain(exc, client)`` is right whatever the client is.
        """
        yield from ()
        return self

    def __str__(self) -> str:
        return self.to_text()

    def to_text(self, *, full: bool = False, width: int = 80) -> str:
        """
        The report for a terminal, without control sequences.

        Args:
            full: Whether to give all of it. Else a report of more than 24 lines is cut down to the answer,
                the strongest evidence, the deaths and what could not be looked at.
            width: Columns of the terminal.
        """
        from workerdiag.rendering.text import render_text

        return render_text(self, width=width, full=full)

    def to_markdown(self) -> str:
        """
        The report as Markdown, everything untrusted escaped.
        """
        from workerdiag.rendering.markdown import render_markdown

        return render_markdown(self)

    def to_html(self) -> str:
        """
        The report as one page with drawings, which loads nothing; everything untrusted escaped.
        """
        from workerdiag.rendering.html import render_html

        return render_html(self, page=True)

    def _repr_html_(self) -> str:
        from workerdiag.rendering.html import render_html

        return render_html(self, folded=True)

    def _repr_mimebundle_(self, **_: Any) -> dict[str, Any]:
        """
        Every form, for IPython to pick from.
        """
        return {
            "text/plain": str(self),
            "text/markdown": self.to_markdown(),
            "text/html": self._repr_html_(),
            _JSON_TYPE: self.to_dict(),
        }

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
        from workerdiag.bundle.writer import write_bundle

        return write_bundle(self, self._kept_evidence, Path(path), redact=redact, anonymous=anonymous)

    @classmethod
    def from_json(cls, text: str) -> Diagnosis:
        """
        The diagnosis that `to_json` wrote.

        Raises:
            BadReportError: The text is something else.
        """
        from workerdiag.rendering.json import from_json

        return cls(**from_json(text))
