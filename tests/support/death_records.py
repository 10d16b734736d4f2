"""The messages that scheduler and nanny send about a death, as the recorder words them."""

from __future__ import annotations

from workerdiag.wire.messages import decode_message

NOW = 1_795_281_103.0
NANNY = "tcp://10.0.0.4:9001"


def worker_address(number):
    """Return the address of one dead worker."""
    return f"tcp://10.0.0.4:{1000 + number}"


def scheduler_record(number=1, **more):
    """Return a removal record, as plain data."""
    return {
        "schema": 1,
        "kind": "removal",
        "worker_address": worker_address(number),
        "worker_name": "w",
        "pid": number,
        "nanny_address": NANNY,
        "address_host": "10.0.0.4",
        "noticed_at": NOW + number,
        "stimulus_id": "handle-worker-cleanup-1",
        "is_expected": False,
        "status_changes": (),
        "nthreads": 1,
        "memory_limit_bytes": 100,
        "last_heartbeat": {"at": NOW, "age_s": 0.5, "rss_bytes": 60},
        "executing_at_heartbeat": ({"key": "load", "running_s": 1.0},),
        "seceded_keys": (),
        "assigned_keys": ("load", "wait"),
        "assigned_count": 2,
        "suspects": (),
        "given_up": (),
        "allowed_failures": 3,
        **more,
    }


def nanny_report(number=1, **more):
    """Return a nanny's report, as plain data."""
    return {
        "schema": 1,
        "kind": "nanny-report",
        "worker_address": worker_address(number),
        "pid": number,
        "nanny_address": NANNY,
        "noticed_at": NOW + number,
        "exit": {"signal": 11, "known_by": "nanny"},
        "running_tasks": (
            {
                "key": "load",
                "is_clipped": False,
                "thread_name": "Dask-0",
                "started_at": NOW + number - 2,
                "is_on_crashed_thread": True,
            },
        ),
        "box": {
            "stage": "running",
            "written_at": NOW + number,
            "samples": ({"at": NOW, "process_rss_bytes": 90, "memory_limit_bytes": 100},),
            "last_output": "distributed.worker - INFO - last words\n",
            "faulthandler_dump": "Fatal Python error: Segmentation fault\n",
            "identity": {},
            "unreadable_parts": (),
        },
        **more,
    }


def found_report(number=1, **more):
    """Return the report of whoever found the box, as plain data, without an exit."""
    report = nanny_report(number, **{"kind": "box-found", "last_written_at": NOW + number, **more})
    for name in {"noticed_at", "exit"} - more.keys():
        del report[name]
    return report


def decoded(message):
    """Return the typed message of plain data."""
    dropped = []
    found = decode_message(message, dropped)
    assert dropped == [] and found is not None, (dropped, message)  # noqa: PT018  shows both
    return found
