"""Sizes, durations and times are read and written the same way everywhere."""

from __future__ import annotations

import dask.utils
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from workerdiag.units import (
    format_bytes,
    format_duration,
    format_limit,
    format_time,
    parse_bytes,
    parse_duration,
    round_up_limit,
)


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1 kiB"),
        (400 * 2**20, "400 MiB"),
        (337_293_312, "322 MiB"),
        (int(41.7 * 2**20), "41.7 MiB"),
        (int(99.97 * 2**20), "100 MiB"),
        (1012 * 2**20, "1012 MiB"),
        (2**30 - 1, "1 GiB"),
        (3 * 2**29, "1.5 GiB"),
        (int(3.927 * 2**30), "3.93 GiB"),
        (2**50, "1024 TiB"),
    ],
)
def test_bytes_are_written_as_people_write_them(count, text):
    """A size has no more digits than a person reads, and no zeros behind the point."""
    assert format_bytes(count) == text


@given(st.integers(0, 2**49))
@example(1152)  # 1.12 KiB, rounded half to even
def test_a_written_size_can_be_read_back(count):
    """Reading a written size gives it back within half a percent."""
    assert parse_bytes(format_bytes(count)) == pytest.approx(count, rel=0.0051, abs=1)


@given(st.integers(1, 2**49))
def test_a_limit_to_type_is_enough_and_is_written_exactly(count):
    """A limit that advice names is at least what was asked for, and typing it gives just that."""
    assert parse_bytes(format_limit(count)) == round_up_limit(count) >= count


@given(st.integers(2**29, 2**45))
def test_a_limit_is_not_rounded_up_by_half(count):
    """A limit to type is at most half as large again as what was asked for."""
    assert round_up_limit(count) <= 1.5 * count


@pytest.mark.parametrize("text", ["", "1 XB", "GiB", "-1", "9" * 16, "1e3", "many bytes", "1.5.5 MiB"])
def test_what_is_no_size_is_none(text):
    """Text that is not a size is None, never an error."""
    assert parse_bytes(text) is None


@pytest.mark.parametrize("text", ["10", "10s", " 2.5 s ", "500ms", "2 minutes", "1h", "1e1"])
def test_durations_are_read_as_dask_reads_them(text):
    """Every duration that Dask's configuration takes means the same here."""
    assert parse_duration(text) == dask.utils.parse_timedelta(text)


@pytest.mark.parametrize("text", ["", "soon", "10 parsecs", "--", "1..2s"])
def test_what_is_no_duration_is_a_value_error(text):
    """Whatever Dask raises for text that is not a duration, callers see a ValueError."""
    with pytest.raises(ValueError, match="is not a duration"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (1.2, "1 second"),
        (30, "30 seconds"),
        (60, "1 minute"),
        (3600, "1 hour"),
        (86_400 * 30, "30 days"),
        (float("inf"), "forever"),
    ],
)
def test_durations_are_written_in_the_largest_unit_that_fits(seconds, text):
    """A duration reads as a person says it."""
    assert format_duration(seconds) == text


@pytest.mark.parametrize("when", [None, float("nan"), float("inf"), 1e300])
def test_an_unknown_time_is_written_as_nothing(when):
    """A time that no calendar has is left out."""
    assert format_time(when) == ""
