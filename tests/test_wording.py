"""
What the check of wordings reads from source, and when it calls a claimed range wrong.
"""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path

import pytest
from packaging.version import Version

from workerdiag.model.rules import Landmark, LogSign

sys.path.insert(0, str(Path(__file__).parents[1] / "tools"))

from insisting import fixed_runs  # tools are scripts, no package
from ranges import claim, problems, spans
from spoken import Speech
from templates import templates_of_source, templates_of_wheel

RELEASES = [Version(each) for each in "2022.5.0 2022.10.0 2023.8.0 2024.8.1 2026.8.0".split()]


def releases(*names: str) -> set[Version]:
    return set(map(Version, names))


def speech(source: str, pattern: str, *seen: str) -> bool:
    said = templates_of_source(source)
    rule = LogSign(name="said", pattern=pattern, grade="strong", seen=seen)
    return Speech(rule, {each: "\0".join(each).lower() for each in said}).is_in(said)


@pytest.mark.parametrize(
    ("source", "template"),
    [
        ('logger.info("Worker closed")', ("Worker closed",)),
        ('logger.info("Closing at %r. Reason: %s", a, b)', ("Closing at ", ". Reason: ", "")),
        ('logger.warning("at %d%% memory", 3)', ("at ", "% memory")),
        ('logger.info(f"Removing plugin {name}")', ("Removing plugin ", "")),
        ('logger.warning(f"Worker {a} is slow to %s", b)', ("Worker ", " is slow to ", "")),
        ('text = "Timed out after {} s".format(3)', ("Timed out after ", " s")),
        ('text = "Failed to " + what + " worker"', ("Failed to ", " worker")),
        ('raise ValueError("no such " "option")', ("no such option",)),
        ('raise asyncio.TimeoutError(f"no answer in {t}")', ("TimeoutError: no answer in ", "")),
        ('self.close(reason="nanny-close")', ("nanny-close",)),
        ('log_event(a, {"action": "worker-ttl-timed-out"})', ("worker-ttl-timed-out",)),
        ('logger.error("Compute Failed\\nKey: %s\\n", k)', ("Compute Failed",)),
        ('logger.info("%s", "inner text" if a else b)', ("inner text",)),
        ("class CommClosedError(IOError): pass", ("CommClosedError",)),
    ],
)
def test_a_text_becomes_its_fixed_parts(source, template):
    """
    However a message is put together, what varies is a gap between fixed parts.
    """
    assert template in templates_of_source(source)


@pytest.mark.parametrize(
    "source",
    ['"""The worker was killed."""', 'def f():\n    """Restart the worker."""', 'x = "a %s"', "not python ("],
)
def test_what_is_never_said_is_no_template(source):
    """
    Docstrings, texts of hardly a letter, and files that do not parse, say nothing.
    """
    assert not templates_of_source(source)


def test_tests_of_distributed_say_nothing(tmp_path):
    """
    What only distributed's own tests say, no user's log holds.
    """
    wheel = tmp_path / "distributed-1-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("distributed/nanny.py", 'logger.info("Worker closed")')
        archive.writestr("distributed/tests/test_nanny.py", 'print("only a test")')
        archive.writestr("distributed/utils_test.py", 'print("only for tests")')
    assert templates_of_wheel(wheel) == {("Worker closed",), ("distributed/nanny.py",)}


def test_a_filled_template_is_enough():
    """
    A pattern that asks for a number in a gap is met by a message that has a gap there.
    """
    source = 'logger.info("Worker process %d was killed by signal %d", a, b)'
    assert speech(source, r"Worker process (?P<pid>\d+) was killed by signal \d+")
    assert not speech(source, r"Worker process \d+ was removed")


def test_what_stands_in_a_gap_must_be_said_too():
    """
    A reason counts where both the sentence around it and the reason itself are in the release.
    """
    pattern = r"Stopping worker at \S+\. Reason: nanny-close"
    seen = "2026-11-21 08:24:05,798 - distributed.worker - INFO - Stopping worker at tcp://1.2.3.4:5. Reason: nanny-close"
    sentence = 'logger.info("Stopping worker at %s. Reason: %s", a, b)\n'
    assert speech(f'{sentence}reason="nanny-close"', pattern, seen)
    assert not speech(sentence, pattern, seen)
    assert not speech('reason="nanny-close"', pattern, seen)


def test_single_words_do_not_add_up_to_a_sentence():
    """
    That each word is somewhere in a release does not make the release say the sentence.
    """
    words = "a = ['worker', 'failed', 'connect']"
    assert not speech(words, "Worker failed to connect", "Worker failed to connect")


def test_names_that_python_fills_in_need_not_be_said():
    """
    No source names the exception or the signal that it will report.
    """
    source = 'logger.info("Received signal %s (%d)", a, b)'
    assert speech(source, r"Received signal SIGINT \(2\)", "Received signal SIGINT (2)")


