"""How large the package is and how its modules depend on each other, with the limits that it keeps.

    python tools/size.py            # print the figures of src/workerdiag
    python tools/size.py --check    # and fail if one of them passes its limit

Code is every line but blank lines, comments, docstrings and imports. A face is an ``__init__.py`` that defines
no function and no class. A room is a module or a folder directly below the package.

An arrow is an import, at the top of a module or inside a function. Imports for type checkers do not count,
except in an ``__init__.py`` with a ``__getattr__``: there they name what it imports on first use (PEP 562).
Modules that import each other in a loop are a circle. A module stands one floor above the highest module that
it imports, so the number of floors is the length of the longest chain of imports. The modules of a circle
share a floor: where there are circles, the house looks lower than it is.
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import tokenize
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path

from attrs import frozen

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "workerdiag"

#: Figure -> the most that it may be.
LIMITS: Mapping[str, int] = {
    "modules": 280,
    "lines": 56_200,
    "noqa: BLE001": 30,
    "repeated basenames": 0,
    "circles of modules": 0,
    "circles of rooms": 0,
    "floors of rooms": 11,  # CI, which runs tools, which import the commands, stands on the twelfth
}
#: How often a basename may occur, and the names that may occur more often.
_MOST_NAMESAKES = 2
_COMMON_NAMES = frozenset({"__init__", "source"})
#: Tokens that make no line a line of code.
_LAYOUT = frozenset(
    {
        tokenize.COMMENT,
        tokenize.NL,
        tokenize.NEWLINE,
        tokenize.INDENT,
        tokenize.DEDENT,
        tokenize.ENDMARKER,
    }
)
_SENTENCE_END = re.compile(r"[.?!]\s|\n\s*\n")
_SHOWN_IN_CIRCLE = 12

#: Name -> the names that it imports from, never itself.
Arrows = Mapping[str, AbstractSet[str]]


@frozen(kw_only=True)
class Lines:
    """How many lines a text of Python has, by what stands on them."""

    lines: int
    code: int
    imports: int
    docstrings: int


@frozen(kw_only=True)
class Module:
    """A module of the package."""

    #: Dotted name, e.g. ``workerdiag.api.explain``; a folder has the name of its ``__init__.py``.
    name: str
    path: Path
    text: str
    tree: ast.Module

    @property
    def is_face(self) -> bool:
        """Whether it only hands on what others define."""
        defined = any(isinstance(node, _Definition) for node in ast.walk(self.tree))
        return self.path.name == "__init__.py" and not defined

    @property
    def is_lazy(self) -> bool:
        """Whether it imports what it hands on when that is first used."""
        return self.path.name == "__init__.py" and "__getattr__" in self.text


_Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def read_modules(package: Path) -> list[Module]:
    """Return the modules below the folder *package*, sorted by path."""
    modules = []
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(package.parent).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        text = path.read_text(encoding="utf-8")
        modules.append(Module(name=name, path=path, text=text, tree=ast.parse(text)))
    return modules


def count_lines(text: str) -> Lines:
    """Count the lines of a module; a line of an import or a docstring is no code."""
    tree = ast.parse(text)
    imports = _lines_of(node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom))
    docstrings = _lines_of(docstring_nodes(tree))
    used: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in _LAYOUT:
            used |= set(range(token.start[0], token.end[0] + 1))
    return Lines(
        lines=len(text.splitlines()),
        code=len(used - imports - docstrings),
        imports=len(imports),
        docstrings=len(docstrings),
    )


def _lines_of(nodes: Iterable[ast.stmt]) -> set[int]:
    return {line for node in nodes for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)}


def docstring_nodes(tree: ast.Module) -> Iterator[ast.Expr]:
    """Yield the docstrings of a module, its classes and its functions."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | _Definition) and ast.get_docstring(node) is not None:
            docstring = node.body[0]
            assert isinstance(docstring, ast.Expr)
            yield docstring


def tall_sentences(tree: ast.Module) -> int:
    """Return the number of docstrings of one sentence that take more than one line."""
    nodes = [node for node in docstring_nodes(tree) if node.end_lineno != node.lineno]
    texts = [str(ast.literal_eval(node.value)).strip() for node in nodes]
    return sum(_SENTENCE_END.search(text) is None for text in texts)


def repeated_basenames(modules: Sequence[Module]) -> dict[str, int]:
    """Return the names of files that occur too often, most frequent first."""
    names = Counter(module.path.stem for module in modules if module.path.stem not in _COMMON_NAMES)
    return {name: count for name, count in names.most_common() if count > _MOST_NAMESAKES}


def arrows_of(modules: Sequence[Module], *, late: bool = True) -> dict[str, set[str]]:
    """Return the arrows between modules; without *late* those alone that loading a module follows."""
    names = {module.name for module in modules}
    arrows = {}
    for module in modules:
        found: set[str] = set()
        for node in _imports(module.tree, types=late and module.is_lazy, functions=late):
            found |= _imported(node, names)
        arrows[module.name] = found - {module.name}
    return arrows


def _imports(node: ast.AST, *, types: bool, functions: bool) -> Iterator[ast.Import | ast.ImportFrom]:
    """Yield the imports below *node*: with *types* those for type checkers too, with *functions* those in them."""
    children = list(ast.iter_child_nodes(node))
    if isinstance(node, ast.If) and not types and ast.unparse(node.test).endswith("TYPE_CHECKING"):
        children = [*node.orelse]
    for child in children:
        if isinstance(child, ast.Import | ast.ImportFrom):
            yield child
        elif isinstance(child, ast.expr):
            continue
        elif functions or not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from _imports(child, types=types, functions=functions)


