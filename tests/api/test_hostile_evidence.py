"""Evidence may say anything, from whatever source or file: it is judged as far as it goes, and can be shown."""

from __future__ import annotations

import io
import json
import os
import zipfile

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import workerdiag
from support.diagnoses import GOOD, KILLED, FixedSource, first_cause, shown
from workerdiag import LogText, pipeline
from workerdiag.bundle.bundle_file import read_bundle
from workerdiag.model.evidence import (
    Event,
    ExceptionFacts,
    Gap,
    Inspected,
    LogChunk,
    MemoryReading,
    ProcessExit,
    TasksAtLoss,
)
from workerdiag.model.identity import Identity
from workerdiag.model.vocabulary import PLACES

WORKER = "tcp://10.0.0.4:34937"


ANY_TEXT = st.text(alphabet=st.characters(categories=("Cs", "Cc", "L", "N", "P", "So")), max_size=12)
ANY_NUMBER = st.one_of(st.integers(), st.sampled_from([10**5000, -(10**400), 2**63]), st.floats())
ANY_VALUE = st.one_of(ANY_TEXT, ANY_NUMBER, st.none(), st.booleans(), st.binary(max_size=3))
ANY_WHOSE = st.builds(
    Identity,
    worker=st.one_of(st.none(), st.just(WORKER), ANY_TEXT),
    pid=st.one_of(st.none(), st.just(7), st.integers()),
    nanny=st.one_of(st.none(), ANY_TEXT),
    name=st.one_of(st.none(), ANY_TEXT),
    host=st.one_of(st.none(), ANY_TEXT),
)
ANY_WHEN = st.one_of(st.none(), st.just(1.7e9), st.floats(), st.integers())
ANY_KEYS = st.lists(ANY_TEXT, max_size=3).map(tuple)
ANY_PIECE = st.one_of(
    st.builds(LogChunk, origin=ANY_TEXT, data=st.binary(max_size=200), identity=ANY_WHOSE),
    st.builds(LogChunk, origin=ANY_TEXT, data=st.just(KILLED.encode()), identity=ANY_WHOSE),
    st.builds(
        Event,
        topic=st.one_of(st.sampled_from(["all", "worker-state", "task-state"]), ANY_TEXT),
        fields=st.dictionaries(
            st.one_of(st.sampled_from(["action", "worker", "state", "count", "status"]), ANY_TEXT),
            st.one_of(st.sampled_from(["remove-worker", WORKER]), ANY_VALUE),
            max_size=4,
        ),
        when=ANY_WHEN,
        identity=ANY_WHOSE,
    ),
    st.builds(
        ProcessExit,
        identity=ANY_WHOSE,
        signal=st.one_of(st.none(), ANY_NUMBER),
        status=st.one_of(st.none(), st.integers()),
        when=ANY_WHEN,
        reporter=ANY_TEXT,
    ),
    st.builds(
        MemoryReading,
        identity=ANY_WHOSE,
        rss_bytes=st.one_of(st.none(), st.integers()),
        limit_bytes=st.one_of(st.none(), st.integers()),
        when=ANY_WHEN,
    ),
    st.builds(
        ExceptionFacts,
        type=st.one_of(st.just("distributed.scheduler.KilledWorker"), ANY_TEXT),
        text=ANY_TEXT,
        task=st.one_of(st.none(), ANY_TEXT),
        allowed_failures=st.one_of(st.none(), st.integers()),
        executing=st.one_of(st.none(), ANY_KEYS),
        identity=ANY_WHOSE,
        when=ANY_WHEN,
    ),
    st.builds(TasksAtLoss, identity=ANY_WHOSE, tasks=ANY_KEYS, assigned=ANY_KEYS, gave_up=ANY_KEYS, when=ANY_WHEN),
    st.builds(Gap, source=ANY_TEXT, reason=st.just("malformed"), detail=ANY_TEXT, remedy=ANY_TEXT),
    st.builds(Inspected, place=st.sampled_from(PLACES), identity=ANY_WHOSE),
)


@pytest.mark.slow
@given(st.lists(ANY_PIECE, max_size=6))
@settings(max_examples=60)
def test_evidence_may_say_anything(tmp_path_factory, pieces):
    """Half characters, times that are none, numbers of 5,000 digits: each can be judged, shown and saved."""
    diagnosis = workerdiag.explain(sources=[FixedSource(tuple(pieces))])

    assert "failed" not in diagnosis.summary
    assert "workerdiag" not in {each.source for each in diagnosis.gaps}
    shown(diagnosis, tmp_path_factory.getbasetemp())


