"""`examples/retry.py`: work is run again where that harms nobody, and nowhere else."""

from __future__ import annotations

import importlib.util
from contextlib import contextmanager
from pathlib import Path

import pytest

import workerdiag
from support.diagnoses import diagnosis_with
from workerdiag.model.diagnosis import RetryPolicy

PATH = Path(__file__).parents[2] / "examples" / "retry.py"


@pytest.fixture(scope="module")
def example():
    """The example as a module."""
    spec = importlib.util.spec_from_file_location("example_retry", PATH)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Trial:
    """Work that fails until nothing is left of the policies that its failures get."""

    def __init__(self, monkeypatch, *policies):
        self.policies = list(policies)
        self.clusters = []
        self.runs = 0
        monkeypatch.setattr(workerdiag, "explain", self.explain)

    def explain(self, *_):
        return diagnosis_with(self.policies.pop(0))

    @contextmanager
    def start(self, memory_bytes):
        self.clusters.append(memory_bytes)
        yield

    def work(self, _):
        self.runs += 1
        if self.policies:
            raise RuntimeError("a worker died")
        return "result"


@pytest.mark.parametrize(
    ("policy", "clusters"),
    [
        (RetryPolicy(action="retry"), [None]),
        (RetryPolicy(action="retry-elsewhere"), [None, None]),
        (RetryPolicy(action="retry-with-memory", memory_bytes=2**33), [None, 2**33]),
    ],
)
def test_innocent_work_is_run_again(monkeypatch, example, policy, clusters):
    """On the same cluster, on a new one, or on one with the memory that is needed."""
    trial = Trial(monkeypatch, policy)
    assert example.run(trial.work, trial.start) == "result"
    assert trial.clusters == clusters


@pytest.mark.parametrize("action", ["do-not-retry", "ask"])
def test_poisoned_work_is_run_once(monkeypatch, example, action):
    """The exception says why it was not run again."""
    trial = Trial(monkeypatch, RetryPolicy(action=action, reason="it kills", conditions=("Always.",)))
    with pytest.raises(RuntimeError) as caught:
        example.run(trial.work, trial.start)
    assert trial.runs == 1
    assert caught.value.__notes__ == [f"{action}: it kills. Always."]


def test_tries_come_to_an_end(monkeypatch, example):
    """What fails again and again for harmless reasons is given up."""
    trial = Trial(monkeypatch, *[RetryPolicy(action="retry")] * 5)
    with pytest.raises(RuntimeError):
        example.run(trial.work, trial.start, tries=3)
    assert trial.runs == 3


def test_more_memory_is_tried_as_often_as_the_policy_allows(monkeypatch, example):
    """What dies again with more memory is not given still more."""
    more = [RetryPolicy(action="retry-with-memory", memory_bytes=size, max_tries=1) for size in (2**33, 2**34)]
    trial = Trial(monkeypatch, *more)
    with pytest.raises(RuntimeError):
        example.run(trial.work, trial.start, tries=9)
    assert trial.clusters == [None, 2**33]
