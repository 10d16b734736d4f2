"""Runs natural programs, each in a process of its own, and prints a table of the answers."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable
from fnmatch import filter as matching_names
from pathlib import Path

import click
from attrs import frozen

from .cluster import IMPORT_ROOT
from .natural_scenario import SCENARIOS, Answer, Mark, Scenario, judge

#: What a program, the question and the way there may take together, on a busy machine.
LONGEST_S = 110
#: The end of a child's output that is shown where it gave no answer.
TAIL_CHARS = 1500
#: Holds the evidence of a run.
BUNDLE = "death.zip"


@frozen(kw_only=True)
class Run:
    """One run of one program."""

    scenario: Scenario
    #: None where a library is missing, or the lab failed.
    answer: Answer | None = None
    #: Why there is no answer.
    trouble: str = ""
    #: What was handed in.
    handed: str = ""
    #: The whole report.
    full_text: str = ""
    #: Of the whole run.
    seconds: float = 0.0

    @property
    def mark(self) -> Mark | None:
        """How good the answer is, if there is one."""
        return judge(self.scenario, self.answer) if self.answer is not None else None


def missing_libraries(scenario: Scenario) -> list[str]:
    """Return the libraries that a scenario needs and that are not installed."""
    return [each for each in scenario.needs if importlib.util.find_spec(each) is None]


def run_scenario(
    scenario: Scenario, *, after_death: bool = False, recorded: bool = False, keep: Path | None = None
) -> Run:
    """Run a program in a process of its own, which dies with everything it started; return its answer.

    The evidence goes to the folder *keep*, as an incident that ``tools/calibrate.py`` reads.
    """
    if missing := missing_libraries(scenario):
        return Run(scenario=scenario, trouble=f"skipped: no {', '.join(missing)}")
    began = time.monotonic()
    folder = Path(tempfile.mkdtemp(prefix="workerdiag-natural-"))
    try:
        said, trouble = _said(scenario.name, folder, after_death=after_death, recorded=recorded)
        if keep is not None and (folder / BUNDLE).exists():
            keep.mkdir(parents=True, exist_ok=True)
            shutil.copy(folder / BUNDLE, keep)
            (keep / "meta.toml").write_text(incident_meta(scenario, recorded=recorded))
    finally:
        _unmount(folder)
        shutil.rmtree(folder, ignore_errors=True)
    seconds = time.monotonic() - began
    if said is None:
        return Run(scenario=scenario, trouble=trouble, seconds=seconds)
    answer = Answer(
        outcome=said["outcome"],
        causes=tuple((name, probability) for name, probability in said["causes"]),
        deaths_are_separate=said["deaths_are_separate"],
        blamed=said["blamed"],
        text=said["text"],
        seconds=said["seconds"],
    )
    return Run(scenario=scenario, answer=answer, handed=said["handed"], full_text=said["full"], seconds=seconds)


def incident_meta(scenario: Scenario, *, recorded: bool) -> str:
    """Return the ``meta.toml`` of a run: every true answer, and whether the flight recorder was on."""
    import workerdiag

    causes = [each.id for each in workerdiag.load_rulebook(packs=False).causes]
    expected: list[str] = []
    for right in (*scenario.right, *scenario.partly):
        named = ["no-death", "unknown"] if right == "separate" else matching_names(causes, right) or [right]
        expected += [each for each in named if each not in expected]
    lines = (
        f"about = {json.dumps(scenario.about)}",
        f"expected = {json.dumps(expected)}",
        f'channel = "{"recorder" if recorded else "live"}"',
    )
    return "\n".join((*lines, ""))


def _said(name: str, folder: Path, *, after_death: bool, recorded: bool) -> tuple[dict | None, str]:
    """Return the answer of a run, and the end of what it printed."""
    here = __package__ or "lab"
    # Not ``-m``: the workers of a LocalCluster would then import all of this as their main module.
    code = f"from {here}.natural_run import answer; answer({name!r}, {str(folder)!r}, {after_death}, {recorded})"
    paths = [str(IMPORT_ROOT), os.environ.get("PYTHONPATH", "")]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        "WORKERDIAG_RECORDER_DIRECTORY": str(folder / "boxes"),
    }
    output = folder / "output.txt"
    with output.open("wb") as sink:
        process = subprocess.Popen(
            [sys.executable, "-c", code],
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=subprocess.STDOUT,
            env=environment,
            cwd=folder,
            start_new_session=True,
        )
        try:
            process.wait(LONGEST_S)
        except subprocess.TimeoutExpired:
            pass
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    result = folder / "answer.json"
    if not result.exists():
        return None, "lab: " + output.read_text(errors="replace")[-TAIL_CHARS:]
    return json.loads(result.read_text()), ""


def answer(name: str, folder: str, after_death: bool, recorded: bool) -> None:  # noqa: FBT001
    """Run one program here, write what `workerdiag.explain` says to ``answer.json``, and exit.

    Does not return: clusters that hang would take their time to close, and the caller kills what is left.
    """
    importlib.import_module(".natural", __package__)
    from .natural_stage import Stage

    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # inherited from a shell's background
        signal.signal(signal.SIGINT, signal.default_int_handler)
    home = Path(folder)
    with contextlib.ExitStack() as last:
        last.callback(os._exit, 0)
        stage = Stage(home, after_death=after_death, recorded=recorded)
        last.callback(stage.lab.close)
        try:
            asked = SCENARIOS[name].program(stage)
            import workerdiag

            began = time.monotonic()
            diagnosis = workerdiag.explain(asked.exc, asked.client)
            seconds = time.monotonic() - began
        except BaseException:
            import traceback

            traceback.print_exc()
            sys.stderr.flush()
            return
        said = {
            "outcome": diagnosis.outcome,
            "causes": [(each.id, each.probability) for each in diagnosis.causes],
            "deaths_are_separate": diagnosis.deaths_are_separate,
            "blamed": diagnosis.blame.task or "",
            "text": str(diagnosis),
            "full": diagnosis.to_text(full=True),
            "seconds": seconds,
            "handed": f"{type(asked.exc).__name__}: {asked.exc}"[:300] if asked.exc is not None else "",
        }
        with contextlib.suppress(workerdiag.WorkerdiagError):  # the disk may be full
            diagnosis.save(home / BUNDLE)
        unfinished = home / "answer.new"
        unfinished.write_text(json.dumps(said))
        unfinished.rename(home / "answer.json")


def _unmount(folder: Path) -> None:
    disk = folder / "disk"
    if disk.is_mount():
        subprocess.run(["umount", "--lazy", str(disk)], check=False)


def row(run: Run) -> str:
    """Return the line of a run in the table."""
    if run.answer is None:
        last = run.trouble.strip().splitlines()[-1] if run.trouble.strip() else "no answer"
        return f"{run.scenario.name:46} {last[:90]}"
    chance = f"{run.answer.probability:4.0%}" if run.answer.probability is not None else "    "
    return (
        f"{run.scenario.name:46} {run.answer.name:30} {chance} {run.mark:15} "
        f"{run.answer.seconds:4.1f} s of {run.seconds:3.0f} s"
    )


def counts(runs: Iterable[Run]) -> str:
    """Return how many answers were right, and how many were not."""
    marks = Counter(run.mark or "no answer" for run in runs)
    return ", ".join(f"{number} {mark}" for mark, number in marks.most_common())


@click.command()
@click.option("--only", help="Names of scenarios, with commas.")
@click.option("--after-death", is_flag=True, help="On clusters that have lost a worker before.")
@click.option("--recorder", is_flag=True, help="With the flight recorder.")
@click.option("--answers", type=click.Path(path_type=Path), help="Folder for the reports.")
@click.option("--keep", type=click.Path(path_type=Path), help="Folder for the incidents, for tools/calibrate.py.")
def main(only: str | None, answers: Path | None, keep: Path | None, *, after_death: bool, recorder: bool) -> None:
    """Run natural programs and print a table: answer, probability, judgement, time."""
    importlib.import_module(".natural", __package__)
    names = only.split(",") if only else list(SCENARIOS)
    if unknown := [each for each in names if each not in SCENARIOS]:
        raise click.ClickException(f"no such scenario: {', '.join(unknown)}")
    runs = []
    for name in names:
        kind = f"{name}{'.after-death' if after_death else ''}{'.recorder' if recorder else ''}"
        kept = keep / kind if keep is not None else None
        run = run_scenario(SCENARIOS[name], after_death=after_death, recorded=recorder, keep=kept)
        runs.append(run)
        click.echo(row(run))
        if answers is not None:
            answers.mkdir(parents=True, exist_ok=True)
            text = run.answer.text if run.answer is not None else run.trouble
            (answers / f"{kind}.txt").write_text(
                f"# {SCENARIOS[name].about}\n# handed in: {run.handed or 'client alone'}\n{row(run)}\n\n{text}\n"
                f"\n{'-' * 30} the whole report\n\n{run.full_text}\n"
            )
    click.echo(counts(runs))
