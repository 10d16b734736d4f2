"""The arithmetic, by its laws."""

from __future__ import annotations

from math import isclose, log, prod
from typing import get_args

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from workerdiag import LogText, explain
from workerdiag.model.diagnosis import Match
from workerdiag.model.odds import FREQUENCIES, GRADES, LONE_GRADES
from workerdiag.model.rules import EVERYDAY_ENDS, Cause, LogSign
from workerdiag.model.vocabulary import CauseEnd
from workerdiag.scoring.findings import factors
from workerdiag.scoring.probabilities import (
    MAX_ODDS,
    CauseScore,
    Distribution,
    SignEvidence,
    distribution,
    fact_weights,
    weighted_mean,
)

NAMES = tuple("abcdefgh")

signs = st.builds(
    lambda name, grade, fact: SignEvidence(sign=LogSign(name=name, pattern="some text", grade=grade, fact=fact)),
    st.sampled_from(NAMES),
    st.sampled_from(tuple(GRADES)),
    st.sampled_from(("", "one", "two")),
)


@st.composite
def support_lists(draw: st.DrawFn) -> list[CauseScore]:
    """Up to six causes; a cause explains only later ones, so there is no circle."""
    count = draw(st.integers(0, 6))
    ids = [f"family.{NAMES[index]}" for index in range(count)]
    return [
        CauseScore(
            cause=Cause(
                id=ids[index],
                revision=1,
                title="t",
                why="w",
                ends=draw(st.sampled_from(get_args(CauseEnd))),
                blame="task",
                retry="unknown",
                frequency=draw(st.sampled_from(tuple(FREQUENCIES))),
                explains=tuple(draw(st.sets(st.sampled_from(ids[index + 1 :])))) if ids[index + 1 :] else (),
            ),
            evidence=tuple(draw(st.lists(signs, min_size=1, max_size=4))),
            against=tuple(draw(st.lists(signs, max_size=2))),
        )
        for index in range(count)
    ]


@pytest.mark.slow
@given(support_lists())
def test_chances_and_unknown_sum_to_one(supports):
    """All causes and unknown together are certain."""
    result = distribution(supports)

    assert isclose(sum(result.chances.values()) + result.unknown, 1.0)
    assert all(0.0 <= chance <= 1.0 for chance in result.chances.values())


@pytest.mark.slow
@given(support_lists(), st.randoms())
def test_order_does_not_matter(supports, random):
    """The same evidence in another order gives the same chances."""
    shuffled = random.sample(supports, len(supports))
    expected, actual = distribution(supports), distribution(shuffled)

    assert all(isclose(chance, actual.chances[key]) for key, chance in expected.chances.items())


@pytest.mark.slow
@given(support_lists(), signs)
def test_one_more_sign_never_lowers_its_cause(supports, new):
    """Seeing more of the same cause cannot make us doubt it."""
    for index, support in enumerate(supports):
        more = [*supports]
        more[index] = evolve(support, evidence=(*support.evidence, new))
        cause = support.cause.id

        assert distribution(more).chances[cause] >= distribution(supports).chances[cause] - 1e-12


@pytest.mark.slow
@given(support_lists(), signs)
def test_one_more_sign_against_never_raises_its_cause(supports, new):
    """What speaks against a cause cannot make it likelier."""
    for index, support in enumerate(supports):
        more = [*supports]
        more[index] = evolve(support, against=(*support.against, new))
        cause = support.cause.id

        assert distribution(more).chances[cause] <= distribution(supports).chances[cause] + 1e-12


@given(st.lists(signs, max_size=8))
def test_signs_of_one_event_count_once(seen):
    """Saying the same again, or more weakly, adds nothing."""
    assert isclose(sum(fact_weights(seen)), sum(fact_weights([*seen, *seen])))


def said(name: str, grade: str, line: int) -> SignEvidence:
    """A sign that one line of a log shows."""
    sign = LogSign(name=name, pattern="some text", grade=grade)
    return SignEvidence(sign=sign, matches=(Match(owner="family.a", sign=name, origin="worker.log", line=line),))


def supported(cause_id: str, *shown: SignEvidence, told: bool = True, explains: tuple[str, ...] = ()) -> CauseScore:
    """A cause with the signs that speak for it."""
    cause = Cause(
        id=cause_id,
        revision=1,
        title="t",
        why="w",
        ends="killed",
        blame="task",
        retry="unknown",
        explains=explains,
    )
    return CauseScore(cause=cause, evidence=shown, is_end_known=told)


def test_one_sentence_counts_once_whatever_it_shows():
    """A connect error that is both "timed out" and "refused" is one fact; two sentences are two."""
    one, two = said("timed-out", "moderate", 7), said("refused", "weak", 7)

    assert fact_weights([one, two]) == fact_weights([one])
    assert len(fact_weights([one, said("refused", "weak", 8)])) == 2


def test_a_lone_sign_of_an_everyday_end_is_worth_less_where_no_end_is_told():
    """An orderly shutdown leaves the same message; another fact, or an end that is told, makes up for it."""
    lone = said("timed-out", "moderate", 7)
    other = said("gone", "weak", 9)

    assert fact_weights([lone], is_everyday=True) == (pytest.approx(log(LONE_GRADES["moderate"])),)
    assert fact_weights([lone]) == (pytest.approx(log(GRADES["moderate"])),)
    assert max(fact_weights([lone, other], is_everyday=True)) == pytest.approx(log(GRADES["moderate"]))


