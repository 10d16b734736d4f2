"""A death bundle tells later, elsewhere and by other rules what was seen, and nothing that it should not."""

from __future__ import annotations

import io
import json
import os
import pickle
import zipfile
from copy import deepcopy
from pathlib import Path

import pytest
from attrs import asdict, evolve
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

import workerdiag
from support.diagnoses import FixedSource
from workerdiag import LogText
from workerdiag.authoring.rule_tests import read_incidents
from workerdiag.bundle.bundle_file import MAX_FILE_BYTES, Archive, read_bundle
from workerdiag.bundle.evidence_json import EVIDENCE_KINDS, piece_from_dict, piece_to_dict
from workerdiag.bundle.kept_evidence import EvidenceTap, KeptLog
from workerdiag.cli import main
from workerdiag.errors import BundleError
from workerdiag.matching.match import search
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
from workerdiag.model.vocabulary import GAP_REASONS, PLACES
from workerdiag.redaction.objects import redact_object
from workerdiag.rendering.bug_report import MAX_CHARS

CASES = {each.name: each for each in read_incidents(Path(__file__).parents[1] / "cases")}
DIED = (
    "2026-05-04 11:22:33,444 - distributed.worker - WARNING - Compute Failed\n"
    "Key: x\nOSError: [Errno 28] No space left on device: 's3://ann:s3cret@host/x'\n"
    "2026-05-04 11:22:34,000 - distributed.nanny - INFO - Worker process 7 was killed by signal 11\n"
)
QUIET = "2026-05-04 11:22:30,000 - distributed.worker - INFO - Nothing to see, line {} of many that say little\n"


def chances(findings):
    return [(cause.id, round(cause.probability, 6)) for cause in findings.causes]


def bundle_of(path):
    return read_bundle(str(path), Path(path).read_bytes())


def rewritten(path, changes):
    """The bytes of a bundle with some of its files replaced."""
    content = io.BytesIO()
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as new:
        for name in old.namelist():
            new.writestr(name, changes.get(name, old.read(name)))
        for name in changes.keys() - set(old.namelist()):
            new.writestr(name, changes[name])
    return content.getvalue()


@pytest.fixture
def saved(tmp_path):
    """A bundle of one small death."""
    return workerdiag.explain(logs=LogText(DIED)).save(tmp_path / "death.zip")


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_judging_a_bundle_again_gives_the_same(case, tmp_path):
    """The same rules find the same causes with the same chances in what was kept, secrets or none."""
    first = workerdiag.explain(logs=CASES[case].logs)
    again = workerdiag.explain(logs=first.save(tmp_path / "death.zip"))

    assert (again.outcome, chances(again)) == (first.outcome, chances(first))
    assert bundle_of(tmp_path / "death.zip").findings.fingerprint == first.fingerprint


def test_what_is_no_text_is_judged_again_too(tmp_path):
    """Exceptions, events, exits, readings, gaps and places that were looked at are kept as they were."""
    identity = Identity(worker="tcp://10.0.0.4:1", pid=7, host="node-1")
    pieces = (
        ExceptionFacts(type="distributed.scheduler.KilledWorker", text="boom", identity=identity, executing=("x",)),
        Event(topic="worker-restart-memory", fields={"pid": 7, "rss": 1.5, "x": None, "y": True}, when=5.0),
        ProcessExit(identity=identity, signal=9, when=6.0, reporter="told"),
        MemoryReading(identity=identity, rss_bytes=10, limit_bytes=11, when=5.5),
        Gap(source="kernel", reason="forbidden", detail="no", remedy="be root"),
        Inspected(place="nanny log", identity=identity),
        LogChunk(origin="nanny", data=DIED.encode(), stream="nanny", identity=identity),
    )
    first = workerdiag.explain(sources=[FixedSource(pieces)])
    again = workerdiag.explain(logs=first.save(tmp_path / "death.zip", redact=False))

    assert again == first
    assert bundle_of(tmp_path / "death.zip").kept_evidence.items[:6] == pieces[:6]


