"""``workerdiag knowledge``: read, check and draft rules, and the JSON Schema of their files."""

from __future__ import annotations

import difflib
import json
from collections.abc import Sequence
from pathlib import Path

import click
from click.exceptions import Exit

from workerdiag.cli.commands import (
    EXIT_NOT_OK,
    EXIT_OK,
    FolderPath,
    SafeGroup,
    UnusableError,
    command,
    gap_text,
    is_colored,
    knowledge_option,
    load_checked_rulebook,
    rule_problems,
    status_line,
    text_width,
    warn,
)
from workerdiag.deadline import Deadline
from workerdiag.errors import RuleFileError
from workerdiag.model.evidence import LogChunk
from workerdiag.model.rules import SIGN_KINDS, Cause, ErrorRule, Landmark, ReasonRule, Rulebook
from workerdiag.redaction.secrets import redact_text
from workerdiag.rendering.json import DIALECT, Schema, add_definition
from workerdiag.rendering.wording import one_line, pluralize, printable

_MAX_NOTES = 10
_folder_argument = click.argument("folder", metavar="DIR", type=FolderPath(path_type=Path))


@click.group(cls=SafeGroup, examples=("workerdiag knowledge list", "workerdiag knowledge lint my-rules"))
def knowledge() -> None:
    """Read and check what workerdiag knows about dying workers."""


@command("workerdiag knowledge list --knowledge my-rules", name="list", group=knowledge)
@knowledge_option
def list_causes(knowledge: tuple[str, ...]) -> None:
    """List all causes, then the installed packs.

    A line for each cause: id, revision, title. A line for each pack: what it has, or why it is left out.
    """
    from workerdiag.rulebook.load import installed_packs

    book = load_checked_rulebook(knowledge)
    id_columns = max((len(each.id) for each in book.causes), default=0)
    for each in sorted(book.causes, key=lambda cause: cause.id):
        status = "" if each.status == "stable" else f" ({each.status})"
        click.echo(printable(f"{each.id:<{id_columns}}  {each.revision:>2}  {one_line(each.title)}{status}"))
    for pack in installed_packs(Deadline.after(10.0)):
        counts = (f"pack {pack.name}: {_rule_counts(pack.book)}",) if pack.book is not None else ()
        for line in (*counts, *map(one_line, pack.notes)):
            click.echo(printable(line))


@command(
    "workerdiag knowledge show nanny.memory-terminate",
    "workerdiag knowledge show my.cause --knowledge my-rules",
    group=knowledge,
)
@click.argument("cause_id", metavar="ID")
@knowledge_option
def show(cause_id: str, knowledge: tuple[str, ...]) -> None:
    """Show one cause in full."""
    from workerdiag.rendering.cause import render_cause

    book = load_checked_rulebook(knowledge)
    cause = book.cause(cause_id)
    if cause is None:
        near = similar_ids(cause_id, [each.id for each in book.causes])
        raise UnusableError(f"there is no cause {cause_id!r}{near}")
    click.echo(render_cause(cause, width=text_width(), color=is_colored()), color=True)


@command(
    "workerdiag knowledge search out of memory",
    "workerdiag knowledge search 'Worker exceeded 95% memory budget'",
    group=knowledge,
)
@click.argument("words", nargs=-1, required=True)
@knowledge_option
def search(words: tuple[str, ...], knowledge: tuple[str, ...]) -> int:
    """Find causes by words or by a line of a log, the best first.

    Exit status: 0 found, 1 none, 2 bad usage.
    """
    from workerdiag.rulebook.load import search_causes

    found = search_causes(load_checked_rulebook(knowledge), " ".join(words))
    id_columns = max((len(each.id) for each in found), default=0)
    for each in found:
        click.echo(printable(f"{each.id:<{id_columns}}  {one_line(each.title)}"))
    if not found:
        click.echo("No cause matches; `workerdiag knowledge list` lists all.", err=True)
    return EXIT_OK if found else EXIT_NOT_OK


def similar_ids(cause_id: str, ids: Sequence[str]) -> str:
    """The ids that may have been meant, as the end of a sentence."""
    part = [each for each in ids if cause_id.lower() in each] if len(cause_id) > 2 else []
    near = dict.fromkeys([*difflib.get_close_matches(cause_id.lower(), ids, n=4, cutoff=0.5), *part[:4]])
    if not near:
        return "; `workerdiag knowledge list` lists all."
    return f"; did you mean {' or '.join(near)}?"


