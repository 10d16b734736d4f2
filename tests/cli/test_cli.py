"""The command line: arguments in, exit status out, never a traceback of ours."""

from __future__ import annotations

import gzip
import importlib
import json
import re
import shlex
import shutil
import socket
import subprocess
import sys
import tomllib
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import click
import pytest
from click.shell_completion import get_completion_class
from click.testing import CliRunner
from jsonschema import Draft202012Validator

from support.fleet_rows import fleet_row
from support.hanging_peers import gives_up
from workerdiag import Diagnosis, LogText, load_rulebook
from workerdiag import explain as explain_log
from workerdiag.cli import DEMO_DEATHS, explain, main
from workerdiag.rendering.cause import render_cause
from workerdiag.rendering.json import json_schema
from workerdiag.rulebook.load import shipped_folder
from workerdiag.triage.tables import DeathRow, write_table

OOM = (
    "2026-05-04 11:22:33,444 - distributed.nanny.memory - WARNING - Worker tcp://10.0.0.4:34937 (pid=129) "
    "exceeded 95% memory budget. Restarting...\n"
    "2026-05-04 11:22:33,544 - distributed.nanny - INFO - Worker process 129 was killed by signal 15\n"
)
QUIET = (
    "2026-05-04 11:22:33,444 - distributed.worker - INFO -       Start worker at:      tcp://10.0.0.4:34937\n"
    "2026-05-04 11:24:33,444 - distributed.worker - INFO - Stopping worker at tcp://10.0.0.4:34937. Reason: nanny-close\n"
)
UNKNOWN = "2026-05-04 11:22:33,444 - distributed.nanny - INFO - Worker process 129 was killed by signal 63\n"

RULE = """
id = "my.cause"
revision = 1
title = "The coffee machine took the socket"
why = "It does."
ends = "killed"
blame = "platform"
retry = "safe"
[[sign]]
kind = "log"
name = "coffee"
pattern = 'coffee is ready'
grade = "decisive"
seen = ["2026-05-04 11:22:33,444 - distributed.nanny - INFO - coffee is ready"]
lookalikes = ["2026-05-04 11:22:33,444 - distributed.nanny - INFO - tea is ready"]
"""


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """Where the commands run: some logs, a death bundle, a folder of rules, and what a triage wrote."""
    monkeypatch.chdir(tmp_path)
    Path("worker.log").write_text(OOM)
    Path("death.zip").write_bytes(death_bundle())
    Path("slurm-12.out").write_text(QUIET)
    Path("unknown.log").write_text(UNKNOWN)
    Path("scheduler.log.gz").write_bytes(gzip.compress(QUIET.encode()))
    rules = Path("my-rules/causes/my")
    rules.mkdir(parents=True)
    rules.joinpath("cause.toml").write_text(RULE)
    Path("triaged").mkdir()
    write_table("triaged/deaths.jsonl", DeathRow, [fleet_row()])
    return tmp_path


@cache
def death_bundle():
    """The bundle of the death that ``worker.log`` tells of."""
    with TemporaryDirectory() as place:
        return explain_log(logs=LogText(OOM)).save(Path(place, "death.zip")).read_bytes()


def run(*arguments, stdin=None):
    """One call of the command line; whatever happens, it is no traceback."""
    result = CliRunner().invoke(main, [str(each) for each in arguments], input=stdin)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    assert "Traceback" not in result.stderr
    return result


def commands(command=main, path=()):
    """Every command and group with its name, as typed."""
    yield path, command
    if isinstance(command, click.Group):
        for name, each in command.commands.items():
            yield from commands(each, (*path, name))


EXAMPLES = [line for _, command in commands() for line in command.examples]


# --------------------------------------------------------------------------------------- explain


def test_a_death_that_is_explained_is_status_0():
    """The report of the example log names the nanny's memory kill in its first line."""
    result = run("explain", "worker.log")
    assert result.exit_code == 0
    assert result.stdout.startswith("Cause     The nanny killed the worker")
    assert "worker.log:1" in result.stdout
    assert result.stderr == ""


