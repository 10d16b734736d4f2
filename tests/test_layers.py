"""The imports match the layer table of the design."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import pytest

import workerdiag

PACKAGE = Path(workerdiag.__file__).parent

STAGES = "sources matching correlation scoring rendering"


def table(rows: Mapping[str, str]) -> Mapping[str, frozenset[str]]:
    """Rooms, or libraries, from their names in one text."""
    return {row: frozenset(names.split()) for row, names in rows.items()}


#: Room -> rooms it may import from, beside itself. A room is a module or a folder of the package.
MAY_IMPORT = table(
    {
        "_version": "",
        "errors": "",
        "units": "",
        "guard": "",
        "lazy": "",
        "values": "",
        "settings": "guard errors units redaction",
        "deadline": "values guard errors",
        "model": "values guard errors units",
        "procfs_and_cgroups": "",
        "redaction": "values guard model errors",
        "serialization": "errors",
        "rulebook": "values guard model errors deadline serialization",
        "wire": "values model errors serialization",
        "sources": "values guard model errors units deadline wire procfs_and_cgroups settings",
        "matching": "values guard model errors deadline",
        "correlation": "guard model errors deadline",
        "scoring": "values guard model errors units deadline redaction",
        "rendering": "values guard model errors units redaction serialization settings",
        "pipeline": "model errors deadline matching correlation scoring",
        # It opens the dashboard by name (recorder/scheduler.py), where it records on the scheduler.
        "recorder": "values guard _version model errors units deadline procfs_and_cgroups wire settings",
        "replay": "values guard _version model errors units deadline wire procfs_and_cgroups",
        "bundle": "values guard _version model errors units redaction serialization rendering",
        "authoring": "values guard model errors rulebook sources matching pipeline",
        "plugins": "model deadline",
        "testing": "model errors deadline",
        "api": f"values guard lazy _version model errors units deadline redaction rulebook wire pipeline recorder replay bundle {STAGES} settings",
        "demo": "guard model errors api",
        # Deaths that were collected, judged: the watcher and the dashboard share it.
        "incidents": "values guard model errors deadline wire sources scoring rendering api",
        "watch": f"values guard _version model errors units deadline serialization procfs_and_cgroups redaction rulebook wire pipeline recorder bundle {STAGES} api incidents settings lazy",
        "integrations": f"values guard _version model errors units deadline redaction rulebook wire pipeline recorder bundle {STAGES} api incidents settings",
        "triage": f"values guard model errors units deadline serialization wire incidents redaction rulebook pipeline recorder bundle authoring {STAGES} api settings lazy",
        "cli": f"values guard _version replay triage integrations model errors units deadline redaction rulebook wire pipeline recorder bundle authoring api incidents watch demo {STAGES} settings",
        "auto": "api lazy recorder",
        "rescue": "api lazy recorder settings units",
        "__init__": "_version model errors rulebook recorder replay api watch triage lazy",
        "__main__": "cli",
    }
)

#: Room -> libraries it must not touch, however deep inside a function.
MUST_NOT_IMPORT = table(
    {
        "errors": "distributed dask cattrs click jinja2",
        "units": "distributed cattrs click jinja2 attrs os pathlib socket subprocess fsspec",
        "deadline": "distributed dask cattrs click jinja2 os pathlib socket subprocess fsspec",
        "model": "distributed dask cattrs click jinja2 os pathlib socket subprocess fsspec",
        "wire": "distributed dask cattrs click jinja2 os pathlib socket subprocess fsspec",
        "procfs_and_cgroups": "distributed dask cattrs click jinja2 attrs subprocess fsspec",
        "redaction": "distributed dask cattrs click jinja2 pathlib socket subprocess fsspec",
        "rulebook": "distributed dask click jinja2 socket subprocess fsspec",
        "sources": "cattrs click jinja2",
        "matching": "distributed dask cattrs click jinja2 socket subprocess fsspec",
        "correlation": "distributed dask cattrs click jinja2 pathlib socket subprocess fsspec",
        "scoring": "distributed dask cattrs click jinja2 pathlib socket subprocess fsspec",
        "rendering": "distributed dask click socket subprocess fsspec",
        "pipeline": "distributed dask cattrs click jinja2 pathlib socket subprocess fsspec",
    }
)


def room_of(module: str) -> str:
    """The room of ``workerdiag.matching.log_lines`` is ``matching``."""
    return module.split(".")[1]


def modules() -> list[tuple[str, Path]]:
    """Dotted name and file of every module of the package."""
    paths = sorted(PACKAGE.rglob("*.py"))
    return [(".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts), path) for path in paths]


@cache
def imports(path: Path) -> frozenset[str]:
    """Every module named in an import statement of *path*, at the top or inside functions."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} imports relatively"
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return frozenset(names)


