"""``workerdiag blackbox``: a box for a person, or for a program."""

from __future__ import annotations

import json
import os

import pytest
from click.testing import CliRunner

from workerdiag.cli import main
from workerdiag.recorder.box import directories
from workerdiag.recorder.box.writer import BoxWriter

pytestmark = pytest.mark.skipif(not hasattr(os, "posix_fallocate"), reason="a black box needs Linux")


@pytest.fixture
def writer(tmp_path, monkeypatch):
    """A box with something hostile in every text."""
    monkeypatch.setenv(directories.VARIABLE, str(tmp_path))
    box = BoxWriter.create(tmp_path, worker="tcp://10.0.0.4:34937", name="al\x1b[31mice")
    box.stage("closing", "why\x1b]0;title\x07")
    box.started(0, "('sum\x1b[2J', 3)" * 40, 1, "Dask-Default-Threads\x9b1m")
    box.started(1, "before", 2, "Dask-Default-Threads-2")
    box.finished(1, "ok\r\x1b[A")
    box.sample(process_rss_bytes=3 * 2**30, memory_limit_bytes=4 * 2**30, cgroup_oom_kills=1, open_files=17)
    box.lag(2.5, 0.75)
    box.line(b"distributed.worker - WARNING - \x1b[31mtoo much\xff" + b"x" * 200)
    with box.open_fault() as file:
        file.write(b"Fatal Python error: Segmentation fault\x1b[0m\n")
    yield box
    box.close(remove=True)


def run(*arguments):
    return CliRunner().invoke(main, ["blackbox", *map(str, arguments)])


def test_a_box_is_printed_for_a_terminal(writer):
    """What ran, what ended, memory, lag and last words, in 80 columns, without control sequences."""
    result = run(writer.path)
    assert result.exit_code == 0
    assert result.stderr == ""
    assert max(map(len, result.stdout.splitlines()[1:])) <= 80  # the path in the first is for copying
    assert not set(result.stdout) & set("\x1b\x07\x9b\r")
    for each in (
        "Worker      tcp://10.0.0.4:34937 (name alice)",
        "Stage       closing: why\n",
        "  for 0.0 s (since ",
        "on thread Dask-Default-Threads: ('sum', 3)",
        "ok after 0.000 s: before",
        "process 3 GiB of 4 GiB OOM kills 1 files 17",
        "late by 2.50 s",
        "GIL contention up to 75%",
        "  Fatal Python error: Segmentation fault\n",
        "  distributed.worker - WARNING - too much\ufffdxxx",
    ):
        assert each in result.stdout, each


def test_a_box_is_printed_for_a_program(writer):
    """JSON is a list, also of one box, with everything in it."""
    (box,) = json.loads(run(writer.path, "--format", "json").stdout)
    assert box["path"] == str(writer.path)
    assert box["schema"] == 1
    assert box["samples"][0]["process_rss_bytes"] == 3 * 2**30
    assert box["last_output"].startswith("distributed.worker")


def test_a_folder_stands_for_its_boxes(writer):
    """A volume of boxes is read at once."""
    assert run(writer.path.parent).stdout == run(writer.path).stdout


def test_without_a_path_the_boxes_here_are_listed(writer):
    """Whoever looks for a box is told where it lies."""
    result = run()
    assert result.exit_code == 0
    assert result.stdout.startswith("running, last written 2")
    assert f"  {writer.path}\n" in result.stdout


def test_where_there_is_no_box_it_says_where_it_looked(tmp_path, monkeypatch):
    """Nothing to list is an answer, and JSON stays JSON."""
    monkeypatch.setenv(directories.VARIABLE, str(tmp_path))
    assert run().stdout == f"No black boxes in {tmp_path}.\n"
    assert run("--format", "json").stdout == "[]\n"
    assert run().exit_code == 0


def test_a_folder_without_boxes_says_so(tmp_path):
    """An empty answer would be none."""
    result = run(tmp_path)
    assert (result.exit_code, result.output) == (0, f"No black boxes in {tmp_path}.\n")


def test_a_path_that_is_no_box_is_status_2(writer, tmp_path):
    """What can be read is printed, and what cannot is said."""
    (tmp_path / "notes").write_text("no box")
    result = run(tmp_path / "notes", writer.path)
    assert result.exit_code == 2
    assert "notes as a black box" in result.stderr
    assert "Worker      tcp://10.0.0.4:34937" in result.stdout


def test_what_is_missing_of_a_damaged_box_is_said(writer):
    """A box that is cut off is printed as far as it goes."""
    path = writer.path.with_name("cut.box")
    path.write_bytes(writer.path.read_bytes()[:100_000])
    result = run(path)
    assert result.exit_code == 0
    assert "Not read    finished tasks: " in result.stdout
