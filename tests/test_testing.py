"""The test kit for authors of sources finds faults, and passes correct sources."""

from __future__ import annotations

import os
import time
import urllib.request
from collections.abc import Callable, Iterable, Iterator

import pytest

from workerdiag.plugins import Event, Evidence, Gap, ProcessExit, Scene
from workerdiag.testing import HOSTILE_BEHAVIOURS, check_source, example_scene, hostile_server


class RackPower:
    """The source of docs/writing-a-source.md, which asks a server whether a rack lost its power."""

    name = "rack power"

    def __init__(self, scene: Scene, url: str = "http://127.0.0.1:1") -> None:
        self._scene = scene
        self._url = url

    def collect(self, *, budget_s: float) -> Iterator[Evidence]:
        for victim in self._scene.victims:
            try:
                with urllib.request.urlopen(f"{self._url}/racks", timeout=0.5 * budget_s) as answer:
                    said = answer.read(10_000).decode("ascii")
            except (OSError, ValueError) as problem:
                yield Gap(source=self.name, reason="unreachable", detail=str(problem), remedy=f"curl {self._url}")
                return
            yield Event(topic="rack-power", fields={"said": said}, identity=victim.identity)


class Does:
    """A source with one given behaviour, even a forbidden one."""

    def __init__(self, what: Callable[[], Iterable[Evidence]], name: str = "rack power") -> None:
        self._what = what
        self.name = name

    def collect(self, *, budget_s: float) -> Iterator[Evidence]:
        assert budget_s > 0
        yield from self._what()


def raises() -> Iterator[Evidence]:
    raise KeyError("rack")


def dawdles() -> tuple[()]:
    time.sleep(2.0)
    return ()


def meddles() -> tuple[()]:
    os.environ["RACK"] = str(time.monotonic())
    return ()


def test_a_good_source_passes():
    """One that reads, and has nothing to tell, is in order."""
    check_source(lambda: Does(tuple), budget_s=0.2)


@pytest.mark.parametrize("behaviour", HOSTILE_BEHAVIOURS)
def test_a_source_that_turns_trouble_into_gaps_passes(behaviour):
    """Whatever the server does, the ten lines of the documentation keep all promises."""
    with hostile_server(behaviour) as url:
        check_source(lambda: RackPower(example_scene(), url), budget_s=1.0, must_gap=behaviour != "floods")


@pytest.mark.parametrize(
    ("source", "said"),
    [
        (Does(raises), "raises KeyError"),
        (Does(dawdles), "not back within its budget"),
        (Does(tuple, name=""), "has no name"),
        (Does(lambda: [Event(topic="rack-power")]), "does not say whose it is"),
        (Does(meddles), "changes the environment"),
        (Does(lambda: [Gap(source="rack power", reason="forbidden")]), "does not say what was tried"),
        (Does(lambda: ["it was the rack"]), "yields a str, which is no evidence"),
    ],
)
def test_a_broken_promise_is_named(source, said, monkeypatch):
    """The author reads which promise it is."""
    monkeypatch.setenv("RACK", "before")
    with pytest.raises(AssertionError, match=said):
        check_source(lambda: source, budget_s=0.2)


def test_a_busy_machine_breaks_no_promise():
    """A source that is late once, because the machine was, is asked again."""
    waits = iter([2.0])
    check_source(lambda: Does(lambda: time.sleep(next(waits, 0.0)) or ()), budget_s=0.1)


def test_not_looking_is_not_seeing_nothing():
    """A source that could not ask, and is silent about it, is no good one."""
    with pytest.raises(AssertionError, match="yields no Gap"):
        check_source(lambda: Does(tuple), budget_s=0.2, must_gap=True)


def test_a_change_of_the_place_is_noticed():
    """Sources only read, also where that cannot be seen from within the process."""
    rows: list[int] = []

    def writes() -> list[Evidence]:
        rows.append(1)
        return [ProcessExit(identity=example_scene().victims[0].identity, status=1)]

    with pytest.raises(AssertionError, match="place that is asked"):
        check_source(lambda: Does(writes), budget_s=0.2, state=lambda: list(rows))