def test_an_exception_must_be_raised_with_its_text():
    """
    The same text under another type is another message.
    """
    line = "TimeoutError: Worker failed to start"
    assert speech('raise TimeoutError("Worker failed to start")', line, line)
    assert not speech('raise Exception("Worker failed to start")', line, line)


def test_the_look_of_an_object_does_not_tell_its_gap():
    """
    ``Remove worker %s`` may have been an address: it can say this, but not surely.
    """
    said = templates_of_source(
        'logger.info("Remove worker %s", a)\n"""."""\nrepr = f"<WorkerState {a}, name: {b}>"'
    )
    line = "Remove worker <WorkerState 'tcp://1.2.3.4:5', name: w>"
    rule = Landmark(id="a.b", role="removal", pattern=r"Remove worker <WorkerState '\w+://", seen=(line,))
    speech = Speech(rule, {each: "\0".join(each).lower() for each in said})
    assert speech.is_in(said)
    assert not speech.is_in(said, surely=True)


def test_a_pattern_with_words_of_others_is_not_wholly_own():
    """
    Only where every alternative is distributed's own wording can a claim be too wide.
    """
    said = {each: "\0".join(each).lower() for each in templates_of_source('a = "Lost connection to %s"')}
    own = LogSign(name="a", pattern="Lost connection to", grade="hint")
    mixed = LogSign(name="a", pattern="Lost connection to|reset by peer", grade="hint")
    assert Speech(own, said).is_wholly_own
    assert Speech(mixed, said).is_in(said)
    assert not Speech(mixed, said).is_wholly_own


def test_fixed_runs_are_those_of_all_alternatives():
    """
    Each alternative says what it insists on; what varies or is too short does not count.
    """
    assert fixed_runs(r"Failed to (?:start|run) \d+ (?P<what>Worker)s?") == {"failed to ", "start", "worker"}


@pytest.mark.parametrize(
    ("introduced", "removed", "said", "told"),
    [
        ("", "", "2022.5.0 2022.10.0 2023.8.0 2024.8.1 2026.8.0", ""),
        ("2022.10.1", "", "2023.8.0 2024.8.1 2026.8.0", ""),
        ("2022.10.1", "2024.8.0", "2023.8.0", ""),
        ("2020.12.0", "2021.10.0", "", ""),  # outside of what was looked at
        (
            "2023.8.0",
            "",
            "2022.10.0 2023.8.0 2024.8.1 2026.8.0",
            "outside of the claimed range, in 2022.10.0",
        ),
        (
            "",
            "2024.8.0",
            "2022.5.0 2022.10.0 2023.8.0 2024.8.1 2026.8.0",
            "outside of the claimed range, in 2024.8.1-",
        ),
        ("", "", "2023.8.0 2024.8.1 2026.8.0", "not said before 2023.8.0"),
        ("", "", "2022.5.0 2022.10.0", "not said after 2022.10.0"),
        (
            "",
            "",
            "2022.5.0 2022.10.0 2023.8.0 2024.8.1",
            "2026.8.0, the newest release, words something differently",
        ),
        ("2024.8.0", "", "", "in no release of the claimed range"),
    ],
)
def test_a_claim_is_held_against_what_is_said(introduced, removed, said, told):
    """
    A claim is right when it has the releases that say it, all of them and no others.
    """
    found = list(problems(claim(introduced, removed), releases(*said.split()), RELEASES))
    assert bool(found) == bool(told)
    assert told in " ".join(found)


def test_a_claim_with_words_of_others_is_never_too_wide():
    """
    The other producers' words may be said in any release.
    """
    claimed = claim("", "")
    assert not list(problems(claimed, releases("2023.8.0"), RELEASES, wholly=False))
    assert list(problems(claimed, set(), RELEASES, wholly=False))


def test_only_what_is_surely_said_is_outside():
    """
    A release that may say it, or may not, proves no claim wrong.
    """
    said = releases("2022.10.0", "2023.8.0", "2024.8.1", "2026.8.0")
    claimed = claim("2023.8.0", "")
    assert not list(problems(claimed, said, RELEASES, surely_in=releases("2026.8.0")))


def test_releases_are_told_as_ranges():
    """
    A range that reaches the newest release is left open.
    """
    assert spans(releases("2022.5.0", "2023.8.0", "2024.8.1"), RELEASES) == "2022.5.0, 2023.8.0-2024.8.1"
    assert spans(releases("2024.8.1", "2026.8.0"), RELEASES) == "2024.8.1-"
    assert spans(set(), RELEASES) == ""


def test_a_quoted_word_may_be_anyones_value():
    """
    Python shows values in quotes; a release that has the word may be the one that shows it.
    """
    said = templates_of_source('a = {"ready": "memory"}')
    line = "exception=KeyError(('ready', 'memory'))>"
    rule = LogSign(name="a", pattern=r"KeyError\(\('ready', 'memory'\)", grade="hint", seen=(line,))
    speech = Speech(rule, {each: "\0".join(each).lower() for each in said})
    assert speech.is_in(said)
    assert not speech.is_in(said, surely=True)
