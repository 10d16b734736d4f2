"""Silences and known issues as people give them."""

from __future__ import annotations

import pytest

from support.alerts import START, opened
from workerdiag.errors import RuleFileError, SilenceError, UnreadableInputError
from workerdiag.watch.notices import notice_of
from workerdiag.watch.policy import MAX_SILENCE_S, KnownIssue, new_silence, parse_until, read_known_issues


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"matches": " "}, "no target"),
        ({"reason": " \n"}, "has no reason"),
        ({"until": START}, "not in the future"),
        ({"until": float("nan")}, "not in the future"),
        ({"until": START + 2 * MAX_SILENCE_S}, "more than a year"),
    ],
)
def test_a_silence_needs_a_target_an_end_and_a_reason(changes, why):
    """What is silent for ever, or nobody knows why, is refused with a message that says what is missing."""
    given = {"matches": "case-1", "until": START + 60, "reason": "deploying", "now": START} | changes
    with pytest.raises(SilenceError, match=why):
        new_silence(given.pop("matches"), **given)


def test_an_end_is_a_time_or_a_duration():
    """Both ways to write it are understood; anything else is refused with both."""
    assert parse_until("2h", START) == START + 7200
    assert parse_until("2026-11-21T10:02:04Z", START) == START + 1
    with pytest.raises(SilenceError, match=r"'tomorrow' is not an end: .*2h"):
        parse_until("tomorrow", START)


def test_known_issues_come_from_a_file(tmp_path):
    """A file has a table for each issue."""
    path = tmp_path / "issues.toml"
    path.write_text(
        '[[issue]]\ncause = "nanny.*"\ncluster = "pro?"\nnote = "fixed soon"\n'
        '[[issue]]\nkey = "5c49"\nlink = "https://tracker.example/1"\nhold = true\n'
    )
    first, second = read_known_issues(path)
    assert first == KnownIssue(cause="nanny.*", cluster="pro?", note="fixed soon")
    assert second == KnownIssue(key="5c49", link="https://tracker.example/1", hold=True)
    notice = notice_of(opened(), "new", START)
    assert (first.covers(notice), second.covers(notice)) == (True, False)


def test_all_mistakes_of_a_file_are_told_at_once(tmp_path):
    """The message has the file, and place and kind of each mistake."""
    path = tmp_path / "issues.toml"
    path.write_text('[[issue]]\ncause = 9\nnote = "n"\n[[issue]]\nnote = "n"\n[[issue]]\ncause = "c"\nwho = "me"\n')
    with pytest.raises(RuleFileError) as raised:
        read_known_issues(path)
    message = str(raised.value)
    assert message.startswith(f"cannot use {path}: ")
    assert ".issue[0].cause: expected string" in message
    assert ".issue[1]: needs a key or a cause" in message
    assert "who" in message


@pytest.mark.parametrize("content", [b"[[issue", b"\xff\xfe", b"issue = 3", b"[[issues]]\n"])
def test_a_file_that_is_something_else_is_named(tmp_path, content):
    """Whatever is in it, it is an error that names the file."""
    path = tmp_path / "issues.toml"
    path.write_bytes(content)
    with pytest.raises(RuleFileError, match=r"issues\.toml"):
        read_known_issues(path)


def test_a_missing_file_is_named(tmp_path):
    """A file that is not there is an error that says so."""
    with pytest.raises(UnreadableInputError, match=r"cannot read .*issues\.toml: No such file"):
        read_known_issues(tmp_path / "issues.toml")
