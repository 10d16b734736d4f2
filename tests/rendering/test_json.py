"""The form that programs read: published, strict, and the same after a round trip."""

from __future__ import annotations

import json
import re
import tracemalloc
import types
import typing
from typing import get_args

import pytest
from attrs import NOTHING, fields, has
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from support.findings import explained, hostile, no_death, unknown
from workerdiag import Diagnosis
from workerdiag.errors import BadReportError
from workerdiag.model.diagnosis import (
    JSON_SCHEMA,
    Clue,
    Findings,
    RankedCause,
    RetryPolicy,
    UnlistedDeaths,
)
from workerdiag.model.memory import Cure, ReasonChance
from workerdiag.model.vocabulary import GAP_REASONS, OUTCOMES, PLACES, RetryAction, Verdict
from workerdiag.rendering.json import from_json, json_schema, to_dict, to_json

#: What a plain type cannot say, as validators of the model do.
BOUNDED = {
    (Findings, "unknown_probability"): st.floats(0, 1),
    (RankedCause, "probability"): st.floats(0, 1),
    (Clue, "times"): st.integers(1, 2**31),
    (UnlistedDeaths, "count"): st.integers(0, 2**31),
    (ReasonChance, "probability"): st.floats(0, 1),
    (Cure, "probability"): st.floats(0, 1),
}


def any_value(hint):
    """Any value of a type of the model."""
    if has(hint):
        return any_object(hint)
    if typing.get_origin(hint) is tuple:
        return st.lists(any_value(typing.get_args(hint)[0]), max_size=2).map(tuple)
    if typing.get_origin(hint) in (types.UnionType, typing.Union):  # the latter for a Literal or None
        return st.one_of(*map(any_value, typing.get_args(hint)))
    if typing.get_origin(hint) is typing.Literal:
        return st.sampled_from(typing.get_args(hint))
    simple = {
        str: st.text(st.characters(), max_size=20),  # lone surrogates too
        float: st.floats(allow_nan=False, allow_infinity=False),
        int: st.integers(-(2**63) + 1, 2**63 - 1),
        bool: st.booleans(),
        types.NoneType: st.none(),
    }
    return simple[hint]


def any_object(cls):
    """Any object of a class of the model, every attribute given."""
    hints = typing.get_type_hints(cls)
    return st.builds(
        cls,
        **{
            each.name: BOUNDED[cls, each.name] if (cls, each.name) in BOUNDED else any_value(hints[each.name])
            for each in fields(cls)
        },
    )


@pytest.mark.slow
@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(any_object(Findings))
def test_whatever_was_found_comes_back_equal(findings):
    """What is written as JSON is read back as the very same findings, lone surrogates included."""
    assert Findings(**from_json(to_json(findings))) == findings


@pytest.mark.parametrize("build", [explained, no_death, unknown, hostile])
def test_the_public_class_makes_the_same_round_trip(build):
    """``Diagnosis.from_json(diagnosis.to_json())`` is equal to the diagnosis."""
    findings = build()
    diagnosis = Diagnosis(**{each.name: getattr(findings, each.name) for each in fields(Findings)})
    assert Diagnosis.from_json(diagnosis.to_json()) == diagnosis


@pytest.mark.parametrize("build", [explained, no_death, unknown, hostile])
def test_what_is_written_keeps_to_the_published_schema(build):
    """A program that checks against the schema accepts every report."""
    Draft202012Validator.check_schema(json_schema())
    Draft202012Validator(json_schema()).validate(json.loads(to_json(build())))


def test_the_schema_says_what_the_model_says():
    """Fixed sets of words and limits of numbers are in the schema, so that programs need not guess."""
    schema = json_schema()
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert schema["properties"]["schema"]["const"] == JSON_SCHEMA
    assert schema["properties"]["outcome"]["enum"] == list(OUTCOMES)
    assert schema["$defs"]["Blame"]["properties"]["verdict"]["enum"] == list(get_args(Verdict))
    assert schema["$defs"]["RetryPolicy"]["properties"]["action"]["enum"] == list(get_args(RetryAction))
    assert schema["$defs"]["Gap"]["properties"]["reason"]["enum"] == list(GAP_REASONS)
    assert schema["$defs"]["Gap"]["properties"]["place"]["enum"] == list(PLACES)
    assert schema["$defs"]["RankedCause"]["properties"]["probability"] == {
        "type": "number",
        "minimum": 0.0,
        "maximum": 1.0,
    }
    assert schema["required"] == ["schema", *(each.name for each in fields(Findings))]


