"""What the check of wordings reads from source, and when it calls a claimed range wrong."""

from __future__ import annotations

import zipfile

import pytest
import wording  # tools are scripts, no package
from click.testing import CliRunner
from events import ExceptionClass, LoggedEvent, RaisedException, events_of_source
from evidence_check import check_event_sign, check_exception_sign, check_landmark_sign
from fixed_text import fixed_runs
from packaging.version import Version
from ranges import claim, problems, spans
from template_match import TemplateMatch
from templates import templates_of_source
from vocabulary import vocabulary_of_source, vocabulary_of_wheel

from workerdiag.model.rules import EventSign, ExceptionSign, Landmark, LandmarkSign, LogSign

RELEASES = [Version(each) for each in "2022.5.0 2022.10.0 2023.8.0 2024.8.1 2026.8.0".split()]


def releases(*names: str) -> set[Version]:
    return set(map(Version, names))


def speech(source: str, pattern: str, *seen: str) -> bool:
    said = templates_of_source(source)
    rule = LogSign(name="said", pattern=pattern, grade="strong", seen=seen)
    return TemplateMatch(rule, {each: "\0".join(each).lower() for each in said}).is_in(said)


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
    """However a message is put together, what varies is a gap between fixed parts."""
    assert template in templates_of_source(source)


@pytest.mark.parametrize(
    "source",
    ['"""The worker was killed."""', 'def f():\n    """Restart the worker."""', 'x = "a %s"', "not python ("],
)
def test_what_is_never_said_is_no_template(source):
    """Docstrings, texts of hardly a letter, and files that do not parse, say nothing."""
    assert not templates_of_source(source)


def test_tests_of_distributed_say_nothing(tmp_path):
    """What only distributed's own tests say, no user's log holds."""
    wheel = tmp_path / "distributed-1-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("distributed/nanny.py", 'logger.info("Worker closed")')
        archive.writestr("distributed/tests/test_nanny.py", 'print("only a test")')
        archive.writestr("distributed/utils_test.py", 'print("only for tests")')
    assert vocabulary_of_wheel(wheel).templates == {("Worker closed",), ("distributed/nanny.py",)}


def test_a_filled_template_is_enough():
    """A pattern that asks for a number in a gap is met by a message that has a gap there."""
    source = 'logger.info("Worker process %d was killed by signal %d", a, b)'
    assert speech(source, r"Worker process (?P<pid>\d+) was killed by signal \d+")
    assert not speech(source, r"Worker process \d+ was removed")


def test_what_stands_in_a_gap_must_be_said_too():
    """A reason counts where both the sentence around it and the reason itself are in the release."""
    pattern = r"Stopping worker at \S+\. Reason: nanny-close"
    seen = "2026-11-21 08:24:05,798 - distributed.worker - INFO - Stopping worker at tcp://1.2.3.4:5. Reason: nanny-close"
    sentence = 'logger.info("Stopping worker at %s. Reason: %s", a, b)\n'
    assert speech(f'{sentence}reason="nanny-close"', pattern, seen)
    assert not speech(sentence, pattern, seen)
    assert not speech('reason="nanny-close"', pattern, seen)


def test_single_words_do_not_add_up_to_a_sentence():
    """That each word is somewhere in a release does not make the release say the sentence."""
    words = "a = ['worker', 'failed', 'connect']"
    assert not speech(words, "Worker failed to connect", "Worker failed to connect")


def test_names_that_python_fills_in_need_not_be_said():
    """No source names the exception or the signal that it will report."""
    source = 'logger.info("Received signal %s (%d)", a, b)'
    assert speech(source, r"Received signal SIGINT \(2\)", "Received signal SIGINT (2)")


def test_an_exception_must_be_raised_with_its_text():
    """The same text under another type is another message."""
    line = "TimeoutError: Worker failed to start"
    assert speech('raise TimeoutError("Worker failed to start")', line, line)
    assert not speech('raise Exception("Worker failed to start")', line, line)


def test_the_look_of_an_object_does_not_tell_its_gap():
    """``Remove worker %s`` may have been an address: it can say this, but not surely."""
    said = templates_of_source(
        'logger.info("Remove worker %s", a)\n"""."""\nrepr = f"<WorkerState {a}, name: {b}>"'
    )
    line = "Remove worker <WorkerState 'tcp://1.2.3.4:5', name: w>"
    rule = Landmark(id="a.b", role="removal", pattern=r"Remove worker <WorkerState '\w+://", seen=(line,))
    speech = TemplateMatch(rule, {each: "\0".join(each).lower() for each in said})
    assert speech.is_in(said)
    assert not speech.is_in(said, surely=True)


