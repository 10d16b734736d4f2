"""What a kit promises, without replaying it."""

from __future__ import annotations

import copy
import json
import pickle
import zipfile

import pytest

from workerdiag import Diagnosis, Kit, KitError
from workerdiag.model.replay import KitContent, KitDeath, RecipeGap

CONTENT = KitContent(
    killed="work-3",
    deaths=(
        KitDeath(worker="tcp://10.0.0.4:1001", at=1.5, tasks=("work-1", "work-2"), is_known=True),
        KitDeath(worker="tcp://10.0.0.4:1002", at=2.5, tasks=("work-3", "work-4"), is_known=True),
    ),
    limit_bytes=500_000_000,
    nthreads=2,
    terminate_fraction=0.95,
    modules=("numpy", "pandas"),
    versions={"python": "3.11.7"},
    gaps=(RecipeGap(key="scattered", reason="no-recipe"),),
)


class Harmful:
    """Its pickle does something as it is read."""

    def __reduce__(self):
        return pytest.fail, ("it was unpickled",)


def test_a_kit_comes_back_from_its_file(tmp_path):
    """With all that can be read of it as JSON."""
    path = Kit(CONTENT, b"recipe", b"data").save(tmp_path / "kit.zip")
    assert Kit.load(path).content == CONTENT
    with zipfile.ZipFile(path) as archive:
        about = json.loads(archive.read("kit.json"))
    assert (about["killed"], about["limit_bytes"], about["modules"]) == ("work-3", 500_000_000, ["numpy", "pandas"])


def test_a_kit_from_a_file_runs_no_code_without_a_plain_word(tmp_path):
    """The error says what to do, and why not to."""
    path = Kit(CONTENT, pickle.dumps(Harmful())).save(tmp_path / "kit.zip")
    with pytest.raises(KitError, match=r"runs code.*trusted=True.*--trust"):
        Kit.load(path).replay()


@pytest.mark.parametrize(
    "write",
    [
        lambda path: path.write_bytes(b"no zip"),
        lambda path: zipfile.ZipFile(path, "w").close(),
        lambda path: zip_of(path, b"{"),
        lambda path: zip_of(path, b'{"kind": "workerdiag kit", "schema": 99}'),
        lambda _: None,
    ],
    ids=["no zip", "empty", "broken", "another schema", "missing"],
)
def test_what_is_no_kit_is_refused_by_name(tmp_path, write):
    """Whatever the file is."""
    path = tmp_path / "kit.zip"
    write(path)
    with pytest.raises(KitError, match=r"kit\.zip"):
        Kit.load(path)


def zip_of(path, content):
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("kit.json", content)


def test_the_tasks_of_the_last_death_of_the_killed_one_come_first():
    """The task that Dask gave up on, then those beside it, then the others."""
    assert CONTENT.tasks == ("work-3", "work-4", "work-1", "work-2")


def test_a_kit_stays_where_it_was_made():
    """A diagnosis that is pickled, copied or written as JSON carries no pickles along."""
    diagnosis = Diagnosis(outcome="unknown", summary="?", kit=Kit(CONTENT, b"secret recipe"))
    assert pickle.loads(pickle.dumps(diagnosis)).kit is None
    assert copy.deepcopy(diagnosis).kit is diagnosis.kit
    assert b"secret recipe" not in pickle.dumps(diagnosis)
    assert "secret recipe" not in diagnosis.to_json() + diagnosis.to_html() + repr(diagnosis)
    assert Diagnosis.from_json(diagnosis.to_json()) == diagnosis


def test_a_limit_that_is_no_size_is_refused():
    """Before anything runs."""
    with pytest.raises(ValueError, match="500 MB"):
        Kit(CONTENT, b"recipe").replay("much")
