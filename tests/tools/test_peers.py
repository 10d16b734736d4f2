"""The peer suite: a table of truths that can be used, fair marks, and a plugin that changes no test."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from distributed.scheduler import KilledWorker
from peers import observer, runner
from peers.answers import Answer, read_answers, write_row
from peers.marks import mark, table, without_failed
from peers.truths import TableError, Truth, read_truths, truth_of

from workerdiag import load_rulebook

ROOT = Path(__file__).parents[2]

TRUTH = Truth(
    test="test_x",
    right={each: frozenset({"signal.segfault"}) for each in ("live", "exception", "log")},
    why="it reads at address zero",
)


def answer(outcome: str, cause: str | None = None, probability: float | None = None) -> Answer:
    return Answer(test="test_x[1]", asked="live", outcome=outcome, cause=cause, probability=probability)


def test_the_table_names_causes_that_there_are():
    """Each test has a truth for each way to ask, of causes that the knowledge has, and a reason."""
    truths = read_truths(load_rulebook())
    assert len(truths) > 200
    assert all(truth.why and all(truth.right.values()) for truth in truths.values())


def test_a_broken_table_says_all_that_is_wrong(tmp_path: Path):
    """An author mends a table in one go."""
    written = tmp_path / "truths.toml"
    written.write_text(
        "[f]\n"
        'a = { is = ["no.such-cause"], why = "w" }\n'
        'b = { did = "nosuch", is = ["no-death"], colour = 1 }\n'
        'c = { live = ["no-death"], why = "w" }\n'
    )
    with pytest.raises(TableError) as raised:
        read_truths(load_rulebook(), written)
    assert str(raised.value).splitlines() == [
        "f::a: no cause is called no.such-cause",
        "f::b: unknown key colour",
        "f::b: no scenario is called nosuch",
        "f::b: why?",
        "f::c: nothing is right",
    ]


def test_an_answer_beside_a_failed_test_is_not_marked():
    """What it is about may not have happened; but `explain` raises in no case."""
    answers = [answer("explained", "signal.abort", 0.99), answer("raised")]
    assert without_failed(answers, {"test_x[1]"}) == (answers[1:], answers[:1])
    assert without_failed(answers, {"test_y"}) == (answers, [])


def test_parameters_decide_where_the_table_says_so():
    """A test with its parameters comes before its function."""
    special = Truth(test="t[2]", right=TRUTH.right, why="w")
    truths = {"t": TRUTH, "t[2]": special}
    assert (truth_of("t[1]", truths), truth_of("t[2]", truths), truth_of("u", truths)) == (
        TRUTH,
        special,
        None,
    )


@pytest.mark.parametrize(
    ("said", "marked"),
    [
        (answer("explained", "signal.segfault", 0.3), "right"),
        (answer("explained", "exit.lifetime", 0.8), "confidently wrong"),
        (answer("explained", "exit.lifetime", 0.79), "unsure and wrong"),
        (answer("no-death"), "wrong all-clear"),
        (answer("unknown", "exit.lifetime", 0.1), "unknown"),
        (answer("no-evidence"), "unknown"),
        (answer("raised"), "raised"),
    ],
)
def test_an_answer_gets_the_mark_it_deserves(said: Answer, marked: str):
    """Not to know is not to be wrong, and an all-clear is worst."""
    assert mark(said, TRUTH) == marked


def test_each_wrong_answer_is_listed_with_the_truth():
    """The table counts all answers; who mends reads which, what was said, and what is right."""
    lines = list(table([answer("explained", "signal.segfault", 0.9), answer("no-death")], {"test_x": TRUTH}))
    assert lines[1].split() == ["right", "1", "0", "0", "1"]
    assert lines[-2:] == [
        "wrong all-clear: test_x[1], live",
        "  said no-death; right: signal.segfault: it reads at address zero",
    ]


class FakeClient:
    """As much of a client as the plugin touches."""

    status = "running"
    id = "Client-1"
    asynchronous = False

    def close(self) -> str:
        return "closed"

    async def _close(self) -> str:
        return "closed"

    def sync(self, func: Any, *args: Any) -> Any:
        return func(*args)


class FakeObserver:
    """Notes what would be asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[Any, ...]] = []

    def ask(self, asked: str, client: FakeClient, exc: BaseException | None = None) -> None:
        assert client.status == "running"
        self.asked.append((asked, exc))

    async def ask_async(self, asked: str, client: FakeClient, exc: BaseException | None = None) -> None:
        self.ask(asked, client, exc)


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A class of clients that is watched, and what was asked about it."""
    kind = type("WatchedClient", (FakeClient,), {})
    monkeypatch.setattr(observer, "Client", kind)
    asking = FakeObserver()
    observer.watch_clients(asking)
    return SimpleNamespace(client=kind, asked=asking.asked)


def test_results_and_errors_reach_the_test_as_they_were(watched: SimpleNamespace):
    """A test sees the very value and the very error that it would see without us, in threads and coroutines."""
    error = KilledWorker("x", None, 3)

    async def value() -> int:
        return 1

    async def failing() -> None:
        raise error

    client = watched.client()
    assert client.sync(lambda: 1) == 1
    assert asyncio.run(client.sync(value)) == 1
    assert watched.asked == []
    for failed in (lambda: client.sync(_raising, error), lambda: asyncio.run(client.sync(failing))):
        with pytest.raises(KilledWorker) as raised:
            failed()
        assert raised.value is error
    assert watched.asked == [("exception", error)] * 2


def _raising(error: BaseException) -> None:
    raise error


def test_errors_of_tasks_are_the_tests_own(watched: SimpleNamespace):
    """Nobody asks about what a task raises by itself."""
    with pytest.raises(ValueError):
        watched.client().sync(_raising, ValueError("mine"))
    assert watched.asked == []


def test_a_client_is_asked_about_before_it_closes(watched: SimpleNamespace):
    """Once, in the way it is used; never one that a worker made, or one that is closed."""
    client = watched.client()
    assert client.close() == "closed"
    assert asyncio.run(client._close()) == "closed"
    assert watched.asked == [("live", None)]
    client.id = "Client-worker-1"
    client.close()
    client.id, client.status = "Client-1", "closed"
    client.close()
    assert watched.asked == [("live", None)]


def test_the_checkout_stays_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The release that is installed runs the checkout's tests, in a folder of its own."""
    checkout, installed = tmp_path / "checkout", tmp_path / "site" / "distributed"
    (checkout / "distributed" / "tests").mkdir(parents=True)
    installed.mkdir(parents=True)
    for name in ("conftest.py", "pyproject.toml", "distributed/worker.py", "distributed/tests/test_a.py"):
        (checkout / name).write_text("checkout")
    for name in ("worker.py", "__init__.py"):
        (installed / name).write_text("installed")
    spec = SimpleNamespace(origin=str(installed / "__init__.py"))
    monkeypatch.setattr("importlib.util.find_spec", lambda _: spec)

    where = runner.lay_over(checkout, tmp_path / "laid")
    assert (where / "distributed" / "tests" / "test_a.py").read_text() == "checkout"
    assert (where / "distributed" / "worker.py").read_text() == "installed"
    assert (checkout / "distributed" / "worker.py").read_text() == "checkout"
    with pytest.raises(runner.CheckoutError, match="checkout of dask/distributed"):
        runner.lay_over(tmp_path / "site", tmp_path / "laid")