def test_the_table_has_every_room():
    """A new module or folder of the package starts with a line in the table."""
    assert {room_of(module) for module, _ in modules()} <= set(MAY_IMPORT)


def test_how_it_works_has_every_room():
    """The documentation names the rooms of today, each once, below the rooms that it imports from."""
    page = Path(__file__).parents[1].joinpath("docs", "how-it-works.md").read_text(encoding="utf-8")
    section = page.partition("## Where things are")[2].partition("\n## ")[0]
    rows = [re.findall(r"`(\w+)`", row.split("|")[1]) for row in re.findall(r"(?m)^\| `.*", section)]
    listed = [room for row in rows for room in row]
    assert sorted(listed) == sorted(room for room in MAY_IMPORT if not room.startswith("_"))
    above: set[str] = set()
    for row in rows:
        above |= set(row)
        for room in row:
            assert MAY_IMPORT[room] - {"_version"} <= above


def test_no_two_classes_share_a_name():
    """Who searches for a class finds one."""
    trees = (ast.parse(path.read_text(encoding="utf-8")) for _, path in modules())
    names = Counter(node.name for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ClassDef))
    assert [name for name, count in names.items() if count > 1] == []


@pytest.mark.parametrize(("module", "path"), modules())
def test_a_room_imports_only_what_the_design_allows(module, path):
    """A stage never imports another stage, and nothing below knows of what is above it."""
    room = room_of(module)
    ours = {room_of(name) for name in imports(path) if name.startswith("workerdiag.")}
    rooms = ours & set(MAY_IMPORT)  # what is no room is a name of the package itself
    assert rooms - {room} <= MAY_IMPORT[room]


def test_every_module_is_used():
    """What no module imports or names in a text, and no entry point or page of the documentation, is dead."""
    root = Path(__file__).parents[1]
    pages = [root / "pyproject.toml", *root.glob("docs/*.md")]
    imported = {name for _, path in modules() for name in imports(path)}
    imported |= {name.rpartition(".")[0] for name in imported}
    texts = [path.read_text(encoding="utf-8") for _, path in modules()]
    named = {name for text in texts for name in re.findall(r"(?<=[\"'.])\w+(?=[\"'.:])", text)}
    dotted = {name for page in pages for name in re.findall(r"workerdiag[\w.]+\w", page.read_text("utf-8"))}
    unused = {module for module, path in modules() if path.stem not in ("__init__", "__main__", *named)}
    assert sorted(unused - imported - dotted) == []


def private_names(path: Path) -> set[str]:
    """The private attributes that *path* reads of objects of others by ``getattr``, and where a linter is told so."""
    text = path.read_text(encoding="utf-8")
    found = {"SLF001"} & set(re.findall(r"noqa: (\w+)", text))
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("getattr", "hasattr", "setattr"):
            name = node.args[1]
            if isinstance(name, ast.Constant) and re.match(r"_(?!_|workerdiag)", str(name.value)):
                found.add(name.value)
    return found - {"_validators"}  # of attrs


def test_private_parts_of_dask_are_touched_in_two_places():
    """Who adapts workerdiag to a new release of Dask reads `recorder/internals.py` and `sources/internals.py`."""
    touched = {module.removeprefix("workerdiag.") for module, path in modules() if private_names(path)}
    #: Probes are sent as text to processes without workerdiag.
    elsewhere = re.compile(r"recorder\.internals|sources\.internals|sources\.host\.probes\.\w+")
    assert [each for each in sorted(touched) if not elsewhere.fullmatch(each)] == []


@pytest.mark.parametrize(("module", "path"), modules())
def test_a_room_keeps_its_hands_off_what_is_not_its_business(module, path):
    """Only sources touch files, networks and Dask; only the rulebook structures with cattrs."""
    libraries = {name.split(".")[0] for name in imports(path)}
    if module == "workerdiag.model.dask":  # it names Dask's types, for type checkers alone
        libraries -= {"distributed"}
    assert not libraries & MUST_NOT_IMPORT.get(room_of(module), set())


def test_the_table_has_no_circle():
    """Whatever may import something cannot be imported by it, however many rooms lie between."""
    for room, others in MAY_IMPORT.items():
        reached: set[str] = set()
        ahead = set(others)
        while ahead:
            each = ahead.pop()
            reached.add(each)
            ahead |= MAY_IMPORT[each] - reached
        assert room not in reached
