"""What `KubernetesSource` promises, over HTTP: bodies that a real API server gave after real deaths."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import pytest
from attrs import evolve

import workerdiag
from support.hanging_peers import gives_up, only_timed_out
from support.kubernetes_api import CAUSES, RECORDINGS, USER, recording, scene_of, serve, shifted
from support.thinned_evidence import keys_that_changed
from workerdiag.model.evidence import Gap, LogChunk, MemoryReading, ProcessExit
from workerdiag.model.identity import Identity
from workerdiag.model.scene import Location, Scene, Victim
from workerdiag.sources.kubernetes.pods import target_of
from workerdiag.sources.kubernetes.source import KubernetesSource
from workerdiag.testing import HOSTILE_BEHAVIOURS, check_source, example_scene, hostile_server

pytest.importorskip("kr8s", reason="the extra kubernetes is not installed")

IN_POD = {"KUBERNETES_SERVICE_HOST": "10.96.0.1"}


@pytest.fixture
def ask_server(tmp_path, monkeypatch):
    """Asks a server of a recording about a scene, and gives the evidence and the server."""
    with ExitStack() as stack:

        def ask(recorded, *, scene=None, budget_s=10.0, **behaviour):
            server = stack.enter_context(serve(recorded, **behaviour))
            point_to(server.url, tmp_path, monkeypatch)
            source = KubernetesSource.of(scene or scene_of(recorded))
            return list(source.collect(budget_s=budget_s)), server

        yield ask


def point_to(url, folder, monkeypatch):
    """Have the kubeconfig of this process name the server at *url*."""
    config = {
        "clusters": [{"name": "c", "cluster": {"server": url}}],
        "users": [{"name": "u", "user": {"token": "not-to-be-told"}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    path = folder / "kubeconfig"
    path.write_text(json.dumps(config))
    monkeypatch.setenv("KUBECONFIG", str(path))


def gaps(evidence):
    return [each for each in evidence if isinstance(each, Gap)]


def texts(evidence):
    return "".join(each.data.decode() for each in evidence if isinstance(each, LogChunk))


def exits(evidence):
    return [each for each in evidence if isinstance(each, ProcessExit)]


class Given:
    """A source that says what it was given."""

    name = "given"

    def __init__(self, evidence):
        self._evidence = evidence

    def collect(self, *, budget_s):
        assert budget_s > 0
        yield from self._evidence


# ------------------------------------------------------------------------------------ what it finds


@pytest.mark.slow
@pytest.mark.parametrize("name", CAUSES)
def test_a_real_death_is_explained_from_what_kubernetes_says(name, ask_server):
    """The answers of a real cluster, in the words of kubectl, are enough to name the cause."""
    evidence, _ = ask_server(recording(name))
    diagnosis = workerdiag.explain(sources=[Given(evidence)], timeout="60s")
    assert diagnosis.top is not None
    assert diagnosis.top.id == CAUSES[name], str(diagnosis)


@pytest.mark.slow
@pytest.mark.parametrize("name", CAUSES)
def test_less_of_what_kubernetes_says_keeps_the_key_while_the_cause_stays(name, ask_server):
    """Whatever of the answers of a real cluster is lost."""
    evidence, _ = ask_server(recording(name))
    assert keys_that_changed(evidence) == []


def test_every_fact_of_a_victim_names_the_victim_and_its_pod(ask_server):
    """What is yielded about a dead worker carries its address and its pod as ``namespace/name``."""
    recorded = recording("oom-killed")
    evidence, _ = ask_server(recorded)
    (pod,) = recorded["pods"]
    facts = [each for each in evidence if not isinstance(each, Gap)]
    assert {each.identity.worker for each in facts} == {recorded["victims"][0]["identity"]["worker"]}
    assert {each.identity.container for each in facts} == {f"default/{pod['metadata']['name']}"}


def test_an_oom_kill_comes_with_the_signal_and_the_limit(ask_server):
    """A container that was OOMKilled has an exit by signal 9 and the limit that it had."""
    evidence, _ = ask_server(recording("oom-killed"))
    assert [(each.signal, each.status) for each in exits(evidence)] == [(9, None)]
    assert [each.limit_bytes for each in evidence if isinstance(each, MemoryReading)] == [350 * 2**20]


def test_only_the_container_that_runs_dask_counts(ask_server):
    """A side-car that was OOMKilled says nothing of the worker beside it."""
    evidence, _ = ask_server(recording("sidecar-oom"))
    assert [each.status for each in exits(evidence)] == [3]
    assert "OOMKilled" not in texts(evidence)
    assert "shipper" not in texts(evidence)


def test_two_deaths_in_one_pod_are_told_apart(ask_server):
    """Each of two workers that died in the same container has its own end."""
    recorded = recording("restarted-since")
    evidence, _ = ask_server(recorded)
    by_time = sorted((each["when"], each["identity"]["worker"]) for each in recorded["victims"])
    ends = {each.identity.worker: each.status if each.signal is None else -each.signal for each in exits(evidence)}
    assert [ends[worker] for _, worker in by_time] == [3, -9]


def test_a_pod_made_in_place_of_a_deleted_one_is_not_taken_for_it(ask_server):
    """The deployment's next pod bears the same worker's name, but the victim was in the one before."""
    recorded = recording("deleted")
    evidence, _ = ask_server(recorded)
    (next_pod,) = recorded["pods"]
    containers = {each.identity.container for each in evidence if isinstance(each, LogChunk)}
    assert len(containers) == 1
    assert f"default/{next_pod['metadata']['name']}" not in containers
    assert [each.reason for each in gaps(evidence)] == ["expired"]


def test_a_kill_under_a_living_nanny_is_not_put_down_to_the_container(ask_server):
    """A container that lived on did not end, so no exit and no OOMKilled are claimed."""
    evidence, _ = ask_server(recording("oom-under-nanny"))
    assert exits(evidence) == []
    assert "Terminated" not in texts(evidence)
    assert "Restart Count:  0" in texts(evidence)


def test_the_log_of_the_container_before_its_restart_is_read(ask_server):
    """Where the container was started again, it is the previous one's log that has the victim's last words."""
    recorded = recording("exit-3")
    evidence, _ = ask_server(recorded)
    (log,) = (each for each in evidence if isinstance(each, LogChunk) and each.origin.endswith("--previous"))
    assert recorded["victims"][0]["identity"]["worker"].encode() in log.data


def test_commands_arguments_and_variables_of_a_pod_are_not_passed_on(ask_server):
    """They may hold secrets, and nothing of a diagnosis needs them."""
    recorded = recording("oom-killed")
    container = recorded["pods"][0]["spec"]["containers"][0]
    container["env"].append({"name": "AWS_SECRET_ACCESS_KEY", "value": "s3cr3t-of-env"})
    container["command"].append("--token=s3cr3t-of-args")
    evidence, _ = ask_server(recorded)
    assert "s3cr3t" not in repr(evidence) + texts(evidence)
    assert "not-to-be-told" not in repr(evidence) + texts(evidence)


def test_recordings_name_nothing_of_the_machine_they_were_made_on():
    """They hold no folder, token or outside address."""
    for path in RECORDINGS.glob("*.json"):
        text = path.read_text()
        assert not any(word in text for word in ("/root/", "/home/", "/tmp/venv", "Bearer", "machineID")), path


# -------------------------------------------------------------------------------- what it asks


def test_it_only_reads_and_asks_little(ask_server):
    """A death costs a handful of GETs, none of them without a bound."""
    _, server = ask_server(recording("oom-killed"))
    assert {method for method, _ in server.requests} == {"GET"}
    assert len(server.requests) <= 8
    lists = [path for _, path in server.requests if path.split("?")[0].endswith(("/pods", "/events"))]
    assert all("limit=" in path for path in lists)


def a_large_cluster(recorded):
    """The same, among 500 healthy workers of the cluster with as many events."""
    large = copy.deepcopy(recorded)
    like, event = copy.deepcopy(recorded["pods"][0]), recorded["events"][0]
    for number in range(500):
        pod = copy.deepcopy(like)
        pod["metadata"] |= {"name": f"lab-default-worker-{number:010}-1-abcde", "uid": f"uid-{number}"}
        pod["spec"]["containers"][0]["command"][-1:] = [f"lab-default-worker-{number:010}"]
        pod["status"] |= {
            "podIP": f"10.1.0.{number}",
            "podIPs": [],
            "containerStatuses": [],
            "phase": "Running",
        }
        large["pods"].insert(0, pod)
        about = {**event["involvedObject"], "name": pod["metadata"]["name"], "uid": f"uid-{number}"}
        metadata = {**event["metadata"], "uid": f"event-{number}", "name": f"event-{number}"}
        large["events"].insert(0, {**event, "metadata": metadata, "involvedObject": about})
    return large


def test_a_large_cluster_is_not_listed_whole(ask_server):
    """Among hundreds of pods the victim's is found by its address, and told as in a small cluster."""
    recorded = recording("oom-killed")
    evidence, server = ask_server(a_large_cluster(recorded))
    assert [each.signal for each in exits(evidence)] == [9]
    assert len(server.requests) <= 25
    assert "lab-default-worker-0000000001" not in texts(evidence)


