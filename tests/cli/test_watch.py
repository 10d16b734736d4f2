"""``workerdiag watch``: following a cluster, and looking at what a watcher keeps."""

from __future__ import annotations

import importlib
import json
import time

import pytest
from attrs import evolve
from click.testing import CliRunner

from support.alerts import opened
from support.notices import HOSTILE, sample_notice
from support.simulated_feed import SimulatedFeed, death
from workerdiag.cli import commands, main
from workerdiag.cli.watch import notice_lines
from workerdiag.watch import loop, watcher
from workerdiag.watch.case import blind_case
from workerdiag.watch.loop import WatcherStatus
from workerdiag.watch.store import Store

#: The name in the package is that of the command.
module = importlib.import_module("workerdiag.cli.watch")
ADDRESS = "tcp://10.0.0.1:8786"


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Runs ``workerdiag watch`` with a state folder of its own."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))

    def run(*arguments):
        return CliRunner().invoke(main, ["watch", *map(str, arguments)])

    return run


@pytest.fixture
def state(tmp_path):
    """The state of a watcher that has one case."""
    path = tmp_path / "state.db"
    store = Store(path)
    store.put_case(opened())
    store.close()
    return path


@pytest.fixture
def simulated(monkeypatch):
    """Puts a simulated cluster in the place of each real one."""

    def simulate(feed):
        monkeypatch.setattr(watcher, "SchedulerFeed", lambda *_, **__: feed)

    return simulate


def test_it_prints_each_notice_and_ends_with_the_cluster(run, simulated):
    """The address alone is enough."""
    simulated(SimulatedFeed([death(1, 100.0)], ends_at=300.0))
    result = run(ADDRESS)
    assert result.exit_code == 0, result.output
    assert "1 worker of prod died" in result.stdout
    assert "Cluster ended: " in result.stdout
    assert "The cluster was closed." in result.stderr


def test_json_is_one_object_a_line(run, simulated):
    """For programs that read the command's output."""
    simulated(SimulatedFeed([death(1, 100.0)], ends_at=300.0))
    result = run(ADDRESS, "--format", "json")
    assert [json.loads(line)["reason"] for line in result.stdout.splitlines()] == ["new", "ended"]


def test_a_second_run_says_nothing_twice(run, simulated):
    """The state outlives the command."""
    for expected in (True, False):
        simulated(SimulatedFeed([death(1, 100.0)], ends_at=300.0))
        assert ("1 worker of prod died" in run(ADDRESS).stdout) is expected


def test_options_may_come_before_the_address(run, simulated, tmp_path):
    """As people type them."""
    simulated(SimulatedFeed(ends_at=300.0))
    assert run("--state", tmp_path / "other.db", ADDRESS).exit_code == 0
    assert (tmp_path / "other.db").exists()


def test_a_wrong_address_is_an_error(run, monkeypatch):
    """A scheduler that was never seen is not waited for without end."""
    monkeypatch.setattr(module, "_CONNECT_S", 0.0)
    result = run("tcp://127.0.0.1:9")
    assert result.exit_code == 2
    assert "cannot watch tcp://127.0.0.1:9" in result.stderr
    assert "Check the address" in result.stderr


def test_a_scheduler_that_does_not_answer_is_told_at_once(capsys):
    """Once, with the problem, and not only after the time-out."""

    class Waiting:
        """A watcher whose cluster does not answer three times, and then ends."""

        rounds = 0

        def has_history(self):
            return False

        def next_notice(self, _timeout_s):
            self.rounds += 1
            if self.rounds <= 3:
                raise TimeoutError

        def status(self):
            state = "connecting" if self.rounds <= 3 else "ended"
            return WatcherStatus(state=state, problem="connection refused")

    module._follow(Waiting(), ADDRESS, "text")
    said = capsys.readouterr().err
    assert said.count(f"Note: {ADDRESS} does not answer: connection refused; retrying for 30 s\n") == 1


def test_a_mistyped_command_is_no_scheduler_file(run):
    """The message says what was probably meant, without a wait."""
    result = run("statsu")
    assert result.exit_code == 2
    assert "'statsu' is not a command" in result.stderr
    assert "Did you mean 'status'?" in result.stderr


def test_the_address_of_a_dashboard_is_told_without_a_wait(run):
    """The message says which one is meant."""
    result = run("http://10.0.0.1:8787/status")
    assert result.exit_code == 2
    assert "give the scheduler's address, such as tcp://" in result.stderr


@pytest.mark.slow
def test_a_missing_scheduler_file_is_an_error(run, monkeypatch):
    """The message names the file."""
    monkeypatch.setattr(module, "_CONNECT_S", 5.0)
    result = run("no-such-scheduler.json")
    assert result.exit_code == 2
    assert "no-such-scheduler.json" in result.stderr


