"""Reading knowledge: what is understood, and what is said of what is not."""

from __future__ import annotations

import os
import pickle
import sys
import threading
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
from attrs import evolve

import workerdiag
from support.sample_rule import RULE as GOOD
from workerdiag.authoring.lint import check_examples, incomplete_rules, lint
from workerdiag.deadline import Deadline
from workerdiag.errors import RuleFileError
from workerdiag.matching.literals import literals
from workerdiag.rulebook import load
from workerdiag.rulebook.load import (
    compile_rulebook,
    load_rulebook,
    load_rulebook_in_time,
    patterns,
    shipped_folder,
)
from workerdiag.rulebook.toml_folder import read_folder


def folder(tmp_path: Path, **files: str) -> Path:
    for name, text in files.items():
        path = tmp_path / "causes" / "house" / f"{name}.toml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


def problems(place: Path) -> str:
    with pytest.raises(RuleFileError) as caught:
        read_folder(place)
    return str(caught.value)


def test_a_rule_of_ones_own_joins_the_shipped_ones(tmp_path):
    """A folder adds to what ships, and overriding an id is noted."""
    ours = folder(tmp_path, rule=GOOD)
    book = load_rulebook(ours, ours)

    assert book.cause("house.rule") is not None
    assert book.cause("kernel.oom-killer") is not None
    assert any("house.rule" in note for note in book.notes)


def test_all_mistakes_of_a_folder_are_told_at_once(tmp_path):
    """Ten different mistakes, one error, each with file and key."""
    place = folder(
        tmp_path,
        a="id = ",  # not TOML
        b=GOOD.replace("house.rule", "house.c"),  # another id than the path says
        c=GOOD.replace("house.rule", "house.c").replace('"killed"', '"eaten"'),
        d=GOOD.replace("house.rule", "house.d").replace("revision = 1", 'revision = "1"'),
        e=GOOD.replace("house.rule", "house.e").replace("title =", "titel ="),
        f=GOOD.replace("house.rule", "house.f").replace('kind = "log"', 'kind = "smell"'),
        g=GOOD.replace("house.rule", "house.g").replace('"decisive"', '"sure"'),
        h=GOOD.replace("house.rule", "house.h").replace("revision = 1", "revision = 0"),
        i=GOOD.replace("house.rule", "house.i") + GOOD[GOOD.index("[[sign]]") :],
    )
    (place / "causes" / "stray.toml").write_text("")
    said = problems(place)

    for expected in (
        "a.toml:",
        "b.toml: .id: expected 'house.b'",
        "c.toml: ",
        ".ends: expected one of stopped",
        "d.toml: .revision: expected integer, got '1'",
        "e.toml: ",
        "unknown key titel",
        "f.toml: .sign[0]: kind must be one of",
        "g.toml: .sign[0]",
        "h.toml: ",
        "house.i: two signs are named 'said'",
        "stray.toml: not read",
    ):
        assert expected in said


def test_a_folder_that_is_not_there_is_named(tmp_path):
    """The message says which folder, not what Python said of it."""
    assert str(tmp_path / "nowhere") in problems(tmp_path / "nowhere")


def test_an_empty_folder_says_what_belongs_there(tmp_path):
    """Nobody has to read the code to learn the layout."""
    assert "causes/<family>/<cause>.toml" in problems(tmp_path)


def test_a_newer_shape_of_files_is_refused_by_name(tmp_path):
    """An older engine does not guess at newer files."""
    (folder(tmp_path, rule=GOOD) / "manifest.toml").write_text("schema = 99")

    assert "reads schema 1" in problems(tmp_path)


@pytest.mark.slow
def test_compiled_knowledge_is_the_same_knowledge():
    """What a wheel carries loads to equal objects."""
    book = read_folder(shipped_folder())
    loaded = pickle.loads(compile_rulebook(book, {each: literals(each) for each in patterns(book)}))

    assert loaded == book
    assert set(loaded.literals) == set(patterns(book))


@pytest.mark.slow
def test_shipped_knowledge_keeps_its_promises():
    """`workerdiag knowledge lint --strict` says all that this test says, and is run on the shipped rules."""
    book = load_rulebook()

    assert lint(book) == []
    assert check_examples(book) == []
    assert incomplete_rules(book) == []


def test_lint_names_patterns_that_re2_does_not_know(tmp_path):
    """Look-around and patterns without fixed text are refused with rule and reason."""
    text = GOOD.replace("the house fell on", "(?!x)the house fell on").replace("house.rule", "house.a")
    other = GOOD.replace("the house fell on (?P<worker>\\w+://\\S+)", r"\d+").replace("house.rule", "house.b")
    said = "\n".join(lint(read_folder(folder(tmp_path, a=text, b=other))))

    assert "house.a said: not in RE2's language" in said
    assert "house.b said: every alternative needs a fixed text" in said


