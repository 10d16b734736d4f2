"""The package works from a zip file: rules, settings, templates and schemas are found there too."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import workerdiag
from workerdiag.rulebook.load import shipped_folder

PACKAGE = Path(workerdiag.__file__).parent
PROGRAM = """
import json
import dask.config
import workerdiag
from workerdiag.rulebook.load import shipped_folder

text = "distributed.nanny - WARNING - Worker tcp://10.0.0.4:4 (pid=7) exceeded 95% memory budget. Restarting..."
diagnosis = workerdiag.explain(logs=[workerdiag.LogText(text)])
print(json.dumps({
    "file": workerdiag.__file__,
    "cause": diagnosis.top.id,
    "pages": [diagnosis.to_html()[:15], diagnosis.to_markdown().count("memory") > 0],
    "rules": (shipped_folder() / "manifest.toml").is_file(),
}))
"""


@pytest.fixture(scope="module")
def archive(tmp_path_factory):
    """The package in a zip file, with its rules where a wheel has them."""
    path = tmp_path_factory.mktemp("zipped") / "workerdiag.zip"
    with zipfile.ZipFile(path, "w") as file:
        for folder, name in ((PACKAGE, "workerdiag"), (shipped_folder(), "workerdiag/knowledge")):
            for each in folder.rglob("*"):
                if each.is_file() and "__pycache__" not in each.parts:
                    file.write(each, f"{name}/{each.relative_to(folder).as_posix()}")
    return path


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_log_is_explained_from_a_zip_file(archive, tmp_path):
    """What the package ships is read by `importlib_resources`, not by paths."""
    environment = {"PYTHONPATH": str(archive), "DASK_WORKERDIAG__NOTE__TIMEOUT": "3s", "HOME": str(tmp_path)}
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, env=environment, check=False
    )
    assert run.returncode == 0, run.stderr
    said = json.loads(run.stdout)
    assert str(archive) in said["file"]
    assert said["cause"] == "nanny.memory-terminate"
    assert said["pages"] == ["<!doctype html>", True]
    assert said["rules"]