def test_a_scheduler_that_was_seen_before_is_waited_for(run, simulated, monkeypatch):
    """A watcher that is started again in an outage goes on when that is over."""
    simulated(SimulatedFeed(ends_at=100.0))
    run(ADDRESS)
    monkeypatch.setattr(module, "_CONNECT_S", 0.0)
    monkeypatch.setattr(loop, "_PAUSE_S", 0.01)
    simulated(SimulatedFeed(outages=[(0.0, 200.0)], ends_at=300.0))
    assert run(ADDRESS).exit_code == 0


@pytest.mark.parametrize(
    "arguments",
    [
        ("--slack", "#dask"),
        ("--webhook", "https://bots.example.org"),
        ("--notify", "env:NO_SUCH_VARIABLE"),
        ("--webhook", "https://a.example.org/hook", "--webhook", "https://a.example.org/hook"),
    ],
)
def test_what_cannot_work_is_said_before_anything_starts(run, arguments, monkeypatch):
    """A missing token, a variable that is not set, two sinks of one name: exit status 2."""
    monkeypatch.delenv("SLACK_TOKEN", raising=False)
    result = run(ADDRESS, *arguments)
    assert result.exit_code == 2
    assert result.stderr.startswith("Error: ")


def test_a_state_of_another_version_is_left_alone(run, tmp_path):
    """Neither started from nor changed."""
    path = tmp_path / "state.db"
    Store(path).close()
    content = bytearray(path.read_bytes())
    content[60:64] = (99).to_bytes(4, "big")  # PRAGMA user_version (https://sqlite.org/fileformat.html)
    path.write_bytes(content)
    result = run(ADDRESS, "--state", path)
    assert result.exit_code == 2
    assert "version 99" in result.stderr
    assert path.read_bytes() == content


def test_a_second_watcher_is_told_who_has_the_state(run, state):
    """And the first one goes on."""
    store = Store(state)
    store.file.take()
    result = run(ADDRESS, "--state", state)
    assert result.exit_code == 2
    assert "another watcher uses" in result.stderr


def test_status_lists_cases_and_says_that_nobody_watches(run, state):
    """That is worth a look: exit status 1."""
    result = run("status", "--state", state)
    assert result.exit_code == 1
    assert "firing on prod, 1 death" in result.stdout
    assert "no watcher is running" in result.stderr


def test_status_of_a_watcher_at_work_is_a_success(run, state):
    """A health check may ask for it."""
    store = Store(state)
    store.file.take()
    assert run("status", "--state", state).exit_code == 0


def test_status_says_what_is_blind_and_what_was_given_up(run, state):
    """Both need somebody."""
    store = Store(state)
    store.put_case(blind_case("prod", time.time(), "connection refused"))
    store.outbox.enqueue(sample_notice(), ["slack:#dask"])
    delivery, _ = store.outbox.claim("slack:#dask")
    store.outbox.note_dead(delivery.id, "wrong token")
    store.close()
    result = run("status", "--state", state)
    assert result.exit_code == 1
    assert "connection refused" in result.stderr
    assert "1 failed" in result.stdout
    assert "wrong token" in result.stdout


def test_what_was_given_up_is_sent_again(run, state):
    """All of it, or that of a sink, or one; a watcher that runs meanwhile sends it."""
    store = Store(state)
    store.outbox.enqueue(sample_notice(), ["one", "two", "three"])
    ids = {}
    for sink in ("one", "two", "three"):
        ids[sink] = store.outbox.claim(sink)[0].id
        store.outbox.note_dead(ids[sink], "wrong token")
    assert ids["one"] in run("status", "--state", state).stdout
    assert run("resend", ids["one"], "--state", state).stdout == "1 notice will be sent again\n"
    assert run("resend", ids["one"], "--state", state).exit_code == 2
    assert run("resend", "--sink", "two", "--state", state).exit_code == 0
    assert [each.sink for each in store.outbox.stored("pending")] == ["one", "two"]
    assert run("resend", "--state", state).exit_code == 0
    assert store.outbox.stored("dead") == ()
    store.close()


def test_status_says_since_when_a_sink_hangs(run, state):
    """It is at one notice for longer than any sink should need."""
    store = Store(state, clock=lambda: time.time() - 7200)
    store.outbox.enqueue(sample_notice(), ["stuck"])
    store.outbox.claim("stuck")
    store.close()
    assert "has been sending one notice for 2 h" in " ".join(run("status", "--state", state).stdout.split())


def test_status_without_a_state_says_where_it_looked(run):
    """A typo in a path makes no file."""
    result = run("status", "--state", "no-such.db")
    assert result.exit_code == 2
    assert "no-such.db" in result.stderr


@pytest.mark.parametrize("width", [80, 160])
def test_a_notice_fits_the_terminal(monkeypatch, width):
    """Lines are wrapped, and nothing in them acts upon the terminal."""
    monkeypatch.setattr(commands, "text_width", lambda: min(width, 100))
    notice = sample_notice(text=f"{HOSTILE}\nDo now: {'give it more memory ' * 20}")
    lines = list(notice_lines(evolve(notice, title=HOSTILE)))
    assert max(map(len, lines)) <= min(width, 100)
    assert "\x1b" not in "".join(lines)