def test_a_death_that_the_kubelet_has_not_told_of_yet_is_asked_for_again(ask_server):
    """Right after a death the container may still count as running; a second later it does not."""
    recorded = shifted(recording("exit-3"), time.time() - recording("exit-3")["victims"][0]["when"])
    before = copy.deepcopy(recorded)
    status = before["pods"][0]["status"]["containerStatuses"][0]
    status |= {
        "state": {"running": {"startedAt": "2020-01-01T00:00:00Z"}},
        "lastState": {},
        "restartCount": 0,
    }
    evidence, _ = ask_server(before, then=recorded)
    assert [each.status for each in exits(evidence)] == [3]


def test_clocks_that_differ_by_minutes_are_set_right(ask_server):
    """An API server four minutes ahead of the scheduler still knows which death it was."""
    recorded = recording("restarted-since")
    scene = scene_of(recorded)
    evidence, _ = ask_server(shifted(recorded, 240), scene=scene, ahead_s=240.0)
    assert len({each.identity.worker for each in exits(evidence)}) == 2


# ----------------------------------------------------------------------------- whose pod it was


def test_a_pod_that_was_given_the_address_later_is_not_the_victims(ask_server):
    """Addresses of pods are used again: a pod made after the death is another one."""
    recorded = recording("oom-killed")
    recorded["victims"][0]["when"] -= 3600.0
    evidence, _ = ask_server(recorded)
    assert exits(evidence) == []
    assert texts(evidence) == ""
    assert [each.reason for each in gaps(evidence)] == ["expired"]