def test_the_evidence_is_no_part_of_the_diagnosis(saved):
    """Equality, JSON, copies and pickles are those of the findings alone; a pickle does not carry megabytes."""
    one, two = workerdiag.explain(logs=LogText(DIED)), workerdiag.explain(logs=saved)
    big = workerdiag.explain(logs=LogText(DIED + QUIET * 2000))

    assert workerdiag.Diagnosis.from_json(one.to_json()) == one
    assert pickle.loads(pickle.dumps(one)) == one == deepcopy(one) == evolve(one)
    assert hash(one) == hash(pickle.loads(pickle.dumps(one)))
    assert len(pickle.dumps(big)) < 100_000
    assert str(one) == str(two)
    assert one.to_html() == two.to_html()
    assert "kept" not in repr(two)
    assert "killed by signal" not in json.dumps(asdict(big)["_kept_evidence"], default=repr)


def test_a_diagnosis_without_its_evidence_says_so(tmp_path):
    """Read back from JSON or a pickle it still makes a bundle, which holds the diagnosis."""
    first = workerdiag.explain(logs=LogText(DIED))
    for copy in (workerdiag.Diagnosis.from_json(first.to_json()), pickle.loads(pickle.dumps(first))):
        bundle = bundle_of(copy.save(tmp_path / "copy.zip"))

        assert bundle.findings.fingerprint == first.fingerprint
        assert len(bundle.kept_evidence.left_out) == 1


def test_a_copy_of_a_copy_tells_the_same(saved, tmp_path):
    """What was read from a bundle can be saved, and judged, again."""
    text = "".join(QUIET.format(number) for number in range(20_000)) + DIED + QUIET * 9_000
    first = workerdiag.explain(logs=LogText(text))
    again = workerdiag.explain(logs=first.save(tmp_path / "1.zip", redact=False))
    third = workerdiag.explain(logs=again.save(tmp_path / "2.zip", redact=False))

    assert first == again == third


def test_of_a_long_log_the_telling_lines_are_kept_with_their_numbers(tmp_path):
    """A death in the midst of many megabytes is found again, at the same line."""
    lines = [QUIET.format(number) for number in range(120_000)]
    lines[60_000:60_000] = DIED.splitlines(keepends=True)
    path = tmp_path / "worker.log"
    path.write_text("".join(lines))

    first = workerdiag.explain(logs=path)
    again = workerdiag.explain(logs=first.save(tmp_path / "death.zip"))
    (log,) = (each for each in first._kept_evidence.items if isinstance(each, KeptLog))

    assert again.top == first.top
    assert f"{path}:60003" in [clue.where for clue in again.top.evidence]
    assert sum(len(part.data) for part in log.parts) < 320 * 1024 < log.read_bytes
    for part in log.parts:
        kept = part.data.decode().splitlines(keepends=True)
        assert kept == lines[part.line - 1 : part.line - 1 + len(kept)]


@pytest.mark.slow
def test_many_logs_share_a_bounded_room():
    """However many logs there are, and however much they say, at most 8 MiB are kept, and the death among them."""
    loud = "".join(f"{DIED.replace('process 7', f'process {number}')}{QUIET * 80}" for number in range(100))
    texts = [loud.encode() + b"%d\n" % number for number in range(12)] + [DIED.encode()]
    chunks = [LogChunk(origin=f"{number}.log", data=text) for number, text in enumerate(texts)]

    keeper, book = EvidenceTap(), workerdiag.load_rulebook()
    search(keeper.tee(chunks), book, observer=keeper)
    logs = keeper.kept_evidence().items

    assert sum(log.read_bytes for log in logs) > 8 * 2**20
    assert sum(len(part.data) for log in logs for part in log.parts) < 6 * 2**20
    assert all(b"killed by signal 11" in b"".join(part.data for part in log.parts) for log in logs)
    assert sum(len(part.data) for part in logs[-1].parts) == logs[-1].read_bytes


