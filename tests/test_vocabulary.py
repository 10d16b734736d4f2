"""Names are easy to find: packages fit on a page, modules are nouns, and each name has one meaning."""

from __future__ import annotations

from pathlib import Path

import workerdiag

PACKAGE = Path(workerdiag.__file__).parent


def test_there_are_at_most_23_rooms():
    """A folder of the package is a room; more of them than fit on a page hide where things are."""
    assert len([each for each in PACKAGE.iterdir() if (each / "__init__.py").is_file()]) <= 23
