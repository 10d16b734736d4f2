"""What a person sees while it takes a while."""

from __future__ import annotations

import io
import time
from functools import partial

import pytest

from support.findings import explained
from workerdiag import demo
from workerdiag.cli import main
from workerdiag.cli.commands import status_line, table_width, text_width


class Terminal(io.StringIO):
    """A terminal that keeps what is written to it."""

    def isatty(self):
        """It is one."""
        return True


def wait_for(condition, limit_s=60.0):
    """Wait until it holds."""
    until = time.monotonic() + limit_s
    while not condition() and time.monotonic() < until:
        time.sleep(0.01)
    assert condition()


def test_what_takes_long_says_what_it_does_and_how_long_it_may_take():
    """The line names the work with the seconds, and is erased at the end."""
    terminal = Terminal()
    with status_line("reading 3 logs", limit_s=10, to=terminal, first_s=0.01):
        wait_for(lambda: "reading 3 logs: 0 of at most 10 s" in terminal.getvalue())
    assert terminal.getvalue().endswith("\r\x1b[K")


def test_what_is_quick_leaves_no_trace():
    """Work of less than a second does not flicker."""
    terminal = Terminal()
    with status_line("reading", to=terminal, first_s=3600):
        pass
    assert terminal.getvalue() == ""


def test_a_pipe_gets_no_status():
    """What is no terminal, such as a log of CI, gets nothing."""
    stream = io.StringIO()
    with status_line("reading", to=stream, first_s=0):
        pass
    assert stream.getvalue() == ""


def test_a_dumb_terminal_gets_no_status(monkeypatch):
    """A terminal that cannot erase a line is spared it."""
    monkeypatch.setenv("TERM", "dumb")
    terminal = Terminal()
    with status_line("reading", to=terminal, first_s=0):
        pass
    assert terminal.getvalue() == ""


def test_an_error_ends_the_line():
    """Whatever happens, the line is gone before anything else is printed."""
    terminal = Terminal()

    def fail():
        with status_line("reading", to=terminal, first_s=0.01):
            wait_for(terminal.getvalue)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert terminal.getvalue().endswith("\r\x1b[K")


def test_the_line_of_a_hostile_name_is_one_line():
    """The name of an address cannot speak to the terminal, nor break the line."""
    terminal = Terminal()
    with status_line("asking \x1b[2J\ntcp://x", to=terminal, first_s=0.01):
        wait_for(terminal.getvalue)
    assert "\x1b[2J" not in terminal.getvalue()
    assert "\n" not in terminal.getvalue()


def test_the_demo_waits_no_longer_once_it_has_reported(monkeypatch, capsys):
    """While the cluster closes no line says that the explanation is still awaited; the hint is one that works."""
    terminal, shown = Terminal(), []

    def run(death, *, say, show):
        wait_for(lambda: "waiting for the death" in terminal.getvalue())
        show(explained())
        shown.append(terminal.getvalue())
        time.sleep(0.1)
        return 0

    monkeypatch.setattr(demo, "run", run)
    monkeypatch.setattr("workerdiag.cli.commands._EVERY_S", 0.01)
    monkeypatch.setattr("workerdiag.cli.status_line", partial(status_line, to=terminal, first_s=0.01))
    main(["demo", "--death", "exit"], standalone_mode=False)
    assert shown == [terminal.getvalue()]
    printed = " ".join(capsys.readouterr().out.split())
    assert "workerdiag demo --death exit --full" in printed
    assert "workerdiag explain --full" not in printed


@pytest.mark.parametrize(("columns", "width"), [("160", 160), ("200", 200), ("7", 40), ("", 80), ("wide", 80)])
def test_a_pipe_is_as_wide_as_columns_says(monkeypatch, columns, width):
    """Where the output is no terminal, the environment variable COLUMNS is the only one who knows."""
    monkeypatch.setenv("COLUMNS", columns)
    assert (text_width(), table_width()) == (width, width)
