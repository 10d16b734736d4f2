"""What ended, or stands still, for reasons that nobody tells is no "nothing died"."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

import workerdiag
from workerdiag import LogText
from workerdiag.rulebook.load import shipped_folder

UP = """\
2026-05-04 11:22:30,111 - distributed.nanny - INFO -         Start Nanny at: 'tcp://10.0.0.7:33333'
2026-05-04 11:22:31,222 - distributed.worker - INFO -       Start worker at:      tcp://10.0.0.7:34937
2026-05-04 11:22:31,333 - distributed.worker - INFO -         Registered to:      tcp://10.0.0.1:8786
"""
AFTER = "2026-05-04 11:51:00,100 - distributed.worker - INFO - Run out-of-band function 'ping'\n"
HEARTBEAT = """\
2026-05-04 11:31:00,100 - distributed.worker - ERROR - Failed to communicate with scheduler during heartbeat.
Traceback (most recent call last):
  File "/opt/env/lib/python3.11/site-packages/distributed/worker.py", line 1190, in heartbeat
    response = await retry_operation(
tornado.iostream.StreamClosedError: Stream is closed
"""
DEADLY = sorted(
    path
    for path in Path(str(shipped_folder())).glob("causes/*/*.toml")
    if tomllib.loads(path.read_text(encoding="utf-8"))["ends"] in ("killed", "crashed", "never-started")
)
KILLING = sorted(
    path
    for path in Path(str(shipped_folder())).glob("causes/*/*.toml")
    if tomllib.loads(path.read_text(encoding="utf-8"))["ends"] == "killed"
)


def outcome(text: str) -> str:
    return workerdiag.explain(logs=LogText(text), timeout="60s").outcome


@pytest.mark.parametrize("before", ["", UP], ids=["alone", "below-a-log"])
@pytest.mark.parametrize(
    "text",
    [
        "   JobState=FAILED Reason=NonZeroExitCode Dependency=(null)\n",
        "330981       dask-worker      long       eva          4     FAILED      3:0\n",
        "330981.0            dask                 eva          4  CANCELLED      0:9\n",
        "srun: Force Terminated StepId=330981.0\n",
        "Killed\n",
        "Terminated\n",
        "dask-worker-2 exited with code 1\n",
        "2026-05-04 11:40:00,000 INFO exited: dask-worker (exit status 3; not expected)\n",
        "5m   Warning   NodeNotReady           pod/dask-worker-a7   Node is not ready\n",
        "5m   Warning   EvictionThresholdMet   node/pool-1          Attempting to reclaim memory\n",
        "2026-05-04 11:40:00,000 - distributed.nanny - ERROR - Restart timed out after 60s; returning before finished\n",
        "2026-05-04 11:40:00,000 - distributed.scheduler - ERROR - Workers ['tcp://10.0.0.7:34937'] did not shut down within 60s; force closing\n",
        "2026-05-04 11:40:00,000 - distributed.worker - ERROR - Multiple plugin exceptions raised. All exceptions will be logged, the first is raised.\n",
        "airflow.exceptions.AirflowException: step 4 of load_ice: KilledWorker\n",
        "2026-05-04 11:40:00,000 - distributed.worker - WARNING - Compute Failed\nKey:       outer-3\nException: 'KilledWorker()'\n",
        "worker.sh: Zeile 3: 2207 Getötet                 dask worker tcp://10.0.0.1:8786\n",
        "Speicherzugriffsfehler\n",
        "worker.sh : ligne 3 : 2207 Erreur de segmentation  (core dumped)dask worker tcp://10.0.0.1:8786\n",
        "worker.sh: línea 3: 2207 Terminado (killed)      dask worker tcp://10.0.0.1:8786\n",
        "worker.sh: 行 3: 2207 段错误               dask worker tcp://10.0.0.1:8786\n",
        "已杀死\n",
        "強制終了\n",
        "12: Killed\n",
        "[1,12]<stdout>:Killed\n",
        "[2026-05-04 11:40:00] Killed\n",
        "subprocess.CalledProcessError: Command '['dask', 'worker', 'tcp://10.0.0.1:8786']' died with <Signals.SIGABRT: 6>.\n",
        "ERROR: Job failed: execution took longer than 3h0m0s seconds\n",
        "##[error]The runner has received a shutdown signal.\n",
        "The self-hosted runner: eva-2 lost communication with the server.\n",
        "Your session crashed after using all available RAM.\n",
        "[2026-05-04, 11:40:00 UTC] {scheduler_job_runner.py:1700} ERROR - Detected zombie job: {'full_filepath': '/dags/ice.py'}\n",
        "Your process dask (pid 2207) was killed: too much memory for this login node.\n",
        'Error from server (NotFound): pods "ice-worker-2" not found\n',
        'error: Get "https://10.0.0.7:10250/containerLogs/ice/ice-worker-2/worker": dial tcp 10.0.0.7:10250: i/o timeout\n',
        "NAME           READY   STATUS    RESTARTS   AGE\nice-worker-2   1/1     Running   4          2d\n",
        "ice-worker-2   1/2     NotReady   0          2d\n",
        "pool-2   NotReady   <none>   2d   v1.30.1\n",
        "NAME         READY   UP-TO-DATE   AVAILABLE   AGE\nice-worker   2/3     3            2           2d\n",
        "NAME         READY   AGE\nice-worker   2/3     2d\n",
        'The Pod "ice-worker-2" is invalid: spec.nodeSelector: Required value\n',
        "[ 7121.400000] Kernel panic - not syncing: Attempted to kill init!\n",
        "[ 7121.400000] watchdog: BUG: soft lockup - CPU#1 stuck for 23s! [python:2207]\n",
        "May 04 11:40:00 n1 systemd[1]: dask-worker.service: Scheduled restart job, restart counter is at 2.\n",
        "May 04 11:40:00 n1 systemd[1]: dask-worker.service: Killing process 2207 (dask) with signal SIGKILL.\n",
        "2026-05-04 11:40:00,000 INFO gave up: dask-worker entered FATAL state, too many start retries too quickly\n",
        "'ice-dask-worker' process is not running\n",
        "Application 330981 exit signals: Killed\n",
        "             JOBID PARTITION     NAME     USER ST       TIME  NODES NODELIST(REASON)\n            330981      long dask-wor      eva NF      12:01      1 n1\n",
        "JOBID   USER    STAT  QUEUE      FROM_HOST   EXEC_HOST   JOB_NAME    SUBMIT_TIME\n330981  eva     EXIT  long       login1      n1          dask-worker May  4 11:40\n",
        "    Exit_status = 271\n",
        "Exit Value: 1\n",
    ],
)
def test_an_end_without_a_reason_bars_the_all_clear(text, before):
    """A platform, a shell or Dask says that something ended; nobody says why."""
    assert outcome(before + text) in ("unknown", "explained")


@pytest.mark.parametrize("text", [HEARTBEAT, "distributed.worker - WARNING - Heartbeat to scheduler failed\n"])
def test_a_heartbeat_that_nobody_answers_could_be_the_death_of_the_scheduler(text):
    """The end of a script leaves the same, so neither can be told."""
    assert outcome(UP + text) == "unknown"


def test_a_heartbeat_that_fails_after_an_order_to_stop_says_nothing():
    """A scheduler that closes answers no more."""
    order = "2026-05-04 11:30:59,000 - distributed.worker - INFO - Stopping worker at tcp://10.0.0.7:34937. Reason: scheduler-close\n"

    assert outcome(UP + order + HEARTBEAT) != "unknown"


@pytest.mark.parametrize(
    "text",
    [
        "   JobState=COMPLETED Reason=None Dependency=(null)\n",
        "330981       dask-worker      long       eva          4  COMPLETED      0:0\n",
        "dask-worker-2 exited with code 0\n",
        "5m   Normal    NodeReady              node/pool-1          Node pool-1 status is now: NodeReady\n",
        "worker.sh: Zeile 3: module: Kommando nicht gefunden.\n",
        "Terminado\n",
        "12: Killed 3 stale sessions\n",
        "subprocess.CalledProcessError: Command '['gdalinfo', 'a.tif']' died with <Signals.SIGABRT: 6>.\n",
        "If your process was killed, ask for a larger node.\n",
        'Error from server (NotFound): configmaps "ice" not found\n',
        "NAME           READY   STATUS    RESTARTS   AGE\nice-worker-2   1/1     Running   0          2d\n",
        "NAME         READY   UP-TO-DATE   AVAILABLE   AGE\nice-worker   3/3     3            3           2d\n",
        "pool-2   Ready   <none>   2d   v1.30.1\n",
        "May 04 11:40:00 n1 systemd[1]: postfix.service: Scheduled restart job, restart counter is at 2.\n",
        "2026-05-04 11:40:00,000 INFO gave up: nginx entered FATAL state, too many start retries too quickly\n",
        "             JOBID PARTITION     NAME     USER ST       TIME  NODES NODELIST(REASON)\n            330981      long dask-wor      eva  R      12:01      1 n1\n",
        "    Exit_status = 0\n",
        "Exit Value: 0\n",
    ],
)
def test_a_good_end_bars_nothing(text):
    """What is done ends, and the worker goes on."""
    assert outcome(UP + text + AFTER) == "no-death"


def test_a_batch_job_that_was_told_to_stop_may_end_with_any_status():
    """A worker that is not wanted any longer closes, and its job is deleted with a signal."""
    order = "2026-05-04 11:30:59,000 - distributed.worker - INFO - Stopping worker at tcp://10.0.0.7:34937. Reason: scheduler-close\n"

    assert outcome(UP + order + "    Exit_status = 271\n") != "unknown"


AFTERMATHS = [
    "May  4 11:40:00 n1 kernel: Linux version 6.1.0-21-amd64 (debian-kernel@lists.debian.org) (gcc-12 (Debian 12.2.0-14) 12.2.0)\n",
    "-- Reboot --\n",
    "<Client: 'tcp://10.0.0.1:8786' processes=0 threads=0, memory=0 B>\n",
    "qsub: job 4410231.pbsserver completed\n",
]


@pytest.mark.parametrize("text", AFTERMATHS)
def test_a_worker_that_was_up_before_the_machine_booted_is_gone(text):
    """Below its log, with no word of it between, a boot or a client without workers shows that it went."""
    assert outcome(UP + text) == "unknown"


@pytest.mark.parametrize("text", AFTERMATHS)
def test_a_machine_that_booted_before_the_worker_came_up_is_healthy(text):
    """Every log of a kernel begins with its boot, and every cluster with no workers."""
    assert outcome(text + UP) == "no-death"


def nanny_start(time: str, address: str) -> str:
    return f"2026-05-04 {time},100 - distributed.nanny - INFO -         Start Nanny at: 'tcp://{address}'\n"


def test_a_command_that_starts_again_in_its_log_had_ended():
    """A service that was started again: of the first nanny's end its log tells nothing."""
    again = nanny_start("11:40:00", "10.0.0.7:39001") + UP

    assert outcome(nanny_start("11:22:00", "10.0.0.7:41265") + UP + again) == "unknown"


@pytest.mark.parametrize(
    "second", [nanny_start("11:22:20", "10.0.0.7:39001"), nanny_start("11:40:00", "10.0.0.8:39001")]
)
def test_several_nannies_in_one_log_are_healthy(second):
    """One command starts several at once, and logs of several machines are read together."""
    assert outcome(nanny_start("11:22:00", "10.0.0.7:41265") + UP + second) == "no-death"


@pytest.mark.parametrize("reason", ["Forbidden", "Unprocessable Entity", "Internal Server Error"])
def test_a_refusal_by_a_web_server_shows_no_deaths(reason):
    """Its reason is not that of a container, beside which a death would stand."""
    assert outcome(f"Reason: {reason}\n") == "no-evidence"


@pytest.mark.parametrize("path", KILLING, ids=lambda path: path.stem)
def test_what_speaks_of_a_kill_is_never_cleared(path):
    """A line that our own rules take for more than a hint at a kill is no "nothing died"."""
    rule = tomllib.loads(path.read_text(encoding="utf-8"))
    told = [sign for sign in rule["sign"] if sign.get("grade") != "hint"]

    cleared = [text for sign in told for text in sign.get("seen", ()) if outcome(text) == "no-death"]

    assert cleared == []


@pytest.mark.parametrize("path", DEADLY, ids=lambda path: path.stem)
def test_what_speaks_for_a_death_is_not_cleared_in_the_log_of_a_worker_that_was_up(path):
    """Where a line is too little to name its cause, it is still more than nothing.

    Not so a piece of a traceback, which may be a task's.
    """
    rule = tomllib.loads(path.read_text(encoding="utf-8"))
    told = [sign for sign in rule["sign"] if sign.get("grade") in ("decisive", "strong", "moderate")]

    texts = [text for sign in told for text in sign.get("seen", ()) if not text.startswith(" ")]

    cleared = [text for text in texts if outcome(UP + text) == "no-death"]

    assert cleared == []
