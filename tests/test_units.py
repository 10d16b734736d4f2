"""
Sizes, durations and times are read and written alike everywhere.
"""

from __future__ import annotations

import dask.utils
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workerdiag.units import (
    format_bytes,
    format_duration,
    format_limit,
    format_time,
    parse_bytes,
    parse_duration,
)


@given(st.integers(0, 2**49))
def test_bytes_are_written_as_dask_writes_them(count):
    """
    A size in a report can be searched for in Dask's log.
    """
    assert format_bytes(count) == dask.utils.format_bytes(count)


@given(st.integers(0, 2**49))
def test_a_written_size_can_be_read_back(count):
    """
    Reading a written size gives it back within the two decimals that are written.
    """
    assert parse_bytes(format_bytes(count)) == pytest.approx(count, rel=0.01, abs=1)


@given(st.integers(1, 4096).map(lambda steps: steps * 2**26))
def test_a_limit_to_type_is_exact(count):
    """
    A limit that advice names is not rounded.
    """
    assert parse_bytes(format_limit(count)) == pytest.approx(count, rel=1e-5)


@pytest.mark.parametrize("text", ["", "1 XB", "GiB", "-1", "9" * 16, "1e3", "many bytes", "1.5.5 MiB"])
def test_what_is_no_size_is_none(text):
    """
    Text that is not a size is None, never an error.
    """
    assert parse_bytes(text) is None


@pytest.mark.parametrize("text", ["10", "10s", " 2.5 s ", "500ms", "2 minutes", "1h", "1e1"])
def test_durations_are_read_as_dask_reads_them(text):
    """
    Every duration that Dask's configuration takes means the same here.
    """
    assert parse_duration(text) == dask.utils.parse_timedelta(text)


@pytest.mark.parametrize("text", ["", "soon", "10 parsecs", "--", "1..2s"])
def test_what_is_no_duration_is_a_value_error(text):
    """
    Whatever Dask raises for text that is not a duration, callers see a ValueError.
    """
    with pytest.raises(ValueError, match="is not a duration"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (30, "30 seconds"),
        (60, "1 minute"),
        (3600, "1 hour"),
        (86_400 * 30, "30 days"),
        (float("inf"), "forever"),
    ],
)
def test_durations_are_written_in_the_largest_unit_that_fits(seconds, text):
    """
    A duration reads as a person says it.
    """
    assert format_duration(seconds) == text


@pytest.mark.parametrize("when", [None, float("nan"), float("inf"), 1e300])
def test_an_unknown_time_is_written_as_nothing(when):
    """
    A time that no calendar has is left out.
    """
    assert format_time(when) == ""