def test_a_pattern_with_words_of_others_is_not_wholly_own():
    """Only where every alternative is distributed's own wording can a claim be too wide."""
    said = {each: "\0".join(each).lower() for each in templates_of_source('a = "Lost connection to %s"')}
    own = LogSign(name="a", pattern="Lost connection to", grade="hint")
    mixed = LogSign(name="a", pattern="Lost connection to|reset by peer", grade="hint")
    assert TemplateMatch(own, said).is_wholly_own
    assert TemplateMatch(mixed, said).is_in(said)
    assert not TemplateMatch(mixed, said).is_wholly_own


def test_fixed_runs_are_those_of_all_alternatives():
    """Each alternative says what it insists on; what varies or is too short does not count."""
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
    """A claim is right when it has the releases that say it, all of them and no others."""
    found = list(problems(claim(introduced, removed), releases(*said.split()), RELEASES))
    assert bool(found) == bool(told)
    assert told in " ".join(found)


def test_a_claim_with_words_of_others_is_never_too_wide():
    """The other producers' words may be said in any release."""
    claimed = claim("", "")
    assert not list(problems(claimed, releases("2023.8.0"), RELEASES, wholly=False))
    assert list(problems(claimed, set(), RELEASES, wholly=False))


def test_only_what_is_surely_said_is_outside():
    """A release that may say it, or may not, proves no claim wrong."""
    said = releases("2022.10.0", "2023.8.0", "2024.8.1", "2026.8.0")
    claimed = claim("2023.8.0", "")
    assert not list(problems(claimed, said, RELEASES, surely_in=releases("2026.8.0")))


def test_releases_are_told_as_ranges():
    """A range that reaches the newest release is left open."""
    assert spans(releases("2022.5.0", "2023.8.0", "2024.8.1"), RELEASES) == "2022.5.0, 2023.8.0-2024.8.1"
    assert spans(releases("2024.8.1", "2026.8.0"), RELEASES) == "2024.8.1-"
    assert spans(set(), RELEASES) == ""


def test_a_quoted_word_may_be_anyones_value():
    """Python shows values in quotes; a release that has the word may be the one that shows it."""
    said = templates_of_source('a = {"ready": "memory"}')
    line = "exception=KeyError(('ready', 'memory'))>"
    rule = LogSign(name="a", pattern=r"KeyError\(\('ready', 'memory'\)", grade="hint", seen=(line,))
    speech = TemplateMatch(rule, {each: "\0".join(each).lower() for each in said})
    assert speech.is_in(said)
    assert not speech.is_in(said, surely=True)


@pytest.mark.parametrize(
    ("body", "topics", "fields"),
    [
        ('log_event("all", {"action": "retired"})', (("all",),), (("action", ("retired",)),)),
        ('self.log_event([self.address, "all"], {"n": 1})', (None, ("all",)), (("n", None),)),
        ('log_event(topic=a, msg={"reason": f"signal-{n}"})', (None,), (("reason", ("signal-", "")),)),
        ('m = {"a": b}\n log_event(w, m.copy())\n m["to"] = "x"', (None,), (("a", None), ("to", ("x",)))),
        ('log_event(w, dict(action="a"))', (None,), (("action", ("a",)),)),
        ('log_event(w, merge({"action": "heartbeat"}, b))', (None,), (("action", ("heartbeat",)),)),
        ('log_event("worker-fail-hard", error_message(e))', (("worker-fail-hard",),), None),
    ],
)
def test_an_event_is_read_however_its_message_is_made(body, topics, fields):
    """Topics, fields and values are known where the source has them, and open where it computes them."""
    assert events_of_source(f"def f():\n {body}") == {LoggedEvent(topics=topics, fields=fields)}


def test_an_event_that_is_only_passed_on_says_nothing():
    """``log_event(topic, msg)`` is no event of its own; what ``to_event`` returns is."""
    assert not events_of_source("def log_event(self, topic, msg):\n self.scheduler.log_event(topic, msg)")
    returned = 'class A:\n def to_event(self):\n  return "invalid", {"key": self.key}'
    assert events_of_source(returned) == {LoggedEvent(topics=(("invalid",),), fields=(("key", None),))}


def test_an_exception_has_the_texts_that_are_raised_and_those_of_its_class():
    """A class that words itself says the same as one that is given its text."""
    said = events_of_source(
        'class LostError(OSError):\n def __str__(self):\n  return f"lost {self.a}"\n'
        'class Other: pass\nraise asyncio.TimeoutError("too late")'
    )
    assert {
        ExceptionClass("LostError"),
        RaisedException("LostError", ("lost ", "")),
        RaisedException("TimeoutError", ("too late",)),
    } <= said
    assert ExceptionClass("Other") not in said


CLOSING = 'def f(reason):\n log_event(self.address, {"action": "closing-worker", "reason": reason})\n'