def test_nothing_died_is_status_0_and_says_so():
    """The answer "nothing died" is an answer, not a failure."""
    result = run("explain", "slurm-12.out")
    assert result.exit_code == 0
    assert result.stdout.startswith("No death")


def test_a_death_nobody_can_explain_is_status_1():
    """A script can tell "cannot tell" from a diagnosis."""
    result = run("explain", "unknown.log")
    assert result.exit_code == 1
    assert result.stdout.startswith("Unknown")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "Give a log file"),
        (["nowhere.log"], "nowhere.log"),
        (["nowhere.log", "neither.log"], "neither.log"),
        (["worker.log", "--stream", "radio"], "radio"),
        (["worker.log", "--format", "pdf"], "pdf"),
        (["worker.log", "--timeout", "soon"], "'soon' is not a duration"),
        (["worker.log", "--timeout", "0"], "is not above zero"),
        (["worker.log", "--timeout", "-3s"], "is not above zero"),
        (["worker.log", "--timeout", "nan"], "'nan' is not a duration"),
        (["worker.log", "--knowledge", "nowhere"], "nowhere"),
        (["worker.log", "--wrong"], "--wrong"),
        (["--scheduler", "nonsense"], "nonsense"),
    ],
)
def test_bad_usage_and_nothing_readable_are_status_2(arguments, said):
    """The message names what is wrong, on standard error, and nothing goes to standard output."""
    result = run("explain", *arguments)
    assert result.exit_code == 2
    assert said in result.stderr
    assert result.stdout == ""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "content"),
    [("empty.log", b""), ("binary.log", bytes(range(256)) * 9), ("broken.log.gz", b"\x1f\x8bbroken")],
)
def test_one_bad_input_among_good_ones_is_a_warning(name, content):
    """The others are still used, and the report says what it could not look at."""
    Path(name).write_bytes(content)
    alone, together = run("explain", name), run("explain", name, "worker.log")
    assert alone.exit_code == 2
    assert together.exit_code == 0
    assert name in alone.stderr
    assert re.search(f"Warning: .*{name}", together.stderr)
    assert together.stdout.startswith("Cause")
    assert re.search(rf"Could not look at \(1\)\n  .*{name}", together.stdout)


def test_the_name_of_an_input_cannot_speak_to_the_terminal():
    """A file name with escape sequences in it is shown without them."""
    result = run("explain", "no\x1b[31m\u202ewhere.log")
    assert result.exit_code == 2
    assert "nowhere.log" in result.stderr
    assert "\x1b" not in result.output


@pytest.mark.slow
@pytest.mark.parametrize(
    "stdin", [OOM.encode(), gzip.compress(OOM.encode()), b"\xfa\xfb not UTF-8\n" + OOM.encode()]
)
def test_standard_input_is_bytes(stdin):
    """``-`` takes what is no text, and what is packed, through a real pipe."""
    command = [sys.executable, "-m", "workerdiag", "explain", "-"]
    result = subprocess.run(command, input=stdin, capture_output=True, check=True)
    assert result.stdout.startswith(b"Cause     The nanny killed the worker")


def test_json_is_the_published_form_and_comes_back():
    """``--format json`` is a diagnosis by the schema that ``workerdiag schema`` prints."""
    text = run("explain", "worker.log", "--format", "json").stdout
    schema = json.loads(run("schema").stdout)
    assert schema == json_schema()
    Draft202012Validator(schema).validate(json.loads(text))
    assert Diagnosis.from_json(text).outcome == "explained"


def test_markdown_and_html_are_documents():
    """Both can be redirected to a file and opened."""
    assert run("explain", "worker.log", "--format", "markdown").stdout.startswith("**Cause:** ")
    assert run("explain", "worker.log", "--format", "html").stdout.startswith("<!doctype html>")


def test_output_to_a_pipe_has_no_colour_and_80_columns():
    """What a person sees in colour arrives plain in a file."""
    output = run("explain", "worker.log").stdout
    assert "\x1b" not in output
    assert all(len(line) <= 80 or line.startswith("         ") for line in output.splitlines())


