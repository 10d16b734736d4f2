"""What Slurm answered, kept for tests that have none: ``LAB_RECORD_TO=tests/recordings/slurm nox -s lab_slurm``."""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path

from .death import Death
from .slurm import Slurm

#: As `workerdiag.sources.batch.systems` asks.
SACCT = (
    "JobID,JobName,State,ExitCode,DerivedExitCode,Reason,"
    "Submit,Start,End,Elapsed,Timelimit,ReqMem,MaxRSS,NodeList,JobIDRaw"
)


def recorded(death: Death, name: str, slurm: Slurm) -> None:
    """Keep the answers about one death, and its job's output, where the environment says so."""
    folder = os.environ.get("LAB_RECORD_TO")
    job = death.cluster.jobs[-1] if death.cluster.jobs else None
    if not folder or job is None:
        return
    kept = Path(folder) / name.replace("[", "-").rstrip("]").replace("_", "-")
    kept.mkdir(parents=True, exist_ok=True)
    sacct = slurm.says("sacct", "-j", job, "--duplicates", "--parsable2", f"--format={SACCT}")
    texts = {"sacct.txt": sacct.stdout, "scontrol.txt": slurm.says("scontrol", "show", "job", job).stdout}
    for path in sorted((death.cluster.folder / "logs").glob("*.err")):
        texts["job.err"] = path.read_text()
    for file, text in texts.items():
        (kept / file).write_text(_anonymous(text, death, slurm))
    facts = {"job": job, **death.cluster.lost()}
    (kept / "death.json").write_text(json.dumps(facts, indent=1) + "\n")


def _anonymous(text: str, death: Death, slurm: Slurm) -> str:
    text = text.replace(str(death.cluster.folder), "/home/alice").replace(sys.executable, "python")
    text = text.replace(sys.prefix, "/opt/env").replace(sys.base_prefix, "/opt/python")
    text = re.sub(r"(Command|WorkDir)=\S+", r"\1=/home/alice/job.sh", text)
    text = re.sub(r"AllocNode:Sid=\S+", "AllocNode:Sid=login1:4711", text)
    text = re.sub(r"/\S*/slurm-\w+/", "/var/spool/slurmd/", text)
    return re.sub(rf"\b{re.escape(slurm.host)}\b", "cn1", text)