def event_is_said(source: str, topic: str = "worker", **where: str) -> bool:
    said = vocabulary_of_source(source)
    held = check_event_sign(EventSign(name="e", topic=topic, grade="hint", where=where), said)
    return held is not None and held.is_in(said)


def test_an_event_needs_its_topic_its_fields_and_their_values():
    """An event counts where all of it is recorded together, whatever other events have."""
    assert event_is_said(CLOSING, action="closing-worker")
    assert event_is_said(CLOSING, ".*", action="clos.*")
    assert not event_is_said(CLOSING, "all", action="closing-worker")
    assert not event_is_said(CLOSING, action="closing-worker", stimulus_id=".*")
    apart = 'def f():\n log_event(w, {"action": "a-worker"})\n log_event(w, {"to": "paused"})'
    assert not event_is_said(apart, action="a-worker", to="paused")


def test_a_computed_value_must_be_said_somewhere():
    """The reason of an event comes from elsewhere in the release; a number or truth value from nowhere."""
    reason = {"action": "closing-worker", "reason": "signal-15"}
    assert not event_is_said(CLOSING, **reason)
    assert event_is_said(f'{CLOSING}reason = f"signal-{{number}}"', **reason)
    assert event_is_said(CLOSING, action="closing-worker", reason="true")


def test_an_event_of_unknown_content_may_say_anything_under_its_own_topic_only():
    """What cannot be read from the source proves no other event."""
    source = 'def f():\n log_event("worker-fail-hard", error_message(e))'
    assert event_is_said(source, "worker-fail-hard", exception="x.*")
    assert not event_is_said(source, ".*", action="closing-worker")


def test_topics_of_others_are_not_looked_for():
    """No release of distributed records the kernel's counters or our own queries."""
    said = vocabulary_of_source(CLOSING)
    assert check_event_sign(EventSign(name="e", topic="cgroup", grade="hint"), said) is None
    assert check_event_sign(EventSign(name="e", topic="cgruop", grade="hint"), said) is not None
    assert check_event_sign(EventSign(name="e", topic=".*", grade="hint"), said) is not None


def exception_is_said(source: str, *types: str, pattern: str | None = None) -> bool | None:
    said = vocabulary_of_source(source)
    held = check_exception_sign(ExceptionSign(name="e", grade="hint", types=types, pattern=pattern), said)
    return None if held is None else held.is_in(said)


ARRIVED = 'raise TimeoutError("Only %d/%d workers arrived after %s" % (a, b, c))'


@pytest.mark.parametrize(
    ("source", "types", "pattern", "is_said"),
    [
        ("class NoWorkerError(Exception): pass", ["NoWorkerError"], None, True),
        ("class NoWorkerError(Exception): pass", ["distributed.NoWorkerError"], None, True),
        ("", ["CudaError"], None, None),  # of others
        (ARRIVED, ["TimeoutError"], r"Only \d+/\d+ workers arrived", True),
        (ARRIVED, ["WorkerStartTimeoutError"], r"Only \d+/\d+ workers arrived", False),
        (ARRIVED, [], r"Only \d+/\d+ workers arrived", True),
        (ARRIVED, ["OSError"], "No route to host", None),
        ("class LostError(OSError): pass", ["LostError"], "connection lost", False),
    ],
)
def test_an_exception_needs_its_type_with_its_text(source, types, pattern, is_said):
    """A text that is raised under another type is another message; types and texts of others are theirs."""
    assert exception_is_said(source, *types, pattern=pattern) is is_said


STOPPING = Landmark(
    id="worker.asked",
    role="stop-request",
    pattern=r"Stopping worker at (?P<worker>\w+://[\w.:]+\w)(?:\. Reason: (?P<reason>[\w-]+))?",
)


def capture_is_said(source: str, reason: str) -> bool | None:
    said = vocabulary_of_source(source)
    sign = LandmarkSign(name="l", landmark=STOPPING.id, grade="hint", where={"reason": reason})
    held = check_landmark_sign(sign, STOPPING, said)
    return None if held is None else held.is_in(said)


def test_a_capture_needs_the_message_with_a_gap_for_it_and_the_value():
    """A landmark of older releases, which had no reason in it, is not one with that reason."""
    message = 'logger.info("Stopping worker at %s. Reason: %s", a, b)\n'
    assert capture_is_said(f'{message}reason = "nanny-close"', "nanny-close")
    assert not capture_is_said(message, "nanny-close")
    assert not capture_is_said('logger.info("Stopping worker at %s", a)\nreason = "nanny-close"', "nanny-close")
    assert capture_is_said('reason = "nanny-close"', "nanny-close") is None


