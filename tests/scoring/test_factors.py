"""Each factor of a probability can be shown, and their product is the probability."""

from __future__ import annotations

from math import prod
from pathlib import Path

import pytest

import workerdiag
from workerdiag import LogText, explain
from workerdiag.authoring.rule_tests import explain_logs, read_incidents
from workerdiag.matching.scan import Matcher
from workerdiag.model.odds import FREQUENCIES, GRADES

FOLDERS = (Path(__file__).parents[1] / "cases", Path(__file__).parents[1] / "field")
SIGKILL = "2026-05-04 11:22:33,444 - distributed.nanny - INFO - Worker process 4711 was killed by signal 9\n"


@pytest.mark.slow
def test_the_product_of_the_factors_is_the_probability_of_every_cause_of_every_incident():
    """One death or several, explained by others or not: what is shown is all there is."""
    book = workerdiag.load_rulebook(packs=False)
    matcher = Matcher(book)
    for incident in (each for folder in FOLDERS for each in read_incidents(folder)):
        for cause in explain_logs(incident.logs, book, matcher).causes:
            product = prod(each.times for each in cause.factors)
            assert product == pytest.approx(cause.probability, rel=1e-6), (incident.name, cause.id)


def test_frequency_sign_absence_and_rivals_have_a_factor_each():
    """A moderate sign of a common cause counts 250, the silence of the nanny 3, and a rival takes its part."""
    top = explain(logs=LogText(SIGKILL)).top
    factors = {each.kind: each for each in top.factors if each.times != 1.0}

    assert factors["frequency"].times == FREQUENCIES["common"]
    assert factors["sign"].times == pytest.approx(GRADES["moderate"])
    assert factors["sign"].where.endswith(":1")
    assert factors["absence"].times == pytest.approx(GRADES["hint"])
    assert "kernel.oom-killer" in factors["explained"].name
    assert factors["explained"].times < 1 > factors["rivals"].times


def test_what_speaks_against_a_cause_divides_it():
    """A kernel that wrote down its kill is a factor below one of a kill by nobody known."""
    kernel = "[ 9000.000001] Out of memory: Killed process 4711 (dask) total-vm:9kB, anon-rss:8kB, file-rss:0kB, shmem-rss:0kB, UID:0 pgtables:9kB oom_score_adj:0\n"
    causes = {each.id: each for each in explain(logs=[LogText(SIGKILL), LogText(kernel)]).causes}
    against = [each for each in causes["external.sigkill"].factors if each.kind == "against"]

    assert [each.name for each in against] == ["kernel-killed-it"]
    assert against[0].times == pytest.approx(1 / GRADES["strong"])


def test_the_factors_stand_on_lines_of_their_own():
    """A text for people: each factor with its sign, place and words, and the product."""
    diagnosis = explain(logs=LogText(SIGKILL, worker="alice"))
    text = diagnosis.factors_text(width=200)

    assert text.startswith(f"Factors of external.sigkill, {diagnosis.top.probability:.0%}\n    0.04 ")
    assert "\n  x 250 " in text
    assert "was killed by signal 9" in text
    assert f"\n  = {diagnosis.top.probability:.3g}\n" in text
    assert explain(logs=LogText("nothing of note\n")).factors_text().startswith("No cause has evidence")
