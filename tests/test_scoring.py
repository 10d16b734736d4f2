"""
The arithmetic, by its laws.
"""

from __future__ import annotations

from math import isclose

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from workerdiag import LogText, explain
from workerdiag.model.rules import ENDS, FREQUENCIES, GRADES, Cause, LogSign
from workerdiag.reasoning.scoring import Distribution, Seen, Support, distribution, log_ratio, mixed

NAMES = tuple("abcdefgh")

signs = st.builds(
    lambda name, grade, event: Seen(sign=LogSign(name=name, pattern="some text", grade=grade, event=event)),
    st.sampled_from(NAMES),
    st.sampled_from(tuple(GRADES)),
    st.sampled_from(("", "one", "two")),
)


@st.composite
def support_lists(draw: st.DrawFn) -> list[Support]:
    """
    Up to six causes; a cause explains only later ones, so there is no circle.
    """
    count = draw(st.integers(0, 6))
    ids = [f"family.{NAMES[index]}" for index in range(count)]
    return [
        Support(
            cause=Cause(
                id=ids[index],
                revision=1,
                title="t",
                why="w",
                ends=draw(st.sampled_from(ENDS)),
                blame="task",
                retry="unknown",
                frequency=draw(st.sampled_from(tuple(FREQUENCIES))),
                explains=tuple(draw(st.sets(st.sampled_from(ids[index + 1 :])))) if ids[index + 1 :] else (),
            ),
            shown=tuple(draw(st.lists(signs, min_size=1, max_size=4))),
            against=tuple(draw(st.lists(signs, max_size=2))),
        )
        for index in range(count)
    ]


@given(support_lists())
def test_chances_and_unknown_sum_to_one(supports):
    """
    All causes and unknown together are certain.
    """
    result = distribution(supports)

    assert isclose(sum(result.chances.values()) + result.unknown, 1.0)
    assert all(0.0 <= chance <= 1.0 for chance in result.chances.values())


@given(support_lists(), st.randoms())
def test_order_does_not_matter(supports, random):
    """
    The same evidence in another order gives the same chances.
    """
    shuffled = random.sample(supports, len(supports))
    expected, actual = distribution(supports), distribution(shuffled)

    assert all(isclose(chance, actual.chances[key]) for key, chance in expected.chances.items())


@given(support_lists(), signs)
def test_one_more_sign_never_lowers_its_cause(supports, new):
    """
    Seeing more of the same cause cannot make us doubt it.
    """
    for index, support in enumerate(supports):
        more = [*supports]
        more[index] = evolve(support, shown=(*support.shown, new))
        cause = support.cause.id

        assert distribution(more).chances[cause] >= distribution(supports).chances[cause] - 1e-12


@given(support_lists(), signs)
def test_one_more_sign_against_never_raises_its_cause(supports, new):
    """
    What speaks against a cause cannot make it likelier.
    """
    for index, support in enumerate(supports):
        more = [*supports]
        more[index] = evolve(support, against=(*support.against, new))
        cause = support.cause.id

        assert distribution(more).chances[cause] <= distribution(supports).chances[cause] + 1e-12


@given(st.lists(signs, max_size=8))
def test_signs_of_one_event_count_once(seen):
    """
    Saying the same again, or more weakly, adds nothing.
    """
    assert isclose(log_ratio(seen), log_ratio([*seen, *seen]))


@given(support_lists(), signs)
def test_a_stronger_cause_takes_from_what_it_explains(supports, new):
    """
    The odds of a symptom against unknown do not rise when its cause is seen more clearly.
    """
    for index, support in enumerate(supports):
        more = [*supports]
        more[index] = evolve(support, shown=(*support.shown, new))
        before, after = distribution(supports), distribution(more)
        for symptom in support.cause.explains:
            if symptom in after.chances:
                assert (
                    after.chances[symptom] / after.unknown <= before.chances[symptom] / before.unknown + 1e-9
                )


@given(st.lists(st.tuples(st.floats(0.1, 10), support_lists()), min_size=1, max_size=4))
def test_a_mixture_is_still_a_distribution(parts):
    """
    The mean over several deaths sums to one as well.
    """
    result = mixed([(weight, distribution(supports)) for weight, supports in parts])

    assert isclose(sum(result.chances.values()) + result.unknown, 1.0)


def test_nothing_seen_is_unknown():
    """
    Without any sign no cause is named.
    """
    assert distribution([]) == Distribution(chances={}, unknown=1.0)


def certain(name: str, ends: str, *explains: str, times: int = 3) -> Support:
    """
    A cause of which so many decisive signs show.
    """
    cause = Cause(
        id=f"family.{name}",
        revision=1,
        title="t",
        why="w",
        ends=ends,
        blame="task",
        retry="unknown",
        explains=explains,
    )
    seen = [LogSign(name=f"{name}-{each}", pattern="some text", grade="decisive") for each in range(times)]
    return Support(cause=cause, shown=tuple(Seen(sign=each) for each in seen))


def test_a_stop_on_request_is_no_rival_of_a_certain_crash():
    """
    Reports end with the shutdown of the cluster, however much of it they show.
    """
    chances = distribution([certain("stop", "stopped"), certain("crash", "crashed", times=1)]).chances
    assert chances["family.crash"] > 0.9


def test_a_stop_explains_what_comes_of_it():
    """
    A worker that was asked to stop and is lost then was stopped.
    """
    stop = certain("stop", "stopped", "family.crash")
    chances = distribution([stop, certain("crash", "crashed")]).chances
    assert chances["family.stop"] > 0.9


@pytest.mark.parametrize(("times", "outcome"), [(1, "unknown"), (2, "explained")])
def test_a_sign_that_is_named_twice_must_be_there_twice(times, outcome):
    """
    A worker that waits for a scheduler has said so once; that it says so again is what tells.
    """
    waits = "distributed.worker - INFO - Waiting to connect to:      tcp://localhost:8786\n"
    assert explain(logs=LogText(times * waits)).outcome == outcome
