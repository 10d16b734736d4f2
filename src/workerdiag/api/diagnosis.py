"""`Diagnosis`: the findings, with methods to show and save them."""

from __future__ import annotations

import os
from collections.abc import Generator, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from workerdiag.bundle.kept_evidence import KeptEvidence
from workerdiag.model.diagnosis import Findings
from workerdiag.model.evidence import Event
from workerdiag.model.vocabulary import Deployment, as_deployment
from workerdiag.replay.kit import Kit
from workerdiag.values import field, frozen

if TYPE_CHECKING:
    from workerdiag.replay.outcome import Replay

#: Not application/json, which JupyterLab would prefer to the HTML (packages/json-extension, rank 0).
_JSON_TYPE = "application/vnd.workerdiag.diagnosis+json"


@frozen(kw_only=True)
class Diagnosis(Findings):
    """Why a worker died, how sure that is, and what to do; see `Findings` for the fields.

    ``str(diagnosis)`` fits one screen, `to_text` gives all of it; notebooks show its HTML, and store all
    forms.
    """

    #: Its evidence, for `save`; not part of its value, its JSON or its pickle.
    _kept_evidence: KeptEvidence | None = field(default=None, eq=False, repr=False)
    #: What ran when a worker died, to be replayed; None without the flight recorder on the scheduler. Not part of
    #: its value either: it holds pickles, and perhaps data.
    kit: Kit | None = field(default=None, eq=False, repr=False)

    def __await__(self) -> Generator[Any, None, Self]:
        """Return itself, so that ``await explain(exc, client)`` works with any client."""
        yield from ()
        return self

    def __str__(self) -> str:
        return self.to_text()

    def with_replay(self, replay: Replay) -> Self:
        """Return the diagnosis with the memory that *replay* measured in its decision, its account and its cures.

        It is the same where the replay measured none, or the tasks do not pass the limit.
        """
        from workerdiag.scoring.cures import with_measured_need

        measured = replay.measured_need
        if measured is None:
            return self
        items = self._kept_evidence.items if self._kept_evidence is not None else ()
        return with_measured_need(self, measured, stated_deployment(items))

    def to_text(self, *, full: bool = False, width: int = 80) -> str:
        """Return the report for a terminal, without control sequences.

        Args:
            full: Whether to give all of it. Otherwise a report of more than 24 lines is cut down to the answer,
                the strongest evidence, the deaths and what could not be inspected.
            width: Columns of the terminal.
        """
        from workerdiag.rendering.text import render_text

        return render_text(self, width=width, full=full)

    def factors_text(self, *, width: int = 80) -> str:
        """Return how the probabilities of the first causes come about: each factor on a line, and the product.

        For programs each cause has its `factors`.
        """
        from workerdiag.rendering.text import render_factors

        return render_factors(self, width=width)

    def to_markdown(self) -> str:
        """Return the report as Markdown, with everything untrusted escaped."""
        from workerdiag.rendering.markdown import render_markdown

        return render_markdown(self)

    def to_html(self) -> str:
        """Return the report as one page with drawings, which loads nothing; everything untrusted is escaped."""
        from workerdiag.rendering.html import render_html

        return render_html(self, page=True)

    def _repr_html_(self) -> str:
        from workerdiag.rendering.html import render_html

        return render_html(self, folded=True)

    def _repr_mimebundle_(self, **_: Any) -> dict[str, Any]:
        """Return all forms for IPython."""
        return {
            "text/plain": str(self),
            "text/markdown": self.to_markdown(),
            "text/html": self._repr_html_(),
            _JSON_TYPE: self.to_dict(),
        }

    def to_dict(self) -> dict[str, Any]:
        """Return the diagnosis as plain values, with its schema number under ``schema``."""
        from workerdiag.rendering.json import to_dict

        return to_dict(self)

    def to_json(self) -> str:
        """Return the diagnosis as JSON; `from_json` reads it back, equal."""
        from workerdiag.rendering.json import to_json

        return to_json(self)

    def save(self, path: str | os.PathLike[str], *, redact: bool = True) -> Path:
        """Write a death bundle: this diagnosis with the evidence it rests on, in one zip file.

        ``explain(logs="death.zip")`` judges it again with the rules of that time; ``workerdiag report
        death.zip`` makes a bug report of it. At most 8 MiB of evidence are kept: all of it that is not text,
        and the beginning, the end and all relevant messages of each log. docs/death-bundle.md describes the
        content.

        Args:
            path: The file to write. An existing one is replaced once the new one is complete.
            redact: Hide what looks like a password, key or token.

        Returns:
            The path.

        Raises:
            BundleError: It cannot be written there; nothing is left behind.
        """
        from workerdiag.bundle.bundle_file import write_bundle

        return write_bundle(self, self._kept_evidence, Path(path), redact=redact)

    @classmethod
    def from_json(cls, text: str) -> Diagnosis:
        """Return the diagnosis that `to_json` wrote; raises BadReportError."""
        from workerdiag.rendering.json import from_json

        return cls(**from_json(text))


def stated_deployment(evidence: Iterable[object]) -> Deployment | None:
    """Return how the cluster was set up, by the first event that says it; None without one."""
    stated = (as_deployment(each.fields.get("deployment")) for each in evidence if isinstance(each, Event))
    return next(filter(None, stated), None)
