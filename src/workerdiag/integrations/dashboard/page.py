"""
The page "Deaths": one text, which asks for ``deaths.json`` and draws by itself.

A page of Bokeh, as Dask's own are, would hold the scheduler's event loop for 80 ms each time it is opened.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

_BODY = Path(__file__).with_name("deaths.html")


def plain_page() -> bytes:
    """
    The page alone, as JupyterLab's Dask extension shows it.
    """
    body = _BODY.read_text(encoding="utf-8")
    viewport = '<meta name="viewport" content="width=device-width, initial-scale=1">'
    head = f'<head><meta charset="utf-8">{viewport}<title>Dask: Deaths</title></head>'
    return (
        f'<!DOCTYPE html>\n<html lang="en">{head}\n<body style="margin: 0">\n{body}</body></html>\n'.encode()
    )


def page_in_dashboard(variables: Mapping[str, object]) -> bytes:
    """
    The page with Dask's navigation; only where Dask shows its dashboard, and so has loaded Bokeh.

    Args:
        variables: What Dask's template wants (``template_variables``).
    """
    from distributed.dashboard.components.scheduler import env

    body = _BODY.read_text(encoding="utf-8")
    text: str = env.get_template("simple.html").render(**variables, plot_div=body, plot_script="")
    return text.replace("<title>Dask Diagnostic UI</title>", "<title>Dask: Deaths</title>", 1).encode()
