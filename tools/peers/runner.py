"""Runs distributed's tests, with and without `explain` beside them."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

from peers import observer

#: Nothing of a checkout but its tests and what configures them.
_FROM_CHECKOUT = ("conftest.py", "pyproject.toml", "distributed")
#: Tests in one run of pytest; a run that dies takes no more than these with it.
_AT_ONCE = 60
#: pytest's exit status where it was called wrongly.
_NOT_STARTED = int(pytest.ExitCode.USAGE_ERROR)


#: As `run` is called.
Runs = Callable[..., Mapping[str, str]]


class CheckoutError(Exception):
    """The folder is no checkout of distributed, or its tests cannot be run."""


def lay_over(checkout: Path, folder: Path) -> Path:
    """The checkout's tests with the installed distributed around them, in *folder*; the checkout stays as it is.

    So the release that is installed is what runs, and its tests can be imported in every process.
    """
    if not (checkout / "distributed" / "tests").is_dir():
        raise CheckoutError(f"{checkout} has no distributed/tests: a checkout of dask/distributed is needed")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name in _FROM_CHECKOUT:
        copy = shutil.copytree if (checkout / name).is_dir() else shutil.copy
        copy(checkout / name, folder / name)
    found = importlib.util.find_spec("distributed")
    if found is None or found.origin is None:
        raise CheckoutError("distributed is not installed")
    shutil.copytree(Path(found.origin).parent, folder / "distributed", dirs_exist_ok=True)
    return folder


def run(tests: Sequence[str], where: Path, folder: Path, *, asking: bool = True) -> dict[str, str]:
    """Run *tests* of the checkout laid out in *where*; answers go to *folder*.

    Returns:
        How each test ended.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*.jsonl"):
        old.unlink()
    paths = [str(where), str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    environment[observer.FOLDER] = str(folder.resolve())
    if not asking:
        environment[observer.SILENT] = "1"
    command = [sys.executable, "-m", "pytest", "-p", observer.__name__, "-p", "no:cacheprovider", "--runslow"]
    command.append("--tb=native")  # pytest's own way to show a failure can end the whole run (Python 3.11)
    for first in range(0, len(tests), _AT_ONCE):
        some = tests[first : first + _AT_ONCE]
        words = [*command, "-q", *some]
        done = subprocess.run(words, cwd=where, env=environment, check=False)  # noqa: S603  names of tests
        if done.returncode == _NOT_STARTED:
            raise CheckoutError("pytest could not run the tests, see above")
    return results(folder)


def changed_by_us(tests: Sequence[str], where: Path, folder: Path, *, runs: Runs = run) -> list[str]:
    """Run *tests* with `explain`, and those that fail once more without and once more with it.

    Returns:
        The tests that fail with `explain`, twice, and not without: on a busy machine some fail once.
    """
    failed = failures(runs(tests, where, folder))
    still = failures(runs(failed, where, folder / "without", asking=False)) if failed else []
    suspects = [each for each in failed if each not in still]
    return failures(runs(suspects, where, folder / "again")) if suspects else []


def failures(ended: Mapping[str, str]) -> list[str]:
    """The tests that failed."""
    return [test for test, how in ended.items() if how == "failed"]


def results(folder: Path) -> dict[str, str]:
    """How each test ended: the worst of its setup, itself and its teardown."""
    worst: dict[str, str] = {}
    order = ("passed", "skipped", "failed")
    noted = folder / "results.jsonl"
    for line in noted.read_text().splitlines() if noted.exists() else ():
        row = json.loads(line)
        worst[row["test"]] = max(worst.get(row["test"], "passed"), row["is"], key=order.index)
    return worst
