"""What is kept beside an exception."""

from __future__ import annotations

import copy
import pickle

import pytest
from attrs import frozen
from distributed import KilledWorker

from support.alerts import sure_of
from workerdiag.api.annotate import remember, remembered

DIAGNOSIS = sure_of()


@frozen
class EqualError(Exception):
    """Equal to any other one of the same text."""

    text: str


@pytest.mark.parametrize("exc", [KilledWorker("x", None, 1), RuntimeError("x"), EqualError("x")])
def test_a_diagnosis_is_kept_beside_its_exception_alone(exc):
    """Also beside a built-in one; never beside another one that is equal to it."""
    remember(exc, DIAGNOSIS)
    assert remembered(exc).fingerprint == DIAGNOSIS.fingerprint
    assert remembered(type(exc)(*exc.args) if exc.args else type(exc)("x")) is None


def test_a_copy_of_the_exception_takes_no_diagnosis_along():
    """What is pickled stays small, and is read where there is no workerdiag."""
    exc = KilledWorker("x", None, 1)
    remember(exc, DIAGNOSIS)
    assert b"workerdiag.api" not in pickle.dumps(exc)
    assert remembered(pickle.loads(pickle.dumps(exc))) is remembered(copy.deepcopy(exc)) is None