@pytest.mark.slow
def test_tests_run_with_explain_beside_them(tmp_path: Path):
    """In a pytest of their own, with our plugin in it."""
    (tmp_path / "test_a.py").write_text("def test_a(): pass")
    (tmp_path / "conftest.py").write_text(
        "def pytest_addoption(parser): parser.addoption('--runslow', action='store_true')"
    )
    folder = tmp_path / "answers"
    assert runner.run(["test_a.py::test_a"], tmp_path, folder) == {"test_a.py::test_a": "passed"}
    with pytest.raises(runner.CheckoutError, match="could not run the tests"):
        runner.run(["test_b.py::test_b"], tmp_path, folder)


def test_only_a_failure_that_explain_brings_about_counts(tmp_path: Path):
    """What fails without `explain`, too, or only once with it, is not laid to its door."""
    failing = {True: [{"ours", "theirs", "once"}, {"ours"}], False: [{"theirs"}]}

    def runs(tests: list[str], where: Path, folder: Path, *, asking: bool = True) -> dict[str, str]:
        fails = failing[asking].pop(0)
        return {each: "failed" if each in fails else "passed" for each in tests}

    tests = ["ours", "theirs", "once", "fine"]
    assert runner.changed_by_us(tests, tmp_path, tmp_path, runs=runs) == ["ours"]


def test_the_worst_part_of_a_test_is_its_result(tmp_path: Path):
    """A failed teardown is a failed test."""
    for when, how in (("setup", "passed"), ("call", "passed"), ("teardown", "failed")):
        write_row(tmp_path / "results.jsonl", {"test": "t", "when": when, "is": how})
    assert runner.results(tmp_path) == {"t": "failed"}
    assert runner.results(tmp_path / "none") == {}


def test_answers_are_read_as_they_were_written(tmp_path: Path):
    """What was asked in one process is marked in another."""
    write_row(tmp_path / "answers.jsonl", {"test": "t", "asked": "log", "outcome": "no-death"})
    assert list(read_answers(tmp_path)) == [Answer(test="t", asked="log", outcome="no-death")]
