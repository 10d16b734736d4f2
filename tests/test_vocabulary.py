"""Names are easy to find: packages fit on a page, and a module's name says which one it is."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import workerdiag

PACKAGE = Path(workerdiag.__file__).parent


def test_there_are_at_most_23_rooms():
    """A folder of the package is a room; more of them than fit on a page hide where things are."""
    assert len([each for each in PACKAGE.iterdir() if (each / "__init__.py").is_file()]) <= 23


def test_no_name_of_a_module_stands_for_three():
    """Who reads a name in a traceback or an import knows where it lies."""
    names = Counter(path.stem for path in PACKAGE.rglob("*.py"))
    assert {name for name, count in names.items() if count > 2} <= {"__init__", "source"}
