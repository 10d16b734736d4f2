"""What `exception_facts` makes of exceptions: Dask's own, users' own, and hostile ones."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections import OrderedDict
from concurrent.futures import CancelledError
from pathlib import Path
from types import ModuleType

import pytest
from distributed.actor import Actor
from distributed.client import CancelledFuturesGroup, FutureCancelledError, FuturesCancelledError
from distributed.core import Status, clean_exception, error_message
from distributed.scheduler import KilledWorker, WorkerState
from hypothesis import given
from hypothesis import strategies as st

from workerdiag.model.evidence import ExceptionFacts, LogChunk
from workerdiag.sources.exception import MAX_EXCEPTIONS, exception_facts
from workerdiag.sources.tracebacks import task_line

WORKER, NANNY = "tcp://10.0.0.4:34937", "tcp://10.0.0.4:40001"


def killed_worker(task="load-1", executing=("load-1",)):
    """As the scheduler makes it (``WorkerState.clean`` keeps these)."""
    last = WorkerState(
        address=WORKER,
        status=Status.closed,
        pid=4711,
        name="gpu-3",
        memory_limit=2**30,
        local_directory="/tmp",
        nanny=NANNY,
        server_id="id",
    )
    last.executing = dict.fromkeys(executing, 1.5)
    return KilledWorker(task, last, 3)


def facts_of(exc):
    """The facts, without the text."""
    return [each for each in exception_facts(exc) if isinstance(each, ExceptionFacts)]


def text_of(exc):
    """The text, which is of the client."""
    (chunk,) = (each for each in exception_facts(exc) if isinstance(each, LogChunk))
    assert (chunk.origin, chunk.stream) == ("exception", "client")
    return chunk.data.decode()


def raised(exc):
    """The exception with a traceback that begins here."""
    try:
        raise exc  # noqa: TRY301
    except BaseException as caught:
        return caught


def as_the_client_gets_it(exc):
    """Through the worker's pickle and back, as `Future.result` raises it; its frames are not in client.py."""
    try:
        raise exc  # noqa: TRY301
    except Exception as caught:
        message = error_message(caught)
    _, exc, traceback = clean_exception(
        pickle.loads(message["exception"].data), pickle.loads(message["traceback"].data)
    )
    return exc.with_traceback(traceback)


def test_a_killed_worker_names_task_and_process():
    """Everything that the exception knows of the last worker is told, with the host from its address."""
    (facts,) = facts_of(killed_worker())
    assert facts.type == "distributed.scheduler.KilledWorker"
    assert (facts.task, facts.allowed_failures, facts.limit_bytes) == ("load-1", 3, 2**30)
    identity = facts.identity
    assert (identity.worker, identity.pid, identity.nanny, identity.name, identity.host) == (
        WORKER,
        4711,
        NANNY,
        "gpu-3",
        "10.0.0.4",
    )
    assert facts.executing == ("load-1",)
    assert facts.when is not None
    assert not facts.from_task


def test_no_executing_task_is_not_known_to_be_none():
    """An empty heartbeat may be older than the task, so it clears nobody."""
    assert facts_of(killed_worker(executing=()))[0].executing is None


def test_a_key_that_is_a_tuple_reads_as_in_logs():
    """Keys of collections are told as Dask writes them."""
    assert facts_of(killed_worker(task=("x-1f", 0, 3)))[0].task == "('x-1f', 0, 3)"


PICKLE_KILLED_WORKER = f"""
import pickle, sys
import cloudpickle
from distributed.core import Status
from distributed.scheduler import KilledWorker, WorkerState

rebuilds, pickler, protocol = sys.argv[1:]
if rebuilds == "with-tblib":
    import tblib.pickling_support
    tblib.pickling_support.install()
last = WorkerState(
    address="{WORKER}", status=Status.closed, pid=4711, name="gpu-3", nthreads=2, memory_limit=2**30,
    local_directory="/tmp", nanny="{NANNY}", server_id="id",
)
last.executing = dict([("load-1", 1.5)])
last.last_seen = 1e9
try:
    try:
        raise ValueError(7)
    except ValueError as cause:
        raise KilledWorker(("load", 1), last, 3) from cause
except KilledWorker as exc:
    exc.add_note("a note of somebody")
    sys.stdout.buffer.write((pickle if pickler == "pickle" else cloudpickle).dumps(exc, int(protocol)))
"""


