"""Errors keep their facts, even through a pickle."""

from __future__ import annotations

import pickle

import pytest

from workerdiag import errors

GIVEN = {
    "RuleFileError": {"place": "rules", "problems": ("a.toml: .id: missing",)},
    "UnusableFileError": {"name": "a.txt", "why": "it is gone"},
    "UnusableRequestError": {"why": "there is none"},
    "UnreadableInputError": {"name": "a.log", "why": "no such file"},
    "BadReportError": {"why": "no JSON"},
    "BadBoxError": {"name": "a.box", "why": "too short"},
    "InstallError": {"where": ("tcp://10.0.0.4:4002",), "why": "no workerdiag there"},
    "BundleError": {"name": "death.zip", "why": "no manifest", "remedy": "save it again"},
    "KitError": {"name": "kit.zip", "why": "no recipe", "remedy": "save it again"},
    "SchedulerUnreachableError": {"address": "tcp://10.0.0.1:8786", "problem": "refused"},
    "ClusterEndedError": {"address": "tcp://10.0.0.1:8786"},
    "StateFileError": {"name": "state.db", "why": "it is full", "remedy": "make room"},
    "StateInUseError": {"name": "state.db", "holder": "pid 7 on host-a"},
    "TableError": {"name": "deaths.csv", "why": "it is full", "remedy": "make room"},
    "TriageError": {"why": "no worker", "remedy": "start one"},
}


@pytest.mark.parametrize(
    "name", [each for each in vars(errors) if each.endswith("Error") and each != "WorkerdiagError"]
)
def test_an_error_survives_being_pickled(name):
    """Dask and process pools pickle what is raised; facts given by name are not lost."""
    problem = getattr(errors, name)(**GIVEN[name])
    again = pickle.loads(pickle.dumps(problem))

    assert type(again) is type(problem)
    assert str(again) == str(problem)


class Unsayable(Exception):  # noqa: N818
    """An object whose ``__str__`` fails."""

    def __str__(self):
        raise RuntimeError


@pytest.mark.parametrize(
    ("problem", "text"),
    [
        (ValueError("no number"), "ValueError: no number"),
        (ValueError(), "ValueError"),
        (Unsayable(), "Unsayable: <str() of it raised RuntimeError>"),
        (OSError("caf\udce9"), r"OSError: caf\udce9"),
        (KeyError("x" * 10**6), "KeyError: '" + "x" * 489),
    ],
)
def test_every_error_can_be_worded(problem, text):
    """In bounded text that can be written anywhere, whatever its own str() does."""
    assert errors.describe_error(problem) == text
    assert len(errors.error_text(ValueError("é" * 10**6))) < 100_000


def test_a_failure_to_connect_names_the_error_of_the_system():
    """Dask words each one as a time-out, and keeps the reason among the causes."""
    late = OSError("Timed out trying to connect to tcp://10.0.0.1:8786 after 5 s")
    late.__cause__ = ConnectionRefusedError(111, "Connection refused")
    said = errors.describe_connection_error(late)
    assert said == "OSError: Timed out trying to connect to tcp://10.0.0.1:8786 after 5 s: Connection refused"
    assert errors.describe_connection_error(TimeoutError("late")) == "TimeoutError: late"