def test_lint_names_words_that_no_death_gives_a_mitigation(tmp_path):
    """A sentence with such a word would be left out of every report."""
    mitigation = """
[[mitigation]]
do = "Free port {port}, which {worker} has; it held {rss} of {limits}."
superseded_by = ["frame"]
"""
    said = lint(read_folder(folder(tmp_path, rule=GOOD + mitigation)))

    assert [each.rpartition(" ")[2] for each in said] == ["{frame}", "{limits}", "{port}", "{worker}"]


@pytest.mark.slow
def test_lint_names_a_fixed_size_beside_the_one_that_is_advised(tmp_path):
    """Who is told to try 448 MiB must not copy 8GiB."""
    mitigation = """
[[mitigation]]
do = "Give it more: try {needs_memory} first."
example = "dask worker --memory-limit 8GiB"
"""
    said = "\n".join(lint(read_folder(folder(tmp_path, rule=GOOD + mitigation))))
    assert "has a fixed size beside {needs_memory}: 8GiB" in said


def test_lint_names_causes_of_workers_that_never_start_and_do_not_explain_their_absence():
    """Where no worker starts there are none: that symptom must not compete with its cause."""
    book = load_rulebook()
    tls = evolve(next(each for each in book.causes if each.id == "exception.tls"), explains=())
    others = tuple(each for each in book.causes if each.id != "exception.tls")
    said = lint(evolve(book, causes=(*others, tls)))

    assert said == ["exception.tls: keeps workers from starting and does not explain standstill.no-workers"]


def test_prove_tells_of_a_missed_and_of_a_wrong_line(tmp_path):
    """`seen` lines must match, `lookalikes` must not."""
    text = GOOD.replace("house fell on tcp", "roof fell on tcp") + 'lookalikes = ["the house fell on tcp://a:1"]\n'
    said = "\n".join(check_examples(read_folder(folder(tmp_path, rule=text))))

    assert "does not match a line it is for" in said
    assert "matches a line it is not for" in said


def test_lint_names_a_landmark_without_fixed_text(tmp_path):
    """What the first stage cannot look for is refused in landmarks as well."""
    (tmp_path / "landmarks").mkdir()
    (tmp_path / "landmarks" / "ours.toml").write_text(
        "[[landmark]]\nid = 'our.mark'\nrole = 'death'\npattern = '\\d+'\n"
    )

    assert any(each.startswith("our.mark: every alternative") for each in lint(read_folder(tmp_path)))


@pytest.mark.parametrize(
    "bad",
    [
        GOOD.replace("the house fell on", "(?!x)the house fell on"),
        GOOD.replace("the house fell on (?P<worker>\\w+://\\S+)", r"\d+"),
        GOOD.replace("seen =", 'unless = "(?<x)"\nseen ='),
        GOOD + "[[sign]]\nkind = 'event'\nname = 'e'\ntopic = '(?!x)'\ngrade = 'weak'\n",
        GOOD + "[[sign]]\nkind = 'exception'\nname = 'e'\npattern = '(?!x)'\ngrade = 'weak'\n",
        GOOD
        + "[[sign]]\nkind = 'landmark'\nname = 'e'\nlandmark = 'nanny.restarting'\nwhere = {a = '(?!x)'}\ngrade = 'weak'\n",
    ],
)
def test_a_bad_pattern_costs_its_own_rule_and_no_diagnosis(tmp_path, bad):
    """A pack that nobody linted cannot take the other rules down; the report says what was left out."""
    book = load_rulebook(folder(tmp_path, rule=bad))
    log = (
        "distributed.nanny - WARNING - Worker tcp://10.0.0.4:4002 (pid=7) exceeded 95% memory budget. Restarting...\n"
        "distributed.worker - INFO - the house fell on tcp://10.0.0.9:1\n"
        "distributed.nanny - WARNING - Restarting worker\n"
    )
    diagnosis = workerdiag.explain(RuntimeError("x"), logs=[workerdiag.LogText(log)], rulebook=book)

    assert "nanny.memory-terminate" in [each.id for each in diagnosis.causes]
    assert any(note.startswith("house.rule") and "left out" in note for note in diagnosis.notes)


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """Installs packs: a folder by its files, or a module by its code."""
    monkeypatch.syspath_prepend(str(tmp_path))
    points = []

    def install(name, code):
        (tmp_path / f"pack_{name}.py").write_text(code)
        points.append(EntryPoint(name, f"pack_{name}:FOLDER", load.ENTRY_POINT_GROUP))

    monkeypatch.setattr(load, "entry_points", lambda group: [each for each in points if each.group == group])
    yield install
    for name in [each for each in sys.modules if each.startswith("pack_")]:
        del sys.modules[name]


def noted(book, name):
    """The one note on a pack."""
    [note] = [each for each in book.notes if f"pack {name} " in each]
    return note


