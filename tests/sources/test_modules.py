"""Modules that an error or lost work names are compared on all sides."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest
from attrs import evolve

from workerdiag import load_rulebook
from workerdiag.model.evidence import Event, ExceptionFacts, LogChunk
from workerdiag.model.identity import identity_of
from workerdiag.pipeline import diagnose
from workerdiag.sources.host.probes import modules as probe
from workerdiag.sources.modules import module_events, module_question, modules_of_task, unread_events

BOOK = load_rulebook()
HERE = {"pricing": {"file": "/home/eva/pricing.py", "package": "", "version": "1f", "late": True}}
PANDAS = {"file": "/env/site-packages/pandas/__init__.py", "package": "pandas", "version": "2.2.3", "late": False}
OURS = f"{sys.version_info[0]}.{sys.version_info[1]}.0"
ERROR = ExceptionFacts(
    type="ModuleNotFoundError", text="No module named 'pricing.rules'", relation="raised", from_task=True
)


@pytest.mark.parametrize(
    "text",
    [
        "No module named 'pricing.rules'",
        "cannot import name 'price' from 'pricing' (/srv/pricing.py)",
        "Can't get attribute 'Price' on <module 'pricing' from '/srv/pricing.py'>",
        "module 'pricing.rules' has no attribute 'price'",
    ],
)
def test_an_error_names_its_module(text):
    """The module to look for is the outermost, in whatever words Python misses something of it."""
    question = module_question(None, [evolve(ERROR, text=text)], [])
    assert question.named == ("pricing",)


def test_a_future_names_its_module_where_nothing_was_raised():
    """A client that only waits has futures that failed."""
    failed = RuntimeError("Error during deserialization of the task graph")
    failed.__cause__ = ModuleNotFoundError("No module named 'pricing'", name="pricing")
    client = SimpleNamespace(futures={"price": SimpleNamespace(status="error", exception=failed)})
    assert module_question(client, [], []).named == ("pricing",)


def test_only_workers_that_were_lost_unasked_are_looked_at():
    """And only where the scheduler runs our release of Python."""
    removed = Event(
        topic="all", fields={"action": "remove-worker", "expected": False}, identity=identity_of(worker="tcp://h:1")
    )
    stopped = evolve(
        removed, fields={"action": "remove-worker", "expected": True}, identity=identity_of(worker="tcp://h:2")
    )
    versions = Event(topic="versions", fields={"of": "scheduler", "python": OURS})
    assert module_question(None, [], [removed, stopped, versions]).lost == ("tcp://h:1",)
    assert not module_question(None, [], [removed]).is_open


def test_an_end_that_a_nanny_tells_of_is_no_unread_task():
    """It ended by a signal or a status, or another worker comes in its place."""
    lines = (
        b"2026-05-04 11:22:31,100 - distributed.nanny - INFO - Worker process 7 exited with status 7\n"
        b"2026-05-04 11:22:33,100 - distributed.nanny - WARNING - Restarting worker (status=Status.running)\n"
        b"2026-05-04 11:22:35,100 - distributed.nanny - INFO - Start Nanny at: 'tcp://10.0.0.1:1'\n"
    )
    log = LogChunk(origin="nanny log", data=lines, stream="nanny")
    first, second = module_question(None, [], [log]).told_ends
    assert second - first == 2


def test_an_end_that_is_in_two_logs_is_told_once():
    """The nannies of a LocalCluster share their log, and each end is told by its status and by the next start."""
    lines = (
        b"2026-05-04 11:22:31,100 - distributed.nanny - INFO - Worker process 7 was killed by signal 15\n"
        b"2026-05-04 11:22:31,102 - distributed.nanny - WARNING - Restarting worker\n"
        b"2026-05-04 11:22:31,300 - distributed.nanny - WARNING - Restarting worker\n"
    )
    logs = [LogChunk(origin=f"nanny log of {each}", data=lines, stream="nanny") for each in "ab"]
    assert len(module_question(None, [], logs).told_ends) == 2


def test_what_all_have_alike_is_no_evidence():
    """Nor is a module that the client itself lacks."""
    assert (
        list(module_events(["pandas", "typo"], {"pandas": PANDAS}, {"pandas": PANDAS}, [{"pandas": PANDAS}])) == []
    )


def test_a_module_that_workers_lack_is_theirs_to_mend():
    """A task's ImportError is not the task's mistake where the client imports the module well."""
    found = diagnose([ERROR, *module_events(["pricing"], HERE, {}, [{}, {}])], BOOK)
    assert (found.outcome, found.top.id) == ("explained", "exception.missing-module")
    assert "pricing" in found.top.mitigations[0].do
    assert "/home/eva/pricing.py" in found.top.mitigations[0].example


def test_an_import_error_alone_stays_the_tasks():
    """Without a client that has the module, nothing is said of the workers' environment."""
    assert diagnose([ERROR], BOOK).outcome == "no-death"


