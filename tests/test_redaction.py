"""
Secrets do not leave with a report, and what is no secret stays readable.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import workerdiag
from workerdiag import LogText
from workerdiag.redaction.secrets import HIDDEN, redacted


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("DB_PASSWORD=hunter22 failed", f"DB_PASSWORD={HIDDEN} failed"),
        ('"aws_secret_access_key": "wJalrXUtnFEMI/K7"', f'"aws_secret_access_key": "{HIDDEN}"'),
        ("Authorization: Bearer abc.def-123", f"Authorization: Bearer {HIDDEN}"),
        ("postgres://ann:s3cret@db:5432/x", f"postgres://ann:{HIDDEN}@db:5432/x"),
        ("GET /o?X-Amz-Signature=9f3a&x=1", f"GET /o?X-Amz-Signature={HIDDEN}&x=1"),
        ("with key AKIAIOSFODNN7EXAMPLE denied", f"with key {HIDDEN} denied"),
        ("coiled login --token 1234567890abc", f"coiled login --token {HIDDEN}"),
        ("-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY-----.", f"{HIDDEN}."),
    ],
)
def test_the_value_is_hidden_and_the_name_stays(text, shown):
    """
    The name of a secret may be the clue; its value never is.
    """
    assert redacted(text) == shown


@pytest.mark.parametrize(
    "text",
    [
        "Key:       tokenize-5b1c: failed",
        "KilledWorker: Attempted to run task ('read-parquet-token', 3) on 4 different workers",
        "Remove worker addr: tcp://10.0.0.4:4002 name: w (stimulus_id='handle-worker-cleanup-1.0')",
        "Task passes: 12, keyword: value",
    ],
)
def test_messages_of_dask_are_not_touched(text):
    """
    Keys of tasks and addresses are what a person needs to read.
    """
    assert redacted(text) == text


def test_a_report_shows_no_secret_of_the_log():
    """
    A line that is shown as evidence is shown without what it should not have held.
    """
    line = "OSError: [Errno 28] No space left on device: 's3://ann:s3cret@host/x'"
    log = (
        "2026-05-04 11:22:33,444 - distributed.worker - WARNING - Compute Failed\n"
        f"Key: x\n{line}\n2026-05-04 11:22:34,000 - distributed.nanny - INFO - Worker process 7 exited with status 1\n"
    )
    diagnosis = workerdiag.explain(logs=LogText(log))

    assert "No space left" in diagnosis.to_json()
    assert "s3cret" not in diagnosis.to_json()


@given(st.text(max_size=300))
def test_hiding_twice_hides_no_more(text):
    """
    What was hidden once is not taken for a secret again.
    """
    assert redacted(redacted(text)) == redacted(text)
