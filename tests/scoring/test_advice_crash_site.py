"""Where a process crashed, by faulthandler's dump."""

from __future__ import annotations

import pytest

import workerdiag

SEGFAULT = """\
2026-05-04 11:22:33,444 - distributed.worker - INFO -       Start worker at:  tcp://10.0.0.4:4000
Fatal Python error: Segmentation fault

Thread 0x00007f3d1a7fc640 (most recent call first):
  File "/opt/env/lib/python3.11/threading.py", line 320 in wait

Current thread 0x00007f3d1affd640 (most recent call first):
{frames}
Extension modules: numpy.core._multiarray_umath (total: 1)
2026-05-04 11:22:34,000 - distributed.nanny - INFO - Worker process 77 was killed by signal 11
"""
LIBRARY = '  File "/opt/env/lib/python3.11/site-packages/netCDF4/utils.py", line 40 in _open'
TASK = '  File "/home/ann/work/load.py", line 12 in load_station'
RUNNER = '  File "/opt/env/lib/python3.11/site-packages/distributed/worker.py", line 2900 in apply_function'
STANDARD = '  File "/opt/env/lib/python3.11/ctypes/__init__.py", line 519 in string_at'
WINDOWS = r'  File "C:\env\Lib\site-packages\netCDF4\utils.py", line 40 in _open'


def diagnosis_of(*frames: str) -> workerdiag.Diagnosis:
    """What is said of a crash with these frames, innermost first."""
    text = SEGFAULT.replace("{frames}", "\n".join([*frames, ""]))
    return workerdiag.explain(logs=[workerdiag.LogText(text, "worker")])


def advice(diagnosis: workerdiag.Diagnosis) -> str:
    """All that is advised, in one text."""
    return "\n".join(each.do for each in diagnosis.top.mitigations)


@pytest.mark.parametrize(
    ("frames", "listed"),
    [
        ((LIBRARY, TASK, RUNNER), ("_open (netCDF4/utils.py:40)", "load_station (load.py:12)")),
        ((STANDARD, TASK, RUNNER), ("string_at (ctypes/__init__.py:519)", "load_station (load.py:12)")),
        ((WINDOWS, RUNNER), ("_open (netCDF4/utils.py:40)",)),
        ((RUNNER, RUNNER), ("apply_function (distributed/worker.py:2900)",) * 2),
        (("  <no Python frame>",), ()),
    ],
)
def test_the_frames_of_the_task_are_listed_innermost_first(frames, listed):
    """What ran the task is left out unless it crashed itself; paths begin where all machines agree."""
    (death,) = diagnosis_of(*frames).deaths
    assert death.crashed_in == listed


def test_the_place_stands_above_everything_else():
    """Who reads three lines of a report has read where it crashed."""
    lines = str(diagnosis_of(LIBRARY, TASK, RUNNER)).splitlines()
    assert lines[2] == "Where     _open (netCDF4/utils.py:40), from load_station (load.py:12)"


def test_advice_names_the_place_and_whose_code_it_is():
    """Once a dump is there nobody is told to switch faulthandler on."""
    said = advice(diagnosis_of(LIBRARY, TASK, RUNNER))
    assert "_open (netCDF4/utils.py:40)" in said
    assert "code of netCDF4" in said
    assert "faulthandler everywhere" not in said


def test_a_dump_without_frames_leaves_the_advice_to_get_one():
    """Of a crash without any Python frame no place is named."""
    diagnosis = diagnosis_of("  <no Python frame>")
    assert "faulthandler everywhere" in advice(diagnosis)
    assert "Where " not in str(diagnosis)


def test_frames_of_other_threads_are_no_place_of_the_crash():
    """A dump that names no current thread does not tell which of them crashed."""
    text = SEGFAULT.replace("Current thread", "Thread").replace("{frames}", f"{LIBRARY}\n")
    (death,) = workerdiag.explain(logs=[workerdiag.LogText(text, "worker")]).deaths
    assert death.crashed_in == ()
