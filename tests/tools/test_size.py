"""The size of the package: lines by what stands on them, and arrows, circles and floors by the imports."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
import size

SOURCE = '''\
"""A module.

It has two paragraphs.
"""

from __future__ import annotations  # a comment

import os

# a comment


def name() -> str:
    """Return a name."""
    import sys

    return f"""{os.sep}

{sys}"""
'''


def package(folder: Path, files: dict[str, str]) -> list[size.Module]:
    """The modules of a package ``house`` with these files."""
    for name, text in {"__init__.py": "", **files}.items():
        path = folder / "house" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return size.read_modules(folder / "house")


def test_each_line_is_counted_once():
    """Blank lines and comments are no code, neither are imports and docstrings, but all of a long text is."""
    assert size.count_lines(SOURCE) == size.Lines(lines=19, code=4, imports=3, docstrings=5)


@pytest.mark.parametrize(
    ("docstring", "count"),
    [
        ("Says one thing.", 0),
        ("Says one thing.\n", 1),
        ("Says one thing,\nand it is long.\n", 1),
        ("Says one thing. Says\nanother.\n", 0),
        ("Says one thing\n\nArgs: none\n", 0),
    ],
)
def test_a_docstring_of_one_sentence_is_tall_on_several_lines(docstring, count):
    """Only one sentence that takes more than one line is counted."""
    assert size.tall_sentences(ast.parse(f'"""{docstring}"""')) == count


def test_a_face_defines_nothing(tmp_path):
    """An ``__init__.py`` with a function or a class is a module like any other."""
    modules = package(
        tmp_path,
        {
            "face/__init__.py": '"""A face."""\nfrom house.face.wall import a\n__all__ = ["a"]\n',
            "hall/__init__.py": "def a(): ...\n",
            "face/wall.py": "a = 1\n",
        },
    )
    assert [module.name for module in modules if module.is_face] == ["house", "house.face"]


def test_arrows_are_imports_that_run(tmp_path):
    """An import in a function is an arrow, later than loading; one for type checkers is none."""
    text = "from house import a\nif TYPE_CHECKING:\n    import house.b\ndef f():\n    from house.c import name\n"
    modules = package(tmp_path, {"a.py": "", "b.py": "", "c.py": "", "top.py": text})

    assert size.arrows_of(modules)["house.top"] == {"house.a", "house.c"}
    assert size.arrows_of(modules, late=False)["house.top"] == {"house.a"}


def test_a_lazy_face_imports_what_it_names_for_type_checkers(tmp_path):
    """Whoever imports the face of what imports him is in a circle, although loading shows none."""
    face = "if TYPE_CHECKING:\n    from house.a import name\n__getattr__ = lazy\n"
    modules = package(tmp_path, {"__init__.py": face, "a.py": "from house import version\n"})

    assert size.circles(size.arrows_of(modules)) == [{"house", "house.a"}]
    assert size.circles(size.arrows_of(modules, late=False)) == []


def test_floors_are_the_longest_chain_of_imports(tmp_path):
    """A module stands above all that it imports, those of a circle together; rooms do so by their modules."""
    modules = package(
        tmp_path,
        {
            "ground.py": "",
            "one/low.py": "import house.ground\nimport house.one.high\n",
            "one/high.py": "import house.one.low\n",
            "top.py": "import house.one.high\nimport house.ground\n",
        },
    )
    arrows = size.arrows_of(modules)
    rooms = size.between_rooms(arrows)

    assert size.circles(arrows) == [{"house.one.low", "house.one.high"}]
    assert size.floors(arrows)["house.one.low"] == size.floors(arrows)["house.one.high"] == 2
    assert size.floors(arrows)["house.top"] == 3
    assert size.circles(rooms) == []
    assert size.floors(rooms) == {"__init__": 1, "ground": 1, "one": 2, "top": 3}


def test_rooms_that_import_each_other_are_told(tmp_path):
    """Two folders can lean on each other without any circle of modules."""
    modules = package(tmp_path, {"a/x.py": "import house.b.x\n", "b/x.py": "", "b/y.py": "import house.a.x\n"})
    arrows = size.arrows_of(modules)

    assert size.circles(arrows) == []
    assert size.mutual(size.between_rooms(arrows)) == [("a", "b")]


def test_a_basename_may_occur_twice(tmp_path):
    """The third module of a name is one too many, unless all folders have such a module."""
    rooms = ("a", "b", "c")
    files = {f"{room}/{name}.py": "" for room in rooms for name in ("source", "reader", "__init__")}
    modules = package(tmp_path, files | {"a/thing.py": "", "b/thing.py": ""})

    assert size.repeated_basenames(modules) == {"reader": 3}


def test_the_check_fails_only_above_a_limit(tmp_path, monkeypatch, capsys):
    """A figure at its limit passes; one more fails the check, and printing alone never fails."""
    package(tmp_path, {"a.py": "import house.b\n", "b.py": ""})
    monkeypatch.setattr(size, "PACKAGE", tmp_path / "house")
    monkeypatch.setattr(size, "LIMITS", {"modules": 3})

    assert size.main(["--check"]) == 0
    monkeypatch.setattr(size, "LIMITS", {"modules": 2})
    assert (size.main(["--check"]), size.main([])) == (1, 0)
    assert "at most 2  <- too many" in capsys.readouterr().out


def test_every_limit_has_a_figure(tmp_path):
    """A limit without a figure would hold nobody to it."""
    assert size.LIMITS.keys() <= size.figures(package(tmp_path, {})).keys()
