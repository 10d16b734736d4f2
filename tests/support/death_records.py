"""
What scheduler and nanny tell of a death, as the recorder words it.
"""

from __future__ import annotations

NOW = 1_795_281_103.0
NANNY = "tcp://10.0.0.4:9001"


def worker_address(number):
    """
    Address of one of the dead.
    """
    return f"tcp://10.0.0.4:{1000 + number}"


def scheduler_record(number=1, **more):
    """
    What a scheduler notes of a death.
    """
    return {
        "schema": 1,
        "source": "scheduler",
        "worker": worker_address(number),
        "name": "w",
        "pid": number,
        "nanny": NANNY,
        "host": "10.0.0.4",
        "when": NOW + number,
        "stimulus_id": "handle-worker-cleanup-1",
        "expected": False,
        "reason": None,
        "changes": (),
        "nthreads": 1,
        "limit_bytes": 100,
        "heard": {"when": NOW, "age_s": 0.5, "rss_bytes": 60},
        "executing": ({"key": "load", "seconds": 1.0},),
        "seceded": (),
        "assigned": ("load", "wait"),
        "assigned_count": 2,
        "suspicious": (),
        "gave_up": (),
        "allowed_failures": 3,
        **more,
    }


def nanny_report(number=1, **more):
    """
    What a nanny tells of it.
    """
    return {
        "schema": 1,
        "source": "nanny",
        "worker": worker_address(number),
        "pid": number,
        "nanny": NANNY,
        "when": NOW + number,
        "exit": {"signal": 11, "status": None, "certain": True},
        "asked": False,
        "executing": (
            {"key": "load", "clipped": False, "thread": "Dask-0", "since": NOW + number - 2, "crashed": True},
        ),
        "box": {
            "state": "running",
            "written_at": NOW + number,
            "samples": ({"when": NOW, "process_rss_bytes": 90, "memory_limit_bytes": 100},),
            "lines": "distributed.worker - INFO - last words\n",
            "fault": "Fatal Python error: Segmentation fault\n",
            "identity": {},
            "torn": (),
        },
        **more,
    }