@pytest.mark.slow
def test_too_many_pieces_are_counted():
    """The first and the last events stay; the bundle says how many others there were."""
    pieces = tuple(Event(topic="t", fields={"n": number}) for number in range(15_000))
    kept = workerdiag.explain(sources=[FixedSource(pieces)])._kept_evidence

    assert (kept.items[0], kept.items[-1]) == (pieces[0], pieces[-1])
    assert len(kept.items) < 11_000
    assert f"{15_000 - len(kept.items)} pieces" in kept.left_out[0]


def test_keys_of_tasks_take_room_too():
    """Of workers with long lists of tasks the first and the last are kept, not more than there is room for."""
    keys = tuple(f"task-{number}-{'x' * 100}" for number in range(500))
    pieces = tuple(
        TasksAtLoss(identity=Identity(worker=f"tcp://10.0.0.4:{number}"), assigned=keys) for number in range(200)
    )
    keeper = EvidenceTap()
    assert len(list(keeper.tee(pieces))) == 200
    kept = keeper.kept_evidence().items
    assert sum(len(key) for piece in kept for key in piece.assigned) < 2 * 2**20
    assert (kept[0], kept[-1]) == (pieces[0], pieces[-1])


def test_a_report_has_the_versions_of_those_who_did_not_save_it(tmp_path):
    """The scheduler's and the victim's, and what differed; with settings of the scheduler."""
    box = json.dumps({"identity": {"python": "3.11.9", "distributed": "2025.1.0"}})
    pieces = (
        Event(topic="versions", fields={"of": "scheduler", "address": "tcp://10.0.0.1:8786", "dask": "2026.8.0"}),
        Event(topic="versions", fields={"of": "differing", "packages": "dask", "dask": "client 2, worker 1"}),
        Event(topic="configuration", fields={"of": "scheduler", "distributed.scheduler.worker-ttl": 300}),
        Event(topic="black-box", fields={"content": box}, identity=Identity(worker="tcp://10.0.0.4:1")),
        Event(topic="black-box", fields={"content": box[:9]}, identity=Identity(worker="tcp://10.0.0.4:2")),
    )
    bundle = workerdiag.explain(sources=[FixedSource(pieces)]).save(tmp_path / "death.zip")
    report = CliRunner().invoke(main, ["report", str(bundle)]).output
    for line in (
        "scheduler: dask: 2026.8.0",
        "differing: dask: client 2, worker 1",
        "worker tcp://10.0.0.4:1: distributed: 2025.1.0",
        "scheduler: distributed.scheduler.worker-ttl: 300",
    ):
        assert line in report.replace("\\", "")


def test_no_secret_leaves_unless_asked_for(tmp_path):
    """No file of the bundle holds a password of a log, an event, an exception or a gap; with redact=False all do."""
    pieces = (
        Event(topic="t", fields={"password": "s3cret-1", "note": "token=s3cret-2"}),
        ExceptionFacts(type="E", text="postgres://ann:s3cret-3@db/x"),
        Gap(source="k8s", reason="forbidden", detail="Authorization: Bearer s3cret-4"),
        LogChunk(origin="a?X-Amz-Signature=s3cret-5", data=b"DB_PASSWORD=s3cret-6\n" + DIED.encode()),
        LogChunk(origin="b", data=b"-----BEGIN PRIVATE KEY-----\ns3cret\n-----END PRIVATE KEY-----\nend\n"),
    )
    diagnosis = workerdiag.explain(sources=[FixedSource(pieces)])

    def contents(path):
        with zipfile.ZipFile(path) as archive:
            return b"".join(archive.read(name) for name in archive.namelist())

    hidden = diagnosis.save(tmp_path / "hidden.zip")
    assert b"s3cret" not in contents(hidden)
    assert bundle_of(hidden).kept_evidence.items[-1].parts[0].data.count(b"\n") == 4  # line numbers stay true
    raw = contents(diagnosis.save(tmp_path / "raw.zip", redact=False))
    assert all(f"s3cret-{number}".encode() in raw for number in range(1, 7))