@pytest.mark.parametrize("protocol", ["2", "4", "5"])
@pytest.mark.parametrize("pickler", ["pickle", "cloudpickle"])
@pytest.mark.parametrize("rebuilds", ["with-tblib", "without"])
def test_a_pickled_killed_worker_of_another_release_is_read_without_unpickling(
    rebuilds, pickler, protocol, monkeypatch
):
    """The bytes that a client of another release gets tell the same, also where tblib rebuilds the class."""
    command = [sys.executable, "-c", PICKLE_KILLED_WORKER, rebuilds, pickler, protocol]
    data = subprocess.run(command, check=True, capture_output=True).stdout
    monkeypatch.setattr(pickle, "loads", None)
    (facts,) = facts_of(Exception(data))
    assert facts.type == "distributed.scheduler.KilledWorker"
    assert (facts.task, facts.allowed_failures, facts.limit_bytes) == ("('load', 1)", 3, 2**30)
    assert (facts.executing, facts.threads) == (("load-1",), 2)
    assert (facts.identity.worker, facts.identity.pid, facts.identity.nanny) == (WORKER, 4711, NANNY)
    assert facts.identity.name == "gpu-3"
    assert WORKER in text_of(Exception(data))


def test_a_pickle_that_is_cut_off_tells_what_was_complete():
    """Of bytes that end before the exception does, its class and first argument are known."""
    data = pickle.dumps(killed_worker())
    (facts,) = facts_of(Exception(data[: data.index(b"nanny")]))
    assert (facts.type, facts.task) == ("distributed.scheduler.KilledWorker", "load-1")


def test_a_pickle_that_grows_without_end_is_read_at_once():
    """A state that is built upon itself, and tuples of the same tuple, are looked at once."""
    doubled_state = b"\x80\x04cdistributed\nKilledWorker\n)\x81}q\x00K\x01K\x02s" + b"h\x00b" * 5000 + b"b."
    doubled_tuple = b"\x80\x04cdistributed\nKilledWork\n)q\x00" + b"h\x00\x86q\x00h\x00" * 3000 + b"R."
    for data in (doubled_state, doubled_tuple):
        assert len(facts_of(Exception(data))[0].text) <= 2000


@pytest.mark.parametrize("protocol", [3, 4, 5])
def test_any_other_pickled_exception_gives_its_class_and_words(protocol):
    """A class that is not installed on the client still has a name."""
    data = pickle.dumps(ModuleNotFoundError("No module named 'mylib'"), protocol)
    facts = facts_of(Exception(data))[0]
    assert facts.type.endswith(".ModuleNotFoundError")
    assert "No module named 'mylib'" in facts.text


@given(st.binary() | st.binary().map(lambda data: b"\x80\x04" + data))
def test_bytes_that_are_no_pickle_do_no_harm(data):
    """Whatever bytes an exception carries, it is told of."""
    assert facts_of(Exception(data))[0].relation == "raised"


def test_the_wording_before_2022_is_understood():
    """Old releases made a tuple of it; a copy without attributes has only the text."""
    old = type("KilledWorker", (Exception,), {})
    text = f"('load-1', <WorkerState '{WORKER}', name: 3, status: closed, memory: 0, processing: 1>)"
    (facts,) = facts_of(old(text))
    assert (facts.task, facts.identity.worker) == ("load-1", WORKER)
    (facts,) = facts_of(old(str(killed_worker())))
    assert (facts.task, facts.identity.worker) == ("load-1", WORKER)
    (facts,) = facts_of(old("load-1", WORKER))
    assert (facts.task, facts.identity.worker) == ("load-1", WORKER)


