"""Programs that fail for natural reasons, each on a fresh cluster and on one that has lost a worker before.

`nox -s lab_natural` runs them; CI does not, since not every answer is right yet.
"""

from __future__ import annotations

import pytest

from support.lab_logs import reported_texts

from .natural import SCENARIOS
from .natural_run import missing_libraries, row, run_scenario
from .natural_scenario import Answer, Scenario, judge
from .natural_stage import Asked
from .processes import LabError

pytestmark = pytest.mark.lab


@pytest.mark.natural
@pytest.mark.parametrize("after_death", [False, True], ids=["fresh", "after-death"])
@pytest.mark.parametrize("name", SCENARIOS)
def test_what_was_asked_is_answered(request, name, after_death):
    """Whatever died before, the answer is about this program, and is not that all is well."""
    scenario = SCENARIOS[name]
    if missing := missing_libraries(scenario):
        pytest.skip(f"no {', '.join(missing)}")
    run = run_scenario(scenario, after_death=after_death)
    if run.answer is None:
        raise LabError(run.trouble)
    reported_texts(request.node).append(run.answer.text)
    assert run.mark == "right", row(run)


def _answer(outcome: str = "explained", text: str = "", **causes: float) -> Answer:
    named = tuple((name.replace("__", "."), chance) for name, chance in causes.items())
    return Answer(outcome=outcome, causes=named, text=text)


def _scenario(*right: str, **more: tuple[str, ...] | str) -> Scenario:
    return Scenario(name="any", program=lambda _: Asked(), right=right, **more)


@pytest.mark.parametrize(
    ("scenario", "answer", "mark"),
    [
        (_scenario("a.b"), _answer(a__b=0.9), "right"),
        (_scenario("a.*"), _answer(a__b=0.9), "right"),
        (_scenario("a.b", says=("lock",)), _answer(a__b=0.9, text="the Lock"), "right"),
        (_scenario("a.b", says=("lock",)), _answer(a__b=0.9), "partly"),
        (_scenario("a.b", never_says=("lock",)), _answer(a__b=0.9, text="lock"), "partly"),
        (_scenario("a.b", partly=("c.d",)), _answer(c__d=0.9), "partly"),
        (_scenario("a.b", blames="^load$"), _answer(a__b=0.9), "partly"),
        (_scenario("a.b"), _answer(c__d=0.9), "WRONG"),
        (_scenario("a.b"), _answer(c__d=0.4), "unknown"),
        (_scenario("a.b"), _answer("unknown"), "unknown"),
        (_scenario("a.b", says=("lock",)), _answer("unknown", text="a lock"), "partly"),
        (_scenario("a.b"), _answer("no-death"), "wrong all-clear"),
        (_scenario("no-death"), _answer("no-death"), "right"),
        (_scenario("a.b"), _answer(a__b=0.7, nanny__memory_terminate=0.0), "right"),
        (_scenario("a.b", never=("e.f",)), _answer(a__b=0.7, e__f=0.3), "WRONG"),
    ],
)
def test_an_answer_is_judged_by_what_a_reader_takes_from_it(scenario, answer, mark):
    """What is claimed at 50 % counts, then the likeliest, then what the report shows."""
    assert judge(scenario, answer) == mark


def test_the_earlier_death_is_a_wrong_answer_even_beside_a_right_one():
    """Named at a quarter beside the right cause, it still sends the reader to memory."""
    answer = Answer(outcome="explained", causes=(("a.b", 0.7), ("nanny.memory-terminate", 0.3)))
    assert judge(_scenario("a.b"), answer) == "WRONG"
    assert judge(_scenario("a.b", "nanny.memory-terminate"), answer) == "right"
