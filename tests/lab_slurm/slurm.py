"""A Slurm of one's own: every daemon in the foreground, every file in one folder, gone afterwards.

Needs root, cgroup v1 and Debian's packages: slurmctld, slurmd, slurm-client, slurmdbd, munge,
mariadb-server, slurm-wlm-basic-plugins, slurm-wlm-mysql-plugin.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

COMMANDS = ("slurmctld", "slurmd", "slurmdbd", "sacct", "munged", "mariadbd", "mariadb-install-db", "unshare")
PATIENCE_S = 60.0
_AS_SLURM = ("setpriv", "--reuid=slurm", "--regid=slurm", "--init-groups")
#: Where systemd and Debian mount the controllers of cgroup v1.
_MEMORY = Path("/sys/fs/cgroup/memory")

_CONFIG = """\
ClusterName=lab
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ctld_port}
SlurmdPort={slurmd_port}
SlurmUser=slurm
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/run/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
ProctrackType=proctrack/cgroup
TaskPlugin=task/cgroup
JobAcctGatherType=jobacct_gather/cgroup
JobAcctGatherFrequency=task=1
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=2,sched_interval=5,sched_min_interval=0
PriorityType=priority/basic
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
KillWait=5
OverTimeLimit=0
InactiveLimit=0
ReturnToService=2
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePass={folder}/munge.socket
AccountingStoragePort={dbd_port}
MpiDefault=none
NodeName={host} NodeAddr=127.0.0.1 CPUs=16 RealMemory=8000 State=UNKNOWN
SlurmdParameters=config_overrides
PartitionName=low Nodes={host} Default=YES MaxTime=INFINITE State=UP PriorityTier=1 PreemptMode=REQUEUE
PartitionName=cancel Nodes={host} MaxTime=INFINITE State=UP PriorityTier=1 PreemptMode=CANCEL
PartitionName=high Nodes={host} MaxTime=INFINITE State=UP PriorityTier=100 PreemptMode=OFF
"""
_CGROUP = """\
CgroupPlugin=cgroup/v1
CgroupAutomount=no
ConstrainCores=no
ConstrainRAMSpace=yes
ConstrainSwapSpace=no
AllowedRAMSpace=100
"""
_ACCOUNTING = """\
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
DbdHost=localhost
DbdAddr=127.0.0.1
DbdPort={dbd_port}
SlurmUser=slurm
LogFile={folder}/run/slurmdbd.log
PidFile={folder}/run/slurmdbd.pid
StorageType=accounting_storage/mysql
StorageLoc=slurm_acct_db
StorageUser=slurm
"""
_DATABASE = """\
create database slurm_acct_db;
create user slurm@localhost identified via unix_socket;
grant all on slurm_acct_db.* to slurm@localhost;
"""


class UnavailableError(Exception):
    """The machine, or the user, cannot run a Slurm."""


class Slurm:
    """One node with accounting, preemption and memory limits.

    Args:
        folder: Where everything goes; short, for it holds sockets.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.host = socket.gethostname().split(".")[0]
        self._daemons: list[subprocess.Popen[bytes]] = []
        self._facts = {"folder": folder, "host": self.host} | {
            f"{name}_port": _free_port() for name in ("ctld", "slurmd", "dbd")
        }
        self.environment = {
            "SLURM_CONF": str(folder / "slurm.conf"),
            "MYSQL_UNIX_PORT": str(folder / "mysql.socket"),
        }

    def start(self) -> None:
        """Start all daemons, and wait until jobs can run.

        Raises:
            UnavailableError: They cannot run here.
        """
        self._check()
        self.folder.chmod(0o755)
        for name in ("state", "spool", "mysql", "run"):
            (self.folder / name).mkdir()
        (self.folder / "slurm.conf").write_text(_CONFIG.format(**self._facts))
        (self.folder / "cgroup.conf").write_text(_CGROUP)
        (self.folder / "slurmdbd.conf").write_text(_ACCOUNTING.format(**self._facts))
        (self.folder / "slurmdbd.conf").chmod(0o600)
        for name in ("state", "run", "slurmdbd.conf"):
            shutil.chown(self.folder / name, "slurm", "slurm")
        self._start_munge()
        self._start_database()
        self._daemon(*_AS_SLURM, "slurmdbd", "-D")
        wait_until(lambda: self.says("sacctmgr", "-n", "show", "cluster").returncode == 0, "slurmdbd")
        self.says("sacctmgr", "-i", "add", "cluster", "lab")
        self._daemon(*_AS_SLURM, "slurmctld", "-D", "-c")
        mount = f"mount --bind {_own_group()} {_MEMORY}"
        self._daemon("unshare", "--mount", "sh", "-c", f"{mount} && exec slurmd -D")
        wait_until(lambda: "idle" in self.says("sinfo", "-h", "-o", "%t").stdout, "the node to be idle")
        self.says("sacctmgr", "-i", "add", "account", "lab")
        self.says("sacctmgr", "-i", "add", "user", "root", "account=lab")

    def says(self, *command: str) -> subprocess.CompletedProcess[str]:
        """What a command of this Slurm answers."""
        environment = {**os.environ, **self.environment}
        return subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=PATIENCE_S, check=False
        )

    def state(self, job: str) -> str:
        """The state of a job, as the controller has it."""
        said = self.says("scontrol", "show", "job", job).stdout
        return said.partition("JobState=")[2].partition(" ")[0]

    def wait_for(self, job: str, *states: str) -> None:
        """Wait until the job is in one of *states*."""
        wait_until(lambda: self.state(job) in states, f"job {job} to be {' or '.join(states)}")

    def processes(self, job: str) -> list[int]:
        """The processes of a job on its node."""
        said = self.says("scontrol", "listpids", job).stdout.splitlines()[1:]
        return [int(line.split()[0]) for line in said]

    def stop(self) -> None:
        """Cancel all jobs and end all daemons."""
        with contextlib.suppress(subprocess.TimeoutExpired, TimeoutError, FileNotFoundError):
            self.says("scancel", "--full", "-u", "root")
            wait_until(lambda: not self.says("squeue", "-h").stdout.strip(), "the jobs to end", within_s=15)
        for daemon in reversed(self._daemons):
            daemon.terminate()
            try:
                daemon.wait(15)
            except subprocess.TimeoutExpired:
                daemon.send_signal(signal.SIGKILL)
                daemon.wait()

    def _check(self) -> None:
        missing = [each for each in COMMANDS if shutil.which(each) is None]
        if missing:
            raise UnavailableError(f"not installed: {', '.join(missing)}")
        if os.geteuid() != 0:
            raise UnavailableError("slurmd needs root")
        if not (_MEMORY / "memory.limit_in_bytes").exists():
            raise UnavailableError("there is no memory controller of cgroup v1")

    def _start_munge(self) -> None:
        key = self.folder / "munge.key"
        key.write_bytes(os.urandom(64))
        key.chmod(0o400)
        files = [
            f"--{option}={self.folder / name}"
            for option, name in (
                ("socket", "munge.socket"),
                ("key-file", "munge.key"),
                ("pid-file", "munged.pid"),
                ("log-file", "munged.log"),
                ("seed-file", "munged.seed"),
            )
        ]
        self._daemon("munged", "--foreground", "--force", *files)
        wait_until((self.folder / "munge.socket").exists, "munged")

    def _start_database(self) -> None:
        data, endpoint = self.folder / "mysql", self.folder / "mysql.socket"
        self.says(
            "mariadb-install-db",
            "--no-defaults",
            "--user=root",
            f"--datadir={data}",
            "--auth-root-authentication-method=socket",
            "--skip-test-db",
        )
        self._daemon(
            "mariadbd",
            "--no-defaults",
            "--user=root",
            f"--datadir={data}",
            f"--socket={endpoint}",
            "--skip-networking",
            f"--pid-file={self.folder}/mysql.pid",
            "--innodb-buffer-pool-size=64M",
            "--innodb-lock-wait-timeout=900",
        )
        ping = ("mariadb-admin", "--no-defaults", f"--socket={endpoint}", "ping")
        wait_until(lambda: self.says(*ping).returncode == 0, "mariadbd")
        self.says("mariadb", "--no-defaults", f"--socket={endpoint}", "-e", _DATABASE)

    def _daemon(self, *command: str) -> None:
        name = next(each for each in command if each in COMMANDS)
        with (self.folder / f"{name}.out").open("wb") as log:
            self._daemons.append(
                subprocess.Popen(
                    command,
                    env={**os.environ, **self.environment},
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            )


def _own_group() -> Path:
    """The memory group that this process is in: what the jobs use counts there."""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if "memory" in controllers.split(","):
            return _MEMORY / path.lstrip("/")
    raise UnavailableError("this process is in no memory group of cgroup v1")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_until(ready: Callable[[], bool], what: str, *, within_s: float = PATIENCE_S) -> None:
    """Wait for something.

    Raises:
        TimeoutError: It took too long.
    """
    deadline = time.monotonic() + within_s
    while not ready():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {within_s:.0f} s for {what}")
        time.sleep(0.2)
