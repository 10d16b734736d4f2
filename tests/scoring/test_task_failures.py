"""What a task raised, from the log of a worker alone."""

from __future__ import annotations

import pytest

import workerdiag
from support.diagnoses import GOOD, FixedSource
from workerdiag import LogText
from workerdiag.model.evidence import Event, ExceptionFacts
from workerdiag.model.identity import Identity

HEAD = "2026-11-21 17:34:25,307 - distributed.worker - ERROR - Compute Failed\nKey:       load-9a\nState:     executing\n"
FRAMES = (
    '  File "/home/ann/job.py", line 12, in load\n    return table["station"]\n'
    '  File "/opt/venv/lib/python3.12/site-packages/pandas/core/frame.py", line 4102, in __getitem__\n    raise\n'
)


def failed(exception, traceback=FRAMES):
    """What is said of a log in which a task raised *exception*; distributed writes both texts by ``%r``."""
    text = f"{HEAD}Exception: {exception!r}\nTraceback: {traceback!r}\n\n"
    return workerdiag.explain(logs=LogText(text, stream="worker"))


def test_the_error_and_the_users_own_line_are_named():
    """Its message, and the innermost line that is in no library, as where the exception itself was caught."""
    diagnosis = failed("KeyError('station')")
    assert diagnosis.summary == "No worker died: a task failed with KeyError: 'station'."
    assert diagnosis.failure.raised_at == "load (job.py:12)"
    assert diagnosis.failure.source == ('>   12  return table["station"]',)
    assert "Fix load (job.py:12)" in str(diagnosis)


def test_an_error_that_has_a_check_of_its_own_is_not_told_to_be_fixed_there():
    """The line of a pool whose process was killed is right: what killed it is to be found."""
    diagnosis = failed("BrokenProcessPool('A process in the process pool was terminated abruptly.')")
    assert "Do now    Look at what ended the process that the task had started" in str(diagnosis)
    assert diagnosis.failure.raised_at == "load (job.py:12)"


@pytest.mark.parametrize(
    ("exception", "said"),
    [
        ("ValueError('bad row')", "ValueError: bad row"),
        ('ValueError("it\'s")', "ValueError: it's"),
        ("BadRowError(3, 'north')", "BadRowError: 3, 'north'"),
        ("pandas.errors.ParserError('line\\n2: \\xe9')", "ParserError: line 2: \xe9"),
        ("StopIteration()", "StopIteration"),
    ],
)
def test_an_error_is_worded_as_python_words_it(exception, said):
    """Without the quotation marks and escapes of the log."""
    assert f"failed with {said}." in failed(exception).summary


@pytest.mark.parametrize("exception", ["", "<boom>", "KeyError('a", "'" * 999, "\\", "E(" * 500, "E('\\ud800')"])
@pytest.mark.parametrize("traceback", ["", 'File "x", line 99999999999999999999, in f', "\\", "File " * 999])
def test_a_text_that_is_no_error_does_no_harm(exception, traceback):
    """Whatever stands there, a task failed and no worker died."""
    assert failed(exception, traceback).summary.startswith("No worker died: a task failed")


def test_of_several_the_first_is_named():
    """Each has a cause of its own, and one is mended after the other."""
    texts = [f"{HEAD}Exception: {name!r}\nTraceback: {FRAMES!r}\n\n" for name in ("KeyError('a')", "KeyError('b')")]
    diagnosis = workerdiag.explain(logs=LogText("".join(texts), stream="worker"))
    assert diagnosis.summary == "No worker died: 2 tasks failed, the first with KeyError: 'a'."


CLIENT = """Traceback (most recent call last):
  File "/home/ann/run.py", line 12, in <module>
    print(future.result())
  File "/opt/venv/lib/python3.12/site-packages/distributed/client.py", line 431, in result
    return self.client.sync(self._result, callback_timeout=timeout)
           ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
"""


@pytest.mark.parametrize("error", ["OSError: [Errno 27] File too large", "BrokenProcessPool: A child died."])
def test_frames_of_the_task_below_the_clients_tell_that_a_task_raised(error):
    """Also where the error is one that a client raises of its own accord; and one task that client and worker tell of is one."""
    text = f'{CLIENT}  File "/home/ann/job.py", line 12, in load\n    out.write(block)\n{error}\n'
    failure = f"{HEAD}Exception: \"OSError(27, 'File too large')\"\nTraceback: {FRAMES!r}\n\n"
    diagnosis = workerdiag.explain(logs=[LogText(text, stream="client"), LogText(failure, stream="worker")])
    assert diagnosis.summary == "No worker died: a task failed with OSError: 27, 'File too large'."


def test_a_client_that_waited_in_vain_is_no_failed_task():
    """A time-out of the caller says nothing of workers; the one place to look at is what runs."""
    text = f'{CLIENT}  File "/opt/python/lib/python3.12/asyncio/timeouts.py", line 115, in __aexit__\n    raise TimeoutError from exc_val\nTimeoutError\n'
    joined = "2026-11-21 17:34:25,307 - distributed.scheduler - INFO - Register worker addr: tcp://10.0.0.4:40001 name: 1"
    diagnosis = workerdiag.explain(logs=[LogText(text, stream="client"), LogText(joined, stream="scheduler")])
    assert diagnosis.outcome == "unknown"
    assert diagnosis.next_steps[0].inspect.startswith("what runs at this moment")


def test_frames_of_dask_below_the_clients_are_no_task():
    """An error of the connection to the scheduler clears nobody."""
    text = f'{CLIENT}  File "/opt/venv/lib/python3.12/site-packages/distributed/utils_comm.py", line 399, in retry\n    return await coro()\nOSError: [Errno 113] No route to host\n'
    diagnosis = workerdiag.explain(logs=LogText(text, stream="client"))
    assert diagnosis.outcome != "no-death"


