"""An all-clear is given only where somebody looked, what stands there is known, and nothing is wrong."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

import workerdiag
from workerdiag import LogText, load_rulebook
from workerdiag.correlation.assemble import assemble
from workerdiag.model.evidence import Gap, Inspected
from workerdiag.model.vocabulary import PLACES
from workerdiag.rulebook.load import quiet_lines, shipped_folder
from workerdiag.scoring.conclude import conclude

BOOK = load_rulebook(packs=False)
STARTED = """\
2026-05-04 11:22:30,111 - distributed.nanny - INFO -         Start Nanny at: 'tcp://10.0.0.7:33333'
2026-05-04 11:22:31,222 - distributed.worker - INFO -       Start worker at:      tcp://10.0.0.7:34937
2026-05-04 11:22:31,223 - distributed.worker - INFO - Waiting to connect to:      tcp://10.0.0.1:8786
"""
REGISTERED = """\
2026-05-04 11:22:31,333 - distributed.worker - INFO -         Registered to:      tcp://10.0.0.1:8786
"""


def outcome(text: str) -> str:
    return workerdiag.explain(logs=LogText(text)).outcome


@pytest.mark.parametrize(
    "text",
    [
        "",
        "hello world\n",
        "2026-05-04 11:22:33 myapp INFO all 17 steps done\n",
        "Traceback (most recent call last):\n  File 'x.py', line 3, in f\nValueError: no\n",
    ],
)
def test_a_text_in_which_nothing_is_known_is_no_evidence(text):
    """Neither a death nor its absence can be read from it."""
    assert outcome(text) == "no-evidence"


def test_nothing_given_is_no_evidence():
    """Without exception, client and logs nothing was looked at."""
    assert workerdiag.explain().outcome == "no-evidence"


def test_a_missing_file_is_no_evidence(tmp_path):
    """What could not be read does not show that nothing died."""
    assert workerdiag.explain(logs=tmp_path / "worker.log").outcome == "no-evidence"


def test_a_log_that_could_not_be_read_in_time_is_unknown():
    """Not to have read something is another answer than that nothing in it is known."""
    with subprocess.Popen(["sleep", "60"], stdout=subprocess.PIPE) as silent:
        assert workerdiag.explain(logs=silent.stdout, timeout=0.5).outcome == "unknown"
        silent.kill()


def test_a_missing_file_bars_the_all_clear_of_the_others(tmp_path):
    """The death may stand in the log that could not be read."""
    good = tmp_path / "worker.log"
    good.write_text(STARTED + REGISTERED)

    assert workerdiag.explain(logs=good).outcome == "no-death"
    assert workerdiag.explain(logs=[good, tmp_path / "nanny.log"]).outcome == "unknown"


@pytest.mark.parametrize(
    "text",
    [
        # an error of Dask's that nobody has written down
        "2026-05-04 11:22:33,444 - distributed.nanny - ERROR - Lost track of my own shadow\n",
        "2026-05-04 11:22:33,444 - distributed.worker - CRITICAL - Lost track of my own shadow\n",
        # a worker command that does not start
        """Traceback (most recent call last):
  File "/opt/env/bin/dask-worker", line 5, in <module>
    from distributed.cli.dask_worker import go
  File "/opt/env/lib/python3.9/site-packages/distributed/cli/dask_worker.py", line 20, in main
    import odd
SyntaxError: invalid syntax
""",
        "joblib raised KilledWorker for chunk 17\n",
        "job failed: b'\\x8c\\x15distributed.scheduler\\x94\\x8c\\x0cKilledWorker\\x94'\n",
        STARTED,  # it waits for a scheduler and never registers
        "NAME            READY   STATUS    RESTARTS   AGE\nmy-worker-x1    0/1     Pending   0          17m\n",
        "distributed.scheduler - INFO - Remove worker tcp://10.0.0.7:34937\n",
        "2026-05-04 11:22:33,444 - distributed.scheduler - INFO - Lost all workers\n",
        "2026-05-04 11:22:33,444 - distributed.client - ERROR - Failed to reconnect to scheduler after 30.00 seconds, closing client\n",
        STARTED + REGISTERED + "RuntimeError: NCCL error in: NCCLUtils.hpp:219, remote process exited\n",
        STARTED
        + REGISTERED
        + "2026-05-04 11:29:33,444 - distributed.core - INFO - Event loop was unresponsive in Worker for 45.31s.\n",
    ],
)
def test_trouble_bars_the_all_clear(text):
    """Something is wrong with a worker, though no cause of a death is told."""
    assert outcome(text) != "no-death"


@pytest.mark.parametrize(
    "text",
    [
        # platforms, of an end or of a part of a description
        "      Exit Code:    1\n",
        "    State:          Terminated\n",
        "srun: Job step aborted: Waiting up to 32 seconds for job step to finish.\n",
        "Events:\n",
        # nobody says who asked the nanny to end it
        "2026-05-04 11:22:33,444 - distributed.nanny - WARNING - Worker process still alive after 3.2 seconds, killing\n",
        # a nanny that went before its worker was there
        """\
