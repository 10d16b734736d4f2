"""The description that a package index shows."""

from __future__ import annotations

import json
import re
from importlib.metadata import PackageNotFoundError, distribution

import pytest


def description() -> str:
    """The description of the installed wheel; a checkout has none of its own."""
    try:
        installed = distribution("workerdiag")
    except PackageNotFoundError:
        pytest.skip("workerdiag is not installed")
    origin = json.loads(installed.read_text("direct_url.json") or "{}")
    if origin.get("dir_info", {}).get("editable"):
        pytest.skip("an editable installation is described as it was when it was made")
    # As it is in the file: once some libraries are imported, installed.metadata has no payload.
    return (installed.read_text("METADATA") or "").partition("\n\n")[2]


def test_no_link_of_the_description_leads_into_the_checkout():
    """The README's links to files are there without their targets, and the text is whole."""
    text = description()
    assert "## Two commands" in text
    assert "tutorial" in text
    assert [each for each in re.findall(r"\]\(([^)]+)\)", text) if "://" not in each] == []
