"""A bot of one's own in ten lines: each notice of the watcher goes to a function.

python examples/function_bot.py tcp://scheduler:8786
"""

import sys

import workerdiag
from workerdiag.watch.case import WatchedCase


def tell(notice: WatchedCase) -> None:
    """Whatever you like: open an issue, ring a bell, scale the cluster."""
    print(notice.title, *notice.advice[:1], sep="\n  ", flush=True)


with workerdiag.watch(sys.argv[1], tell, state="state.db") as watcher:
    for _ in watcher:  # until the cluster is closed
        pass
