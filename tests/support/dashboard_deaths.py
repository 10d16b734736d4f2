"""Judgements and recorded deaths, as the dashboard receives them."""

from __future__ import annotations

import base64
import json
import zlib

from support.death_records import NOW, nanny_report, scheduler_record
from workerdiag.integrations.dashboard.judge_process import (
    DeadWorker,
    Judgement,
    MemoryCurve,
    ShownCase,
    ids_of,
)

SEGFAULT = ("signal.segfault", "signal", "task")
OOM = ("kernel.oom-killer", "kernel", "configuration")


def victim(number, **more):
    """Return one dead worker, with its memory."""
    memory = MemoryCurve(seconds=(-2.0, -1.0), rss_bytes=(10, 20), limit_bytes=100)
    content = {"id": f"death-{number}", "worker": f"tcp://10.0.0.4:{number}", "name": f"w{number}"}
    return DeadWorker(**{**content, "when": NOW + number, "memory": memory, **more})


def case(*numbers, id_="aaaaaaaaaaaa", cause=SEGFAULT, report="<p>why</p>", **more):
    """Return a case with these victims."""
    content = dict(zip(("cause", "family", "blame"), cause, strict=True)) | {"is_likely": True}
    return ShownCase(
        id=id_,
        victims=tuple(map(victim, numbers)),
        report=base64.b64encode(zlib.compress(report.encode())).decode(),
        **{"title": "It crashed", "probability": 0.9, **content, **more},
    )


def judgement(*cases, also=(), causes=(SEGFAULT, OOM)):
    """Return the judgement with these cases, of their victims and of the further deaths *also*, given by number."""
    ids = [*ids_of(each for one in cases for each in one.victims), *(f"death-{number}" for number in also)]
    return Judgement(cases=cases, death_ids=tuple(ids), causes=causes)


def recorded_line(number, **more):
    """Return a recorded death as a line of JSON, as the recorder's handler answers it."""
    return json.dumps({"record": scheduler_record(number), "report": nanny_report(number, **more)}).encode()
