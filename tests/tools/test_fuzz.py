"""What fuzzing has found stays mended: every input kept in tests/fuzz is tried again."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from fuzz.attempts import ATTEMPTS, seeds
from fuzz.checks import failures
from fuzz.mutations import mutant
from fuzz.running import Tally, Task, tallies
from fuzz.scripts import SCRIPT_BYTES, Script

import workerdiag
from fuzz import boxes, bundles, checks, corpus  # tools are no part of the package
from workerdiag import LogText

KEPT = Path(__file__).parents[1] / "fuzz"
CASES = sorted(path for path in KEPT.glob("*") if path.name.partition(".")[0] in ATTEMPTS)


@pytest.mark.parametrize("case", CASES, ids=lambda path: path.name)
def test_what_fuzzing_found_stays_mended(case):
    """An input with which something went wrong once does no harm again."""
    kind = case.name.partition(".")[0]
    assert [each for each in failures(kind, case.read_bytes()) if not each.startswith("over-budget")] == []


@pytest.mark.parametrize("kind", ATTEMPTS)
def test_every_kind_of_input_can_be_tried(kind):
    """What is not mutated does no harm, and is understood for what it is."""
    data = seeds(kind)[0]
    assert [each for each in failures(kind, data) if not each.startswith("over-budget")] == []


def test_a_leak_and_a_wrong_all_clear_are_noticed(monkeypatch):
    """The checks do see what they are for."""
    hostile = workerdiag.Diagnosis(outcome="no-death", summary=f"a \x1b[0m {corpus.SECRET}")
    monkeypatch.setitem(ATTEMPTS, "log", lambda _: hostile)
    data = corpus.SECRETS[0] + b"\n" + corpus.DEATH
    said = {each.partition(":")[0] for each in checks.failures("log", data)}
    assert said >= {"leaked", "wrong-all-clear"}


@pytest.mark.parametrize("kind", ATTEMPTS)
def test_scripts_make_the_same_input_again(kind):
    """A seed is worth keeping: the same decisions make the same bytes, and any decisions make some."""
    for number in range(20):
        script = random.Random(number).randbytes(SCRIPT_BYTES)
        made = [mutant(kind, seeds(kind), Script(script)) for _ in range(2)]
        assert made[0] == made[1]


def test_an_overwritten_box_is_still_read():
    """Checksums agree again, so that what is in the cells is tried, too."""
    box = boxes.boxes()[0]
    made = [boxes.overwritten(box, Script(random.Random(number).randbytes(64))) for number in range(20)]
    assert len({*made}) > 15
    read = [checks.ATTEMPTS["box"](each) for each in made]
    assert sum(each.outcome != "no-evidence" for each in read) > 10


def test_a_bundle_with_a_changed_file_is_still_read():
    """The archive is whole, so that what is in it is tried, too."""
    bundle = bundles.bundles()[0]
    made = bundles.with_member(bundle, Script(b"\2" * 64), lambda data: data.replace(b"tcp", b"\xff"))
    assert made != bundle
    assert checks.ATTEMPTS["bundle"](made).outcome != "no-evidence"


@pytest.mark.parametrize(
    "html",
    [
        '<p onclick="x">',
        '<a href="java&#115;cript:x">a</a>',
        "<SCRIPT>",
        "<img src=x>",
        "<a title='<'\nonx=1>",
    ],
)
def test_what_acts_in_a_page_is_noticed(html):
    """Of the script and the head of our own page none is; of anything else that acts, one more than is there."""
    page = workerdiag.explain(logs=LogText("hello")).to_html()
    whole = {"text": "", "json": "", "html": page.replace("</body>", f"{html}</body>"), "markdown": html}
    assert [each.partition(" ")[0] for each in checks.escaped(whole)] == ["html", "markdown"]
    assert list(checks.escaped(whole | {"html": page, "markdown": ""})) == []


@pytest.mark.parametrize("markdown", ["![x](http://evil.example/x.png)", "a\n\n<IMG src=x>"])
def test_what_acts_in_markdown_is_noticed(markdown):
    """Pictures call home, in Markdown as in HTML."""
    assert list(checks.escaped({"text": "", "json": "", "html": "", "markdown": markdown}))


def test_a_run_tries_as_many_as_asked(tmp_path):
    """Rounds end with the number of inputs, and leave nothing behind where nothing failed."""
    task = Task(folder=tmp_path, kinds=("box",), seed=1, inputs=7, until=float("inf"))
    total = Tally()
    for tally in tallies(task):
        total.add(tally)
    assert (total.tried, total.failed) == ({"box": 7}, {})
    assert "7 inputs" in total.table()
    assert list(tmp_path.iterdir()) == []
