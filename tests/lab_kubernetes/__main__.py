"""``python -m lab_kubernetes build|up|down``, or ``record FOLDER [DEATH]...``: from the folder ``tests``."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from .binaries import build
from .node import down, enter, up


def main(command: str, *arguments: str) -> None:
    """Do one of the four."""
    if command == "build":
        build()
    elif command == "up":
        up(build())
    elif command == "down":
        down()
    else:
        enter()
        _record(Path(arguments[0]), arguments[1:])


def _record(folder: Path, names: tuple[str, ...]) -> None:
    from .deaths import DEATHS, cleared
    from .pods import scheduler
    from .recording import record, who_died

    for name in names or tuple(DEATHS):
        began = time.monotonic()
        with cleared(), scheduler() as client:
            error = DEATHS[name](client)
            time.sleep(1)  # events are written behind
            record(folder / f"{name}.json", name=name, victims=who_died(client, error))
        print(f"{name}: {time.monotonic() - began:.0f} s")  # noqa: T201  a command


if __name__ == "__main__":
    main(*sys.argv[1:])
