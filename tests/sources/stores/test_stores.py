"""Loki over HTTP, and the journal through a command that prints what journalctl prints."""

from __future__ import annotations

import json
import shlex
from contextlib import ExitStack

import dask.config
import pytest
from attrs import evolve

from support.hanging_peers import gives_up, only_timed_out, still_running
from support.http_server import HttpAnswer, HttpServer, by_last_path_part
from support.lost_worker import NOW, chunks, evidence_from, gaps, scene, victim
from workerdiag.model.evidence import Inspected
from workerdiag.model.identity import Identity
from workerdiag.model.scene import Location, Victim
from workerdiag.sources.stores.journald import JournalSource
from workerdiag.sources.stores.loki import LokiSource

ADDRESS = "tcp://10.0.0.4:34937"
POD = "lab-default-worker-0a1b2c"
DEAD = victim(ADDRESS, name=POD)


# ------------------------------------------------------------------------------------------- Loki


def test_the_token_follows_no_redirect_to_another_place(monkeypatch):
    """Who answers for Loki cannot send the token elsewhere."""
    monkeypatch.setenv("no_proxy", "127.0.0.1,localhost")
    monkeypatch.setenv("LOKI_BEARER_TOKEN", "secret")
    with HttpServer(lambda _: HttpAnswer({"status": "success", "data": []})) as other:
        place = (("Location", f"{other.url}/loki/api/v1/labels"),)
        with HttpServer(lambda _: HttpAnswer(status=302, headers=place)) as first:
            monkeypatch.setenv("LOKI_ADDR", first.url)
            found = gaps(evidence_from(LokiSource.of(scene(DEAD))))

    assert first.requests[0].headers["Authorization"] == "Bearer secret"
    assert not other.requests
    assert "302" in found[0].detail


@pytest.fixture
def loki(monkeypatch):
    """Starts a server that answers as the HTTP API of Loki is documented, and is configured."""
    monkeypatch.delenv("LOKI_ADDR", raising=False)
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with ExitStack() as servers:

        def start(labels: tuple[str, ...] = ("pod", "node"), **answers: HttpAnswer) -> HttpServer:
            known = HttpAnswer({"status": "success", "data": list(labels)})
            answer = by_last_path_part({"labels": known, **answers}, otherwise=streams())
            server = servers.enter_context(HttpServer(answer))
            monkeypatch.setenv("LOKI_ADDR", server.url)
            return server

        yield start


def streams(*found: tuple[dict, list[str]]) -> HttpAnswer:
    """The result of a range query; Loki answers the latest line first."""
    result = [
        {
            "stream": labels,
            "values": [[str(int(NOW * 1e9) - at), line] for at, line in enumerate(reversed(lines))],
        }
        for labels, lines in found
    ]
    return HttpAnswer({"status": "success", "data": {"resultType": "streams", "result": result}})


def ask_loki(dead: Victim = DEAD, *, budget_s: float = 10.0) -> list:
    return evidence_from(LokiSource.of(scene(dead)), budget_s)


def test_the_streams_of_the_workers_pod_are_its_own(loki):
    """A label that is the worker's name, or begins with it, says whose the lines are."""
    server = loki(query_range=streams(({"pod": f"{POD}-7f9c4", "node": "n1"}, ["first", "second"])))
    pieces = ask_loki()
    [chunk] = chunks(pieces)
    assert chunk.data == b"first\nsecond\n"
    assert (chunk.identity.worker, chunk.identity.container, chunk.identity.pid) == (
        ADDRESS,
        f"{POD}-7f9c4",
        None,
    )
    assert any(isinstance(each, Inspected) for each in pieces)
    query = server.requests[-1].query
    assert query["query"] == ['{pod=~"lab-default-worker-0a1b2c(-.*)?"}']
    assert int(query["end"][0]) - int(query["start"][0]) == 960 * 10**9


def test_the_command_that_asks_loki_takes_any_name(loki):
    """A worker's name cannot end the quote that it stands in."""
    name = """w' "; rm -rf ~ #$(id)"""
    loki(labels=("host",), query_range=HttpAnswer(status=500))
    [gap] = gaps(ask_loki(victim(ADDRESS, name=name)))
    logcli, _, query, selector = shlex.split(gap.remedy)

    assert (logcli, query) == ("logcli", "query")
    assert json.loads(selector.removeprefix("{pod=").removesuffix("}")) == name


def test_of_a_hosts_streams_only_lines_that_name_the_worker_are_asked_for(loki):
    """Others live there as well, so the lines are not said to be the worker's."""
    server = loki(labels=("host",), query_range=streams(({"host": "10.0.0.4"}, [f"lost {ADDRESS}"])))
    [chunk] = chunks(ask_loki())
    assert chunk.identity == Identity(host="10.0.0.4")
    assert server.requests[-1].query["query"][0].endswith(f"|= {json.dumps(ADDRESS)}")


def test_a_name_that_each_cluster_has_is_not_searched_for(loki):
    """Workers named "0" are everywhere."""
    server = loki(labels=("pod", "container"))
    pieces = ask_loki(victim(ADDRESS, name="0"))
    assert [each.path.rpartition("/")[2] for each in server.requests] == ["labels"]
    assert gaps(pieces)[0].reason == "never-recorded"


