"""What a release of distributed can say: the shapes of its messages, read from its source.

Nothing of distributed is imported or run; a wheel is opened and parsed.
"""

from __future__ import annotations

import ast
import re
import zipfile
from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path

#: The fixed parts of one message, in order; between two of them stands something unknown.
Template = tuple[str, ...]

#: Not run by users: tests, and what helps them.
_NOT_SAID = re.compile(r"/tests/|/utils_test\.py$|/pytest_resourceleaks\.py$|/conftest\.py$|/_version\.py$")
#: A conversion of ``%``-formatting. Not those with a space: "50% done" is none.
_PERCENT = re.compile(r"%(?:\(\w+\))?[#0+-]*\d*(?:\.\d+)?[sdrfigexau]|%%")
_BRACES = re.compile(r"\{\{|\}\}|\{[^{}]*\}")
_ESCAPED = {"%%": "%", "{{": "{", "}}": "}"}
#: What Python and tornado say, and distributed repeats in places: it is not its own wording.
_OF_OTHERS = re.compile(r"has no attribute|unexpected keyword argument|^Exception in callback")
#: A template with fewer letters says nothing.
_LEAST_LETTERS = 4


def modules_of_wheel(wheel: Path) -> Iterator[tuple[str, str]]:
    """Path and source of the modules in *wheel* that users run (distributed's own, without its tests)."""
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            if name.startswith("distributed/") and name.endswith(".py") and not _NOT_SAID.search(name):
                yield name, archive.read(name).decode("utf-8", errors="replace")


@lru_cache(maxsize=4096)  # most modules are the same in neighbouring releases
def templates_of_source(source: str) -> frozenset[Template]:
    """Templates of one module: its strings but for docstrings, and what tracebacks name.

    A text of several lines is given whole and line by line, because logs are torn.
    """
    try:
        tree = ast.parse(source)
    except SyntaxError:  # ``async`` as a name, before Python 3.7
        return frozenset()
    whole = list(strings(tree))
    lines = [line for template in whole for line in _lines(template)]
    return frozenset(each for each in (*whole, *lines) if _says_something("".join(each)))


def _says_something(text: str) -> bool:
    return sum(map(str.isalpha, text)) >= _LEAST_LETTERS and not _OF_OTHERS.search(text)


def strings(node: ast.AST) -> Iterator[Template]:
    """Templates of all texts in *node* that are said, and the names that tracebacks show."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return  # a docstring
    if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        yield (node.name,)
    if isinstance(node, ast.Raise):
        yield from _raised(node.exc)
    if isinstance(node, ast.expr) and (template := template_of(node)) is not None:
        yield template
        for inner in _unknown_parts(node):
            yield from strings(inner)
        return
    for child in ast.iter_child_nodes(node):
        yield from strings(child)


def _raised(node: ast.expr | None) -> Iterator[Template]:
    """The last line of the traceback of a raised exception: its type and its text."""
    match node:
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name), args=[text, *_]):
            if (template := template_of(text)) is not None:
                yield (f"{name}: {template[0]}", *template[1:])


def template_of(node: ast.expr) -> Template | None:
    """The shape of the text that *node* makes; None when it makes none that is seen here."""
    match node:
        case ast.Constant(value=str(text)):
            return _split(text, _PERCENT)
        case ast.JoinedStr(values=values):
            return _joined(_template_or_gap(each) for each in values)
        case ast.Call(func=ast.Attribute(value=ast.Constant(value=str(text)), attr="format")):
            return _split(text, _BRACES)
        case ast.BinOp(op=ast.Mod(), left=left):
            return template_of(left)
        case ast.BinOp(op=ast.Add(), left=left, right=right) if template_of(left) or template_of(right):
            return _joined(_template_or_gap(each) for each in (left, right))
        case _:
            return None


def _unknown_parts(node: ast.expr) -> Iterator[ast.AST]:
    """Parts of a text's expression that may hold texts of their own: values, arguments."""
    match node:
        case ast.JoinedStr(values=values):
            yield from (each.value for each in values if isinstance(each, ast.FormattedValue))
        case ast.Call(args=args, keywords=keywords):
            yield from (*args, *(each.value for each in keywords))
        case ast.BinOp(op=ast.Mod(), left=left, right=right):
            yield from (*_unknown_parts(left), right)
        case ast.BinOp(left=left, right=right):
            for each in (left, right):
                yield from _unknown_parts(each) if template_of(each) is not None else (each,)


def _template_or_gap(node: ast.expr) -> Template:
    return template_of(node) or ("", "")


def _split(text: str, conversion: re.Pattern[str]) -> Template:
    pieces, start = [""], 0
    for found in conversion.finditer(text):
        pieces[-1] += text[start : found.start()]
        start = found.end()
        if (escaped := _ESCAPED.get(found.group())) is not None:
            pieces[-1] += escaped
        else:
            pieces.append("")
    pieces[-1] += text[start:]
    return tuple(pieces)


def _joined(parts: Iterable[Template]) -> Template:
    pieces = [""]
    for part in parts:
        pieces[-1] += part[0]
        pieces += part[1:]
    return tuple(pieces)


def _lines(template: Template) -> Iterator[Template]:
    """The lines of a template that has several."""
    if not any("\n" in piece.strip() for piece in template):
        return
    line: list[str] = []
    for piece in template:
        first, *more = piece.split("\n")
        line.append(first)
        for start in more:
            yield tuple(line)
            line = [start.lstrip()]
    yield tuple(line)