def test_cancelled_futures_give_key_and_reason_each():
    """One future, or many at once: each key, and the reason in the words."""
    one = FutureCancelledError("load-1", "scheduler-connection-lost", "Client lost the connection.")
    (facts,) = facts_of(one)
    assert (facts.task, facts.from_task) == ("load-1", False)
    assert "scheduler-connection-lost" in facts.text
    many = FuturesCancelledError([CancelledFuturesGroup([one], "scheduler-connection-lost")])
    assert [(each.relation, each.task) for each in facts_of(many)] == [("raised", None), ("member", "load-1")]
    assert facts_of(CancelledError())[0].task is None


def test_everything_that_hangs_on_it_is_told_with_its_relation():
    """Causes, contexts and members of groups are followed; a suppressed context is not."""
    try:
        try:
            raise OSError("context")  # noqa: TRY301
        except OSError:
            raise ExceptionGroup("group", [ValueError("one"), killed_worker()])  # noqa: B904
    except ExceptionGroup as group:
        wrapped = RuntimeError("wrapped")
        wrapped.__cause__ = group
    said = [(each.relation, each.type.rpartition(".")[2]) for each in facts_of(wrapped)]
    assert said == [
        ("raised", "RuntimeError"),
        ("cause", "ExceptionGroup"),
        ("context", "OSError"),
        ("member", "ValueError"),
        ("member", "KilledWorker"),
    ]
    wrapped.__cause__ = None
    wrapped.__context__, wrapped.__suppress_context__ = KeyError(), True
    assert len(facts_of(wrapped)) == 1


def test_circles_and_endless_chains_end():
    """An exception that causes itself, or has ten thousand causes, is told of in bounded space."""
    one, two = ValueError("one"), ValueError("two")
    one.__cause__, two.__cause__ = two, one
    assert len(facts_of(one)) == 2
    last = first = ValueError()
    for _ in range(10_000):
        last.__context__ = ValueError("x" * 1000)
        last = last.__context__
    assert len(facts_of(first)) == MAX_EXCEPTIONS
    assert len(facts_of(ExceptionGroup("many", [ValueError()] * 10_000))) <= MAX_EXCEPTIONS
    assert len(text_of(ValueError("ü" * 10**6))) <= 64 * 1024


class Broken(Exception):  # noqa: N818
    """Its own code has bugs."""

    def __str__(self):
        raise RuntimeError("no words")


class BrokenKilledWorker(Broken):
    """One more, in what is read of a lost worker."""

    @property
    def task(self):
        """What KilledWorker has."""
        raise RuntimeError("no task")


BrokenKilledWorker.__name__ = "KilledWorker"


def test_a_str_that_fails_costs_the_words_alone():
    """The class is told, and that it has no words."""
    (facts,) = facts_of(raised(Broken()))
    assert facts.type.endswith("Broken")
    assert "RuntimeError" in facts.text


def test_a_property_that_fails_is_a_gap():
    """What it hangs on and what hangs on it is read all the same."""
    exc = BrokenKilledWorker()
    exc.__cause__ = killed_worker()
    outer, inner, gap, chunk = exception_facts(exc)
    assert (outer.text, inner.task) == ("", "load-1")
    assert (gap.reason, gap.source) == ("malformed", "exception")
    assert "RuntimeError: no task" in gap.detail
    assert b"KilledWorker" in chunk.data


def test_half_a_character_becomes_its_escape():
    """A file name that is no UTF-8 stands in the text of an exception, and can be written everywhere."""
    (facts,) = facts_of(ValueError("caf\udce9.csv"))
    assert facts.text == "caf\\udce9.csv"


def test_a_frame_may_name_any_file_as_its_source(tmp_path):
    """A pipe, a device or a file of gigabytes is not read for its lines."""
    os.mkfifo(tmp_path / "pipe.py")
    scope = {}
    exec(compile("def fail():\n    raise ValueError('here')\n", str(tmp_path / "pipe.py"), "exec"), scope)
    with pytest.raises(ValueError, match="here") as caught:
        scope["fail"]()
    assert "in fail" in text_of(caught.value)