def test_a_diagnosis_without_a_policy_is_read():
    """What was written before there were policies is read, and its policy is to ask."""
    old = to_dict(explained())
    del old["decision"]["policy"]
    assert from_json(json.dumps(old))["decision"].policy == RetryPolicy()


def test_the_schema_refuses_what_we_refuse():
    """Keys nobody knows and words of no set are not a diagnosis, by the schema as by us."""
    validator = Draft202012Validator(json_schema())
    good = to_dict(explained())
    assert not validator.is_valid(good | {"surprise": 1})
    assert not validator.is_valid(good | {"outcome": "perhaps"})
    assert not validator.is_valid({key: value for key, value in good.items() if key != "causes"})


def test_the_number_of_the_schema_comes_first():
    """A reader knows within the first bytes whether it can read the rest."""
    assert to_json(no_death()).startswith(f'{{\n  "schema": {JSON_SCHEMA},')


def test_json_is_ascii_so_no_terminal_acts_upon_it():
    """Printed to a terminal, JSON of a hostile log is as harmless as the text form."""
    assert set(to_json(hostile())) <= set(map(chr, range(32, 127))) | {"\n"}


def test_a_time_that_is_no_number_is_null():
    """JSON has no infinity, so a clock gone wild is written as not known."""
    findings = explained(causes=(), deaths=())
    cause = explained().causes[0]
    wild = Findings(
        outcome="explained",
        summary=findings.summary,
        causes=(RankedCause(**{f.name: getattr(cause, f.name) for f in fields(RankedCause)} | {
            "evidence": (Clue(sign="s", text="t", where="", grade="weak", when=float("inf")),)
        }),),
    )  # fmt: skip
    assert to_dict(wild)["causes"][0]["evidence"][0]["when"] is None


def broken(**changes):
    """A report as JSON with some of its keys changed, or (NOTHING) left out."""
    content = to_dict(explained()) | changes
    return json.dumps({key: value for key, value in content.items() if value is not NOTHING})


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "not JSON"),
        ("no", "not JSON"),
        ("[1]", "expected an object, got list"),
        ("null", "expected an object, got NoneType"),
        ("[" * 100_000, "nested too deeply"),
        ('{"a": NaN}', "NaN is not JSON"),
        ("{}", f"this workerdiag reads schema {JSON_SCHEMA}, the text has None"),
        (broken(schema=99), f"reads schema {JSON_SCHEMA}, the text has 99"),
        (broken(schema=True), f"reads schema {JSON_SCHEMA}, the text has True"),
        (broken(schema=NOTHING), f"reads schema {JSON_SCHEMA}, the text has None"),
        (broken(causes=NOTHING), "missing causes"),
        (broken(surprise=1), "surprise"),
        (broken(summary=9), "summary: expected string, got 9"),
        (broken(causes=[{}]), "missing id, revision"),
        (broken(causes=5), "causes"),
        (broken(deaths=["x"]), "deaths[0]: expected an object, got 'x'"),
        (broken(blame=None), "blame: expected an object, got None"),
        (broken(outcome="perhaps"), "outcome: expected one of explained, no-death"),
        (broken(unknown_probability=2), "'unknown_probability' must be <= 1.0"),
        (broken(unknown_probability="1"), "expected number, got '1'"),
        (broken(unknown_probability=True), "expected number, got True"),
        (broken().replace("0.97", "1e999"), "expected a finite number"),
    ],
)
def test_what_is_no_diagnosis_is_said_to_be_none(text, why):
    """Garbage, another schema, missing and unknown keys, wrong types: an error that names the thing."""
    with pytest.raises(BadReportError, match=re.escape(why)) as caught:
        from_json(text)
    assert str(caught.value).startswith("not a workerdiag diagnosis: ")


def test_all_that_is_wrong_is_said_at_once():
    """Nobody has to mend a report key by key to find the next mistake."""
    with pytest.raises(BadReportError) as caught:
        from_json(broken(summary=9, version=None))
    assert "summary" in str(caught.value)
    assert "version" in str(caught.value)


@pytest.mark.slow
@given(
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
def test_any_json_is_a_diagnosis_or_a_clear_error(value):
    """No JSON text makes anything but a `BadReportError`."""
    with pytest.raises(BadReportError):
        from_json(json.dumps(value))


def test_mistakes_of_a_long_text_take_bounded_room():
    """Wording each of 50,000 mistakes would take a hundred times the text."""
    text = broken(deaths=["x"] * 50_000)
    tracemalloc.start()
    try:
        with pytest.raises(BadReportError, match="expected an object") as caught:
            Diagnosis.from_json(text)
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert len(str(caught.value)) < 10_000
    assert peak_bytes < 20 * len(text)