@pytest.mark.parametrize(
    "code",
    [
        "import sys; sys.exit(3)",
        "raise KeyboardInterrupt",
        "raise type('E', (Exception,), {'__str__': lambda self: 1 / 0})",
        "def FOLDER(): raise GeneratorExit",
        "FOLDER = 5",
        "FOLDER = '/no/such/folder'",
        "import no_such_module",
        "=",
    ],
)
def test_a_pack_that_cannot_be_loaded_costs_itself(installed, tmp_path, code):
    """Whatever it raises: a note says so, and the packs beside it count."""
    installed("bad", code)
    installed("good", f"FOLDER = {str(folder(tmp_path / 'good', rule=GOOD))!r}")
    book = load_rulebook()

    assert "left out" in noted(book, "bad")
    assert book.cause("house.rule") is not None
    assert book.cause("nanny.memory-terminate") is not None


def test_a_pack_that_takes_too_long_is_left_out_and_tried_again(installed):
    """Its import goes on meanwhile; the rules are not called whole without it."""
    sys.release = threading.Event()
    try:
        installed("slow", "import sys; sys.release.wait(60); FOLDER = '/no/such/folder'")
        book, is_whole = load_rulebook_in_time(Deadline.after(0.1))
        assert "takes too long" in noted(book, "slow")
        assert not is_whole
    finally:
        sys.release.set()
    book, is_whole = load_rulebook_in_time(Deadline.after(60))
    assert "no such folder" in noted(book, "slow")
    assert is_whole
    del sys.release


BAD_FILES = {
    "nested": "a = " + "[" * 20_000,
    "number": "a = " + "1" * 5_001,
    "bytes": b"\xff\xfe",
    "huge": "# " + "x" * 600_000,
    "literal": GOOD.replace("the house fell on", "x" * 100_000),
    "mistaken": GOOD.replace("weight", "wait").replace("grade", "grad"),
    "value": GOOD.replace("revision = 1", "revision = " + "9" * 4_200),
    "moved": GOOD.replace('id = "house.', 'id = "other.'),
}


@pytest.mark.slow
@pytest.mark.parametrize("bad", BAD_FILES)
def test_a_bad_file_of_a_pack_costs_itself(installed, tmp_path, bad):
    """The other rules of the pack count, and a note names the file."""
    place = folder(tmp_path / "pack", rule=GOOD)
    content = BAD_FILES[bad]
    path = place / "causes" / "house" / f"{bad}.toml"
    path.write_bytes(
        content if isinstance(content, bytes) else content.replace("house.rule", f"house.{bad}").encode()
    )
    installed("half", f"FOLDER = {str(place)!r}")
    book = load_rulebook()

    assert bad in noted(book, "half")
    assert len(noted(book, "half")) < 1000
    assert book.cause("house.rule") is not None
    assert book.cause(f"house.{bad}") is None
    assert workerdiag.explain(logs=[workerdiag.LogText("hello")], rulebook=book).summary
    assert bad in problems(place)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="makes a pipe")
def test_a_pipe_among_the_rules_holds_nothing_up(tmp_path):
    """It is told of as a mistake of its own."""
    place = folder(tmp_path, rule=GOOD)
    os.mkfifo(place / "causes" / "house" / "pipe.toml")

    assert "pipe.toml: is no file" in problems(place)


@pytest.mark.parametrize(
    ("table", "said"),
    [
        (
            "[[error]]\nname = 'e'\ntypes = ['E']\ncauses = ['no.such']\n",
            "names a cause that is not there: no.such",
        ),
        ("[[error]]\nname = 'e'\ntypes = ['E']\nends = ['eaten']\n", ".error[0].ends"),
        ("[[error]]\nname = 'e'\nkinds = ['E']\n", ".error[0]"),
        ("[[errors]]\nname = 'e'\n", "unknown keys errors"),
    ],
)
def test_a_table_of_errors_is_read_strictly(tmp_path, table, said):
    """A name that is not there, a wrong word or an unknown key is an error of the file."""
    (tmp_path / "errors.toml").write_text(table)
    with pytest.raises(RuleFileError) as caught:
        read_folder(tmp_path)
    assert said in str(caught.value)


def test_an_error_that_fits_everything_or_has_a_bad_pattern_is_linted(tmp_path):
    """It would answer for every exception, or for none; what it would decide goes on without it."""
    (tmp_path / "errors.toml").write_text(
        "[[error]]\nname = 'every'\n[[error]]\nname = 'bad'\npattern = '(?!x)'\n[[error]]\nname = 'bad'\ntypes = ['E']\n"
    )
    problems = "\n".join(lint(read_folder(folder(tmp_path))))
    assert "error every: fits every exception" in problems
    assert "error bad: defined twice" in problems
    assert "error bad: not in RE2's language" in problems
    book = evolve(load_rulebook(), errors=read_folder(tmp_path).errors[1:])
    assert workerdiag.explain(ValueError("x"), rulebook=book).outcome == "unknown"