def test_the_text_has_traceback_message_and_notes():
    """Log patterns see what the user sees, the caught exception last, as Python prints it."""
    exc = raised(ValueError("two\nlines"))
    exc.add_note("worker-7 ran it")
    exc.__cause__ = KeyError("first")
    text = text_of(exc)
    assert text.index("KeyError: 'first'") < text.index("Traceback (most recent call last):")
    assert "in raised\n" in text
    assert text.endswith("ValueError: two\nlines\nworker-7 ran it\n")


def test_an_error_carried_from_a_task_is_told_apart():
    """What a task raised comes with frames that were rebuilt from a pickle; what was raised here does not."""
    carried = as_the_client_gets_it(ZeroDivisionError("in the task"))
    assert facts_of(carried)[0].from_task
    assert facts_of(raised(carried))[0].from_task
    assert not facts_of(raised(ZeroDivisionError("here")))[0].from_task


def test_what_an_error_of_a_task_was_caused_by_is_of_the_task():
    """Cause and members were in the same task; what was being handled here was not."""
    carried = as_the_client_gets_it(ZeroDivisionError("in the task"))
    carried.__cause__ = KeyError("there too")
    assert [each.from_task for each in facts_of(carried)] == [True, True]
    carried.__cause__, carried.__context__ = None, KeyError("here")
    carried.__suppress_context__ = False
    assert [each.from_task for each in facts_of(carried)] == [True, False]


def named(file, function, exc):
    """The exception as a function of that name in such a file raises it."""
    scope = {"exc": exc}
    exec(compile(f"def {function}():\n    raise exc\n", f"/site-packages/{file}", "exec"), scope)
    try:
        scope[function]()
    except BaseException as caught:
        return caught


@pytest.mark.parametrize(
    ("file", "function", "exc", "from_task"),
    [
        ("distributed/client.py", "_result", ValueError("a task without frames of its own"), True),
        ("distributed/client.py", "_result", TimeoutError(), False),
        ("distributed/client.py", "_gather", killed_worker(), False),
        ("distributed/client.py", "_run", ValueError("of client.run"), False),
        ("distributed/worker.py", "apply_function_simple", ValueError(), True),
        ("dask/local.py", "execute_task", ValueError(), True),
        ("dask\\local.py", "execute_task", ValueError(), True),
        ("dask/base.py", "compute", ValueError(), False),
    ],
)
def test_where_an_error_was_raised_tells_whether_a_task_did(file, function, exc, from_task):
    """Frames of the functions that run tasks, or that hand out their errors, tell."""
    assert facts_of(named(file, function, exc))[0].from_task is from_task


def cancelled(reason):
    """A future that was cancelled, as Dask says it."""
    return pytest.importorskip("distributed.client").FutureCancelledError("load-1", reason)


@pytest.mark.parametrize(
    ("exc", "maybe_dask"),
    [
        (as_the_client_gets_it(KeyError("x")), False),
        (as_the_client_gets_it(TimeoutError("the database")), False),
        (as_the_client_gets_it(ConnectionRefusedError(111, "Connection refused")), False),
        (as_the_client_gets_it(OSError("Timed out trying to connect to tcp://10.0.0.4:8786")), True),
        (named("project/load.py", "load", killed_worker()), True),
        (named("distributed/client.py", "_result", ValueError("no frames of its own")), False),
        (named("distributed/client.py", "_result", TimeoutError()), True),
        (named("distributed/comm/core.py", "connect", ValueError()), True),
        (named("project/load.py", "load", KeyError("x")), False),
        (named("project/load.py", "load", TimeoutError()), True),
        (named("project/load.py", "load", RuntimeError("3 parts failed")), True),
        (named("distributed/client.py", "_result", cancelled("lost dependencies")), True),
        (named("distributed/client.py", "_result", cancelled(None)), False),
    ],
    ids=repr,
)
def test_what_may_tell_of_a_lost_worker_is_told_apart(exc, maybe_dask):
    """By class, by whom it names, and by the code that raised it."""
    assert facts_of(exc)[0].maybe_dask is maybe_dask