def test_own_rules_add_to_the_shipped_ones():
    """``--knowledge`` explains what only that folder knows."""
    Path("odd.log").write_text(
        UNKNOWN + UNKNOWN.replace("Worker process 129 was killed by signal 63", "coffee is ready")
    )
    assert run("explain", "odd.log").exit_code == 1
    result = run("explain", "odd.log", "--knowledge", "my-rules")
    assert result.exit_code == 0
    assert "coffee machine" in result.stdout.splitlines()[0]


@pytest.mark.slow
@pytest.mark.parametrize(
    "spoiled", ["pattern = '(?=x)coffee is ready'", "pattern = '.*'", "pattern = '('", "grade = 5"]
)
def test_rules_with_mistakes_are_status_2(spoiled):
    """A folder of rules that cannot be used is said to be so, with file or cause and the mistake."""
    key = spoiled.partition(" ")[0]
    Path("my-rules/causes/my/cause.toml").write_text(
        re.sub(f"^{key} = .*$", lambda _: spoiled, RULE, flags=re.MULTILINE)
    )
    result = run("explain", "worker.log", "--knowledge", "my-rules")
    assert result.exit_code == 2
    assert "my-rules" in result.stderr
    assert "coffee" in result.stderr or "cause.toml" in result.stderr


@pytest.mark.slow
@gives_up
def test_a_scheduler_that_does_not_answer_is_left_behind():
    """A port that accepts and then says nothing cannot hang the command, and the logs are still read."""
    importlib.import_module("distributed")  # takes a second by itself, and so does compiling the rules
    run("explain", "worker.log")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"tcp://127.0.0.1:{silent.getsockname()[1]}"
        alone = run("explain", "--scheduler", address, "--timeout", "4s")
        together = run("explain", "worker.log", "--scheduler", address, "--timeout", "4s")
        silent.settimeout(0)
        for _ in (alone, together):
            silent.accept()[0].close()  # both have been there
    assert alone.exit_code == 2
    assert "scheduler" in alone.stderr
    assert together.exit_code == 0
    assert "Warning: scheduler" in together.stderr