def test_a_pod_of_another_workers_name_is_not_the_victims(ask_server):
    """Two pods on their node's address are told apart by their workers' names."""
    recorded = recording("oom-killed")
    recorded["victims"][0]["identity"]["name"] = "lab-default-worker-ffffffffff"
    evidence, _ = ask_server(recorded)
    assert exits(evidence) == []


def test_an_end_that_was_overwritten_since_is_a_gap(ask_server):
    """Kubernetes keeps two ends of a container: of an older one it is said that it is gone, and nothing made up."""
    recorded = recording("oom-killed")
    status = recorded["pods"][0]["status"]["containerStatuses"][0]
    later = {
        "exitCode": 1,
        "reason": "Error",
        "startedAt": "2099-01-01T00:00:00Z",
        "finishedAt": "2099-01-01T00:00:09Z",
    }
    status |= {
        "lastState": {"terminated": later},
        "state": {"running": {"startedAt": "2099-01-01T00:01:00Z"}},
        "restartCount": 3,
    }
    evidence, _ = ask_server(recorded)
    assert exits(evidence) == []
    (gap,) = gaps(evidence)
    assert (gap.reason, gap.remedy.endswith("--previous")) == ("expired", True)


def test_the_nannys_own_word_for_its_pod_is_taken(ask_server):
    """What a surviving nanny says of its host name counts more than names and addresses."""
    recorded = recording("oom-killed")
    (pod,), (victim,) = recorded["pods"], recorded["victims"]
    victim["identity"] |= {"name": None, "host": "10.9.9.9", "nanny": "tcp://10.9.9.9:1"}
    environment = {"KUBERNETES_SERVICE_HOST": "10.96.0.1", "HOSTNAME": pod["metadata"]["name"]}
    place = Location(role="nanny", identity=Identity(nanny="tcp://10.9.9.9:1"), environment=environment)
    evidence, _ = ask_server(recorded, scene=scene_of(recorded, locations=(place,)))
    assert "OOMKilled" in texts(evidence)


