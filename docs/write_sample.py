"""Writes ``docs/_generated/sample-report.html``: the report on a recorded death, as the tutorial shows it.

    python docs/write_sample.py

``docs/samples/death.zip`` is the death bundle of a real cluster with the flight recorder, two workers of
1 GiB, and a task that takes 20 MB more every 0.6 s. The report is made, not kept: see .gitignore.
"""

from __future__ import annotations

from pathlib import Path

import workerdiag

FOLDER = Path(__file__).parent


def main() -> None:
    """Write the report anew."""
    diagnosis = workerdiag.explain(logs=FOLDER / "samples" / "death.zip", timeout="60s")
    page = FOLDER / "_generated" / "sample-report.html"
    page.parent.mkdir(exist_ok=True)
    page.write_text(whole_page(diagnosis), encoding="utf-8")


def whole_page(diagnosis: workerdiag.Diagnosis) -> str:
    """The report as ``workerdiag explain --format html`` prints it."""
    from workerdiag.rendering.html import render_html

    return render_html(diagnosis, page=True)


if __name__ == "__main__":
    main()
