"""The reading end of a black box: it says only what was written, however much of the file is damaged."""

from __future__ import annotations

import json
import os
import threading
import time

import pytest
from box_kill import check, kill_child  # benchmarks are scripts, no package
from hypothesis import given
from hypothesis import strategies as st
from msgpack import packb

from workerdiag.errors import BadBoxError
from workerdiag.recorder.box import layout
from workerdiag.recorder.box.reader import read_box, read_identity
from workerdiag.recorder.box.writer import BoxWriter
from workerdiag.wire.black_box import BlackBox, UnreadablePart
from workerdiag.wire.plain import to_plain

pytestmark = pytest.mark.skipif(not hasattr(os, "posix_fallocate"), reason="a black box needs Linux")


@pytest.fixture
def writer(tmp_path):
    """A box that was used for a while."""
    box = used(tmp_path)
    yield box
    box.close(remove=True)


@pytest.fixture
def small(tmp_path):
    """A box that is quick to read, used once."""
    box = used(tmp_path, size_bytes=16 * 1024, times=1)
    yield box
    box.close(remove=True)


def used(folder, *, size_bytes=2**16, times=200):
    box = BoxWriter.create(folder, size_bytes=size_bytes, slots=3, worker="tcp://10.0.0.4:34937")
    box.stage("running")
    for number in range(times):
        box.started(number % 2, f"task-{number}", 1, "a")
        box.finished(number % 2, "ok")
        box.sample(process_rss_bytes=number)
        box.lag(0.5, 0.25)
        box.line(f"line {number}".encode() * 30)
    box.started(2, "last", 3, "c")
    return box


@pytest.fixture(scope="module")
def content(tmp_path_factory):
    """The bytes of such a box."""
    box = used(tmp_path_factory.mktemp("box"))
    yield box.path.read_bytes()
    box.close(remove=True)


def is_part_of(box, whole):
    """Whether a box says nothing that the whole one does not say as well."""
    assert set(box.running_tasks) <= set(whole.running_tasks)
    assert set(box.finished_tasks) <= set(whole.finished_tasks)
    assert set(box.samples) <= set(whole.samples)
    assert set(box.lags) <= set(whole.lags)
    assert box.identity in (whole.identity, {})
    return True


def read(data):
    """The box, or None where the error says why there is none; nothing else may come of any bytes."""
    try:
        box = read_box(data)
    except BadBoxError as problem:
        return None if str(problem) else pytest.fail("no reason")
    json.dumps(to_plain(box), allow_nan=False)
    return box


def test_a_box_says_when_it_was_made_and_last_written(writer):
    """The last write of all counts, whichever part it was in."""
    before = time.time()
    writer.line(b"now")
    box = read_box(writer.path)
    assert box.created_at < before <= box.written_at <= time.time()


def test_bytes_are_read_as_a_path_is(content, tmp_path):
    """A box that came in a message needs no file."""
    path = tmp_path / "copy.box"
    path.write_bytes(content)
    assert read_box(content) == read_box(path) == read_box(str(path))


def test_only_the_identity_can_be_read(writer):
    """Whose a box is can be known without reading all of it."""
    assert read_identity(writer.path) == read_box(writer.path).identity


@pytest.mark.slow
@given(st.integers(min_value=0, max_value=2**16))
def test_a_box_that_is_cut_off_says_what_is_left(content, length):
    """Whatever is missing at the end, the rest is read, and what is missing is told."""
    box = read(content[:length])
    if box is None:
        assert length < layout.HEADER_BYTES
    elif length < len(content) - layout.LINE_CELL_BYTES * 2:
        assert is_part_of(box, read_box(content))
        assert box.unreadable_parts


@pytest.mark.slow
@given(st.lists(st.tuples(st.integers(0, 2**16 - 1), st.integers(1, 255)), min_size=1, max_size=200))
def test_flipped_bits_are_found(content, flips):
    """No damage makes a box say what was never written."""
    data = bytearray(content)
    for place, bits in flips:
        data[place] ^= bits
    box = read(bytes(data))
    if box is not None:
        # An older cell of a pair may come to light; it was written as well.
        assert {each.key for each in box.running_tasks} <= {"last", "task-198", "task-199"}
        assert set(box.finished_tasks) <= set(read_box(content).finished_tasks)
        assert set(box.samples) <= set(read_box(content).samples)


@given(st.binary(max_size=3000))
def test_random_bytes_are_no_box(data):
    """Anything may lie in a folder for temporary files."""
    assert read(data) is None
    assert read(layout.BOX_MAGIC + data) is None


