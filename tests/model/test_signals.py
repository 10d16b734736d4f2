"""One number for a signal, whatever a program calls it."""

from __future__ import annotations

import signal

import pytest

from workerdiag.model.signals import reported_exit, signal_number, signal_of_status


@pytest.mark.parametrize(
    "text",
    ["11", "SIGSEGV", "SEGV", "segv", "Segmentation fault", "segmentation  fault", "segmentation violation"],
)
def test_a_signal_is_known_by_number_name_and_words(text):
    """Numbers, names with and without SIG, and what strsignal(3), Go and zsh say are one signal."""
    assert signal_number(text) == 11


@pytest.mark.parametrize("text", [None, "", "0", "65", "SIG", "SIGNOTHING", "dask", "9" * 40, "٣"])
def test_what_names_no_signal_is_none(text):
    """A log may hold anything where a signal belongs."""
    assert signal_number(text) is None


def test_the_system_agrees_with_our_numbers():
    """Names that this system has, too, have its numbers: rules are written in those of Linux."""
    named = {each.name: each.value for each in signal.Signals}
    ours = {name: signal_number(name) for name in named}

    assert {name: number for name, number in ours.items() if number not in (None, named[name])} == {}


@pytest.mark.parametrize(
    ("status", "number"),
    [(139, 11), (267, 11), (-11, 11), (0, None), (1, None), (128, None), (255, None), (-1000, None)],
)
def test_a_status_stands_for_a_signal(status, number):
    """Shells add 128, PBS adds 256, Python negates; 255 is a status."""
    assert signal_of_status(status) == number


@pytest.mark.parametrize(
    ("captures", "exit_"),
    [
        ({"signal": "6", "status": "139"}, (6, None)),
        ({"signal_name": "aborted"}, (6, None)),
        ({"status": "137"}, (9, None)),
        ({"status": "3"}, (None, 3)),
        ({"status": "-1073741819"}, (None, 0xC0000005)),
        ({"status": "0xC0000005"}, (None, 0xC0000005)),
        ({"status": "STATUS_ACCESS_VIOLATION"}, (None, 0xC0000005)),
        ({"status": "soon"}, (None, None)),
        ({}, (None, None)),
    ],
)
def test_a_report_is_a_signal_or_a_status(captures, exit_):
    """Whatever a landmark captured, a report comes to one of the two; Windows' statuses have no sign."""
    assert reported_exit(captures) == exit_
