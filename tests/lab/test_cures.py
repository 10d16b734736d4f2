"""The first change that is suggested makes the work succeed.

`nox -s cures` runs this; it takes some minutes, so CI follows two of them.
"""

from __future__ import annotations

import pytest

from .processes import LabError

pytest.importorskip("dask.array", exc_type=ImportError)
from .cures import PROGRAMS, attempt, turned

pytestmark = [pytest.mark.lab, pytest.mark.natural]


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_first_change_makes_the_work_succeed(name):
    """The reason is the true one, and what is suggested first is enough."""
    program = PROGRAMS[name]
    diagnosis = attempt(program, program.knobs)
    if diagnosis is None:
        raise LabError("nothing died")
    assert diagnosis.memory is not None
    assert diagnosis.memory.reason == program.reason
    knobs = turned(program.knobs, diagnosis.cures[0])
    assert knobs is not None
    assert attempt(program, knobs) is None