@given(st.integers(0, 2**32 - 1), st.integers(0, 2**16 - 1), st.binary(max_size=2000), st.floats())
def test_a_hostile_header_is_refused_or_harmless(size_bytes, slots, data, created_at):
    """A checksum is no signature: a box may say that it is absurdly large, and have next to nothing in it."""
    header = layout.pack_header(size_bytes, slots, created_at)
    read(header.ljust(layout.HEADER_BYTES, b"\0") + data)


def test_of_the_largest_hostile_box_no_more_is_read_than_a_box_may_have():
    """Four megabytes of damaged cells are gone through, and what follows them is left alone."""
    header = layout.pack_header(2**32 - 1, 2**16 - 1, 0.0).ljust(layout.HEADER_BYTES, b"\0")
    parts = read(header + b"\xff" * (layout.MAX_BYTES * 2)).unreadable_parts
    assert {each.region for each in parts} == {*layout.FIELDS}


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text() | st.binary(),
    lambda each: st.lists(each) | st.dictionaries(st.text(), each),
    max_leaves=12,
)


def with_cell(content, region, number, payload):
    """The box with what a write of this number leaves."""
    cell = layout.CELL_HEAD.pack(len(payload), number) + payload
    cell = layout.CELL_SUM.pack(layout.crc32(cell)) + cell
    place = region.offset + number % region.cells * region.cell_bytes
    return content[:place] + cell + content[place + len(cell) :]


@pytest.mark.slow
@given(st.data())
def test_hostile_cells_are_left_out(content, data):
    """A cell with a good checksum and no sense in it is told, and says nothing."""
    _, regions = layout.unpack_header(content)
    region = data.draw(st.sampled_from([regions[name] for name in sorted(regions)]))
    number = data.draw(st.integers(0, 2**62))
    payload = data.draw(st.binary() | PLAIN.map(packb) | st.lists(PLAIN, max_size=14).map(packb))
    payload = payload[: region.cell_bytes - layout.CELL_OVERHEAD]
    assert isinstance(read(with_cell(content, region, number, payload)), BlackBox)


@pytest.mark.slow
@pytest.mark.parametrize("region", ["running", "state", "identity"])
def test_a_write_that_was_cut_off_anywhere_leaves_what_was_before(small, region):
    """A process can be killed after any byte: the box then says what it said before, or what it was to say."""
    before = small.path.read_bytes()
    small.started(2, "x" * 150, 4, "d")
    small.stage("closing", "y" * 150)
    small.identify(worker="z" * 150)
    after = small.path.read_bytes()
    _, regions = layout.unpack_header(before)
    start, end = regions[region].offset, regions[region].end
    changed = [place for place in range(start, end) if before[place] != after[place]]

    def said(data):
        box = read_box(data)
        assert box.unreadable_parts == ()
        return {
            "running": box.running_tasks,
            "state": (box.stage, box.close_reason),
            "identity": box.identity,
        }[region]

    outcomes = [said(before[:cut] + after[cut:end] + before[end:]) for cut in range(changed[0], changed[-1] + 2)]
    outcomes += [
        said(before[:start] + after[start:cut] + before[cut:]) for cut in range(changed[0], changed[-1] + 2)
    ]
    assert all(each in (said(before), said(after)) for each in outcomes)


LINE = {"file": "/home/me/my_code.py", "line": 31, "function": "join_all", "task": "join-1"}
COLS = {"name": "cols", "type": "list", "size_bytes": 384, "count": 20, "line": LINE}
CENSUS = packb((5.0, 652, 700, False, [COLS, {"name": "CACHE", "type": "dict", "size_bytes": "many"}, 7]))


def test_the_largest_objects_are_read_with_what_is_understood_of_them(writer):
    """The last four stay; what is no object is left out, and what makes no sense is told."""
    for data in (CENSUS, b"\x91" * 1500, b"\xff", *[CENSUS] * 3):
        writer.census(data)
    box = read_box(writer.path)
    assert len(box.censuses) == 3
    census = box.censuses[-1]
    assert (census.rss_bytes, census.limit_bytes, census.is_complete) == (652, 700, False)
    (held,) = census.objects
    assert (held.name, held.type, held.size_bytes, held.count, str(held.line)) == (
        "cols",
        "list",
        384,
        20,
        "/home/me/my_code.py:31, in join_all",
    )
    assert [(each.region, each.unreadable_count) for each in box.unreadable_parts] == [("objects", 1)]


def test_a_cut_off_write_to_a_ring_is_told(writer):
    """Of a ring only the cell that was being written is missing."""
    before = writer.path.read_bytes()
    writer.finished(2, "ok")
    after = writer.path.read_bytes()
    _, regions = layout.unpack_header(before)
    finished = regions["finished"]
    begun = next(each for each in range(finished.offset, finished.end) if before[each] != after[each])
    box = read_box(before[:begun] + after[begun : begun + 30] + before[begun + 30 :])
    assert box.unreadable_parts == (
        UnreadablePart(region="finished", unreadable_count=1, cell_count=finished.cells),
    )
    assert [each.key for each in box.running_tasks] == ["last"]