def _imported(node: ast.Import | ast.ImportFrom, modules: AbstractSet[str]) -> set[str]:
    if isinstance(node, ast.Import):
        return {alias.name for alias in node.names} & modules
    whole = {f"{node.module}.{alias.name}" for alias in node.names}
    return {name if name in modules else str(node.module) for name in whole} & modules


def room_of(module: str) -> str:
    """Return the room of a module: ``matching`` for ``workerdiag.matching.scan``."""
    return (*module.split("."), "__init__")[1]


def between_rooms(arrows: Arrows) -> dict[str, set[str]]:
    """Return the arrows that lead from one room into another."""
    rooms: dict[str, set[str]] = {room_of(module): set() for module in arrows}
    for module, others in arrows.items():
        rooms[room_of(module)] |= {room_of(other) for other in others} - {room_of(module)}
    return rooms


def circles(arrows: Arrows) -> list[frozenset[str]]:
    """Return the largest sets of names that reach each other, largest first."""
    reached = {name: _reached(name, arrows) for name in arrows}
    found = {
        frozenset(other for other in reached[name] if name in reached[other])
        for name in arrows
        if name in reached[name]
    }
    return sorted(found, key=lambda circle: (-len(circle), sorted(circle)))


def _reached(start: str, arrows: Arrows) -> set[str]:
    reached: set[str] = set()
    ahead = set(arrows[start])
    while ahead:
        name = ahead.pop()
        reached.add(name)
        ahead |= arrows[name] - reached
    return reached


def floors(arrows: Arrows) -> dict[str, int]:
    """Return the floor of each name; floor 1 imports nothing."""
    circle_of = {name: circle for circle in circles(arrows) for name in circle}
    known: dict[str, int] = {}

    def floor(name: str) -> int:
        if name not in known:
            members = circle_of.get(name, frozenset({name}))
            below = {other for member in members for other in arrows[member]} - members
            known.update(dict.fromkeys(members, 1 + max(map(floor, below), default=0)))
        return known[name]

    return {name: floor(name) for name in arrows}


def mutual(arrows: Arrows) -> list[tuple[str, str]]:
    """Return the pairs that import each other."""
    return sorted((one, other) for one in arrows for other in arrows[one] if one < other and one in arrows[other])


def figures(modules: Sequence[Module]) -> dict[str, int]:
    """Return all figures by name."""
    counts = [count_lines(module.text) for module in modules]
    arrows = arrows_of(modules)
    rooms = between_rooms(arrows)
    return {
        "modules": len(modules),
        "faces among them": sum(module.is_face for module in modules),
        "lines": sum(count.lines for count in counts),
        "lines of code": sum(count.code for count in counts),
        "lines of imports": sum(count.imports for count in counts),
        "lines of docstrings": sum(count.docstrings for count in counts),
        "sentences on several lines": sum(tall_sentences(module.tree) for module in modules),
        "noqa: BLE001": sum(module.text.count("noqa: BLE001") for module in modules),
        "repeated basenames": len(repeated_basenames(modules)),
        "rooms": len(rooms),
        "floors of rooms": max(floors(rooms).values()),
        "floors of modules": max(floors(arrows).values()),
        "floors of modules when loaded": max(floors(arrows_of(modules, late=False)).values()),
        "circles of rooms": len(circles(rooms)),
        "circles of modules": len(circles(arrows)),
        "rooms that import each other": len(mutual(rooms)),
    }


def details(modules: Sequence[Module]) -> Iterator[str]:
    """Yield a line for each repeated name, circle, pair of rooms, and floor."""
    arrows = arrows_of(modules)
    rooms = between_rooms(arrows)
    for name, count in repeated_basenames(modules).items():
        yield f"{count} modules are called {name}"
    for circle in (*circles(rooms), *circles(arrows)):
        members = sorted(circle)
        more = len(members) - _SHOWN_IN_CIRCLE
        yield f"circle of {len(members)}: {', '.join(members[:_SHOWN_IN_CIRCLE])}" + (
            f" and {more} more" if more > 0 else ""
        )
    yield from (f"import each other: {one} and {other}" for one, other in mutual(rooms))
    floor_of = floors(rooms)
    for floor in range(max(floor_of.values()), 0, -1):
        yield f"floor {floor}: {', '.join(sorted(room for room in rooms if floor_of[room] == floor))}"


def over_limit(figures: Mapping[str, int]) -> list[str]:
    """Return the names of the figures that pass their limits."""
    return [name for name, most in LIMITS.items() if figures[name] > most]


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the figures; exit status 1 if asked to check and one passes its limit."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="fail if a figure passes its limit")
    check = parser.parse_args(arguments).check
    modules = read_modules(PACKAGE)
    found = figures(modules)
    over = over_limit(found)
    for name, value in found.items():
        limit = f"  at most {LIMITS[name]:,}" if name in LIMITS else ""
        print(f"{name:30} {value:8,}{limit}{'  <- too many' if name in over else ''}")
    print(*details(modules), sep="\n")
    return int(check and bool(over))


if __name__ == "__main__":
    raise SystemExit(main())
