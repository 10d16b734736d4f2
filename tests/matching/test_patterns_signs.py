"""Signs that are no patterns of log text: which of them can be used."""

from __future__ import annotations

import pytest
from attrs import evolve

from workerdiag.matching import patterns
from workerdiag.matching.patterns import SignTables, compilable_patterns
from workerdiag.model.rules import ExceptionSign
from workerdiag.rulebook.load import load_rulebook

BOOK = load_rulebook()


@pytest.mark.skipif(not patterns.uses_re2(), reason="compiled rules are checked for RE2")
def test_patterns_that_compiled_before_are_not_compiled_until_used(monkeypatch):
    """Of compiled rules, the first call of a process compiles only what its evidence needs."""
    known = evolve(BOOK, literals=compilable_patterns(BOOK))
    compiled = []
    monkeypatch.setattr(patterns, "pattern", compiled.append)
    tables = SignTables(known)

    assert compiled == []
    assert tables.exceptions


def test_a_sign_whose_pattern_does_not_compile_is_noted():
    """It is left out, whatever else is known to compile."""
    bad = ExceptionSign(name="bad", pattern=r"(a) \1", grade="moderate")
    cause = evolve(BOOK.causes[0], id="house.bad", signs=(bad,))
    book = evolve(BOOK, causes=(*BOOK.causes, cause))
    tables = SignTables(evolve(book, literals=compilable_patterns(book)))

    assert [note.partition(":")[0] for note in tables.left_out] == ["house.bad bad is left out"]