def test_a_package_in_another_version_is_named_with_both():
    """Workers that have another release than the client."""
    facts = evolve(
        ERROR, type="ImportError", text="cannot import name 'NA' from 'pandas' (/env/pandas/__init__.py)"
    )
    older = PANDAS | {"version": "0.25.3"}
    found = diagnose([facts, *module_events(["pandas"], {"pandas": PANDAS}, None, [{"pandas": older}])], BOOK)
    assert found.top.id == "exception.version-mismatch"
    texts = [each.text for each in found.top.evidence]
    assert any("client=2.2.3" in text and "others=0.25.3" in text for text in texts), texts


def _left(names, here, *, is_local):
    addresses = ["tcp://10.0.0.1:1", "tcp://10.0.0.2:1"]
    unread = {"workers": addresses, "keys": ["price-1"], "modules": names}
    removals = [
        Event(
            topic="all",
            fields={"action": "remove-worker", "expected": False, "worker": each, "processing": "price-1"},
            when=1e9 + number,
            identity=identity_of(worker=each),
        )
        for number, each in enumerate(addresses)
    ]
    state = Event(
        topic="scheduler-state", fields={"workers": 0, "waiting_tasks": 1, "lost_unasked": 2, "nannies": 0}
    )
    return diagnose([*removals, state, *unread_events(unread, here, is_local=is_local)], BOOK)


@pytest.mark.parametrize(
    ("names", "here", "is_local", "cause"),
    [
        (["pricing"], HERE, True, "exception.missing-module"),
        (["pricing"], HERE, False, "exception.missing-module"),
        (["pandas"], {"pandas": PANDAS}, True, "exception.deserialization"),
        ([], {}, False, "exception.version-mismatch"),
    ],
)
def test_workers_that_leave_with_their_first_task_could_not_read_it(names, here, is_local, cause):
    """What they could not read is what they lack, else of another release, else broken; "nothing says why" is no answer."""
    assert _left(names, here, is_local=is_local).top.id == cause


def test_a_tasks_pickle_names_its_modules():
    """Without those of Dask and Python, and without the task's data."""
    import attrs  # a package that neither is part of

    assert modules_of_task((attrs.evolve, (len, bytes(1000)))) == ["attr"]


def test_what_travels_whole_needs_no_module(tmp_path, monkeypatch):
    """A lambda, a nested function, and what cloudpickle was told to send by value; but they bring what they use."""
    text = "import attrs\ndef by_name(): pass\ndef make():\n    return lambda x: attrs.evolve(x)\n"
    (tmp_path / "only_here.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    import cloudpickle
    import only_here

    assert modules_of_task(only_here.make()) == ["attrs"]
    assert modules_of_task(only_here.by_name) == ["only_here"]
    cloudpickle.register_pickle_by_value(only_here)
    assert modules_of_task(only_here.by_name) == []
    cloudpickle.unregister_pickle_by_value(only_here)
    sys.modules.pop("only_here")


def test_a_large_argument_is_not_read_to_its_end():
    """The scheduler's loop serves the whole cluster."""
    assert modules_of_task([list(range(10**6)), evolve]) == []


def test_a_folder_that_came_to_the_path_later_is_known(tmp_path, monkeypatch):
    """Workers that were started before do not find what is in it."""
    (tmp_path / "pricing_of_today.py").write_text("")
    assert probe.read({"modules": ["pricing_of_today"]})["found"] == {}
    monkeypatch.syspath_prepend(str(tmp_path))
    found = probe.read({"modules": ["pricing_of_today", "attr", "json"]})["found"]
    assert found["pricing_of_today"]["late"]
    assert (found["attr"]["package"], found["attr"]["late"], found["json"]["late"]) == ("attrs", False, False)
