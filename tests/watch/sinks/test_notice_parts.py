"""The parts of a notice that all services show."""

from __future__ import annotations

import shlex

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.notices import HOSTILE, notices, sample_notice
from workerdiag.cli import main
from workerdiag.watch.sinks.notice_parts import card_of, is_web_address, shorten


def test_a_command_can_be_pasted_into_a_shell():
    """A cause or a path with blanks, quotes or dollars in it runs nothing and stays one argument."""
    notice = sample_notice(cause="a'; rm -rf $HOME `y`", links={"bundle": "/tmp/my deaths/1.zip"})
    words = {label: shlex.split(command) for label, command in card_of(notice).commands}
    assert words["Read more"] == ["workerdiag", "knowledge", "show", "a'; rm -rf $HOME `y`"]
    assert words["Evidence"][-1] == "/tmp/my deaths/1.zip"


def test_the_command_line_understands_the_commands():
    """What a notice says to type has arguments that the command line knows."""
    for _, command in card_of(sample_notice(links={"bundle": __file__})).commands:
        program, *words = shlex.split(command)
        assert program == "workerdiag"
        found, context = main, None
        while isinstance(found, click.Group):
            context = click.Context(found, parent=context)
            found = found.get_command(context, words.pop(0))
        found.make_context(found.name, words, parent=context)


def test_a_notice_about_no_death_shows_its_text():
    """That the watcher cannot see has no deaths to count: its text says it."""
    card = card_of(sample_notice("blind", death_count=0, cause=None, text="The scheduler does not answer."))
    assert card.text == "The scheduler does not answer."
    assert card.facts == (("Cluster", "prod"),)
    assert card_of(sample_notice()).text == ""


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("https://docs.example.org/causes/a?b=c#d", True),
        ("http://[::1]:8000/", True),
        ("javascript:alert(1)", False),
        ("file:///etc/passwd", False),
        ("https://good.example@evil.example/", False),
        ("https://a.example/<script>", False),
        ("https://a.example/\u202e", False),
        ("https://", False),
        ("https://[", False),
        ("https://a.example/" + "x" * 3000, False),
        (HOSTILE, False),
    ],
)
def test_only_web_addresses_become_links(target, expected):
    """Whatever a browser would act upon otherwise is shown as text, or not at all."""
    assert is_web_address(target) is expected


@given(st.text(max_size=50) | st.just("\U0001f525" * 30), st.integers(4, 40))
def test_a_cut_text_is_never_too_long(text, most):
    """An emoji counts twice, as these services count it, and is never cut in half."""
    text = text.encode("utf-8", errors="ignore").decode()
    cut = shorten(text, most)
    assert len(cut.encode("utf-16-le")) // 2 <= most
    assert cut == text or cut.endswith("...")


@given(notices)
def test_every_part_is_clean(notice):
    """No service gets a control character, a half character, or one that turns the text around."""
    card = card_of(notice)
    shown = card.body_text()
    shown.encode("utf-8")
    assert not set(shown) & {*map(chr, range(9)), "\x1b", "\r", "\u202e", "\x7f", "\x85"}
    assert all(label and value for label, value in (*card.links, *card.commands))