@given(st.text(max_size=400))
def test_hiding_moves_no_line(text):
    """Whatever is hidden, a line keeps its number."""
    assert redact_object(text.encode()).count(b"\n") == text.count("\n")


identities = st.builds(
    Identity, worker=st.none() | st.text(), pid=st.none() | st.integers(0, 2**22), host=st.none() | st.text()
)
moments = st.none() | st.floats(0, 4e9)
flat = st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.floats(-1e9, 1e9) | st.text()
pieces = st.one_of(
    st.builds(Event, topic=st.text(), fields=st.dictionaries(st.text(), flat), when=moments, identity=identities),
    st.builds(ProcessExit, identity=identities, signal=st.none() | st.integers(1, 64), when=moments),
    st.builds(MemoryReading, identity=identities, rss_bytes=st.none() | st.integers(0, 2**50), when=moments),
    st.builds(ExceptionFacts, type=st.text(), text=st.text(), executing=st.none() | st.tuples(st.text())),
    st.builds(
        Gap,
        source=st.text(),
        place=st.sampled_from(PLACES),
        reason=st.sampled_from(GAP_REASONS),
        detail=st.text(),
    ),
    st.builds(Inspected, place=st.sampled_from(PLACES), identity=identities),
    st.builds(LogChunk, origin=st.text(), data=st.binary(), identity=identities),
)


@given(pieces)
def test_every_piece_survives_the_way_to_json_and_back(piece):
    """Evidence of each kind is the same after it was written and read."""
    assert piece_from_dict(json.loads(json.dumps(piece_to_dict(piece)))) == piece
    assert type(piece).__name__ in EVIDENCE_KINDS


def test_what_a_newer_version_wrote_is_used_as_far_as_known(saved):
    """Unknown kinds of evidence and a higher schema number are said, as a gap; the rest is judged."""
    with zipfile.ZipFile(saved) as archive:
        evidence = json.loads(archive.read("evidence.json"))
        manifest = json.loads(archive.read("manifest.json"))
    evidence["pieces"].insert(0, {"kind": "Smell", "of": "smoke"})
    evidence["pieces"].append({"kind": "ProcessExit", "identity": {"pid": "seven"}})
    changes = {"evidence.json": json.dumps(evidence), "manifest.json": json.dumps(manifest | {"schema": 9})}

    again = workerdiag.explain(logs=io.BytesIO(rewritten(saved, changes)))

    assert again.top.id == workerdiag.explain(logs=LogText(DIED)).top.id
    said = " ".join(gap.detail for gap in again.gaps)
    assert "Smell" in said
    assert "schema 9" in said
    assert "1 pieces of evidence are malformed" in said


@settings(max_examples=60)
@given(data=st.data())
def test_a_damaged_bundle_is_never_an_error_of_ours(data, tmp_path_factory):
    """Cut off anywhere, or with any bytes changed, it is read as far as it goes or said to be unreadable."""
    path = tmp_path_factory.getbasetemp() / "damaged.zip"
    if not path.exists():
        workerdiag.explain(logs=LogText(DIED)).save(path)
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(0, 3))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    cut = bytes(content[: data.draw(st.integers(0, len(content)))])

    diagnosis = workerdiag.explain(logs=io.BytesIO(cut))

    assert "workerdiag itself failed" not in diagnosis.summary
    assert str(diagnosis)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("evidence.json", b'{"pieces": [' + b"[" * 100_000),
        ("evidence.json", b"[" + b"{}," * 3_000_000 + b"{}]"),
        ("evidence.json", b'{"pieces": [{"kind": "Gap"}, {"kind": "Log", "parts": 7}, 9, null, [], 1e999]}'),
        (
            "evidence.json",
            b'{"pieces": [{"kind": "Event", "topic": "t", "when": 1e300, "fields": {"a": {}}}]}',
        ),
        ("evidence.json", b" " * (2 * MAX_FILE_BYTES)),
        ("logs/0001.txt", b"\0" * (4 * MAX_FILE_BYTES)),
        ("diagnosis.json", b'{"schema": 1}'),
        ("../../../etc/passwd", b"x"),
        ("versions.json", b"[1]"),
    ],
)
def test_hostile_content_is_refused_piece_by_piece(saved, name, content, tmp_path):
    """Bombs, depths, wrong types and names that lead elsewhere cost only the file that they are in."""
    hostile = tmp_path / "hostile.zip"
    hostile.write_bytes(rewritten(saved, {name: content}))

    diagnosis = workerdiag.explain(logs=hostile)
    report = CliRunner().invoke(main, ["report", str(hostile)])

    assert "workerdiag itself failed" not in diagnosis.summary
    assert report.exit_code == 0, report.output
    assert sorted(each.name for each in tmp_path.iterdir()) == ["death.zip", "hostile.zip"]


