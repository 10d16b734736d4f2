"""Plain values become attrs values and back, strictly."""

from __future__ import annotations

import json

import pytest
from attrs import field, frozen
from attrs.validators import ge

from workerdiag.model.vocabulary import Grade
from workerdiag.serialization import problem_lines, strict_converter


@frozen(kw_only=True)
class Part:
    grade: Grade
    count: int = field(default=1, validator=ge(1))


@frozen(kw_only=True)
class Whole:
    name: str
    parts: tuple[Part, ...] = ()
    share: float | None = None


def problems(plain, keys="known"):
    """What is wrong with *plain* as a `Whole`."""
    with pytest.raises(Exception) as caught:
        strict_converter(keys).structure(plain, Whole)
    return problem_lines(caught.value)


def test_all_mistakes_are_told_at_once_each_with_its_place():
    """A wrong type, an unknown word, a broken rule of a field, and a key too many."""
    parts = [{"grade": "sure"}, {"grade": "weak", "count": 0}, "x"]
    assert set(problems({"name": 1, "parts": parts, "size": 2})) == {
        ".name: expected string, got 1",
        ".parts[0].grade: expected one of decisive, strong, moderate, weak, hint, got 'sure'",
        ".parts[1].count: 'count' must be >= 1: 0",
        ".parts[2]: expected an object, got 'x'",
        "unknown key size",
    }


@pytest.mark.parametrize(
    ("plain", "problem"),
    [
        ({"name": "a", "parts": "text"}, ".parts: expected a list, got 'text'"),
        ({"name": "a", "share": True}, ".share: expected number, got True"),
        ({"name": "a", "share": float("inf")}, ".share: expected a finite number, got inf"),
        ({"name": "a", "parts": [{"grade": "weak", "count": 2**63}]}, "at most 64 bits"),
        ({}, "the key 'name' is missing"),
        ([], "expected an object, got []"),
    ],
)
def test_nothing_is_converted(plain, problem):
    """A value of another type is a mistake, however close."""
    assert problem in "\n".join(problems(plain))


def test_all_keys_means_those_with_a_default_too():
    """A report lists everything, so a missing key is a mistake in it."""
    assert problems({"name": "a"}, keys="all") == ["missing parts, share"]


def test_what_a_newer_version_adds_is_passed_over():
    """With ``any``, unknown keys and null count as not given, and defaults are not written."""
    lenient = strict_converter("any")
    whole = Whole(name="a", parts=(Part(grade="weak"),))
    assert json.loads(json.dumps(lenient.unstructure(whole))) == {"name": "a", "parts": [{"grade": "weak"}]}
    assert lenient.structure({"name": "a", "share": None, "size": 2}, Whole) == Whole(name="a")