distributed.nanny - INFO -         Start Nanny at: 'tcp://10.0.0.7:33333'
distributed.nanny - INFO - Closing Nanny at 'tcp://10.0.0.7:33333'
distributed.dask_worker - INFO - End worker
""",
        # what the client raised is cut off: it may be a KilledWorker
        """\
  File "/home/user/job/run.py", line 12, in <module>
    client.gather(futures)
  File "/opt/env/lib/python3.12/site-packages/distributed/client.py", line 2382, in gather
    return self.sync(
""",
        # another error follows, and is cut off
        """\
2026-05-04 11:22:33,444 - distributed.nanny - ERROR -
Traceback (most recent call last):
  File "/opt/python/lib/python3.12/asyncio/tasks.py", line 456, in wait_for
asyncio.exceptions.CancelledError

The above exception was the direct cause of the following exception:
""",
        # what speaks for a defect of Dask's, and does not prove it
        """\
2026-05-04 11:22:33,444 - distributed.core - ERROR - Exception while handling op heartbeat_worker
Traceback (most recent call last):
  File "/home/user/job/plug.py", line 12, in heartbeat
RuntimeError: dictionary changed size during iteration
""",
    ],
)
def test_what_shows_no_worker_well_is_no_all_clear(text):
    """Part of a report that breaks off, or that tells of an end, is not one that all is well."""
    assert outcome(text) in ("unknown", "no-evidence")


@pytest.mark.parametrize(
    "text",
    [
        "NAME           READY   STATUS    RESTARTS   AGE\ngeo-worker-3   1/1     Running   0          3h\n",
        "88121        dask-work+    compute   analytics         8  COMPLETED      0:0\n",
        """\
KeyError                                  Traceback (most recent call last)
<ipython-input-8-3f4e05f049ae> in <module>
----> 1 table.mean().compute()

/opt/env/lib/python3.9/site-packages/distributed/client.py in gather(self, futures, errors)
   1960         local_worker = None
""",
        "/opt/env/lib/python3.12/site-packages/distributed/client.py:3361: UserWarning: Sending large graph of size 13.23 MiB.\n",
    ],
)
def test_what_shows_that_work_goes_on_is_an_all_clear(text):
    """Pods that run, jobs that are done, a task's own error that came back, advice to whoever sends work."""
    assert outcome(text) == "no-death"


def test_the_error_that_nobody_knows_is_quoted():
    """A person may know it, or look it up."""
    diagnosis = workerdiag.explain(
        logs=LogText(
            STARTED
            + REGISTERED
            + "2026-05-04 11:22:33,444 - distributed.nanny - ERROR - Lost track of my own shadow\n"
        )
    )

    assert diagnosis.outcome == "unknown"
    assert "Lost track of my own shadow" in diagnosis.summary


def test_a_worker_that_its_scheduler_has_does_not_wait():
    """In a log of both the scheduler may say first that the worker came; where it came does not matter."""
    came = "2026-05-04 11:22:31,444 - distributed.scheduler - INFO - Register worker addr: tcp://10.0.0.7:34937 name: 0\n"

    assert outcome(STARTED) == "unknown"
    assert outcome(STARTED + came) == "no-death"


def test_a_scheduler_to_which_no_worker_came_is_no_all_clear():
    """A client came and went; that no worker died says nothing where there was none."""
    text = """\
2026-05-04 11:22:30,111 - distributed.scheduler - INFO -   Scheduler at:     tcp://10.0.0.1:8786
2026-05-04 11:22:31,222 - distributed.scheduler - INFO - Receive client connection: Client-5a1f2c3d-c6b0-11f0-9e0a-0242ac110002
"""
    diagnosis = workerdiag.explain(logs=LogText(text))

    assert diagnosis.outcome == "unknown"
    assert "there is no sign of any worker" in diagnosis.summary


@pytest.mark.parametrize(
    "text",
    [
        STARTED
        + REGISTERED
        + """\
2026-05-04 11:23:33,444 - distributed.worker - WARNING - Compute Failed
Key:       load-1
Function:  load
args:      ()
kwargs:    {}
Exception: "ValueError('odd')"
""",
        STARTED
        + REGISTERED
        + """\
Exception in thread Thread-7 (poll):
Traceback (most recent call last):
  File "/opt/python/lib/python3.12/threading.py", line 1073, in _bootstrap_inner
    self.run()
ValueError: no answer
""",
        """\
Traceback (most recent call last):
  File "/home/user/job/run.py", line 12, in <module>
    print(future.result(timeout=30))
  File "/opt/env/lib/python3.12/site-packages/distributed/client.py", line 402, in result
    return self.client.sync(self._result, callback_timeout=timeout)
  File "/home/user/job/run.py", line 5, in load
    return table[column]
KeyError: 'speed'
""",
        STARTED
        + REGISTERED
        + "2026-05-04 11:24:33,444 - tornado.application - ERROR - Uncaught exception GET /status/ws (10.0.0.9)\n",
        STARTED
        + REGISTERED
        + """\
2026-05-04 11:25:33,444 - distributed.worker - INFO - Stopping worker at tcp://10.0.0.7:34937. Reason: nanny-close
2026-05-04 11:25:33,555 - distributed.worker - ERROR - Something odd while everything closes
""",
        "distributed.core - INFO - Event loop was unresponsive in Worker for 7.89s.\n",
    ],
)
def test_tasks_that_fail_and_noise_are_no_deaths(text):
    """The worker lived to say so; errors behind an order to stop are what closing leaves behind."""
    assert outcome(text) in ("no-death", "explained")
    assert not [each for each in workerdiag.explain(logs=LogText(text)).deaths if not each.stop_requested]


@pytest.mark.parametrize(
    ("text", "failed"),
    [
        (
            "2026-05-04 11:23:33,444 - distributed.worker - ERROR - Worker plugin licences failed to setup\n",
            "Worker plugin licences failed to setup",
        ),
        (
            "2026-05-04 11:23:33,444 - distributed.protocol.core - CRITICAL - Failed to Serialize\n",
            "Failed to Serialize",
        ),
    ],
)
def test_a_failure_that_killed_nobody_is_named(text, failed):
    """It is no death, and still what the user wants to know."""
    diagnosis = workerdiag.explain(logs=LogText(STARTED + REGISTERED + text))

    assert diagnosis.outcome == "no-death"
    assert failed in diagnosis.summary


@pytest.mark.parametrize(
    "text",
    [
        "2022-05-05 19:58:33,665 - distributed.worker - INFO - Stopping worker at tcp://10.0.0.7:34937\n",
        """\
distributed.scheduler - INFO - Closing worker tcp://10.0.0.7:34937
distributed.scheduler - INFO - Remove worker tcp://10.0.0.7:34937
""",
        """\
2022-10-25 15:54:14,502 - distributed.worker - INFO - Stopping worker at tcp://10.0.0.7:34937
2022-10-25 15:54:14,503 - distributed.worker - INFO - Connection to scheduler broken. Closing without reporting. ID: Worker-ce265b58 Address tcp://10.0.0.7:34937 Status: Status.closing
""",
    ],
)
def test_orderly_ends_are_no_deaths(text):
    """It took its leave, and nothing else is wrong; older releases do not say who asked for it."""
    assert outcome(text) == "no-death"


@pytest.mark.parametrize("path", sorted((shipped_folder() / "quiet").glob("*.log")), ids=lambda path: path.name)
def test_whole_logs_of_healthy_clusters_get_the_all_clear(path: Path):
    """Or the stop that was asked for in them is named."""
    diagnosis = workerdiag.explain(logs=path)
    stops = {each.id for each in BOOK.causes if each.ends == "stopped"}

    assert diagnosis.outcome == "no-death" or (diagnosis.top and diagnosis.top.id in stops)


def test_a_cluster_that_could_not_be_asked_is_unknown():
    """A scheduler that does not answer is no sign of health."""
    gap = Gap(source="the other end", place="scheduler", reason="timed-out", detail="no answer")

    assert conclude(assemble([], []), BOOK, gaps=[gap], version="").outcome == "unknown"


@pytest.mark.parametrize("place", PLACES)
def test_a_gap_bars_the_all_clear_by_its_place_and_never_by_its_name(place):
    """What tells of all workers, and what was given, has to be read; how gaps are called is for people."""
    seen = [Inspected(place="scheduler events"), Inspected(place="worker states")]
    gap = Gap(source="log scheduler: cluster", place=place, reason="unreachable", detail="no answer")
    bars = (
        "log",
        "scheduler",
        "scheduler events",
        "scheduler log",
        "worker states",
        "task states",
        "versions",
    )

    found = conclude(assemble([], seen), BOOK, gaps=[gap], version="").outcome
    assert found == ("unknown" if place in (*bars, "workerdiag") else "no-death")


@pytest.mark.parametrize("place", PLACES)
def test_only_a_place_that_shows_deaths_earns_the_all_clear(place):
    """A log that was looked at shows by its messages what it is."""
    found = conclude(assemble([], [Inspected(place=place)]), BOOK, gaps=[], version="").outcome

    assert (found == "no-death") == (place != "log" and not place.endswith(" log"))


def test_a_cluster_that_was_asked_and_is_well_gets_the_all_clear():
    """Its workers are there, and no event tells of one that went."""
    seen = [Inspected(place="scheduler events"), Inspected(place="worker states")]

    assert conclude(assemble([], seen), BOOK, gaps=[], version="").outcome == "no-death"


def test_a_kernel_log_alone_is_no_all_clear():
    """A kernel tells of kills and crashes only; workers also exit by themselves."""
    text = "[    0.000000] Linux version 6.1.0\n[   12.345678] eth0: link up\n"

    assert outcome(text) in ("unknown", "no-evidence")


def test_healthy_lines_are_known_to_be_harmless():
    """No line of the quiet list is an error that nobody knows."""
    for line in quiet_lines():
        assert "that no rule knows" not in workerdiag.explain(logs=LogText(line)).summary, line


def test_a_crash_while_its_nanny_closes_is_no_all_clear():
    """The nanny was asked to stop; nobody asks for a segmentation fault."""
    closing = """\
2026-05-04 11:22:38,510 - distributed.nanny - INFO - Closing Nanny at 'tcp://10.0.0.7:33333'. Reason: nanny-close
2026-05-04 11:22:38,511 - distributed.nanny - INFO - Nanny asking worker to close. Reason: nanny-close
"""
    crash = "2026-05-04 11:22:38,516 - distributed.nanny - INFO - Worker process 15448 was killed by signal 11\n"
    assert outcome(STARTED + REGISTERED + closing) == "no-death"
    assert outcome(STARTED + REGISTERED + closing + crash) in {"unknown", "explained"}


def test_a_worker_process_that_never_came_up_did_not_leave_in_order():
    """A nanny that gives up on its worker kills it as if it had been asked to stop; the start failed all the same."""
    given_up = """\
2026-05-04 11:22:30,111 - distributed.nanny - INFO -         Start Nanny at: 'tcp://10.0.0.7:33333'
2026-05-04 11:23:30,112 - distributed.nanny - INFO - Closing Nanny at 'tcp://10.0.0.7:33333'
2026-05-04 11:24:17,113 - distributed.nanny - WARNING - Worker process still alive after 47 seconds, killing
2026-05-04 11:24:17,114 - distributed.nanny - WARNING - Worker process 4711 was killed by unknown signal
2026-05-04 11:24:17,115 - distributed.dask_worker - INFO - End worker
"""
    start, rest = given_up.split("\n", 1)

    assert outcome(given_up) == "unknown"
    assert outcome(f"{start}\n{STARTED}{REGISTERED}{rest}") == "no-death"


LOST_RESULTS = """\
2026-05-04 11:22:33,111 - distributed.scheduler - WARNING - Removing worker 'tcp://10.0.0.7:34937' caused the cluster to lose already computed task(s), which will be recomputed elsewhere: {'sum-1'} (stimulus_id='handle-worker-cleanup-1777893753.1')
"""
STILL_ALIVE = "2026-05-04 11:22:37,111 - distributed.nanny - WARNING - Worker process still alive after 4.0 seconds, killing\n"
CLOSING = "2026-05-04 11:22:32,111 - distributed.nanny - INFO - Nanny asking worker to close. Reason: nanny-close\n"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (LOST_RESULTS, "unknown"),
        (LOST_RESULTS + STILL_ALIVE, "unknown"),
        (CLOSING + LOST_RESULTS, "explained"),
        (CLOSING + LOST_RESULTS + STILL_ALIVE, "explained"),
    ],
)
def test_results_that_went_with_a_worker_bar_the_all_clear_unless_it_was_asked_to_stop(text, told):
    """That its nanny kills a slow process does not say who asked it to."""
    assert outcome(text) == told


