"""A program that watches a cluster with the public API and notifies a webhook, to be killed.

Run as ``watched_program.py ADDRESS STATE URL [alertmanager] [finish]``: with ``alertmanager`` it notifies one
instead, and with ``finish`` it ends when all is sent.
Run without arguments it serves a `ForkingProgram`.
"""

from __future__ import annotations

import sys
import time

import distributed  # noqa: F401  for forked processes

import workerdiag
from support.forking_program import serve
from workerdiag.watch import loop
from workerdiag.watch.case import WatchSettings
from workerdiag.watch.sinks.alertmanager import AlertmanagerSink
from workerdiag.watch.sinks.webhook import WebhookSink

SECRET = "known-to-both"
#: Time-out of the sender, in seconds; shorter than the longest delay of the receiver.
TIMEOUT_S = 0.3
#: Intervals so short that a case fires, is resolved and recurs within seconds.
SETTINGS = WatchSettings(settle_s=0.05, collect_s=0.3, resolve_s=1.0)
_LOOK_S = 0.2
#: Time passes for a case after each question to the scheduler, which usually waits for twenty seconds.
loop.POLL_S = 1.0


def is_all_said(watcher: workerdiag.Watcher) -> bool:
    """Whether every case is over and every notice delivered."""
    waiting = (sink.counts["pending"] + sink.counts["sending"] for sink in watcher.status().sinks)
    return not any(case.is_open for case in watcher.cases()) and not any(waiting)


def main(address: str, state: str, url: str, *words: str) -> None:
    """Watch until killed or finished."""
    sink = WebhookSink(url, SECRET, name="hook", timeout_s=TIMEOUT_S)
    if "alertmanager" in words:
        sink = AlertmanagerSink(url, repeat_s=2.0)
    with workerdiag.watch(address, sink, state=state, name="prod", settings=SETTINGS) as watcher:
        print("ready", flush=True)  # noqa: T201  it is a program
        while "finish" not in words or watcher.status().seen_at is None or not is_all_said(watcher):
            time.sleep(_LOOK_S)


if __name__ == "__main__":
    if sys.argv[1:]:
        main(*sys.argv[1:])
    else:
        workerdiag.explain(
            logs=[workerdiag.LogText("distributed.nanny - INFO - Worker process 1 was killed by signal 9")]
        )
        serve(main)