# ----------------------------------------- fields newer than the recordings, from the API reference


@pytest.mark.slow
@pytest.mark.parametrize(
    ("reason", "message", "cause"),
    [
        ("EvictionByEvictionAPI", "Eviction API: evicting", "kubernetes.evicted"),
        (
            "PreemptionByScheduler",
            "default-scheduler: preempting to accommodate a higher priority pod",
            "kubernetes.preempted",
        ),
        ("DeletionByTaintManager", "Taint manager: deleting due to NoExecute taint", "kubernetes.evicted"),
        ("TerminationByKubelet", "The node was low on resource: memory.", "kubernetes.evicted"),
    ],
)
def test_a_disruption_target_condition_names_the_cause(reason, message, cause, ask_server):
    """Since Kubernetes 1.26 a pod says why it was disrupted, in the form of the API reference."""
    recorded = recording("exit-3")
    pod = recorded["pods"][0]
    condition = {"type": "DisruptionTarget", "status": "True", "reason": reason, "message": message}
    pod["status"]["conditions"].append(condition)
    end = pod["status"]["containerStatuses"][0]["lastState"]["terminated"]
    end |= {"exitCode": 143, "reason": "Error"}
    evidence, _ = ask_server(recorded)
    diagnosis = workerdiag.explain(sources=[Given(evidence)], timeout="60s")
    assert diagnosis.top is not None
    assert diagnosis.top.id == cause, str(diagnosis)


def test_a_node_that_is_gone_is_said_to_be_gone(ask_server):
    """A pod whose node has no object any more was lost with it."""
    recorded = recording("node-lost")
    recorded["nodes"] = []
    evidence, _ = ask_server(recorded)
    assert '(NotFound): nodes "node1" not found' in texts(evidence)


# ------------------------------------------------------------------------ where it cannot look


def test_a_kind_that_may_not_be_read_costs_only_that_kind(ask_server):
    """Without the right to read nodes everything else is told, and the gap has the command that grants it."""
    evidence, _ = ask_server(recording("oom-killed"), forbidden=("nodes",))
    (gap,) = gaps(evidence)
    assert (gap.source, gap.reason) == ("Kubernetes nodes", "forbidden")
    assert "--verb=get,list --resource=nodes" in gap.remedy
    assert USER in gap.remedy
    assert [each.signal for each in exits(evidence)] == [9]


def test_without_the_right_to_read_pods_their_events_still_tell(ask_server):
    """Pods that may not be listed are a gap; the events of the victim's pod are told all the same."""
    evidence, _ = ask_server(recording("preempted"), forbidden=("pods",))
    assert [each.source for each in gaps(evidence)] == ["Kubernetes pods"]
    assert "Preempted" in texts(evidence)


@pytest.mark.parametrize(
    ("does", "reason"),
    [("garbage", "malformed"), ("refuse", "unreachable"), ("expired", "forbidden"), ("flood", "malformed")],
)
def test_a_server_that_misbehaves_is_a_gap_with_a_command(does, reason, ask_server):
    """Whatever comes back, there is a gap that says what a person can type, and nothing is tried for long."""
    evidence, server = ask_server(recording("oom-killed"), does=does, budget_s=60.0)
    assert {each.reason for each in gaps(evidence)} == {reason}
    assert all(each.remedy for each in gaps(evidence))
    assert len(server.requests) <= 30


