"""A real Alertmanager: what it makes of deaths, and what it is still told when it, or the watcher, is killed.

``PYTHONPATH=src:tests python -m lab.test_alertmanager 50`` in the repository kills the watcher 50 times.
"""

from __future__ import annotations

import re
import sqlite3
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

import workerdiag
from support import watched_program
from support.alertmanager import PROGRAM, Alertmanager
from support.forking_program import ForkingProgram, moment_of
from support.watch_kills import DyingCluster
from workerdiag.watch import loop
from workerdiag.watch.case import WatchSettings
from workerdiag.watch.sinks.alertmanager import AlertmanagerSink
from workerdiag.watch.store import Store

from .processes import wait_until

pytestmark = [
    pytest.mark.lab,
    pytest.mark.skipif(PROGRAM is None, reason="there is no Alertmanager: apt-get install prometheus-alertmanager"),
]

CAUSES = {"nanny.memory-terminate", "signal.stack-overflow", "code.process-exit"}
DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture
def alertmanager(tmp_path: Path) -> Iterator[Alertmanager]:
    """An Alertmanager that knows of nothing."""
    with Alertmanager(tmp_path) as started:
        yield started


@pytest.fixture
def cluster() -> Iterator[DyingCluster]:
    """A scheduler whose recorder has ever more deaths."""
    with closing(DyingCluster()) as started:
        yield started


def test_a_thousand_deaths_of_three_causes_are_three_alerts_that_are_resolved(alertmanager, cluster, monkeypatch):
    """Three, also for one that was started again meanwhile and has forgotten; then none."""
    monkeypatch.setattr(loop, "POLL_S", 1.0)
    settings = WatchSettings(settle_s=1.0, resolve_s=6.0)
    sink = AlertmanagerSink(alertmanager.url, repeat_s=0.5)
    with workerdiag.watch(cluster.address, sink, name="prod", settings=settings) as watcher:
        for _ in range(1000):
            cluster.die()
        wait_until(lambda: sum(each.death_count for each in watcher.cases()) == 1000, "all deaths to be judged")
        wait_until(lambda: alertmanager.alerts() == dict.fromkeys(CAUSES, "active"), "three alerts")
        alertmanager.stop()
        alertmanager.start()
        wait_until(lambda: alertmanager.alerts() == dict.fromkeys(CAUSES, "active"), "the same three alerts")
        wait_until(lambda: not alertmanager.alerts(), "the end of all alerts")
        wait_until(lambda: ("signal.stack-overflow", "resolved") in alertmanager.said(), "the word of it")
        assert {each.state for each in watcher.cases()} == {"resolved"}
    assert {cause for cause, status in alertmanager.said() if status == "firing"} == CAUSES


def test_what_is_silenced_there_is_quiet_here(alertmanager, cluster):
    """Nobody hears of it; the other causes are told."""
    alertmanager.silence(cause="signal.stack-overflow")
    expected = {**dict.fromkeys(CAUSES, "active"), "signal.stack-overflow": "suppressed"}
    sink = AlertmanagerSink(alertmanager.url)
    with workerdiag.watch(cluster.address, sink, settings=WatchSettings(settle_s=0.5)):
        for _ in range(6):
            cluster.die()
        wait_until(lambda: alertmanager.alerts() == expected, "three alerts, one of them silenced")
        wait_until(lambda: len(alertmanager.said()) == 2, "two messages")
    assert set(alertmanager.said()) == {(cause, "firing") for cause in CAUSES - {"signal.stack-overflow"}}


def test_two_watchers_of_one_cluster_are_one_alert(alertmanager, cluster):
    """Each has a state of its own; people hear of a trouble once, and of it all when one of the two is gone."""
    settings = WatchSettings(settle_s=0.5)
    sink = AlertmanagerSink(alertmanager.url)
    with (
        workerdiag.watch(cluster.address, sink, name="prod", settings=settings) as first,
        workerdiag.watch(cluster.address, sink, name="prod", settings=settings) as second,
    ):
        for _ in range(3):
            cluster.die()
        for each in (first, second):
            wait_until(
                lambda each=each: [sink.counts.get("sent") for sink in each.status().sinks] == [3], "three alerts"
            )
        wait_until(lambda: len(alertmanager.said()) >= 3, "three messages")
    assert sorted(alertmanager.said()) == [(cause, "firing") for cause in sorted(CAUSES)]


def test_the_configuration_in_the_documentation_is_taken(tmp_path):
    """Alertmanager starts with it: routes, receivers and quiet hours are as it wants them."""
    (config,) = re.findall(r"^```yaml\n(.*?)^```$", (DOCS / "watching.md").read_text(), re.MULTILINE | re.DOTALL)
    with Alertmanager(tmp_path, config) as started:
        taken = started.get("/api/v2/status")
    assert all(f"{each}_configs" in taken for each in ("slack", "email", "pagerduty"))


def lost_in_kills(folder: Path, kills: int) -> tuple[list[str], int]:
    """Return what a watcher lost that was killed so many times, and how many notices it had."""
    state = folder / "state.db"
    with (
        closing(DyingCluster()) as cluster,
        Alertmanager(folder) as alertmanager,
        ForkingProgram(
            watched_program.__file__, cluster.address, str(state), alertmanager.url, "alertmanager"
        ) as watchers,
    ):
        with cluster.dying():
            for number in range(kills):
                watchers.kill_one(moment_of(alertmanager), is_new=number % 10 == 9)
        cluster.die()
        watchers.finish("finish")
        with closing(sqlite3.connect(state)) as connection:
            in_cases = connection.execute("SELECT count(*) FROM death WHERE case_id IS NOT NULL").fetchone()[0]
        with closing(Store(state)) as store:
            stored, causes = store.outbox.stored(), {str(each.cause) for each in store.cases()}
        wait_until(lambda: not alertmanager.alerts(), "the end of all alerts")
        said = alertmanager.said()
        lost = [
            *([f"{cluster.count - in_cases} deaths"] if in_cases != cluster.count else []),
            *(each.id for each in stored if each.state != "sent"),
            *([f"{len(stored)} notices"] if alertmanager.received_count() < len(stored) else []),
            *(cause for cause in causes if (cause, "firing") not in said),
        ]
    return lost, len(stored)


def test_no_kill_loses_an_alert(tmp_path):
    """Every death is in a case, every notice arrives, and what is over is resolved."""
    lost, count = lost_in_kills(tmp_path, kills=2)
    assert (lost, count > 0) == ([], True)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        found = lost_in_kills(Path(folder), kills=int(sys.argv[1]))
    print(found)  # noqa: T201  it is a program
    sys.exit(bool(found[0]))
