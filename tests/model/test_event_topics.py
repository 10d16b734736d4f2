"""Topics of events: a scheduler is asked for its own only."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import workerdiag
from workerdiag.model.rules import SOURCE_TOPICS

SOURCES = Path(workerdiag.__file__).parent / "sources"


def topics_made(tree: ast.Module) -> Iterator[str]:
    """Every topic that a module names where it makes an ``Event``, itself or by a constant."""
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


def test_no_scheduler_is_asked_for_the_topics_of_our_sources():
    """What a source makes itself stands in the list of topics that schedulers do not have."""
    modules = (ast.parse(path.read_text(encoding="utf-8")) for path in SOURCES.rglob("*.py"))
    assert {topic for tree in modules for topic in topics_made(tree)} == SOURCE_TOPICS