@pytest.mark.parametrize("ends", get_args(CauseEnd))
def test_only_what_every_run_ends_with_is_doubted_where_no_end_is_told(ends):
    """A worker that never started, or an error that was raised, is no shutdown: its one sign keeps its weight."""
    told = supported("family.a", said("one", "moderate", 1))
    told = evolve(told, cause=evolve(told.cause, ends=ends))
    untold = evolve(told, is_end_known=False)

    assert (untold.alone() < told.alone()) == (ends in EVERYDAY_ENDS)


def test_more_evidence_decides_between_two_that_are_both_nearly_certain():
    """Some doubt stays about all of them together; between them it is the evidence, not the alphabet."""
    less = supported("family.a", said("one", "decisive", 1))
    more = supported("family.b", said("one", "decisive", 2), said("two", "strong", 3))
    result = distribution([less, more])

    assert result.explanation is not None
    assert result.explanation[0] == "family.b"
    assert result.chances["family.a"] < 0.01
    assert isclose(result.unknown, 1 / (1 + MAX_ODDS))


def test_a_decisive_sign_is_not_explained_away_by_a_moderate_one():
    """Only what is itself well shown explains what is certain; a strong one does."""
    effect = supported("family.z", said("said-so", "decisive", 1))
    guess = supported("family.a", said("usual", "moderate", 2), explains=("family.z",))
    shown = supported("family.a", said("usual", "strong", 2), explains=("family.z",))

    assert distribution([effect, guess]).explanation[0] == "family.z"
    assert distribution([effect, shown]).explanation[0] == "family.a"


@pytest.mark.parametrize(
    "text",
    [
        "worker-7 exited with code 137\n",
        "Failed. Reason: AlgorithmError: See job logs for more information, exit code: 137\n",
        "The replica workerpool1-0 exited with a non-zero status of 137(SIGKILL).\n",
    ],
)
def test_a_bare_137_of_a_container_is_shared_with_memory(text):
    """Nobody is named, and in the field it is mostly memory: both are candidates, neither is certain."""
    chances = {each.id: each.probability for each in explain(logs=LogText(text)).causes}

    assert chances["external.sigkill"] < 0.8
    assert chances["kernel.oom-killer"] > 0.1


def test_exit_status_one_alone_names_no_cause():
    """Python ends so for every exception that nobody catches, for sys.exit(text) and for ^C."""
    text = "2026-05-04 11:22:33,444 - distributed.nanny - INFO - Worker process 4711 exited with status 1\n"

    assert explain(logs=LogText(text)).outcome == "unknown"


@pytest.mark.slow
@given(support_lists(), signs)
def test_a_stronger_cause_takes_from_what_it_explains(supports, new):
    """The odds of a symptom against its cause do not rise when the cause is seen more clearly."""
    for index, support in enumerate(supports):
        more = [*supports]
        more[index] = evolve(support, evidence=(*support.evidence, new))
        before, after = distribution(supports).chances, distribution(more).chances
        cause = support.cause.id
        for symptom in support.cause.explains:
            if symptom in after:
                assert after[symptom] * before[cause] <= before[symptom] * after[cause] * (1 + 1e-9)


@pytest.mark.slow
@given(st.lists(st.tuples(st.floats(0.1, 10), support_lists()), min_size=1, max_size=4))
def test_a_mixture_is_still_a_distribution(parts):
    """The mean over several deaths sums to one as well."""
    result = weighted_mean([(weight, distribution(supports)) for weight, supports in parts])

    assert isclose(sum(result.chances.values()) + result.unknown, 1.0)


@pytest.mark.slow
@given(support_lists(), st.floats(0.01, 1.0))
def test_the_factors_of_a_probability_multiply_to_it(supports, chance):
    """Whatever explains it, speaks against it or was seen of others: no factor is hidden."""
    own = distribution(supports).chances
    for support in supports:
        found = factors(support, supports, own[support.cause.id], chance)

        assert prod(each.times for each in found) == pytest.approx(chance, rel=1e-6)


def test_nothing_seen_is_unknown():
    """Without any sign no cause is named."""
    assert distribution([]) == Distribution(chances={}, unknown=1.0)


def certain(name: str, ends: str, *explains: str, times: int = 3) -> CauseScore:
    """A cause of which so many decisive signs show."""
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
    return CauseScore(cause=cause, evidence=tuple(SignEvidence(sign=each) for each in seen))


def test_a_stop_on_request_is_no_rival_of_a_certain_crash():
    """Reports end with the shutdown of the cluster, however much of it they show."""
    chances = distribution([certain("stop", "stopped"), certain("crash", "crashed", times=1)]).chances
    assert chances["family.crash"] > 0.9


def test_a_stop_on_request_is_no_rival_of_one_moderate_sign_of_a_usual_cause():
    """A worker that could not start stays the answer where the cluster is then shut down in order."""
    start = supported("family.start", said("refused", "moderate", 1))
    stop = supported("family.stop", said("closing", "strong", 2))
    stop = evolve(stop, cause=evolve(stop.cause, ends="stopped"))
    assert distribution([stop, start]).explanation[0] == "family.start"


def test_a_stop_explains_what_comes_of_it():
    """A worker that was asked to stop and is lost then was stopped."""
    stop = certain("stop", "stopped", "family.crash")
    chances = distribution([stop, certain("crash", "crashed")]).chances
    assert chances["family.stop"] > 0.9


@pytest.mark.parametrize(("times", "outcome"), [(1, "unknown"), (2, "explained")])
def test_a_sign_that_is_named_twice_must_be_there_twice(times, outcome):
    """A worker that waits for a scheduler has said so once; that it says so again is what tells."""
    waits = "distributed.worker - INFO - Waiting to connect to:      tcp://localhost:8786\n"
    assert explain(logs=LogText(times * waits)).outcome == outcome
