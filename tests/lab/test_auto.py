"""The answer in the exception by itself: real deaths, seen the ways in which people meet an exception."""

from __future__ import annotations

import asyncio
import pickle
import re
import subprocess
import sys
import textwrap

import dask
import pexpect
import pytest
from dask import delayed
from distributed import Client, as_completed
from nbclient import NotebookClient
from nbformat import v4

import workerdiag
from workerdiag.api.annotate import remembered
from workerdiag.model.dask import is_worker_death
from workerdiag.model.vocabulary import NOTE_START

from . import tasks
from .cluster import IMPATIENT
from .processes import PATIENCE_S
from .promises import check_note

pytestmark = pytest.mark.lab

#: What a terminal is told beside the text: colours and places.
ESCAPE_SEQUENCE = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]|\x1b[=>]")
SEGFAULT = "Segmentation fault (SIGSEGV) in native code"
#: A program of somebody who knows nothing of workerdiag.
PROGRAM = """
import ctypes
from distributed import Client

def crash():
    ctypes.string_at(0)

def test_program():
    with Client({address!r}) as client:
        {line}

if __name__ == "__main__":
    test_program()
"""
#: Its line that fails because a worker died, and one whose wait is over.
DEADLY, VAIN = "client.submit(crash).result()", "client.submit(crash, resources={'GPU': 1}).result(timeout=3)"
#: The cause of each.
CAUSES = {DEADLY: SEGFAULT, VAIN: "Tasks wait for a worker that fits them"}


@pytest.fixture
def client(lab):
    """A client with notes, of a cluster that gives a task up at its first death."""
    lab.scheduler(**IMPATIENT)
    lab.worker()
    return lab.client()


def result(client, future):
    """As most people ask."""
    future.result()


def gather(client, future):
    """As those ask who have many."""
    client.gather([future])


def one_by_one(client, future):
    """As those ask who take results as they come."""
    list(as_completed([future], loop=client.loop, with_results=True))