RULES = """
id = "exit.stopped"
revision = 1
title = "Stopped"
why = "Somebody stopped it."
ends = "stopped"
blame = "nobody"
retry = "safe"
"""
LOG = """
[[sign]]
kind = "log"
name = "said"
grade = "hint"
pattern = 'Worker process \\d+ was killed'
"""
EVENT = """
[[sign]]
kind = "event"
name = "recorded"
grade = "hint"
topic = "worker"
where = { action = "closing-worker" }
"""
ERROR = """
[[sign]]
kind = "exception"
name = "caught"
grade = "hint"
types = ["NoWorkerError"]
"""
KILLED = 'logger.info("Worker process %d was killed", pid)\n'
NO_WORKER = "class NoWorkerError(Exception): pass\n"


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Runs the command on one cause's signs and on releases 1.0, 2.0, ... of the given sources."""

    def run(signs: str, *sources: str) -> tuple[int, str]:
        (tmp_path / "causes" / "exit").mkdir(parents=True)
        (tmp_path / "manifest.toml").write_text('schema = 1\nrelease = "2026.11.0"\n')
        (tmp_path / "causes" / "exit" / "stopped.toml").write_text(RULES + signs)
        for number, source in enumerate(sources, 1):
            with zipfile.ZipFile(tmp_path / f"distributed-{number}.0-py3-none-any.whl", "w") as archive:
                archive.writestr("distributed/worker.py", source)
        monkeypatch.setattr(wording, "KNOWLEDGE", tmp_path)
        monkeypatch.setattr(wording, "TABLE", tmp_path / "wording.md")
        releases = [part for number, _ in enumerate(sources, 1) for part in ("--only", f"{number}.0")]
        arguments = ["--since", "none", "--cache", str(tmp_path), "--write", *releases]
        result = CliRunner().invoke(wording.main, arguments)
        return result.exit_code, result.output

    return run


def test_the_command_is_content_with_right_ranges(run):
    """Signs that the releases they claim make, and no others, are no problem."""
    everything = KILLED + CLOSING + NO_WORKER
    status, told = run(f'{LOG}introduced = "2.0"\n{EVENT}{ERROR}', CLOSING + NO_WORKER, everything, everything)
    assert (status, "3 are about distributed's own: 0 with a wrong range" in told) == (0, True), told


def test_the_command_fails_on_a_wrong_range(run):
    """A claim that ends too early is named, with what was found."""
    status, told = run(f'{LOG}removed = "2.0"\n', KILLED, KILLED, KILLED)
    assert status == 1
    assert "exit.stopped said (log text, knowledge/causes/exit/stopped.toml)" in told
    assert "claimed: any .. before 2.0" in told
    assert "said outside of the claimed range, in 2.0-" in told


@pytest.mark.parametrize(("sign", "source"), [(EVENT, CLOSING), (ERROR, NO_WORKER)])
def test_events_and_exceptions_claim_releases_too(run, sign, source):
    """One that came later is wrong without `introduced`, and right with it."""
    status, told = run(sign, KILLED, source, source)
    assert status == 1
    assert "not said before 2.0: the claimed range begins too early" in told


@pytest.mark.parametrize(("sign", "source"), [(EVENT, CLOSING), (ERROR, NO_WORKER)])
def test_events_and_exceptions_may_be_gone(run, sign, source):
    """One that is gone is right with `removed`."""
    status, told = run(f'{sign}introduced = "2.0"\nremoved = "3.0"\n', KILLED, source, KILLED)
    assert (status, "0 with a wrong range" in told) == (0, True), told


def test_a_claim_on_a_landmark_is_within_that_of_the_landmark():
    """A reason can be no older than the message that has it."""
    assert claim("", "4.0").within(claim("2.0", "")) == claim("2.0", "4.0")
    assert claim("3.0", "").within(claim("2.0", "5.0")) == claim("3.0", "5.0")


def test_the_command_fails_when_the_newest_release_words_something_differently(run):
    """What the newest release no longer says is an error of the rule."""
    status, told = run(LOG, KILLED, KILLED, KILLED.replace("killed", "ended"))
    assert status == 1
    assert "3.0, the newest release, words something differently" in told


def test_the_command_fails_on_what_no_release_records(run):
    """A mistyped action is not taken for somebody else's."""
    status, told = run(EVENT.replace("closing", "clossing"), CLOSING, CLOSING)
    assert status == 1
    assert "said in no release" in told


def test_the_page_names_the_signs_that_differ(run, tmp_path):
    """A sign that all releases show needs no line."""
    run(f'{LOG}introduced = "2.0"\n{EVENT}', CLOSING, CLOSING + KILLED)
    written = (tmp_path / "wording.md").read_text()
    assert "| [exit.stopped](causes/exit/stopped.md) | said | log text | 2.0- |" in written
    assert "recorded" not in written