@command("workerdiag knowledge lint my-rules", group=knowledge)
@_folder_argument
@click.option("--strict", is_flag=True, help="Ask for all that the rules shipped with workerdiag have.")
def lint(folder: Path, *, strict: bool) -> int:
    """Check a folder of rules for mistakes.

    Keys, types, patterns, references: all problems are listed at once. What the folder refers to
    may also be among the causes and landmarks that come with workerdiag. With --strict a cause also has an
    author, the day it was added, an origin, references, a mitigation and a next step, and each log sign matches
    its examples and has a lookalike. Exit status: 0 no problem, 1 problems, 2 no such folder.
    """
    from workerdiag.authoring.lint import check_examples, incomplete_rules

    book = _readable_rules(folder)
    problems = rule_problems(folder, book)
    if strict:
        problems += [*check_examples(book), *incomplete_rules(book)]
    return _print_problems(folder, problems, _rule_counts(book))


@command("workerdiag knowledge test my-rules", group=knowledge)
@_folder_argument
@click.option(
    "--incidents",
    multiple=True,
    metavar="DIR",
    type=FolderPath(path_type=Path),
    help="A folder of incidents whose cause is known, beside DIR/incidents. May be repeated.",
)
@click.option("--strict", is_flag=True, help="Count unproven signs and causes as problems.")
def test(folder: Path, *, incidents: tuple[Path, ...], strict: bool) -> int:
    """Test rules on lines, whole incidents and quiet logs.

    Each sign must match the lines it is for, and none that only look alike. Together with the
    rules that come with workerdiag, each incident in DIR/incidents must be explained as its
    meta.toml says, and on quiet logs (DIR/quiet, DIR/quiet.txt, and those that come with
    workerdiag) no cause may get a chance of 0.2. Signs without lookalikes and causes without an
    incident are notes.

    Exit status: 0 all good, 1 problems, 2 no such folder.
    """
    from workerdiag.authoring.rule_tests import evaluate_rules

    try:
        with status_line(f"testing the rules of {folder}"):
            trial = evaluate_rules(folder, incidents=incidents)
    except RuleFileError as problem:
        return _print_problems(Path(problem.place), problem.problems, "")
    if not strict:
        for each in trial.unproven[:_MAX_NOTES]:
            click.echo(printable(f"note: {each}"), err=True)
        if (more := len(trial.unproven) - _MAX_NOTES) > 0:
            click.echo(f"note: {more} more are not proven; --strict lists all", err=True)
    incidents_, quiet = pluralize(trial.incident_count, "incident"), pluralize(trial.quiet_count, "quiet log")
    good = f"{_rule_counts(trial.book)}, {incidents_}, {quiet}"
    return _print_problems(folder, (*trial.problems, *(trial.unproven if strict else ())), good)


@command("workerdiag knowledge lock my-rules", group=knowledge)
@_folder_argument
@click.option("--check", is_flag=True, help="Only check whether the lock fits; write nothing.")
def lock(folder: Path, *, check: bool) -> int:
    """Record the content that each revision is released with.

    Refuses, as --check does, when an edit since the last release that can change a diagnosis came without a
    new revision, or a released id has vanished. A rule that was never released has revision 1, however often
    it was edited. Exit status: 0 fits or written, 1 refused, 2 no such folder.
    """
    from workerdiag.authoring.lockfile import lock_problems, lock_rules

    book = _readable_rules(folder)
    if check:
        return _print_problems(folder, lock_problems(folder, book), _rule_counts(book))
    return _print_problems(folder, lock_rules(folder, book), f"{_rule_counts(book)} locked")


def _readable_rules(folder: Path) -> Rulebook:
    """The rules of a folder; with mistakes in its files the command ends with these."""
    from workerdiag.rulebook.toml_folder import read_folder

    try:
        return read_folder(folder)
    except RuleFileError as problem:
        raise Exit(_print_problems(folder, problem.problems, "")) from None


def _print_problems(folder: Path, problems: Sequence[str], good: str) -> int:
    for each in problems:
        click.echo(printable(each))
    if problems:
        click.echo(printable(f"{folder}: {pluralize(len(problems), 'problem')}"), err=True)
        return EXIT_NOT_OK
    click.echo(printable(f"{folder}: {good}, no problems"))
    return EXIT_OK


def _rule_counts(book: Rulebook) -> str:
    return f"{pluralize(len(book.causes), 'cause')}, {pluralize(len(book.landmarks), 'landmark')}"


@command("workerdiag knowledge export > rules.json", group=knowledge)
@knowledge_option
def export(knowledge: tuple[str, ...]) -> None:
    """Print all rules as one JSON document."""
    from workerdiag.matching.literals import literals
    from workerdiag.rulebook.load import export_rulebook, patterns

    book = load_checked_rulebook(knowledge)
    click.echo(export_rulebook(book, {each: literals(each) for each in patterns(book)}))