def test_loki_is_only_asked_where_its_address_is_known(monkeypatch):
    """Dask's configuration or logcli's variable says it; nothing is guessed."""
    monkeypatch.delenv("LOKI_ADDR", raising=False)
    assert LokiSource.of(scene(DEAD)) is None
    with dask.config.set({"workerdiag.loki.url": "http://loki:3100"}):
        assert LokiSource.of(scene(DEAD)) is not None
    with dask.config.set({"workerdiag.loki.url": "file:///etc/passwd"}):
        assert LokiSource.of(scene(DEAD)) is None


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (HttpAnswer("no org id", status=401), "forbidden"),
        (HttpAnswer("too many outstanding requests", status=429), "unreachable"),
        (HttpAnswer(b"<html>not loki</html>"), "malformed"),
        (HttpAnswer({"some": "json"}), "malformed"),
        (HttpAnswer(b"x" * 2**20, times=100), "malformed"),
    ],
)
def test_refusals_garbage_and_floods_are_gaps_with_the_command_to_type(loki, answer, reason):
    """No more than four megabytes are read, whoever answers there."""
    server = loki(labels=("pod",), query_range=answer)
    gap = gaps(ask_loki())[0]
    assert gap.reason == reason
    assert gap.remedy.startswith(f"logcli --addr={server.url} query")


@gives_up
def test_a_server_that_hangs_is_left_behind(loki):
    """The source ends by itself, while the server hangs, and says so."""
    server = loki(labels=("pod",), query_range=HttpAnswer(hangs=True))
    assert only_timed_out(ask_loki(budget_s=2.0))
    assert server.is_hanging()


def test_nobody_listening_is_a_gap(monkeypatch):
    """A closed port is unreachable."""
    monkeypatch.setenv("LOKI_ADDR", "http://127.0.0.1:9")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    assert gaps(ask_loki())[0].reason == "unreachable"


# ---------------------------------------------------------------------------------------- journal


@pytest.fixture
def journalctl(monkeypatch, tmp_path):
    """A command of that name, which keeps its arguments and runs *script*."""

    def install(script: str):
        command = tmp_path / "journalctl"
        command.write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/arguments\n{script}\n')
        command.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
        return tmp_path / "arguments"

    return install


HERE = Location(role="client", identity=Identity(host="10.0.0.4"), hostname="box")
NANNY = Location(
    role="nanny",
    identity=Identity(host="10.0.0.4"),
    hostname="box",
    cgroups={"": "/system.slice/dask-worker@1.service"},
)
KILLED = "2026-11-21T10:02:03.123456+0000 box systemd[1]: dask-worker@1.service: A process of this unit has been killed by the OOM killer."


def ask_journal(*places: Location, budget_s: float = 10.0) -> list:
    return evidence_from(JournalSource.of(scene(DEAD, locations=places)), budget_s)


def test_the_unit_of_a_worker_on_this_machine_is_read_around_the_death(journalctl):
    """The unit comes from the control group that its nanny is in."""
    arguments = journalctl(f"echo '{KILLED}'")
    [chunk] = chunks(ask_journal(HERE, NANNY))
    assert chunk.data.decode().strip() == KILLED
    assert (chunk.identity.worker, chunk.identity.pid) == (ADDRESS, None)
    said = arguments.read_text().split()
    assert said[-2:] == ["--unit", "dask-worker@1.service"]
    assert f"--since=@{int(NOW) - 900}" in said
    assert f"--until=@{int(NOW) + 60}" in said


def test_without_a_unit_the_process_is_asked_for(journalctl):
    """A number that belongs to one process within the time asked for."""
    arguments = journalctl(f"echo '{KILLED}'")
    outside = evolve(NANNY, cgroups={}, environment={"JOURNAL_STREAM": "8:12345"})
    [chunk] = chunks(ask_journal(HERE, outside))
    assert chunk.identity.pid == 77
    assert arguments.read_text().split()[-1] == "_PID=77"


def test_a_worker_that_writes_to_no_journal_is_not_looked_for_there():
    """One that was started in a terminal or a container would only be a gap."""
    assert JournalSource.of(scene(DEAD, locations=(HERE, evolve(NANNY, cgroups={})))) is None


def test_the_journal_of_this_machine_says_nothing_of_workers_elsewhere():
    """Its processes have other numbers."""
    elsewhere = Location(role="client", identity=Identity(), hostname="laptop")
    assert JournalSource.of(scene(DEAD, locations=(elsewhere, NANNY))) is None
    assert JournalSource.of(scene(DEAD)) is None


def test_an_empty_journal_is_a_gap_with_the_command_for_those_who_may(journalctl):
    """Users see their own lines only."""
    journalctl("exit 0")
    [gap] = gaps(ask_journal(HERE, NANNY))
    assert gap.reason == "never-recorded"
    assert gap.remedy.startswith("sudo journalctl")


def test_a_missing_command_is_a_gap(monkeypatch, tmp_path):
    """Not every machine has a journal."""
    monkeypatch.setenv("PATH", str(tmp_path))
    assert gaps(ask_journal(HERE, NANNY))[0].reason == "not-installed"


@gives_up
def test_a_command_that_hangs_is_ended_with_all_that_it_started(journalctl, tmp_path):
    """The source does not wait for it, says so, and leaves no process behind."""
    pids = tmp_path / "pids"
    journalctl(f"sleep 36000 & echo $! >> {pids}; echo $$ >> {pids}; wait")
    assert only_timed_out(ask_journal(HERE, NANNY, budget_s=1.0))
    assert still_running(pids) == []
