"""The page "Make it finish" is a program: it is checked, dies, is rescued, explained and replayed, and fits after a change."""

from __future__ import annotations

import linecache
import re
from contextlib import suppress
from pathlib import Path

import pytest

pytest.importorskip("dask.array", exc_type=ImportError)
pytestmark = pytest.mark.lab

PAGE = Path(__file__).parents[2] / "docs" / "make-it-finish.md"
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.fixture
def shown():
    """What the page's program has after its last block; its names are those of a main module, which travel whole."""
    names = {"__name__": "__main__"}
    try:
        for at, block in enumerate(BLOCK.findall(PAGE.read_text(encoding="utf-8"))):
            name = f"<block {at}>"
            linecache.cache[name] = (len(block), None, block.splitlines(keepends=True), name)
            exec(compile(block, name, "exec"), names)
        yield names
    finally:
        for each in ("client", "cluster"):
            with suppress(KeyError):
                names[each].close()


def test_the_page_leads_from_a_death_to_the_end(shown):
    """The check, the rescue and the answer are about the same death, and both ways end with a result."""
    assert shown["found"].grade == "too-many-threads"
    assert shown["rescue"].history[0].act == "lower-threads"
    assert shown["diagnosis"].top.id == "nanny.memory-terminate"
    assert shown["replay"].verdict == "only-in-company"
    assert shown["diagnosis"].with_replay(shown["replay"]).cures[0].kind == "threads"