@pytest.mark.parametrize(
    "text",
    [
        "2026-05-04 11:22:33,111 - distributed.scheduler - WARNING - Received heartbeat from unregistered worker 'tcp://10.0.0.7:34937'.",
        "2026-05-04 11:22:33,111 - distributed.deploy.spec - WARNING - Cluster closed without starting up",
        "2026-05-04 11:22:33,111 - distributed.client - INFO - Client report stream closed to scheduler",
    ],
)
def test_one_message_of_a_loss_or_a_failed_start_bars_the_all_clear(text):
    """They say no cause, only that all is not well."""
    assert outcome(text) == "unknown"


def test_a_hint_explains_no_error():
    """An attribute of None is missing for many a reason: that some cause knows the words does not clear the error."""
    error = """\
tornado.application - ERROR - Exception in callback <bound method Nanny.look_around of <Nanny: tcp://10.0.0.7:33333>>
Traceback (most recent call last):
  File "/opt/env/lib/python3.11/site-packages/distributed/nanny.py", line 251, in look_around
    self.lamp.shine()
AttributeError: 'NoneType' object has no attribute 'shine'
"""

    assert outcome(STARTED + REGISTERED + error) == "unknown"


def test_a_heartbeat_that_fails_does_not_show_that_the_scheduler_was_lost():
    """A script that ends while a heartbeat is under way leaves the same message."""
    error = """\
2026-05-04 11:22:33,444 - distributed.worker - ERROR - Failed to communicate with scheduler during heartbeat.
Traceback (most recent call last):
  File "/opt/env/lib/python3.11/site-packages/distributed/comm/tcp.py", line 225, in read
    frames_nosplit_nbytes_bin = await stream.read_bytes(fmt_size)
tornado.iostream.StreamClosedError: Stream is closed
"""

    assert outcome(error) != "explained"


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("=>> PBS: job killed: spool usage job total 20512KB exceeded limit 10240KB", "unknown"),
        ("slurmstepd: error: something that nobody has written down", "unknown"),
        (
            "slurmstepd: error: couldn't chdir to `/run': No such file or directory: going to /tmp instead",
            "no-death",
        ),
        ("srun: job 412 has been allocated resources", "no-death"),
    ],
)
def test_an_error_of_a_batch_system_that_nobody_knows_bars_the_all_clear(line, told):
    """Beside a worker that is well; what is known to be harmless does not."""
    assert outcome(f"{line}\n{STARTED}{REGISTERED}") == told


def test_where_a_line_of_dask_itself_fails_no_task_raised():
    """A client's own bookkeeping that fails is no report of a task."""
    own = """\
Traceback (most recent call last):
  File "/opt/env/lib/python3.12/site-packages/distributed/client.py", line 1409, in _gather
    st = self.futures[key]
KeyError: 'load-7'
"""
    raised = """\
Traceback (most recent call last):
  File "/opt/env/lib/python3.12/site-packages/distributed/client.py", line 2428, in _gather
    raise exception.with_traceback(traceback)
  File "/home/user/job.py", line 5, in load
    return table[column]
KeyError: 'load-7'
"""
    assert [outcome(own), outcome(raised)] == ["no-evidence", "no-death"]
