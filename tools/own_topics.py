"""
Topics of the events that our own sources give, which no release of distributed knows.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

SOURCES = Path(__file__).parents[1] / "src" / "workerdiag" / "sources"


def topics_of_ours(folder: Path = SOURCES) -> frozenset[str]:
    """
    Every topic that a module in *folder* names where it makes an ``Event``.
    """
    modules = (path.read_text(encoding="utf-8") for path in folder.rglob("*.py"))
    return frozenset(topic for source in modules for topic in _topics(ast.parse(source)))


def _topics(tree: ast.Module) -> Iterator[str]:
    constants = {
        node.targets[0].id: node.value
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
    }
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Name(id="Event"), keywords=keywords):
                for each in keywords:
                    value = constants.get(each.value.id) if isinstance(each.value, ast.Name) else each.value
                    if each.arg == "topic" and isinstance(value, ast.Constant):
                        yield str(value.value)