@pytest.mark.slow
@pytest.mark.parametrize("behaviour", HOSTILE_BEHAVIOURS)
def test_it_keeps_what_sources_promise_before_any_server(behaviour, tmp_path, monkeypatch):
    """Whatever the server does, the source is back in time, raises nothing and says what it could not see."""
    with hostile_server(behaviour) as url:
        point_to(url, tmp_path, monkeypatch)
        check_source(lambda: KubernetesSource.of(example_scene(**IN_POD)), must_gap=True)


@pytest.mark.slow
@pytest.mark.parametrize("name", CAUSES)
def test_it_keeps_what_sources_promise_when_it_is_answered(name, tmp_path, monkeypatch):
    """Every piece of evidence has an owner, and asking changes nothing."""
    recorded = recording(name)
    with serve(recorded) as server:
        point_to(server.url, tmp_path, monkeypatch)
        state = lambda: [method for method, _ in server.requests if method != "GET"]  # noqa: E731
        check_source(lambda: KubernetesSource.of(scene_of(recorded)), budget_s=5.0, state=state)


@gives_up
def test_a_server_that_hangs_is_left_behind(ask_server):
    """The source ends by itself, while the server hangs, and says so."""
    evidence, server = ask_server(recording("oom-killed"), does="hang", budget_s=3.0)
    assert only_timed_out(evidence)
    assert server.is_hanging()


def test_nobody_listening_is_a_gap(tmp_path, monkeypatch):
    """An API server that refuses connections is unreachable."""
    recorded = recording("oom-killed")
    with serve(recorded) as server:
        url = server.url
        server.server_close()
    point_to(url, tmp_path, monkeypatch)
    evidence = list(KubernetesSource.of(scene_of(recorded)).collect(budget_s=5))
    assert [each.reason for each in evidence] == ["unreachable"]


def test_without_credentials_there_is_a_gap(tmp_path, monkeypatch):
    """Neither a kubeconfig nor a service account: nobody can be asked."""
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "nothing"))
    (gap,) = KubernetesSource.of(scene_of(recording("oom-killed"))).collect(budget_s=5)
    assert (gap.reason, gap.remedy) == ("forbidden", "kubectl config current-context")


def test_without_the_extra_there_is_a_gap_that_names_it(monkeypatch):
    """Where kr8s is not installed, the gap says what to install."""
    monkeypatch.setitem(sys.modules, "kr8s.asyncio", None)
    (gap,) = KubernetesSource.of(scene_of(recording("oom-killed"))).collect(budget_s=5)
    assert (gap.reason, gap.remedy) == ("not-installed", "pip install 'workerdiag[kubernetes]'")


def test_pods_of_an_unknown_cluster_are_left_alone(ask_server):
    """Where nobody is known to have died and the cluster's name is not known, no pod is told of."""
    place = Location(role="client", identity=Identity(), environment={"KUBERNETES_SERVICE_HOST": "10.96.0.1"})
    evidence, _ = ask_server(recording("image-pull"), scene=Scene(locations=(place,)))
    assert [each.reason for each in evidence] == ["never-recorded"]