def test_a_stage_that_fails_is_told_of(monkeypatch):
    """Nothing gets out of ``explain``, and the report says whose defect it is."""

    def failing(*_, **__):
        raise ZeroDivisionError("a stage failed")

    monkeypatch.setattr(pipeline, "diagnose", failing)
    diagnosis = workerdiag.explain(RuntimeError("x"), logs=[GOOD])

    assert diagnosis.outcome == "unknown"
    assert "workerdiag itself failed" in diagnosis.summary
    assert "ZeroDivisionError: a stage failed" in diagnosis.gaps[-1].detail


# ---------------------------------------------------------------------------------- broken bundles


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    """The files of a bundle that was really saved."""
    path = tmp_path_factory.mktemp("bundle") / "death.zip"
    told = FixedSource(
        (
            Event(topic="all", fields={"action": "remove-worker", "worker": WORKER}, when=1.7e9),
            ProcessExit(identity=Identity(worker=WORKER, pid=7), signal=11, when=1.7e9, reporter="nanny log"),
        )
    )
    workerdiag.explain(sources=[told], logs=[GOOD, LogText("other\n" * 5)]).save(path)
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def packed(files):
    """A zip file with these files."""
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    data.seek(0)
    return data


def changed(value, random):
    """A JSON value with some parts of it replaced."""
    if random.random() < 0.05:
        return random.choice(JSON_VALUES)
    if isinstance(value, dict):
        return {name: changed(each, random) for name, each in value.items()}
    if isinstance(value, list):
        return [changed(each, random) for each in value]
    return value


JSON_VALUES = [
    "\ud800",
    "caf\udce9",
    10**400,
    -1,
    2**63,
    1e308,
    None,
    True,
    [],
    {},
    "",
    "x" * 10_000,
    ["a"] * 1000,
    {"a": {"b": [1]}},
    "logs/0001.txt",
    "manifest.json",
]


@pytest.mark.slow
@given(st.randoms(use_true_random=False))
@settings(max_examples=40)
def test_a_bundle_may_hold_anything(bundle, random):
    """Whatever stands in its JSON files, the bundle is judged as far as it goes, and can be shown."""
    files = {
        name: json.dumps(changed(json.loads(content), random)) if name.endswith(".json") else content
        for name, content in bundle.items()
    }
    files["manifest.json"] = bundle["manifest.json"]
    diagnosis = workerdiag.explain(logs=packed(files))

    assert "failed" not in diagnosis.summary
    shown(diagnosis)


def test_a_broken_file_of_a_bundle_costs_itself_alone(bundle):
    """The other logs in it are read."""
    first, second = (name for name in bundle if name.startswith("logs/"))
    data = bytearray(packed({**bundle, second: os.urandom(20_000)}).getvalue())
    at = data.index(second.encode()) + 200
    data[at : at + 200] = bytes(200)
    diagnosis = workerdiag.explain(logs=io.BytesIO(bytes(data)))

    assert any(second in each.detail and first not in each.detail for each in diagnosis.gaps)
    assert first_cause(diagnosis) == first_cause(workerdiag.explain(logs=[GOOD]))


def described(bundle, count, **log):
    """The bundle with so many logs that are described so."""
    evidence = json.loads(bundle["evidence.json"])
    one = next(each for each in evidence["pieces"] if each["kind"] == "Log")
    evidence["pieces"] = [{**one, "origin": f"log {number}", **log} for number in range(count)]
    return packed({**bundle, "evidence.json": json.dumps(evidence), "logs/0001.txt": b"x" * 2**20})


@pytest.mark.parametrize(
    ("count", "parts"),
    [
        (5_000, [{"first_line": 1, "bytes": 2**20}]),
        (20, [{"first_line": 5, "bytes": 2**20}] * 100),
        (20, [{"first_line": 1, "bytes": 1000}, *[{"first_line": 2, "bytes": 2**20}] * 100]),
    ],
    ids=["whole", "without line ends", "overlapping"],
)
def test_a_file_of_a_bundle_is_taken_once(bundle, count, parts):
    """However often it is named, and into however many parts it is said to fall."""
    read = read_bundle("death.zip", described(bundle, count, file="logs/0001.txt", parts=parts).getvalue())
    texts = [part.data for log in read.kept_evidence.items for part in getattr(log, "parts", ())]

    assert sum(map(len, texts)) == 2**20
    assert any("more than one log" in gap.detail for gap in read.gaps)