def test_control_c_is_one_word(monkeypatch):
    """^C ends with the status shells have for it, and no traceback."""

    def interrupted(*_args, **_kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr("workerdiag.pipeline.diagnose", interrupted)
    result = run("explain", "worker.log")
    assert (result.exit_code, result.stderr.strip()) == (130, "Interrupted.")


def test_a_defect_of_ours_is_one_line(monkeypatch):
    """Even a bug of workerdiag shows no traceback unless asked for; it is "could not tell"."""

    def broken(*_args, **_kwargs):
        raise ZeroDivisionError("oops\x1b[2J")

    monkeypatch.setattr("workerdiag.pipeline.diagnose", broken)
    result = run("explain", "worker.log")
    assert result.exit_code == 1
    assert result.stderr.startswith("workerdiag itself failed: ZeroDivisionError: oops\nSet PYTHONDEVMODE=1")


def test_it_works_under_dasks_own_command():
    """``dask explain LOG`` is the same command."""
    dask = click.Group("dask")
    dask.add_command(explain)
    result = CliRunner().invoke(dask, ["explain", "worker.log"])
    assert result.exit_code == 0
    assert result.stdout.startswith("Cause")


# ------------------------------------------------------------------------------------------ help


@pytest.mark.parametrize("path", [path for path, _ in commands()])
def test_every_command_helps_with_examples(path):
    """``--help`` of each command ends with lines to copy, unbroken."""
    result = run(*path, "--help")
    assert result.exit_code == 0
    assert "Examples:\n  $ workerdiag" in result.stdout.replace("$ kubectl", "$ workerdiag")
    assert not re.search(r"^  \w+ .*\.\.\.$", result.stdout, re.MULTILINE)  # no summary is cut


#: Examples that need a cluster, a bucket, a kit or a watcher's state.
WANTS_MORE = re.compile(r" demo| watch| mcp| triage | replay |\.db")


@pytest.mark.parametrize("line", [line for line in EXAMPLES if re.search(r"^workerdiag (triage|fleet)", line)])
def test_the_examples_of_triage_and_fleet_are_understood(line):
    """Whoever copies an example gets no usage error."""
    name, *words = shlex.split(line.partition(" > ")[0])[1:]
    assert main.get_command(None, name).make_context(name, words).params


@pytest.mark.slow
@pytest.mark.parametrize("line", [line for line in EXAMPLES if not WANTS_MORE.search(line)])
def test_the_examples_of_the_help_run(line):
    """Whoever copies an example gets what it promises, not a usage error; what `WANTS_MORE` leaves out has tests of its own."""
    command, _, target = line.rpartition("| workerdiag ")[2].removeprefix("workerdiag ").partition(" > ")
    words = [str(path) for word in shlex.split(command) for path in sorted(Path().glob(word)) or [word]]
    result = run(*words, *(["--timeout", "1s"] if "--scheduler" in words else []), stdin=OOM)
    unreachable = "--scheduler" in words and "cannot connect" in result.stderr
    assert result.exit_code == 0 or unreachable or "did not answer" in result.stderr, result.output
    assert result.stdout or unreachable or "did not answer" in result.stderr
    if target.endswith(".json"):
        json.loads(result.stdout)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts_are_for_their_shell(shell):
    """Each script is one its shell can read, and asks workerdiag for the words."""
    script = run("completion", shell).stdout
    assert f"_WORKERDIAG_COMPLETE={shell}_complete" in script
    if program := shutil.which(shell):
        subprocess.run([program, "-n"], input=script, text=True, check=True)


@pytest.mark.parametrize(
    ("typed", "begun", "word"),
    [([], "exp", "explain"), (["explain"], "--f", "--format"), (["explain", "--format"], "j", "json"), (["demo", "--death"], "s", "sigkill"), (["knowledge"], "l", "lint")],
)  # fmt: skip
def test_completion_knows_commands_options_and_values(typed, begun, word):
    """The shell is offered what may stand there."""
    complete = get_completion_class("bash")(main, {}, "workerdiag", "_WORKERDIAG_COMPLETE")
    assert word in [each.value for each in complete.get_completions(typed, begun)]


def test_the_version_is_ours():
    """``--version`` says which workerdiag this is."""
    assert re.fullmatch(r"workerdiag, version \d+\.\d+\.\d+\S*\n", run("--version").stdout)


# ------------------------------------------------------------------------------------- knowledge


def test_list_has_every_cause():
    """One line per cause: id, revision, title."""
    lines = run("knowledge", "list").stdout.splitlines()
    book = load_rulebook()
    assert [line.split()[0] for line in lines] == sorted(each.id for each in book.causes)
    assert all(line.split()[1].isdigit() for line in lines)


def test_show_says_what_is_known_of_a_cause():
    """Title, id, why, signs with an example line, what to do."""
    result = run("knowledge", "show", "my.cause", "--knowledge", "my-rules")
    assert result.exit_code == 0
    for part in ("The coffee machine took the socket", "my.cause, revision 1", "It does.", "coffee, decisive", "pattern: coffee is ready"):  # fmt: skip
        assert part in result.stdout


def test_every_shipped_cause_can_be_shown():
    """No cause of the knowledge base breaks the terminal."""
    for cause in load_rulebook().causes:
        lines = render_cause(cause, color=True).splitlines()
        assert cause.id in lines[1]
        assert len(lines) > 10


@pytest.mark.parametrize(("typed", "meant"), [("my.cuase", "my.cause"), ("coffee", None), ("CAUSE", "my.cause")])
def test_an_unknown_id_suggests_near_ones(typed, meant):
    """A typo is answered with what was probably meant; nonsense with where to look."""
    result = run("knowledge", "show", typed, "--knowledge", "my-rules")
    assert result.exit_code == 2
    assert repr(typed) in result.stderr
    assert (f"{meant}" if meant else "knowledge list") in result.stderr


@pytest.mark.slow
def test_lint_and_test_pass_good_rules():
    """A folder without mistakes is told so, also when it leans on the shipped rules."""
    leaning = RULE.replace("[[sign]]", f'explains = ["{load_rulebook().causes[0].id}"]\n[[sign]]', 1)
    Path("my-rules/causes/my/cause.toml").write_text(leaning)
    for command in ("lint", "test"):
        result = run("knowledge", command, "my-rules")
        assert result.exit_code == 0
        assert result.stdout.startswith("my-rules: 1 cause, 0 landmarks")
        assert result.stdout.endswith("no problems\n")


def test_lint_lists_all_mistakes_at_once():
    """Ten mistakes take one run to find, each with its file and key."""
    spoiled = RULE.replace("revision = 1", 'revision = "1"')
    Path("my-rules/causes/my/cause.toml").write_text(spoiled + "\nsurprise = 1\n")
    eaten = RULE.replace('ends = "killed"', 'ends = "eaten"').replace("my.cause", "my.eaten")
    Path("my-rules/causes/my/eaten.toml").write_text(eaten)
    Path("my-rules/causes/my/other.toml").write_text("id = [")
    Path("my-rules/lost.toml").write_text("")
    result = run("knowledge", "lint", "my-rules")
    assert result.exit_code == 1
    for part in ("ends", "revision", "surprise", "other.toml", "lost.toml"):
        assert part in result.stdout
    assert "problems" in result.stderr
    assert run("knowledge", "test", "my-rules").exit_code == 1


@pytest.mark.slow
def test_lint_finds_references_to_nowhere():
    """A name that neither the folder nor the shipped rules know is a mistake."""
    Path("my-rules/causes/my/cause.toml").write_text(
        RULE.replace("[[sign]]", 'explains = ["my.typo"]\n[[sign]]', 1)
    )
    result = run("knowledge", "lint", "my-rules")
    assert result.exit_code == 1
    assert "my.typo" in result.stdout


def test_test_finds_a_line_that_a_rule_misses():
    """A rule that does not match what it shows, or matches its lookalike, fails."""
    Path("my-rules/causes/my/cause.toml").write_text(
        RULE.replace("pattern = 'coffee is ready'", "pattern = 'tea is ready'")
    )
    result = run("knowledge", "test", "my-rules")
    assert result.exit_code == 1
    assert result.stdout.count("my.cause coffee") == 2


@pytest.mark.slow
def test_what_is_not_proven_is_a_note_and_with_strict_a_problem():
    """A cause that no incident shows passes, with a word on standard error; --strict lets it fail."""
    lax = run("knowledge", "test", "my-rules")
    assert lax.exit_code == 0
    assert "note: my.cause: no whole incident shows it" in lax.stderr
    strict = run("knowledge", "test", "my-rules", "--strict")
    assert strict.exit_code == 1
    assert "my.cause: no whole incident shows it" in strict.stdout


def test_an_incident_that_is_explained_otherwise_fails_the_test_of_rules():
    """``--incidents`` takes more of them; what was said instead is told with its chance."""
    place = Path("our-deaths/monday")
    place.mkdir(parents=True)
    place.joinpath("meta.toml").write_text('expected = ["my.cause"]')
    place.joinpath("worker.log").write_text(OOM)
    result = run("knowledge", "test", "my-rules", "--incidents", "our-deaths")
    assert result.exit_code == 1
    assert "incident monday: expected my.cause; said nanny.memory-terminate 0.9" in result.stdout
    place.joinpath("meta.toml").write_text("expected = 3")
    result = run("knowledge", "test", "my-rules", "--incidents", "our-deaths")
    assert result.exit_code == 1
    assert "monday: meta.toml: .expected" in result.stdout


@pytest.mark.parametrize("command", ["lint", "test"])
def test_a_folder_that_is_not_there_is_status_2(command):
    """Nothing to check is bad usage, not a clean bill."""
    assert run("knowledge", command, "nowhere").exit_code == 2


@pytest.mark.slow
def test_export_is_the_whole_rulebook():
    """Other tools get every cause and landmark in one JSON document."""
    content = json.loads(run("knowledge", "export", "--knowledge", "my-rules").stdout)
    book = load_rulebook("my-rules")
    assert [each["id"] for each in content["causes"]] == [each.id for each in book.causes]
    assert len(content["landmarks"]) == len(book.landmarks)
    assert content["release"] == book.release


@pytest.mark.slow
def test_the_schema_of_rules_accepts_every_shipped_file_and_no_mistake():
    """An editor that checks with the schema agrees with the loader."""
    validator = Draft202012Validator(json.loads(run("knowledge", "schema").stdout))
    files = [*shipped_folder().glob("causes/*/*.toml"), *shipped_folder().glob("landmarks/*.toml")]
    assert files
    for path in files:
        validator.validate(tomllib.loads(path.read_text(encoding="utf-8")))
    for spoiled in (
        RULE.replace("decisive", "sure"),
        RULE + "surprise = 1",
        RULE.replace('kind = "log"', ""),
    ):
        assert not validator.is_valid(tomllib.loads(spoiled))


@pytest.mark.parametrize("arguments", [("knowledge", "test"), ("mcp", "--root"), ("explain", "--knowledge")])
def test_a_folder_that_is_missing_says_what_to_check(arguments):
    """Mostly the path is wrong, or relative to another folder."""
    result = run(*arguments, "/nope")
    assert result.exit_code == 2
    assert f"'/nope' does not exist. Check the path: a relative one starts in {Path.cwd()}." in result.stderr


def test_a_zip_by_name_alone_is_said_to_be_none(tmp_path):
    """A download that failed leaves a page of text under the name of a bundle."""
    path = tmp_path / "death.zip"
    path.write_text("garbage\n", encoding="utf-8")
    assert (
        "death.zip is not a zip file and is read as text (copy or download it again)" in run("explain", path).stderr
    )


# ------------------------------------------------------------------------------------------ demo


@pytest.mark.slow
@pytest.mark.parametrize(
    ("death", "said"),
    [
        pytest.param("oom", "memory limit", marks=pytest.mark.lab),
        pytest.param("segfault", "SIGSEGV", marks=pytest.mark.lab),
        ("exit", "os._exit"),
        pytest.param("sigkill", "", marks=pytest.mark.lab),
    ],
)
def test_the_demo_kills_a_worker_and_explains_it(death, said):
    """A real cluster, a real death, an explanation, without Dask's chatter."""
    result = run("demo", "--death", death)
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert lines[0].startswith("Two Dask workers, 400 MiB each")
    assert lines[1].startswith("Dask says KilledWorker")
    assert lines[3].startswith("Cause")
    assert said in lines[3]
    assert result.stderr == ""


def test_the_demos_deaths_are_those_the_help_lists():
    """``--help`` need not import Dask to know them."""
    from workerdiag import demo

    assert tuple(demo.DEATHS) == DEMO_DEATHS


def test_a_folder_that_is_closed_to_us_is_said_to_be(monkeypatch):
    """Where even looking is forbidden the report says so; it is no fault of ours."""
    is_dir = Path.is_dir

    def closed(self, **options):
        if self.name == "closed.log":
            raise PermissionError(13, "Permission denied", str(self))
        return is_dir(self, **options)

    monkeypatch.setattr(Path, "is_dir", closed)
    result = run("explain", "closed.log")
    assert result.exit_code == 2
    assert "Permission denied" in result.stderr
    assert "run this as a user who may read it" in result.stderr


def test_a_mixed_folder_says_which_files_it_read():
    """Whoever hands in a folder sees what was taken for a log, and what was not."""
    Path("run").mkdir()
    Path("run/worker.log").write_text(OOM)
    Path("run/model.bin").write_bytes(bytes(range(256)))
    result = run("explain", "run")
    assert result.exit_code == 0
    assert "Note: run: read as logs: worker.log; not read: model.bin" in result.stderr


def test_every_factor_of_a_probability_is_one_option_away():
    """What the number rests on is printed on demand; programs find it in the JSON."""
    assert "Factors of" not in run("explain", "worker.log").stdout
    shown = run("explain", "worker.log", "--factors")
    assert shown.exit_code == 0
    assert "\nFactors of nanny.memory-terminate, " in shown.stdout
    assert "\n  x 8,000 " in shown.stdout
    refused = run("explain", "worker.log", "--factors", "--format", "html")
    assert refused.exit_code == 2
    assert "--format json has them" in refused.stderr


def test_the_whole_report_is_one_option_away():
    """The first screen leaves out why; --full has it."""
    assert "\nWhy\n" not in run("explain", "worker.log").stdout
    assert "\nWhy\n" in run("explain", "worker.log", "--full").stdout