def output(arguments):
    """What a program that fails prints."""
    done = subprocess.run(
        [sys.executable, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
        text=True,
        timeout=2 * PATIENCE_S,
    )
    assert done.returncode != 0
    return done.stdout.rstrip()


def first_line(exc):
    """The first line of the note, without its mark."""
    (note,) = [each for each in exc.__notes__ if each.startswith(NOTE_START)]
    return note.splitlines()[0].removeprefix(NOTE_START)


def shown_cause(lines):
    """The first line of the note, without its mark: the third last of what a program prints."""
    return lines[-3].partition(NOTE_START)[2]


@pytest.mark.parametrize("ask", [result, gather, one_by_one])
def test_whichever_way_a_result_is_asked_for_its_exception_has_the_cause(client, ask):
    """Nobody has to call anything where the exception is raised."""
    with pytest.raises(Exception, match="Attempted to run task") as caught:
        ask(client, client.submit(tasks.segfault, key="crash"))
    assert first_line(caught.value).startswith(f"Cause: {SEGFAULT}")


def test_computing_a_graph_raises_with_the_cause(client):
    """As ``dask.compute`` does it, of collections too."""
    with pytest.raises(Exception, match="Attempted to run task") as caught:
        dask.compute(delayed(tasks.segfault)(), scheduler=client)
    assert first_line(caught.value).startswith(f"Cause: {SEGFAULT}")


def test_a_client_without_auto_gets_no_note_any_more(client):
    """Switching it off leaves the client as it was."""
    workerdiag.auto(client, on=False)
    with pytest.raises(Exception, match="Attempted to run task") as caught:
        client.submit(tasks.segfault, key="crash").result()
    assert not getattr(caught.value, "__notes__", [])


def test_a_pickled_exception_keeps_its_note(client):
    """As it does on its way through a process pool."""
    with pytest.raises(Exception, match="Attempted to run task") as caught:
        client.submit(tasks.segfault, key="crash").result()
    assert first_line(pickle.loads(pickle.dumps(caught.value))).startswith(f"Cause: {SEGFAULT}")


@pytest.mark.parametrize(
    ("death", "arguments"), [(tasks.abort, ()), (tasks.exit_at_once, (3,)), (tasks.shoot_itself, (9,))]
)
def test_each_death_is_named_as_explain_names_it(client, death, arguments):
    """The note and a call of `explain` give the same cause."""
    with pytest.raises(Exception, match="Attempted to run task") as caught:
        client.submit(death, *arguments, key="crash").result()
    top = workerdiag.explain(caught.value, client, timeout=PATIENCE_S).top
    assert top is not None
    assert first_line(caught.value).startswith(f"Cause: {top.title}")


def test_what_was_found_is_kept_beside_the_exception(client):
    """Airflow and Prefect ask when the cluster is gone."""
    with pytest.raises(Exception, match="Attempted to run task") as caught:
        client.submit(tasks.segfault, key="crash").result()
    diagnosis = remembered(caught.value)
    assert diagnosis.top.title == SEGFAULT
    assert diagnosis.decision.policy.action == "do-not-retry"


def test_the_second_death_is_not_taken_for_the_first(client):
    """What an earlier call died of says nothing of this one."""
    for death, cause in ((tasks.segfault, "segfault"), (tasks.abort, "abort")):
        with pytest.raises(Exception, match="Attempted to run task") as caught:
            client.submit(death, key=f"crash-{cause}").result()
        diagnosis = workerdiag.annotate(caught.value, client, timeout=PATIENCE_S)
        assert diagnosis.top.id == f"signal.{cause}"
        assert "worker processes" not in diagnosis.summary


async def await_it(client, future):
    """As asynchronous programs ask."""
    await future


async def await_all(client, future):
    """As those ask who have many."""
    await client.gather([future])


async def await_each(client, future):
    """As those ask who take results as they come."""
    async for _ in as_completed([future], loop=client.loop, with_results=True):
        pass


@pytest.mark.parametrize("ask", [await_it, await_all, await_each])
def test_an_asynchronous_client_gets_the_note_too(lab, ask):
    """Whichever way it waits, the exception has its note."""
    lab.scheduler(**IMPATIENT)
    lab.worker()

    async def scene():
        async with Client(lab.address, asynchronous=True, set_as_default=False) as client:
            workerdiag.auto(client)
            await client.wait_for_workers(1)
            with pytest.raises(Exception, match="Attempted to run task") as caught:
                await ask(client, client.submit(tasks.segfault, key="crash"))
            return first_line(caught.value)

    assert asyncio.run(scene()).startswith(f"Cause: {SEGFAULT}")


@pytest.fixture
def program(lab, monkeypatch, request):
    """The program and its cause, for a cluster whose clients are given notes by one environment variable alone.

    Another has them wait longer than two seconds, for a busy machine. The line that fails is `DEADLY` or a parameter.
    """
    line = getattr(request, "param", DEADLY)
    lab.scheduler(**IMPATIENT)
    lab.worker()
    lab.client()
    monkeypatch.setenv("DASK_DISTRIBUTED__CLIENT__PRELOAD", "workerdiag.auto")
    monkeypatch.setenv("DASK_WORKERDIAG__NOTE__TIMEOUT", f"{PATIENCE_S}s")
    monkeypatch.setenv("IPYTHONDIR", str(lab.folder / "ipython"))
    return textwrap.dedent(PROGRAM).format(address=lab.address, line=line), CAUSES[line]


@pytest.mark.parametrize("program", CAUSES, indirect=True)
@pytest.mark.parametrize("command", [["-c"], ["-m", "IPython", "--colors=NoColor", "-c"]])
def test_configuration_alone_puts_the_cause_in_a_programs_traceback(program, command):
    """Neither a script nor what is typed at IPython's prompt has to be changed."""
    text, cause = program
    lines = output([*command, text]).splitlines()
    assert shown_cause(lines).startswith(f"Cause: {cause}")


@pytest.mark.parametrize("prompt", ["--colors=NoColor", "--simple-prompt"])
def test_configuration_alone_puts_the_cause_in_a_terminal(program, prompt, tmp_path):
    """What is typed at IPython's prompt in a terminal of 80 columns has the cause as well."""
    text, cause = program
    path = tmp_path / "program.py"
    path.write_text(text)
    arguments = ["-m", "IPython", "--no-banner", prompt]
    with pexpect.spawn(sys.executable, arguments, encoding="utf-8", timeout=2 * PATIENCE_S) as terminal:
        terminal.setwinsize(40, 80)
        terminal.expect(r"In \[1\]")
        terminal.send(f"%run {path}\r")
        terminal.expect(r"In \[2\]")
        shown = ESCAPE_SEQUENCE.sub("", terminal.before).replace("\r", "")
    assert shown_cause(shown.rstrip().splitlines()).startswith(f"Cause: {cause}")


def test_configuration_alone_puts_the_cause_into_a_failed_test(program, tmp_path):
    """It is in the last lines of what pytest shows of the exception."""
    text, cause = program
    path = tmp_path / "test_program.py"
    path.write_text(text)
    lines = [each for each in output(["-m", "pytest", "-q", str(path)]).splitlines() if each.startswith("E  ")]
    assert shown_cause(lines).startswith(f"Cause: {cause}")


def test_configuration_alone_puts_the_cause_in_a_notebooks_error(program):
    """It is in the last lines of what stands under the cell."""
    text, cause = program
    notebook = v4.new_notebook(cells=[v4.new_code_cell(text)])
    NotebookClient(notebook, timeout=2 * PATIENCE_S, allow_errors=True, kernel_name="python3").execute()
    (error,) = [each for each in notebook.cells[0].outputs if each.output_type == "error"]
    assert shown_cause("\n".join(error.traceback).splitlines()).startswith(f"Cause: {cause}")


@pytest.mark.parametrize("fault", ["sigkill-nanny", "sigterm-nanny", "sigint-nanny"])
def test_a_note_is_made_also_where_the_nanny_goes_with_its_worker(provoke, surroundings, fault, monkeypatch):
    """Meanwhile the nanny may leave with all it knows; the note says what was found until then."""
    auto = workerdiag.auto
    monkeypatch.setattr(workerdiag, "auto", lambda client, **_: auto(client))
    exc = provoke(fault).exc
    surroundings.check_last_line(exc, check_note(exc, is_noted=True))


def test_a_block_of_the_cautious_adds_the_note_without_touching_the_client(lab):
    """`explaining` adds the note as the exception leaves the block."""
    lab.scheduler(**IMPATIENT)
    lab.worker()
    client = lab.client()
    before = dict(client._stream_handlers)
    with (
        pytest.raises(Exception, match="Attempted to run task") as caught,
        workerdiag.explaining(client, timeout=PATIENCE_S),
    ):
        client.submit(tasks.segfault, key="crash").result()
    assert first_line(caught.value).startswith(f"Cause: {SEGFAULT}")
    assert client._stream_handlers == before
    assert is_worker_death(caught.value)
