"""Which sources are asked is worked out, and those of others cannot do harm."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
from attrs import evolve
from click.testing import CliRunner

from workerdiag.cli import main
from workerdiag.model.evidence import Gap
from workerdiag.model.identity import Identity
from workerdiag.model.scene import Location, Scene, Terms, most_perishable_first
from workerdiag.sources import registry as room
from workerdiag.sources.host.probes.location import NAMES
from workerdiag.sources.registry import applicable_sources
from workerdiag.testing import example_scene


class Racks:
    name = "racks"
    terms = Terms(lasts_s=60.0, permission="read racks", extra="racks", cost="one look")

    def __init__(self, scene):
        self.scene = scene

    def collect(self, *, budget_s):
        assert budget_s > 0
        yield from ()


@pytest.fixture
def installed(monkeypatch):
    """Pretend that a package registers something in the entry point group."""
    module = ModuleType("racks_of_ours")
    monkeypatch.setitem(sys.modules, "racks_of_ours", module)

    def install(**registered):
        vars(module).update(registered)
        entries = [EntryPoint(name, f"racks_of_ours:{name}", room.ENTRY_POINT_GROUP) for name in registered]
        monkeypatch.setattr(room, "entry_points", lambda group: entries if group == room.ENTRY_POINT_GROUP else [])

    return install


def name_of(found):
    """What a source calls itself, or a gap its source."""
    return found.source if isinstance(found, Gap) else found.name


def test_a_registered_class_is_made_from_the_scene(installed):
    """Ten lines and an entry point suffice."""
    installed(racks=Racks)
    scene = example_scene()

    [racks] = [each for each in applicable_sources(scene) if name_of(each) == "racks"]
    assert racks.scene is scene


def test_one_that_has_nothing_to_ask_is_not_asked(installed):
    """Registered may be a function that returns None."""
    installed(racks=lambda scene: Racks(scene) if scene.cluster_is("RackCluster") else None)

    assert "racks" not in map(name_of, applicable_sources(example_scene()))


def test_a_broken_package_is_a_gap_that_names_it(installed):
    """What a package raises when it is asked costs nobody else anything."""
    installed(racks=lambda scene: 1 / len(scene.victims[1:]))

    [gap] = [each for each in applicable_sources(example_scene()) if name_of(each) == "racks"]
    assert isinstance(gap, Gap)
    assert gap.reason == "malformed"
    assert "ZeroDivisionError" in gap.detail


def test_a_package_that_cannot_be_imported_is_a_gap(monkeypatch):
    """An entry point may point to nothing."""
    monkeypatch.setattr(room, "entry_points", lambda group: [EntryPoint("gone", "no_such_module:x", group)])

    assert [each.source for each in applicable_sources(example_scene()) if isinstance(each, Gap)] == ["gone"]


def lost_machine(host="10.0.0.4", client=None):
    """A scene of a worker whose machine nobody speaks for any more."""
    return evolve(example_scene(worker=f"tcp://{host}:40331", client=client), locations=())


def scene_of(kind, **attributes):
    """The same, whose cluster object is of a class *kind*, given as ``package.Class``."""
    package, _, name = kind.rpartition(".")
    cluster = type(name, (), {"__module__": package, **attributes})()
    return lost_machine(client=SimpleNamespace(cluster=cluster))


SCENES = (
    example_scene(),
    *(example_scene(**{name: "17"}) for name in ("SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "OAR_JOB_ID")),
    example_scene(JOB_ID="17", SGE_ROOT="/opt/sge"),
    example_scene(CONDOR_ID="17"),
    scene_of("dask_jobqueue.slurm.SLURMCluster"),
    example_scene(KUBERNETES_SERVICE_HOST="10.0.0.1"),
    lost_machine("ip-10-0-0-4.ec2.internal"),
    lost_machine("w-0.us-east1-b.c.project.internal"),
    scene_of("dask_cloudprovider.aws.EC2Cluster", uuid="1"),
    scene_of("dask_cloudprovider.aws.ECSCluster", cluster_arn="arn:x", cloudwatch_logs_group="group"),
    scene_of("dask_cloudprovider.gcp.GCPCluster", options={"projectid": "project"}),
    scene_of("dask_cloudprovider.azure.AzureVMCluster", subscription_id="1", resource_group="group"),
    scene_of("coiled.Cluster", cluster_id=1),
)


@pytest.mark.parametrize("kind", room.SHIPPED, ids=lambda each: each.path)
def test_what_keeps_a_source_from_being_imported_keeps_it_from_nothing_else(kind, monkeypatch):
    """Wherever a source has something to ask, the look at the scene before its import lets it through."""
    monkeypatch.setenv("LOKI_ADDR", "http://loki:3100")
    own = [each for each in SCENES if kind.load().of(each) is not None]
    assert own or kind.path.endswith(":JournalSource")  # it asks of this machine alone
    assert all(map(kind.may_apply, own))


def test_a_cluster_at_home_imports_no_platform():
    """Modules that could only find out that they have nothing to ask are left alone."""
    code = (
        "from workerdiag.testing import example_scene; from workerdiag.sources.registry import"
        " applicable_sources; list(applicable_sources(example_scene())); import sys; print(*sys.modules)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    rooms = ("clouds", "coiled", "batch.systems", "kubernetes")
    left_alone = tuple(f"workerdiag.sources.{each}" for each in rooms)
    assert not [each for each in run.stdout.split() if each.startswith(left_alone)]


def test_the_most_perishable_is_asked_first():
    """A source that states no terms can wait."""
    soon, late, unstated = Racks(None), Racks(None), object()
    late.terms = Terms(lasts_s=3600.0)

    assert most_perishable_first([unstated, late, soon]) == [soon, late, unstated]


def test_the_command_line_lists_terms(installed):
    """Who is asked, how long, with which permission, at what cost."""
    installed(racks=Racks)
    said = CliRunner().invoke(main, ["sources"]).output

    assert "racks\n  lasts:      about 1 minute\n  permission: read racks\n" in said
    assert "pip install 'workerdiag[racks]'" in said


def test_the_environment_of_the_victims_nanny_counts_before_our_own():
    """What the caller's machine says of itself is said of the caller."""
    here = Location(role="client", identity=Identity(host="192.0.2.1"), environment={"SLURM_JOB_ID": "1"})
    there = Location(role="nanny", identity=Identity(host="10.0.0.4"), environment={"SLURM_JOB_ID": "17"})

    assert Scene(locations=(here, there)).variable("SLURM_JOB_ID") == "17"
    assert Scene(locations=(here, there)).variable("SLURM_JOB_ID", of=Identity(host="192.0.2.1")) == "1"


def test_a_cluster_is_known_by_its_class_its_bases_and_its_package():
    """Users derive classes of their own from those of a package."""
    base = type("SLURMCluster", (), {"__module__": "dask_jobqueue.slurm"})
    client = type("Client", (), {"cluster": type("OurCluster", (base,), {})()})()

    assert Scene(client=client).cluster_is("SLURMCluster")
    assert Scene(client=client).cluster_is("dask_jobqueue")
    assert not Scene(client=client).cluster_is("KubeCluster")


def test_a_variable_that_a_source_asks_for_is_read_from_machines():
    """What is not in the list is never sent, however often a source asks for it."""
    package = Path(room.__file__).parent
    asked = {
        name
        for path in package.rglob("*.py")
        for name in re.findall(r'variable\("([A-Z_0-9]+)"\)', path.read_text())
    }
    assert asked
    assert asked <= NAMES
