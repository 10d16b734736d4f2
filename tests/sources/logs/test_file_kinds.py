"""What an input is, by its first bytes."""

from __future__ import annotations

import pytest

from workerdiag.sources.logs.file_kinds import read_at_most, sniff, sniff_blocks
from workerdiag.wire import BOX_MAGIC

RECORD = b'{"schema": 1, "kind": "removal", "when": 1.0}\n'


@pytest.mark.parametrize(
    ("head", "kind"),
    [
        (b"", "text"),
        (b"distributed.nanny - INFO - Start Nanny\n", "text"),
        (b'{"level": "info", "msg": "a log in JSON"}\n', "text"),
        (b"PK\x03\x04rest", "bundle"),
        (BOX_MAGIC + b"rest", "box"),
        (RECORD, "records"),
    ],
)
def test_the_first_bytes_tell_what_an_input_is(head, kind):
    """The name of a file plays no part."""
    assert sniff(head) == kind


def test_an_input_that_comes_byte_by_byte_is_recognised_and_complete():
    """A pipe may give a record in many small blocks; none is lost."""
    kind, blocks = sniff_blocks(bytes([each]) for each in RECORD + b"more")
    assert kind == "records"
    assert b"".join(blocks) == RECORD + b"more"


def test_an_input_that_is_too_large_is_not_held_in_memory():
    """Reading stops at the first block beyond the bound."""
    blocks = iter([b"12", b"34", b"56"])
    assert read_at_most(blocks, 3) == b""
    assert list(blocks) == [b"56"]
