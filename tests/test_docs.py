"""The documentation is correct: links lead somewhere, examples run, commands exist."""

from __future__ import annotations

import ast
import doctest
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from attrs import evolve

import workerdiag

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("knowledge/*.md")])
PACKAGE = Path(workerdiag.__file__).parent
NAMES = [page.relative_to(ROOT).as_posix() for page in PAGES]

CAUSES = ROOT / "docs" / "causes"
#: Pages that are made when the site is built -> what they are made from.
GENERATED = {
    CAUSES / "index.md": ROOT / "knowledge" / "causes",
    ROOT / "docs" / "configuration.md": ROOT / "src" / "workerdiag" / "settings.py",
    ROOT / "docs" / "commands.md": ROOT / "src" / "workerdiag" / "cli",
}

LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
FENCE = re.compile(r"^( *)```(\w*)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)

on_every_page = pytest.mark.parametrize("page", PAGES, ids=NAMES)


def examples(page: Path, language: str) -> Iterator[str]:
    """The fenced blocks of a page that are in *language*."""
    for indent, found, text in FENCE.findall(page.read_text(encoding="utf-8")):
        if found == language:
            yield "".join(line.removeprefix(indent) for line in text.splitlines(keepends=True))


def anchors(page: Path) -> set[str]:
    """What the headings of a page can be linked by, as GitHub makes it."""
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_the_readme_shows_what_is_really_printed(monkeypatch):
    """The sample at the top is the beginning of the report on the recorded log."""
    monkeypatch.chdir(ROOT)
    printed = str(workerdiag.explain(logs="docs/samples/worker.log", timeout="5m"))
    assert printed.startswith(next(examples(ROOT / "README.md", "text")))


def written_from(page: Path) -> Path:
    """The page itself, or what a generated one is generated from."""
    if page in GENERATED:
        return GENERATED[page]
    if page.is_relative_to(CAUSES):
        return ROOT / "knowledge" / "causes" / page.relative_to(CAUSES).with_suffix(".toml")
    return page


@on_every_page
def test_links_lead_somewhere(page):
    """A link to a file of the project names one that is there, and a heading in it."""
    for target in LINK.findall(FENCE.sub("", page.read_text(encoding="utf-8"))):
        path, _, anchor = target.partition("#")
        if "://" in target:
            continue
        linked = written_from((page.parent / path).resolve()) if path else page
        assert linked.exists(), target
        if anchor and linked.suffix == ".md":
            assert anchor in anchors(linked), target


@on_every_page
def test_sessions_in_python_print_what_they_say(page, monkeypatch):
    """Examples with ``>>>`` run in the checkout, in order, and print just that."""
    monkeypatch.chdir(ROOT)
    text = "\n".join(each for each in examples(page, "python") if ">>>" in each)
    test = doctest.DocTestParser().get_doctest(text, {}, page.name, str(page), 0)
    report: list[str] = []
    assert doctest.DocTestRunner().run(test, out=report.append).failed == 0, "".join(report)


@on_every_page
def test_other_python_compiles_and_names_what_there_is(page):
    """Examples that need a cluster are at least Python, and use public names."""
    for example in examples(page, "python"):
        if ">>>" in example:
            continue
        for node in ast.walk(ast.parse(example)):
            if (
                isinstance(node, ast.Attribute)
                and isinstance(node.value, ast.Name)
                and node.value.id == "workerdiag"
            ):
                assert node.attr in workerdiag.__all__


@on_every_page
def test_toml_is_toml(page):
    """Examples of rules can be pasted into a file."""
    for example in examples(page, "toml"):
        tomllib.loads(example)


@on_every_page
def test_commands_are_understood(page, tmp_path, monkeypatch):
    """Every ``workerdiag`` command shown has arguments that the command line knows."""
    from workerdiag.cli import main

    paste_rules(page, tmp_path)
    for folder in ("knowledge", "tests/cases"):  # those of a checkout, which some commands name
        (tmp_path / folder).mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    for line in "\n".join(examples(page, "sh")).splitlines():
        for part in re.split(r"&&|\||;", line.partition("#")[0]):
            words = shlex.split(part)
            if words and words[0].rpartition("/")[2] == "workerdiag":
                understand(main, words[1:])


@on_every_page
def test_rules_shown_are_good_rules(page, tmp_path):
    """An example that names its file can be saved there, has no mistakes and matches the lines it shows."""
    from workerdiag.authoring.lint import check_examples
    from workerdiag.cli.commands import rule_problems
    from workerdiag.rulebook.toml_folder import read_folder

    for folder in paste_rules(page, tmp_path):
        book = read_folder(folder)
        assert rule_problems(folder, book) == []
        assert check_examples(book) == []


def paste_rules(page: Path, place: Path) -> set[Path]:
    """Saves the rules of a page whose first line names a file, below *place*; gives the folders."""
    folders = set()
    for example in examples(page, "toml"):
        if named := re.match(r"# (([\w-]+)/\S+\.toml)\n", example):
            file = place / named[1]
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(example, encoding="utf-8")
            folders.add(place / named[2])
    return folders


def understand(command: click.Command, words: list[str]) -> None:
    """Parses *words* as click does before it runs a command."""
    if isinstance(command, click.Group) and words and not words[0].startswith("-"):
        _, found, others = command.resolve_command(click.Context(command), words)
        assert found is not None, words
        understand(found, others)
    else:
        command.make_context(command.name, list(words))


def test_the_check_of_the_site_finds_what_is_wrong(tmp_path):
    """A dead link, a dead anchor and anything from another host are told; links that people click are not."""
    page = """<link rel="stylesheet" href="https://fonts.example/a.css"><img src="//cdn.example/b.png">
    <style>p { background: url(http://pictures.example/c.png) }</style><p id="here">
    <a href="https://docs.dask.org/">Dask</a><a href="#here">up</a><a href="#there">x</a><a href="gone.html">y</a>"""
    (tmp_path / "index.html").write_text(page, encoding="utf-8")
    command = [sys.executable, str(ROOT / "docs" / "check_site.py"), str(tmp_path)]
    checked = subprocess.run(command, capture_output=True, text=True, check=False)
    assert checked.returncode == 1
    *found, _ = checked.stdout.splitlines()
    assert found == [
        "index.html: loads https://fonts.example/a.css",
        "index.html: loads //cdn.example/b.png",
        "index.html: loads http://pictures.example/c.png",
        "index.html: no such anchor: #there",
        "index.html: no such file: gone.html",
    ]


def test_what_belongs_to_a_suggestion_stays_in_it(monkeypatch):
    """On the page of a cause it is indented as far as the text behind the number, also behind ``10.``."""
    monkeypatch.syspath_prepend(ROOT / "docs")
    from write_causes import page

    cause = workerdiag.load_rulebook(packs=False).cause("nanny.memory-terminate")
    text = "\n".join(page(evolve(cause, mitigations=cause.mitigations[:1] * 10)))
    steps = re.split(
        r"^(\d+\. )", text.partition("\n## What to do\n\n")[2].partition("\n## ")[0], flags=re.MULTILINE
    )
    for mark, step in zip(steps[1::2], steps[2::2], strict=True):
        below = [line for line in step.splitlines()[1:] if line]
        assert below
        assert all(line.startswith(" " * len(mark)) for line in below)


def test_the_glossary_says_what_to_look_for():
    """Each class, function or setting that stands behind a term is somewhere in the package."""
    package = "".join(path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*.py"))
    words = {
        *re.findall(r"\w+", re.sub(r"`[^`\n]*`", "", package)),
        *(path.stem for path in PACKAGE.rglob("*")),
    }
    names = re.findall(r"`([A-Za-z_][\w./]*\w)`", (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8"))
    assert [each for each in names if not words.issuperset(re.split(r"[./]", each))] == []


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: path.stem)
def test_docstrings_describe_the_arguments_that_there_are(path):
    """A parameter that was renamed is renamed where it is described."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ClassDef):
            made = [each for each in node.body if isinstance(each, ast.FunctionDef) and each.name == "__init__"]
        else:
            made = [node] if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) else []
        if made:
            given = {each.arg for each in ast.walk(made[0].args) if isinstance(each, ast.arg)}
            section = (ast.get_docstring(node) or "").partition("\nArgs:\n")[2].partition("\n\n")[0]
            assert set(re.findall(r"(?m)^    \**(\w+):", section)) <= given, node.name