def test_looking_at_an_exception_does_not_load_distributed():
    """explain(exc) without a client stays light."""
    code = (
        "import sys; from workerdiag.sources.exception import exception_facts; "
        "exception_facts(ValueError()); sys.exit('distributed' in sys.modules)"
    )
    source = Path(exception_facts.__code__.co_filename).parents[3]
    assert (
        subprocess.run([sys.executable, "-c", code], env={"PYTHONPATH": str(source)}, check=False).returncode == 0
    )


def test_dictionaries_of_tasks_may_be_of_any_kind():
    """Older releases keep TaskState objects where newer ones keep keys."""
    exc = killed_worker()
    state = type("TaskState", (), {"key": "load-2"})()
    exc.last_worker.executing = OrderedDict({state: 1.0})
    assert facts_of(exc)[0].executing == ("load-2",)


def test_the_task_s_own_line_stands_with_its_neighbours(tmp_path):
    """Of an error that Dask carried here the user sees where in the task it was raised, and the code around."""
    script = tmp_path / "work.py"
    script.write_text("def total(day):\n    found = 0\n    found += day['rain']\n    return found\n")
    scope = {}
    exec(compile(script.read_text(), str(script), "exec"), scope)
    frames = {"total": scope["total"]}
    exec(
        compile("def result():\n    __traceback_maker = 0\n    total({})", "/env/distributed/client.py", "exec"),
        frames,
    )
    exc = raised_by(frames["result"])
    raised_at, source = task_line(exc.__traceback__)
    assert raised_at == "total (work.py:3)"
    assert source[2] == ">    3      found += day['rain']"
    assert len(source) == 4


@pytest.mark.parametrize(("folder", "place"), [("home", "work.py"), ("ipykernel_12", "cell")])
def test_the_line_of_a_function_that_travelled_by_value_is_found_in_the_main_module(
    tmp_path, monkeypatch, folder, place
):
    """The file of a function of a script or a notebook, which cloudpickle hides, is on this machine."""
    (tmp_path / folder).mkdir()
    script = tmp_path / folder / "work.py"
    script.write_text("def plan():\n    def total(day):\n        return day['rain']\n    return total\n")
    main = ModuleType("__main__")
    exec(compile(script.read_text(), str(script), "exec"), vars(main))
    monkeypatch.setitem(sys.modules, "__main__", main)
    total = main.plan()
    total.__code__ = total.__code__.replace(co_filename="<dynamic-code>")
    fetch = "def result():\n    __traceback_maker = 0\n    total({})"
    frames = {"total": total}
    exec(compile(fetch, "/env/distributed/client.py", "exec"), frames)
    raised_at, source = task_line(raised_by(frames["result"]).__traceback__)
    assert raised_at == f"total ({place}:3)"
    assert source[2] == ">    3          return day['rain']"


def raised_by(function):
    """What the function raises."""
    try:
        function()
    except Exception as exc:
        return exc
    return None


def test_of_an_error_of_the_caller_s_own_its_line_is_named():
    """It is the only place to look at."""
    told = facts_of(raised(KeyError("x")))[0]
    assert (told.in_caller, told.maybe_dask, told.from_task) == (True, False, False)
    assert told.raised_at.startswith("raised (test_exception.py:")
    assert "raise exc" in "".join(told.source)


def passing(exc, *places):
    """The exception after it passed these functions, outermost first, each as ``file function``."""
    scope = {"exc": exc}
    body = "raise exc"
    for place in reversed(places):
        file, function = place.split()
        exec(compile(f"def {function}():\n    {body}\n", f"/site-packages/{file}", "exec"), scope)
        scope = {"_inner": scope[function]}
        body = "_inner()"

    def program():
        if places:
            scope["_inner"]()
        raise exc

    return raised_by(program)


