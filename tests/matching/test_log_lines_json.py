"""Logs whose collector puts each line into a JSON object."""

from __future__ import annotations

import json

import pytest

import workerdiag

KILLED = "2026-05-04 11:22:33,444 - distributed.nanny - INFO - Worker process 7012 was killed by signal 11"
DUMP = """\
Fatal Python error: Segmentation fault

Current thread 0x00007f3d1affd640 (most recent call first):
  File "/opt/env/lib/python3.11/site-packages/netCDF4/utils.py", line 40 in _open
  File "/home/ann/load.py", line 12 in load_station

"""


def docker(line: str) -> dict[str, object]:
    """As Docker's json-file driver stores a line."""
    return {"log": f"{line}\n", "stream": "stderr", "time": "2026-05-04T11:22:33.444123456Z"}


def cloud_logging(line: str) -> dict[str, object]:
    """As Google's Cloud Logging gives it out."""
    return {"insertId": "1x", "textPayload": line, "timestamp": "2026-05-04T11:22:33.444Z"}


def explained(*lines: str) -> workerdiag.Diagnosis:
    """What is said of these lines."""
    return workerdiag.explain(logs=[workerdiag.LogText("\n".join(lines), None)])


@pytest.mark.parametrize("wrap", [docker, cloud_logging])
def test_a_dump_over_many_objects_is_one_message(wrap):
    """Quotes that JSON escapes and lines that stand in objects of their own hide no frame."""
    lines = [json.dumps(wrap(line)) for line in [*DUMP.splitlines(), KILLED]]
    (death,) = explained(*lines).deaths
    assert death.crashed_in == ("_open (netCDF4/utils.py:40)", "load_station (load.py:12)")
    assert (death.identity.pid, death.signal) == (7012, 11)


def test_logger_and_level_may_have_keys_of_their_own():
    """A JSON formatter takes the line apart; it is put together again, with its stream and time."""
    record = {
        "timestamp": "2026-05-04T11:22:33.444Z",
        "level": "info",
        "logger": "distributed.nanny",
        "message": "Worker process 7012 was killed by signal 9",
    }
    (death,) = explained(json.dumps(record)).deaths
    assert (death.identity.pid, death.signal, death.reporters) == (7012, 9, ("nanny log",))
    assert death.when == 1777893753.444


def test_an_object_of_somebody_else_stays_whole():
    """An event of Kubernetes says in its other keys what its message does not."""
    event = {"reason": "OOMKilling", "message": "Memory cgroup out of memory: Killed process 7012 (dask)"}
    (cause, *_) = explained(json.dumps(event)).causes
    assert "OOMKilling" in cause.evidence[0].text


@pytest.mark.parametrize(
    "broken", ['{"log": "cut off in the mid', '{"log": "\\ud800\\x"}', '{"message": 7}', '"log":']
)
def test_what_is_no_object_is_a_line_like_any_other(broken):
    """A line that a collector cut, or that only looks so, is no error."""
    assert explained(broken, KILLED).deaths[0].signal == 11


def test_half_a_character_in_an_object_is_no_error():
    r"""JSON may hold ``\udca2`` where a file name was no UTF-8; the line and those beside it are read."""
    odd = "2026-05-04 11:22:33,000 - distributed.worker - WARNING - caf\udca2.csv: Worker process 7012"
    said = explained(*(json.dumps({"log": each, "stream": "stderr"}) for each in (odd, KILLED)))
    assert said.deaths[0].signal == 11
    assert said.gaps == ()


def test_a_traceback_in_an_object_is_read_as_one():
    """A program that is not Dask logs what Dask raised, in one object."""
    said = explained(
        json.dumps(
            {
                "level": "INFO",
                "message": "Traceback (most recent call last):\n"
                '  File "/opt/env/lib/python3.9/site-packages/distributed/security.py", line 203, in _get_tls_context\n'
                "FileNotFoundError: [Errno 2] No such file or directory: '/certs/ca.pem'",
            }
        )
    )
    assert said.top.id == "exception.tls"


@pytest.mark.parametrize("wrap", [docker, cloud_logging])
def test_objects_of_a_list_on_one_line_are_lines_of_their_own(wrap):
    """As `jq -c` and CloudWatch's answers have them: a death in the second is seen."""
    before = "2026-05-04 11:22:31,222 - distributed.nanny - INFO -         Start Nanny at: 'tcp://10.0.0.7:33333'"
    text = json.dumps({"events": [wrap(before), wrap(KILLED)], "nextToken": "f/1"})
    assert explained(text).causes[0].id == "signal.segfault"


def test_the_keys_of_elastic_common_schema_name_logger_and_level():
    line = {"@timestamp": "2026-05-04T11:22:33.444Z", "log.level": "INFO", "log.logger": "distributed.nanny"}
    text = json.dumps(line | {"message": "Worker process 7012 was killed by signal 11"})
    assert explained(text).deaths[0].reporters == ("nanny log",)
