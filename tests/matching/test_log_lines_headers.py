"""What is a header of Dask's, and what only has the words of one."""

from __future__ import annotations

import pytest

from workerdiag.matching.log_lines import parse_line


@pytest.mark.parametrize(
    ("line", "logger"),
    [
        (b"09:56:47.204 | WARNING | distributed.core - Something", "distributed.core"),
        (b"2026-09-02 07:14:58  INFO  compute.instances.hostError   dask-6f2a-worker-12", None),
    ],
)
def test_a_level_is_a_word_of_its_own(line, logger):
    """The end of another word, before the name of a machine, makes no header."""
    assert parse_line(line).logger == logger