def test_a_container_that_was_well_again_long_ago_is_not_unwell(ask_server):
    """Without a victim only trouble of the time of interest is told of."""
    recorded = shifted(recording("oom-killed"), -86400.0)
    recorded["victims"], recorded["events"] = [], []
    status = recorded["pods"][0]["status"]["containerStatuses"][0]
    status |= {"state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}}
    now = recording("oom-killed")["victims"][0]["when"]
    evidence, _ = ask_server(recorded, scene=scene_of(recorded, since=now - 900, until=now))
    assert evidence == []


# ------------------------------------------------------------------------- whether it applies


class KubeCluster:
    """As dask-kubernetes names it."""

    name, namespace = "lab", "dask"


class LocalCluster:
    """As distributed names it."""

    name = "local"


class Client:
    def __init__(self, cluster=None, address="tcp://127.0.0.1:8786"):
        self.cluster = cluster
        self.scheduler = type("Scheduler", (), {"address": address})()


@pytest.mark.parametrize(
    "scene",
    [
        Scene(client=Client(KubeCluster())),
        Scene(client=Client(address="tcp://lab-scheduler.dask.svc.cluster.local:8786")),
        Scene(client=Client(address="tls://lab-scheduler.dask:8786")),
        Scene(locations=(Location(role="nanny", identity=Identity(), environment=IN_POD),)),
        Scene(
            locations=(
                Location(role="nanny", identity=Identity(), cgroups={"memory": "/kubepods/burstable/pod1/2"}),
            )
        ),
    ],
)
def test_it_applies_where_something_points_to_kubernetes(scene):
    """The cluster object, the scheduler's address and what is said of the place each suffice."""
    assert KubernetesSource.of(scene) is not None


@pytest.mark.parametrize(
    "scene",
    [
        Scene(),
        Scene(client=Client(LocalCluster())),
        Scene(client=Client(address="tcp://head.example.org:8786")),
        Scene(  # the notebook is in a pod, the workers are in batch jobs
            locations=(
                Location(role="nanny", identity=Identity(), environment={"SLURM_JOB_ID": "1"}),
                Location(role="client", identity=Identity(), environment=IN_POD),
            )
        ),
    ],
)
def test_it_does_not_apply_elsewhere(scene):
    """Where the dead did not live in pods there is nothing to ask."""
    assert KubernetesSource.of(scene) is None


@pytest.mark.parametrize(
    ("variables", "asked_for"),
    [
        (
            {"DASK_SCHEDULER_ADDRESS": "tcp://c1-scheduler.ns1.svc.cluster.local:8786"},
            ("ns1", "dask.org/cluster-name=c1"),
        ),
        ({"DASK_GATEWAY_CLUSTER_NAME": "ns2.0a1b"}, ("ns2", "gateway.dask.org/cluster=0a1b")),
        ({"POD_NAMESPACE": "ns3"}, ("ns3", "")),
        ({}, (None, "")),
    ],
)
def test_namespace_and_cluster_are_known_from_what_workers_are_told(variables, asked_for):
    """The operator and Dask Gateway tell their workers which cluster they are of."""
    place = Location(role="scheduler", identity=Identity(), environment=IN_POD | variables)
    target = target_of(Scene(locations=(place,)))
    assert (target.namespace, target.labels) == asked_for


def test_whether_it_applies_is_known_without_loading_anything():
    """Working it out imports no client of Kubernetes and asks nobody."""
    code = (
        "import sys\n"
        "from workerdiag.sources.kubernetes.source import KubernetesSource\n"
        "from workerdiag.model.scene import Scene\n"
        "KubernetesSource.of(Scene())\n"
        "assert not {'kr8s', 'httpx', 'distributed'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_hostile_name_gets_into_no_request(ask_server):
    """Only what Kubernetes allows as a name is asked for."""
    recorded = recording("oom-killed")
    recorded["victims"][0]["identity"] |= {"name": "../../secrets?x=", "host": "1.2.3.4,metadata.name!=x"}
    _, server = ask_server(a_large_cluster(recorded))
    assert not any("secrets" in path or "metadata.name" in path for _, path in server.requests)


def test_victims_stay_the_same_values():
    """A scene can be asked about twice: nothing of it is changed."""
    victim = Victim(identity=Identity(worker="tcp://10.0.0.1:1"), when=1.0)
    scene = Scene(victims=(victim,), client=Client(KubeCluster()))
    assert KubernetesSource.of(scene) is not KubernetesSource.of(scene)
    assert scene.victims == (evolve(victim),)


def test_the_manifest_grants_what_is_asked_for_and_nothing_else():
    """docs/kubernetes-rbac.yaml has no verb that changes anything."""
    yaml = pytest.importorskip("yaml")
    manifest = Path(__file__).parents[2].parent / "docs" / "kubernetes-rbac.yaml"
    rules = [rule for each in yaml.safe_load_all(manifest.read_text()) for rule in each.get("rules", ())]
    assert {verb for rule in rules for verb in rule["verbs"]} <= {"get", "list"}
    assert {kind for rule in rules for kind in rule["resources"]} == {"pods", "pods/log", "events", "nodes"}
