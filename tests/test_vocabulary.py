"""Names are easy to find: packages fit on a page, modules are nouns, and each name has one meaning."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

import workerdiag

PACKAGE = Path(workerdiag.__file__).parent
MODULES = sorted(PACKAGE.rglob("*.py"))
#: They end like participles, and are nouns of the field or names.
NOUNS = frozenset("recording ring scoring testing wording feed coiled".split())
#: Two texts that are sent to other machines, each without any module of ours, and what they share with one.
STANDALONE = frozenset({"_read_text"})


def test_there_are_at_most_23_rooms():
    """A folder of the package is a room; more of them than fit on a page hide where things are."""
    assert len([each for each in PACKAGE.iterdir() if (each / "__init__.py").is_file()]) <= 23


def test_no_module_has_more_than_300_lines():
    """A module is read in one sitting."""
    long = {
        each.name: count for each in MODULES if (count := len(each.read_text("utf-8").splitlines())) > 300
    }
    assert long == {}


def test_no_module_is_a_participle():
    """A module is named by a noun, or by the verb of its one function."""
    last_words = {each: each.stem.split("_")[-1] for each in MODULES}
    assert [
        str(each) for each, word in last_words.items() if word.endswith("ing") and word not in NOUNS
    ] == []


def test_no_private_name_stands_in_three_modules():
    """Who reads a helper's name knows which helper it is."""
    places = defaultdict(set)
    for path in MODULES:
        for node in ast.parse(path.read_text("utf-8")).body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                places[node.name].add(path.relative_to(PACKAGE).as_posix())
    shared = {
        name: sorted(paths)
        for name, paths in places.items()
        if name.startswith("_") and not name.startswith("__") and len(paths) > 2
    }
    assert {name: paths for name, paths in shared.items() if name not in STANDALONE} == {}