def test_killed_between_the_two_writes_a_task_is_not_both(writer):
    """A task that is among the finished ones does not run, though its slot was not freed any more."""
    before = writer.path.read_bytes()
    writer.finished(2, "ok")
    after = writer.path.read_bytes()
    _, regions = layout.unpack_header(before)
    running = regions["running"]
    box = read_box(after[: running.offset] + before[running.offset : running.end] + after[running.end :])
    assert box.running_tasks == ()
    assert box.finished_tasks[-1].key == "last"


def test_a_box_can_be_read_while_it_is_written(writer):
    """Another process that looks does not stop the writer, and sees no half-written task."""
    over = threading.Event()

    def work():
        number = 0
        while not over.is_set():
            number += 1
            writer.started(0, f"{number} " * 20, number, str(number))
            writer.finished(0, str(number))

    thread = threading.Thread(target=work)
    thread.start()
    try:
        for _ in range(20):
            box = read_box(writer.path)
            for each in box.running_tasks:
                assert each.key == "last" or each.key.split()[:1] == [each.thread_name]
            assert all(each.key.startswith(("task-", f"{each.outcome} ")) for each in box.finished_tasks)
    finally:
        over.set()
        thread.join()


@pytest.mark.slow
@pytest.mark.parametrize("nth", range(12))
def test_a_box_of_a_killed_writer_tells_the_truth(tmp_path, nth):
    """A few of the thousands of tries of benchmarks/box_kill.py: with one thread, and with three."""
    check(kill_child(tmp_path, 1 + nth % 2 * 2, nth * 2e-4))


# ----------------------------------------------------------------------------------- other files


def test_a_later_format_is_refused_by_its_number(content):
    """Who reads a box with an older workerdiag learns that this is why."""
    header = bytearray(content[: layout.HEADER_BYTES])
    header[12:14] = (layout.FORMAT + 1).to_bytes(2, "little")
    header[8:12] = layout.crc32(header[12 : layout.HEADER.size]).to_bytes(4, "little")
    with pytest.raises(BadBoxError, match=rf"format {layout.FORMAT + 1}"):
        read_box(bytes(header) + content[layout.HEADER_BYTES :])


def test_more_fields_of_a_later_release_are_left_out(content):
    """More numbers at the end of a sample do not disturb."""
    samples = layout.unpack_header(content)[1]["samples"]
    payload = packb((5.0, *range(len(layout.SAMPLE_NUMBERS)), "of a later release"))
    box = read_box(with_cell(content, samples, samples.cells * 100, payload))
    assert box.unreadable_parts == ()
    assert (box.samples[-1].at, box.samples[-1].thread_count) == (5.0, 10)


def test_a_path_that_cannot_be_read_says_why(tmp_path):
    """No file, a folder, a pipe that would never answer, an empty file: one kind of error with the reason."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "empty").touch()
    with pytest.raises(BadBoxError, match="no such file"):
        read_box(tmp_path / "missing")
    with pytest.raises(BadBoxError, match="no regular file"):
        read_box(tmp_path)
    with pytest.raises(BadBoxError, match="no regular file"):
        read_box(tmp_path / "pipe")
    with pytest.raises(BadBoxError, match="too short"):
        read_box(tmp_path / "empty")
    with pytest.raises(BadBoxError, match=r"null (byte|character)"):
        read_box("a\0b")


def test_a_hostile_companion_is_harmless(writer):
    """What lies where faulthandler's file would be is read only if it is a file, and not endlessly."""
    os.mkfifo(layout.fault_path(writer.path))
    assert read_box(writer.path).faulthandler_dump == ""
    layout.fault_path(writer.path).unlink()
    layout.fault_path(writer.path).write_bytes(b"\xff" * 2**20)
    assert len(read_box(writer.path).stop_stacks) == 128 * 1024


def test_the_rest_of_a_line_whose_beginning_is_gone_is_not_shown(tmp_path):
    """It may be the rest of a secret, which nobody could recognise; whole lines behind it are shown."""
    writer = BoxWriter.create(tmp_path, size_bytes=16 * 1024)
    writer.line(b"DB_PASSWORD=" + b"s3cret" * 400 + b"\nits next line\n")
    for number in range(200):
        writer.line(f"line {number}\n".encode())
        text = read_box(writer.path).last_output
        if "DB_PASSWORD" not in text and "[...]" in text:
            break
    assert "s3cret" not in text
    assert "[...]\nits next line\nline 0\n" in text
    writer.close(remove=True)