def caught(**facts):
    """What is said of such an exception where a worker crashed earlier."""
    told = ExceptionFacts(**{"from_task": True, "maybe_dask": False, "text": "'x'", **facts})
    return workerdiag.explain(sources=[FixedSource((told,))], logs=GOOD)


def test_a_tasks_own_error_is_not_explained_by_a_death():
    """The answer is about the error; the death beside it keeps its cause, as a separate matter."""
    diagnosis = caught(type="KeyError")
    assert (diagnosis.outcome, diagnosis.top, diagnosis.deaths_are_separate) == ("unknown", None, True)
    assert diagnosis.summary.startswith("A task failed with KeyError: 'x'. Separately, a worker died")
    assert [each.cause for each in diagnosis.deaths] == ["signal.segfault"]
    assert "The workers need no action" not in str(diagnosis)
    assert diagnosis.decision.policy.action == "ask"


def test_a_tasks_own_error_blames_no_task_that_was_given_up():
    """Who needs to act is asked of the error, not of the death beside it."""
    told = ExceptionFacts(type="KeyError", text="'x'", from_task=True, maybe_dask=False)
    given_up = "distributed.scheduler - ERROR - Task load-1 marked as failed because 4 workers died"
    logs = [GOOD, LogText(f"{given_up} while trying to run it\n")]
    diagnosis = workerdiag.explain(sources=[FixedSource((told,))], logs=logs)
    assert (diagnosis.blame.verdict, diagnosis.blame.task) == ("unknown", None)


def test_a_tasks_error_that_a_rule_knows_is_judged_by_itself():
    """It is not the cause of the death beside it either."""
    diagnosis = caught(type="MemoryError", text="")
    assert diagnosis.top.id == "exception.memory-error"
    assert [each.cause for each in diagnosis.deaths] == ["signal.segfault"]


@pytest.mark.parametrize(
    "facts",
    [
        {"type": "distributed.comm.core.CommClosedError", "maybe_dask": True},
        {"type": "distributed.scheduler.KilledWorker", "maybe_dask": True, "from_task": False},
    ],
)
def test_an_error_that_lost_workers_bring_about_is_explained_by_the_death(facts):
    """Also where a task raised it."""
    diagnosis = caught(**facts)
    assert (diagnosis.top.id, diagnosis.deaths_are_separate) == ("signal.segfault", False)


@pytest.mark.parametrize("in_caller", [True, False])
def test_a_programs_own_error_is_not_explained_by_a_death(in_caller):
    """What was asked is answered; the death beside it keeps its cause, as a separate matter."""
    diagnosis = caught(type="KeyError", from_task=False, in_caller=in_caller)
    assert (diagnosis.outcome, diagnosis.top, diagnosis.deaths_are_separate) == ("unknown", None, True)
    assert "Separately, a worker died" in diagnosis.summary
    assert [each.cause for each in diagnosis.deaths] == ["signal.segfault"]


PAUSED = Event(topic="worker-state", fields={"status": "paused"}, identity=Identity(worker="tcp://10.0.0.4:1"))


@pytest.mark.parametrize("beside", [(), (PAUSED,)], ids=["alone", "beside a paused worker"])
@pytest.mark.parametrize(
    ("type_", "text"), [("AttributeError", "resultt"), ("ModuleNotFoundError", "No module named 'pyarrow'")]
)
def test_of_a_mistake_of_the_caller_the_line_is_named_and_nothing_else(type_, text, beside):
    """No worker took part: no state of a worker explains it, and no log of one has to be looked at."""
    told = ExceptionFacts(
        type=type_,
        text=text,
        in_caller=True,
        maybe_dask=False,
        raised_at="plan (run.py:3)",
        source=("> 3  x",),
    )
    diagnosis = workerdiag.explain(sources=[FixedSource((told, *beside))])
    assert (diagnosis.top, diagnosis.next_steps) == (None, ())
    assert diagnosis.summary == (
        f"The program itself raised {type_}: {text} in plan (run.py:3): no worker took part in it."
    )
    assert "Fix plan (run.py:3)." in str(diagnosis)
    assert "The program's error" in str(diagnosis)
    assert diagnosis.outcome == "no-death"


REFUSAL = (
    "Task 'concat-all' has 1.76 GiB worth of input dependencies, but worker tcp://10.0.0.4:40001 has memory_limit "
    "set to 400.00 MiB. It seems like you called client.compute() on a huge collection."
)


def fetched(exc):
    """The exception as the client's ``result`` raises it where no worker ran the task."""
    names = {"exc": exc}
    exec(compile("def result():\n    raise exc\n", "/env/distributed/client.py", "exec"), names)
    with pytest.raises(type(exc)) as caught:
        names["result"]()
    return caught.value


@pytest.mark.parametrize("exc", [fetched(MemoryError(REFUSAL)), MemoryError(REFUSAL)])
def test_a_task_that_the_scheduler_refuses_is_a_failure_without_a_death(exc):
    """Its MemoryError comes before anything is allocated; what helps is a smaller result, which comes first.

    The scheduler sends it without a frame, as ``future.exception()`` returns it.
    """
    diagnosis = workerdiag.explain(exc)

    assert diagnosis.outcome == "no-death"
    assert diagnosis.summary.startswith("No worker died: a task failed with MemoryError: Task 'concat-all' has")
    assert diagnosis.next_steps[0].inspect.startswith("whether its result has to come together in one worker")
    assert diagnosis.memory.reason == "brought-together"
    assert "Do not hold everything at once" in str(diagnosis)
