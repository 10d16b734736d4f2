"""Where to look next, where no cause is known."""

from __future__ import annotations

import pytest
from attrs import evolve

import workerdiag
from workerdiag.authoring.lint import lint
from workerdiag.correlation.assemble import assemble
from workerdiag.model.diagnosis import NextStep, RankedCause
from workerdiag.model.evidence import ExceptionFacts
from workerdiag.model.identity import Identity
from workerdiag.model.incident import Case
from workerdiag.model.process_end import ProcessEnd
from workerdiag.pipeline import diagnose
from workerdiag.rulebook.load import load_rulebook
from workerdiag.rulebook.toml_folder import read_folder
from workerdiag.scoring.advice import UNKNOWN_SETUP
from workerdiag.scoring.all_clear import AllClearObstacles
from workerdiag.scoring.next_steps import next_steps

WAITING = "2026-05-04 11:22:33,444 - distributed.worker - INFO - Waiting to connect to: {}\n"
LANDMARK = """
[[landmark]]
id = "house.waits"
role = "trouble"
pattern = 'the house waits for (?P<scheduler>\\S+)'
seen = ["the house waits for rain"]

[[landmark.next_step]]
inspect = "the {weather} over {scheduler}"
"""


def steps_of(text: str) -> tuple[NextStep, ...]:
    return workerdiag.explain(logs=workerdiag.LogText(text)).next_steps


def first_step(text: str) -> NextStep:
    return workerdiag.explain(logs=workerdiag.LogText(text)).next_steps[0]


def test_a_worker_that_waits_for_its_scheduler_is_looked_at_from_there():
    """Of the message that bars the all-clear its landmark knows what to look at: no kernel tells why nobody listens."""
    step = first_step(WAITING.format("tcp://10.0.0.2:8786"))

    assert step.inspect.startswith("whether a scheduler listens at tcp://10.0.0.2:8786")
    assert step.command.endswith(" tcp://10.0.0.2:8786")


def test_what_a_log_says_is_quoted_in_a_command():
    """A log cannot put a command of its own into what people copy."""
    assert first_step(WAITING.format("tcp://a;reboot")).command.endswith(" 'tcp://a;reboot'")


def test_a_terminal_that_hides_how_workers_end_is_to_say_more():
    """A LocalCluster shows warnings alone: what would cure that is named, not the kernel."""
    line = "2026-05-04 11:22:33,444 - distributed.nanny - WARNING - Restarting worker (status=Status.running)\n"
    step = first_step(line)
    assert "silence_logs=logging.INFO" in step.command
    assert "distributed.nanny: info" in step.command


@pytest.mark.parametrize("text", ["dask-worker-7f9c   0/1   CrashLoopBackOff   5   14m"])
def test_a_pod_is_looked_at_with_the_tools_of_kubernetes(text):
    """The platform that tells of trouble is the one to ask."""
    assert first_step(text).command.startswith("kubectl ")


def test_a_step_that_quotes_what_a_landmark_never_captures_is_a_mistake(tmp_path):
    """Nobody reads of a place whose name is missing."""
    (tmp_path / "landmarks").mkdir()
    (tmp_path / "landmarks" / "house.toml").write_text(LANDMARK)

    assert "house.waits: a next step quotes what not every pattern captures: {weather}" in lint(
        read_folder(tmp_path)
    )


@pytest.mark.parametrize(("pids", "typed"), [((4711,), "gdb 4711"), ((4711, 4712), "gdb <pid>")])
def test_the_process_that_died_is_named_in_a_command(pids, typed):
    """A core dump is found by its pid; of two deaths the reader chooses."""
    book = load_rulebook()
    ends = [ProcessEnd(identity=Identity(pid=pid), signal=11) for pid in pids]
    incident = evolve(assemble([], []), cases=tuple(Case(end=end) for end in ends))
    crash = RankedCause(id="signal.segfault", revision=1, title="", family="signal", why="", probability=0.5)
    steps = next_steps("explained", [crash], book, incident, UNKNOWN_SETUP, AllClearObstacles())
    assert any(typed in step.command for step in steps)


def test_a_future_that_somebody_cancelled_leads_to_whoever_calls_cancel():
    """Dask gives a reason for what it cancels itself; the kernel has nothing to say of it."""
    caught = ExceptionFacts(
        type="distributed.client.FutureCancelledError", text="simulate cancelled for reason: unknown."
    )
    findings = diagnose([caught], load_rulebook())
    assert "called cancel()" in findings.next_steps[0].inspect
    assert not any("kernel" in each.inspect for each in findings.next_steps)
