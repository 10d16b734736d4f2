"""``python -m peers CHECKOUT``: asks `explain` beside distributed's own failure tests, prints how right it is."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path

import click

import workerdiag
from peers.answers import Answer, answer_of, read_answers
from peers.marks import mark, table, without_failed
from peers.runner import CheckoutError, changed_by_us, failures, lay_over, results
from peers.truths import TableError, Truth, function_of, read_truths, truth_of


@click.command()
@click.argument("checkout", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--sample", type=click.IntRange(1), default=1, help="Run each N-th test only.")
@click.option("--only", default="", help="Run tests with this text in their names only.")
@click.option("--keep", type=click.Path(path_type=Path), help="Folder for answers and death bundles.")
@click.option("--again", is_flag=True, help="Judge the bundles in --keep anew, and run nothing.")
def main(checkout: Path, sample: int, only: str, keep: Path | None, *, again: bool) -> None:
    """Ask about each test of the table, and hold the answers against it.

    Exit status 1 when an answer is a wrong all-clear or confidently wrong, when explain raised, or
    when a test's result is another one than without it.
    """
    folder = keep or Path(tempfile.mkdtemp(prefix="peers-"))
    folder.mkdir(parents=True, exist_ok=True)
    try:
        truths = read_truths(workerdiag.load_rulebook())
        where = None if again else lay_over(checkout, folder / "tests")
        chosen = list(dict.fromkeys(function_of(each) for each in truths if only in each))[::sample]
        changed = changed_by_us(chosen, where, folder) if where else []
    except (CheckoutError, TableError) as problem:
        raise click.ClickException(str(problem)) from problem
    answers = [_anew(each, folder) if again else each for each in read_answers(folder)]
    answers = [each for each in answers if function_of(each.test) in chosen]
    answers, unproven = without_failed(answers, failures(results(folder)))
    for line in table(answers, truths):
        click.echo(line)
    if unproven:
        click.echo(f"not marked, as the test itself failed: {len(unproven)} answers")
    for test in changed:
        click.echo(f"another result than without explain: {test}")
    raise SystemExit(bool(changed) or any(_is_bad(each, truths) for each in answers))


def _anew(answer: Answer, folder: Path) -> Answer:
    """What is said today of the same evidence."""
    if not answer.bundle:
        return answer
    said = workerdiag.explain(logs=folder / answer.bundle)
    return answer_of(said, answer.test, answer.asked, bundle=answer.bundle, seconds=0)


def _is_bad(answer: Answer, truths: Mapping[str, Truth]) -> bool:
    truth = truth_of(answer.test, truths)
    return truth is not None and mark(answer, truth) in {"wrong all-clear", "confidently wrong", "raised"}


if __name__ == "__main__":
    main()
