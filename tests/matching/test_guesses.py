"""What a program only guesses is no evidence."""

from __future__ import annotations

import pytest

import workerdiag
from workerdiag import LogText
from workerdiag.matching.log_lines import guesses

LOKY = (
    "TerminatedWorkerError: A worker process managed by the executor was unexpectedly terminated. This could be caused "
    "by a segmentation fault while calling the function or by an excessive memory usage causing the Operating System "
    "to kill the worker."
)


@pytest.mark.parametrize(
    ("text", "guessed"),
    [
        ("It ended. This could be caused by a full disk. It was 3.", [" a full disk"]),
        ("This might have been caused by a crash", [" a crash"]),
        ("likely due to memory, or the network\nKilled", [" memory, or the network"]),
        (
            "Some potential root causes. (1) killed by SIGKILL. (2) crashed\nnext",
            [". (1) killed by SIGKILL. (2) crashed"],
        ),
        ("Sent SIGKILL! Perhaps out of memory?", [" out of memory"]),
        ("The disk is full because of logs", []),
        ("killed by signal 9. Possibly more follow", []),
    ],
)
def test_a_guess_reaches_to_the_end_of_its_sentence_or_list(text, guessed):
    """What was said before it and what follows is no guess."""
    assert [text[start:end] for start, end in guesses(text)] == guessed


def test_a_cause_that_is_only_guessed_is_not_named():
    """Neither from a log nor from the exception."""
    assert workerdiag.explain(logs=LogText(LOKY)).causes == ()
    assert workerdiag.explain(RuntimeError(LOKY)).causes == ()


def test_what_a_message_knows_besides_its_guess_counts():
    """The exit code behind the sentence is a fact."""
    diagnosis = workerdiag.explain(logs=LogText(f"{LOKY} The exit codes of the workers are {{SIGABRT(-6)}}"))

    assert diagnosis.top is not None
    assert diagnosis.top.id == "signal.abort"