UNPICKLABLE = "Could not serialize object of type lock"
SENT_BY_LOOP = ("distributed/client.py scatter", "distributed/utils.py sync", "distributed/comm/tcp.py write")


@pytest.mark.parametrize(
    ("exc", "in_caller"),
    [
        (passing(AttributeError("resultt")), True),
        (passing(FileNotFoundError(2, "No such file", "a.csv"), "pandas/io/common.py get_handle"), True),
        (passing(TypeError("not callable"), "distributed/client.py map"), True),
        (
            passing(TypeError(UNPICKLABLE), "dask/base.py compute", "distributed/protocol/serialize.py serialize"),
            True,
        ),
        (passing(TypeError(UNPICKLABLE), *SENT_BY_LOOP, "distributed/protocol/serialize.py serialize"), True),
        # raised where something may have come from a worker or a scheduler
        (passing(ValueError("x"), "distributed/client.py result", "distributed/client.py _result"), False),
        (passing(KeyError("x"), "distributed/client.py get_dataset", "distributed/utils.py sync"), False),
        (passing(ValueError("x"), "concurrent/futures/_base.py result"), False),
        (passing(ValueError("x"), "joblib/parallel.py _return_or_raise"), False),
        (passing(OSError("x"), "distributed/client.py submit"), False),
        (passing(ValueError("x"), "distributed/deploy/spec.py _correct_state"), False),
        # that may sum up what workers did
        (passing(RuntimeError("3 parts failed")), False),
        (passing(ValueError("lost tcp://10.0.0.4:40001")), False),
        (passing(TimeoutError()), False),
        (ValueError("never raised here"), False),
        (as_the_client_gets_it(KeyError("x")), False),
    ],
    ids=repr,
)
def test_only_what_passed_no_worker_and_no_connection_is_the_caller_s_own(exc, in_caller):
    """By the frames of its traceback: that no worker took part is said only where that is certain."""
    assert facts_of(exc)[0].in_caller is in_caller


def test_an_error_in_handling_a_lost_worker_is_not_only_the_caller_s_own():
    """Also where the first error is suppressed."""

    def program():
        try:
            raise killed_worker()
        except KilledWorker:
            raise ValueError("no result") from None

    assert not facts_of(raised_by(program))[0].in_caller


def test_what_we_said_ourselves_is_no_evidence():
    """The note of an earlier answer in an exception is left out; the notes of others are read."""
    exc = killed_worker()
    exc.add_note("workerdiag: Give it more memory.\nMore: print(...)\nCause: Bus error (SIGBUS) (66%)")
    exc.add_note("while loading tile 7")
    *_, chunk = exception_facts(exc)
    assert b"tile 7" in chunk.data
    assert b"SIGBUS" not in chunk.data


def actor_on(worker, key="counter"):
    """An actor as a client has it, without a client."""
    actor = object.__new__(Actor)
    vars(actor).update(_key=key, _address=worker)
    return actor


@pytest.mark.parametrize(
    "said", ["Unable to contact Actor's worker", "Worker holding Actor was lost.  Status: lost"]
)
def test_the_worker_of_the_actor_that_was_called_is_named(said):
    """The text names neither; the variables of the caller do."""

    def call(counter):
        raise OSError(said)

    with pytest.raises(OSError, match="Actor") as caught:
        call(actor_on(WORKER))
    facts = facts_of(caught.value)[0]
    assert (facts.task, facts.identity.worker) == ("counter", WORKER)


def test_of_two_actors_none_is_named():
    """Either of them may have been called."""

    def call(first, second):
        raise OSError("Unable to contact Actor's worker")

    with pytest.raises(OSError, match="Actor") as caught:
        call(actor_on(WORKER), actor_on("tcp://10.0.0.9:1"))
    assert facts_of(caught.value)[0].identity.worker is None
