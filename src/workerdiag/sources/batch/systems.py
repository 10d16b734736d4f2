"""
The batch systems that dask-jobqueue knows (0.9.0), and how their jobs are recognised.
"""

from __future__ import annotations

import re

from workerdiag.sources.batch.jobs import System

SLURM = System(
    name="Slurm",
    clusters=("SLURMCluster",),
    variables=("SLURM_JOB_ID", "SLURM_JOBID"),
    form=re.compile(r"\d{1,12}(?:_\d{1,9})?"),
)
PBS = System(
    name="PBS",
    clusters=("PBSCluster", "MoabCluster"),
    variables=("PBS_JOBID",),
    form=re.compile(r"(?:Moab\.)?\d{1,12}(?:\[\d{0,9}\])?(?:\.[A-Za-z0-9](?:[\w.-]{0,80}))?"),
)
LSF = System(
    name="LSF",
    clusters=("LSFCluster",),
    variables=("LSB_JOBID",),
    form=re.compile(r"\d{1,12}(?:\[\d{1,9}\])?"),
)
GRID_ENGINE = System(
    name="Grid Engine",
    clusters=("SGECluster",),
    variables=("JOB_ID",),
    form=re.compile(r"\d{1,12}(?:\.\d{1,9})?"),
    beside=("SGE_ROOT", "SGE_CELL", "SGE_TASK_ID", "SGE_O_HOST", "SGE_O_WORKDIR"),
)
HTCONDOR = System(
    name="HTCondor",
    clusters=("HTCondorCluster",),
    variables=("HTCONDOR_JOBID", "CONDOR_ID"),
    form=re.compile(r"\d{1,12}(?:\.\d{1,9})?"),
)
OAR = System(
    name="OAR",
    clusters=("OARCluster",),
    variables=("OAR_JOB_ID", "OAR_JOBID"),
    form=re.compile(r"\d{1,12}"),
)
SYSTEMS: tuple[System, ...] = (SLURM, PBS, LSF, GRID_ENGINE, HTCONDOR, OAR)