@command(
    "workerdiag knowledge schema > rules.schema.json",
    "workerdiag knowledge schema --export > export.schema.json",
    group=knowledge,
)
@click.option("--export", is_flag=True, help="Of what `workerdiag knowledge export` prints.")
def schema(*, export: bool) -> None:
    """Print the JSON Schema of rule files.

    For editors that check TOML, and for other tools.
    """
    click.echo(json.dumps(export_schema() if export else rule_schema(), indent=2))


@command(
    "workerdiag knowledge draft worker.log > draft.toml",
    "kubectl logs my-worker --previous | workerdiag knowledge draft -",
)
@click.argument("logs", metavar="PATH|URL|-...", nargs=-1, required=True)
def draft(logs: tuple[str, ...]) -> int:
    """Draft a rule from logs, bundles or boxes that no rule explains.

    Prints a rule file whose signs are the lines that healthy clusters do not write and no rule
    knows. What a person must think about is marked TODO. Exit status: 0 a draft, or nothing
    unusual; 2 nothing could be read.
    """
    from workerdiag.authoring.draft import draft_rule, line_template, unusual_lines
    from workerdiag.bundle.bundle_file import bundle_evidence
    from workerdiag.recorder.delivery import death_message
    from workerdiag.rulebook.load import load_rulebook, quiet_lines
    from workerdiag.sources.logs.source import LogSource

    chunks: list[LogChunk] = []
    size = 0
    source = LogSource(logs, unbundle=bundle_evidence, unbox=death_message)
    for piece in source.collect(budget_s=120.0):  # nobody waits for it in an except block
        if isinstance(piece, LogChunk) and size < 64 * 2**20:
            chunks.append(piece)
            size += len(piece.data)
    if not source.has_read_any:
        unread = (f"  {gap_text(each)}" for each in source.unread)
        raise UnusableError("\n".join(("nothing could be read:", *unread)))
    for gap in source.unread:
        warn(gap_text(gap))
    quiet = {line_template(each.partition(" - ")[2].partition(" - ")[2]) for each in quiet_lines()}
    lines = unusual_lines(chunks, load_rulebook(), quiet=quiet)
    if not lines:
        click.echo("# Nothing unusual: rules know every line, or healthy clusters write it too.")
        return EXIT_OK
    click.echo(printable(redact_text(draft_rule(lines))))
    return EXIT_OK


def rule_schema() -> Schema:
    """The JSON Schema (draft 2020-12) of a file of a cause, landmarks, errors, reasons or shared advice."""
    from workerdiag.rulebook.toml_folder import FIELD_OF_TABLE, SharedRules

    definitions, cause, landmark, error, reason = _definitions()
    file_keys = {attribute: key for key, attribute in FIELD_OF_TABLE.items()}
    advice = add_definition(SharedRules, definitions, all_required=False)
    for shape in map(definitions.__getitem__, ("Cause", "Landmark", "SharedRules", "ReasonRule")):
        shape["properties"] = {file_keys.get(key, key): each for key, each in shape["properties"].items()}
        shape["required"] = [file_keys.get(key, key) for key in shape["required"]]
    tables = [
        {
            "type": "object",
            "additionalProperties": False,
            "required": [name],
            "properties": {name: {"type": "array", "items": items}},
        }
        for name, items in (("landmark", landmark), ("error", error), ("reason", reason))
    ]
    return {
        "$schema": DIALECT,
        "title": "workerdiag rule file",
        "anyOf": [cause, *tables, advice],
        "$defs": dict(sorted(definitions.items())),
    }


def export_schema() -> Schema:
    """The JSON Schema (draft 2020-12) of what ``workerdiag knowledge export`` prints."""
    from workerdiag.rulebook.toml_folder import SCHEMA

    definitions = _definitions()[0]
    add_definition(Rulebook, definitions, all_required=False)
    whole = definitions.pop("Rulebook")
    whole["properties"]["schema"]["const"] = SCHEMA
    texts = "For each pattern lower-case texts, one of which every match contains."
    whole["properties"]["literals"]["description"] = texts
    title = "workerdiag rules, exported"
    return {"$schema": DIALECT, "title": title, **whole, "$defs": dict(sorted(definitions.items()))}


def _definitions() -> tuple[Schema, ...]:
    """All definitions, and references to a cause, a landmark, an error and a reason."""
    definitions: Schema = {}
    kinds = (Cause, Landmark, ErrorRule, ReasonRule)
    references = [add_definition(each, definitions, all_required=False) for each in kinds]
    for kind, cls in SIGN_KINDS.items():
        sign = definitions[cls.__name__]
        sign["properties"] = {"kind": {"const": kind}, **sign["properties"]}
        sign["required"].insert(0, "kind")
    return definitions, *references
