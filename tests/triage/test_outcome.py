"""Versions are found where logs name them, and nowhere else."""

from __future__ import annotations

import pytest

from support.triage_work import nanny_log, triage_here
from workerdiag.triage.outcome import Versions
from workerdiag.triage.parts import ALIGNMENT

TABLE = b"""
+-------------+-----------+----------------+-----------+
| Package     | Worker-45 | Scheduler      | Workers   |
+-------------+-----------+----------------+-----------+
| dask        | 2023.12.1 | 2026.8.0       | 2023.12.1 |
| distributed | 2023.12.1 | 2026.8.0       | 2023.12.1 |
| python      | 3.11.7    | 3.12.1.final.0 | 3.11.7    |
+-------------+-----------+----------------+-----------+
"""


@pytest.mark.parametrize(
    ("text", "python", "distributed"),
    [
        (b'  File "/usr/lib/python3.12/threading.py", line 1, in run\n', "3.12", None),
        (b'  File "/opt/conda/lib/python3.9/site-packages/distributed/worker.py", line 2\n', "3.9", None),
        (b"Pulling image ghcr.io/dask/dask:2026.8.0-py3.12\n", None, "2026.8.0"),
        (TABLE, None, "2023.12.1"),
        (TABLE.replace(b"| 2023.12.1 |\n", b"| {'2023.12.1', '2026.8.0'} |\n"), None, None),
        (b"/python3.x/ /python3./ dask:latest distributed 2020.1.1\n" * 3, None, None),
        (b"", None, None),
    ],
)
def test_a_version_is_one_that_dask_or_python_wrote(text, python, distributed):
    """Folders of Python's library, tags of images, and the table of servers that differ."""
    assert Versions().seen_in(text) == Versions(python=python, distributed=distributed)


def test_what_is_seen_first_stays():
    """So however a text is cut, it names the same."""
    first = Versions().seen_in(b"/lib/python3.11/a.py /lib/python3.12/b.py")
    assert first.seen_in(b"/lib/python3.13/c.py") == Versions(python="3.11")


def test_what_differs_is_not_common():
    """Of a run whose logs name two versions nobody knows which one a silent log is of."""
    one, other = Versions(python="3.11", distributed="2026.8.0"), Versions(python="3.12")
    assert Versions.common([one, other, Versions()]) == Versions(distributed="2026.8.0")


def test_rows_have_the_version_of_their_log_or_of_their_run(tmp_path):
    """The scheduler's log names the image, the nanny's a folder of Python; however they are cut."""
    (tmp_path / "logs").mkdir()
    nanny = nanny_log(2, seed=1, calm=1500) + '  File "/usr/lib/python3.12/threading.py", line 1, in run\n'
    (tmp_path / "logs" / "nanny.log").write_text(nanny)
    image = "Successfully pulled image ghcr.io/dask/dask:2026.8.0\n"
    (tmp_path / "logs" / "other.log").write_text(nanny_log(1, seed=1) + image)
    for number, part_bytes in enumerate((2**28, ALIGNMENT)):
        deaths, _, _ = triage_here([tmp_path / "logs"], tmp_path / str(number), part_bytes=part_bytes)
        assert deaths
        assert {(each.python_version, each.distributed_version) for each in deaths} == {("3.12", "2026.8.0")}