def test_an_archive_of_too_many_files_is_not_opened():
    """The list of contents alone could fill the memory."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for number in range(6000):
            archive.writestr(str(number), b"")
    refused = Archive(content.getvalue())

    assert refused.read("1") is None
    assert "more than" in refused.problems[0]


def test_another_zip_archive_is_still_refused(tmp_path):
    """Only what its manifest calls a bundle is one; others are said to be archives."""
    path = tmp_path / "logs.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("manifest.json", "{}")

    (gap,) = workerdiag.explain(logs=path).gaps
    assert "zip archive" in gap.detail


def test_a_zip_that_cannot_be_read_is_said_to_be_damaged(tmp_path):
    """Whoever is told to unpack a damaged archive has no success: only another copy helps."""
    path = tmp_path / "death.zip"
    path.write_bytes(b"PK\x03\x04 damaged")

    (gap,) = workerdiag.explain(logs=path).gaps
    assert (gap.detail, gap.remedy) == (
        "the zip cannot be read: it is damaged or cut off",
        "copy or download it again",
    )


def test_a_log_is_no_damaged_zip():
    """Only what begins as an archive can be a damaged one; of anything else that advice is wrong."""
    assert read_bundle("worker.log", b"distributed.worker - INFO - Start worker") is None


def test_a_bundle_that_was_packed_again_is_read(saved, tmp_path):
    """Somebody may have unpacked it, looked, and zipped the folder."""
    content = io.BytesIO()
    with zipfile.ZipFile(saved) as old, zipfile.ZipFile(content, "w") as new:
        for name in reversed(old.namelist()):
            new.writestr(f"death/{name}", old.read(name))

    assert workerdiag.explain(logs=io.BytesIO(content.getvalue())) == workerdiag.explain(logs=saved)


def test_the_same_log_beside_its_bundle_gets_a_name_of_its_own(tmp_path):
    """Chunks of one name are of one log, so a name that is taken gets a number."""
    path = tmp_path / "worker.log"
    path.write_text(DIED)
    bundle = workerdiag.explain(logs=path).save(tmp_path / "death.zip")
    both = workerdiag.explain(logs=[path, bundle])

    assert {each.origin for each in both._kept_evidence.items if isinstance(each, KeptLog)} == {
        str(path),
        f"{path} (2)",
    }


def test_the_same_diagnosis_makes_the_same_bytes(tmp_path):
    """Two bundles differ in the time they were saved at, and in nothing else."""
    diagnosis = workerdiag.explain(logs=LogText(DIED))
    one, two = diagnosis.save(tmp_path / "1.zip"), diagnosis.save(tmp_path / "2.zip")
    with zipfile.ZipFile(one) as first, zipfile.ZipFile(two) as second:
        assert first.namelist() == second.namelist()
        for name in first.namelist():
            if name != "manifest.json":
                assert first.read(name) == second.read(name)


def test_only_configuration_that_matters_is_taken(tmp_path):
    """Thresholds and timeouts of the client are in the bundle; a key that may hold a secret is not."""
    dask = pytest.importorskip("dask")
    pytest.importorskip("distributed")
    with dask.config.set(
        {"distributed.worker.memory.terminate": 0.77, "distributed.comm.tls.client.key": "/secret/key.pem"}
    ):
        path = workerdiag.explain(logs=LogText(DIED)).save(tmp_path / "death.zip")

    configuration = bundle_of(path).configuration
    assert configuration["distributed.worker.memory.terminate"] == "0.77"
    assert "tls" not in " ".join(configuration)


@pytest.mark.parametrize(
    ("place", "said"),
    [
        ("nowhere/death.zip", "does not exist"),
        ("folder", "it is a folder"),
        ("file/death.zip", "not a folder"),
    ],
)
def test_a_place_that_cannot_be_written_is_said(tmp_path, place, said):
    """Saving fails with a message for a person, and leaves nothing behind."""
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    before = sorted(tmp_path.rglob("*"))

    with pytest.raises(BundleError, match=said):
        workerdiag.explain(logs=LogText(DIED)).save(tmp_path / place)
    assert sorted(tmp_path.rglob("*")) == before


def test_a_full_disk_leaves_the_bundle_that_was_there(saved, monkeypatch):
    """A bundle is replaced only by a whole one."""
    before = saved.read_bytes()

    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(BundleError, match="the disk is full"):
        workerdiag.explain(logs=LogText(DIED)).save(saved)
    assert saved.read_bytes() == before
    assert list(saved.parent.iterdir()) == [saved]


def test_the_command_line_saves_explains_and_reports(tmp_path):
    """A bundle that one command wrote is read by the others."""
    log, bundle = tmp_path / "worker.log", str(tmp_path / "death.zip")
    log.write_text(DIED)
    run = CliRunner().invoke
    first = run(main, ["explain", str(log), "--save", bundle])
    again = run(main, ["explain", bundle])
    report = run(main, ["report", bundle])

    assert first.exit_code == again.exit_code == report.exit_code == 0
    assert again.stdout == first.stdout
    assert not again.stderr
    for said in ("killed by signal 11", "### Versions", "- python: ", "### Timeline", "hidden: secrets"):
        assert said in report.stdout
    assert "s3cret" not in report.stdout


def test_gaps_of_a_bundle_are_no_warnings_about_it(tmp_path):
    """What could not be looked at then is in the report; that the bundle could be read is what counts now."""
    gap = Gap(source="kernel", reason="forbidden", detail="not root")
    bundle = workerdiag.explain(sources=[FixedSource((gap,))]).save(tmp_path / "death.zip")

    again = CliRunner().invoke(main, ["explain", str(bundle)])

    assert again.exit_code == 1  # nothing is known of a death
    assert "not root" in again.stdout
    assert not again.stderr


def test_a_report_of_a_flood_fits_into_an_issue(tmp_path):
    """GitHub takes 65,536 characters; text of others that is all escapes is clipped until it fits."""
    nasty = "@a#1<b>`*_[x](y)" * 2000
    pieces = [Gap(source=nasty, reason="forbidden", detail=nasty, remedy=nasty) for _ in range(40)]
    pieces += [Event(topic="t", fields={"n": nasty}, when=float(number)) for number in range(200)]
    log = DIED.replace("Key: x", f"Key: {nasty}")
    bundle = workerdiag.explain(logs=LogText(log), sources=[FixedSource(tuple(pieces))]).save(
        tmp_path / "death.zip"
    )

    report = CliRunner().invoke(main, ["report", str(bundle)])

    assert report.exit_code == 0
    assert len(report.stdout) <= MAX_CHARS
    assert "### Versions" in report.stdout
    assert "\n<b>" not in report.stdout


@pytest.mark.parametrize("content", [b"", b"plain text\n", b"PK\x03\x04 not really"])
def test_reporting_what_is_no_bundle_is_bad_usage(tmp_path, content):
    """The message says what writes a bundle; there is no traceback."""
    path = tmp_path / "x.zip"
    path.write_bytes(content)
    report = CliRunner().invoke(main, ["report", str(path)])

    assert report.exit_code == 2
    assert "no" in report.stderr
    assert "Traceback" not in report.output
