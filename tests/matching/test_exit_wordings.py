"""How programs that run workers report a process that a signal ended: 32 wordings, 7 signals."""

import pytest

import workerdiag

#: Number, name without SIG, text of strsignal(3), and the cause that it leads to.
SIGNALS = (
    (4, "ILL", "Illegal instruction", "signal.illegal-instruction"),
    (6, "ABRT", "Aborted", "signal.abort"),
    (7, "BUS", "Bus error", "signal.bus-error"),
    (8, "FPE", "Floating point exception", "signal.floating-point"),
    (9, "KILL", "Killed", "external.sigkill"),
    (11, "SEGV", "Segmentation fault", "signal.segfault"),
    (15, "TERM", "Terminated", "exit.sigterm"),
)

#: Where zsh has words of its own.
ZSH = {"ILL": "illegal hardware instruction", "ABRT": "abort"}

#: Reporter to its wording: ``n`` is the signal, ``shell`` 128 + n, ``NAME`` its name, ``words`` those of
#: strsignal(3), ``lower`` them in lower case.
WORDINGS = {
    "systemd": "Nov 02 10:11:12 node17 systemd[1]: dask-worker.service: Main process exited, code=killed, status={n}/{NAME}",
    "systemctl status": "   Main PID: 4711 (code=killed, signal={NAME})",
    "Open MPI": "mpirun noticed that process rank 3 with PID 4711 on node node17 exited on signal {n} ({words}).",
    "Open MPI, in the process": "[node17:04711] Signal: {words} ({n})",
    "MPICH": "YOUR APPLICATION TERMINATED WITH THE EXIT STRING: {words} (signal {n})",
    "Intel MPI": "=   KILLED BY SIGNAL: {n} ({words})",
    "bash script": "/home/user/start.sh: line 7:  4711 {words}     dask worker tcp://10.0.0.2:8786",
    "bash job": "[1]+  {words}     dask worker tcp://10.0.0.2:8786",
    "zsh": "zsh: {zsh}  dask worker tcp://10.0.0.2:8786",
    "srun": "srun: error: node17: task 3: {words}",
    "srun, by status": "srun: error: node17: task 3: Exited with exit code {shell}",
    "Slurm accounting": "5512.0|dask-worker|||FAILED|0:{n}",
    "PBS": "    Exit_status = {shell}",
    "LSF": "Exited with exit code {shell}.",
    "HTCondor": "        (0) Abnormal termination (signal {n})",
    "docker ps": '3f2c1a9be0d1   acme/dask:1   "dask worker"   3 hours ago   Exited ({shell}) 2 minutes ago   dask-worker-1',
    "docker compose": "dask-worker-1 exited with code {shell}",
    "docker swarm": 'w8f2k1   dask_worker.2   acme/dask:1   node17   Shutdown   Failed 9 seconds ago   "task: non-zero exit ({shell})"',
    "kubectl describe": "    Last State:     Terminated\n      Reason:       Error\n      Exit Code:    {shell}",
    "kubectl get -o json": '        "exitCode": {shell},',
    "supervisord": "2026-11-02 10:11:12,131 INFO exited: dask-worker (terminated by SIG{NAME}; not expected)",
    "Go": 'level=error msg="worker ended" error="signal: {lower}"',
    "subprocess": "the worker ended with returncode=-{n}",
    "multiprocessing": "<SpawnProcess name='Dask Worker process (from Nanny)' pid=4711 parent=4700 stopped exitcode=-SIG{NAME}>",
    "loky": "The exit codes of the workers are {{SIG{NAME}(-{n})}}",
    "Airflow": "Task exited with return code Negsignal.SIG{NAME}",
    "Prefect": "Process for flow run 'grey-newt' exited with status code: -{n}",
    "make": "make: *** [Makefile:9: worker] Error {shell}",
    "PyCharm": "Process finished with exit code {shell} (interrupted by signal {n}: SIG{NAME})",
    "PM2": "PM2      | App [dask-worker:0] exited with code [0] via signal [SIG{NAME}]",
    "container runtime": "dask-worker terminated with signal {n}",
    "any other": "the process was killed by signal {n}",
}


@pytest.mark.slow
@pytest.mark.parametrize("reporter", WORDINGS)
def test_each_reporter_leads_to_the_cause_of_each_signal(reporter):
    """Whoever reports it, and in whatever words, a signal leads to its cause first."""
    wrong = {}
    for number, name, words, cause in SIGNALS:
        text = WORDINGS[reporter].format(
            n=number,
            shell=128 + number,
            NAME=name,
            words=words,
            lower=words.lower(),
            zsh=ZSH.get(name, words.lower()),
        )
        top = workerdiag.explain(logs=[workerdiag.LogText(text)]).top
        if top is None or top.id != cause:
            wrong[text] = top and (top.id, round(top.probability, 2))

    assert wrong == {}


@pytest.mark.parametrize(
    ("status", "cause"),
    [
        (0xC0000005, "signal.segfault"),
        (0xC0000017, "exception.memory-error"),
        (0xC000012D, "exception.memory-error"),
        (0xC00000FD, "signal.stack-overflow"),
        (0xC0000135, "exception.startup-other"),
    ],
)
def test_a_status_of_windows_leads_to_its_cause(status, cause):
    """``ntstatus.h``: ACCESS_VIOLATION, NO_MEMORY, COMMITMENT_LIMIT, STACK_OVERFLOW, DLL_NOT_FOUND."""
    text = f"distributed.nanny - WARNING - Worker process 4711 exited with status {status}"

    assert workerdiag.explain(logs=[workerdiag.LogText(text)]).top.id == cause
