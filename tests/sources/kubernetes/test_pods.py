"""How pods are read, and joined to victims: without a server, from objects as the API reference has them."""

from __future__ import annotations

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from workerdiag.model.identity import Identity
from workerdiag.model.scene import Victim
from workerdiag.sources.kubernetes.api import parse_quantity
from workerdiag.sources.kubernetes.kubectl_text import describe_events, describe_node, describe_pod
from workerdiag.sources.kubernetes.pods import match_deleted_pods, match_pods, parse_event, parse_pod
from workerdiag.units import parse_timestamp

NOON = 1_795_262_400.0
STAMP = "2026-11-21T12:00:00Z"
VICTIM = Victim(
    identity=Identity(worker="tcp://10.1.0.4:1", host="10.1.0.4", name="lab-default-worker-1"), when=NOON
)


def pod(**changes):
    """A pod of one container, made a minute before noon."""
    container = {"name": "worker", "args": ["dask", "worker", "--name", "$(DASK_WORKER_NAME)"]}
    raw = {
        "metadata": {
            "name": "lab-default-worker-1-7d-x2v8k",
            "uid": "u1",
            "creationTimestamp": "2026-11-21T11:59:00Z",
        },
        "spec": {"containers": changes.pop("containers", [container]), "nodeName": "node1"},
        "status": {"phase": "Running", "podIP": "10.1.0.4", **changes.pop("status", {})},
    }
    raw["metadata"] |= changes.pop("metadata", {})
    raw["spec"] |= changes
    return parse_pod(raw)


def ended(code=137, at=STAMP, **more):
    """A container's status that says that it ended."""
    said = {
        "exitCode": code,
        "reason": "Error",
        "startedAt": "2026-11-21T11:59:10Z",
        "finishedAt": at,
        **more,
    }
    return {"containerStatuses": [{"name": "worker", "state": {"terminated": said}, "restartCount": 0}]}


@pytest.mark.parametrize("first", [0.3, 0.6])
def test_the_last_end_of_a_container_is_the_last_victims(first):
    """Times of containers are whole seconds, and two workers may die within one: what is told is the last end."""
    one, two = (
        evolve(VICTIM, identity=evolve(VICTIM.identity, worker=f"tcp://10.1.0.4:{port}"), when=NOON + late)
        for port, late in ((1, first - 0.5), (2, first + 0.3))
    )
    (found,) = [each for each in match_pods([one, two], [pod(status=ended())], {}) if each.end is not None]
    assert found.victim == two


#: Keys that are looked at.
KEYS = """
metadata spec status containers containerStatuses initContainerStatuses state terminated exitCode conditions
type name env args involvedObject uid podIPs
"""
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda each: (
        st.lists(each, max_size=3)
        | st.dictionaries(
            st.sampled_from(KEYS.split()),
            each,
            max_size=5,
        )
    ),
    max_leaves=20,
)


@pytest.mark.slow
@given(
    raw=st.dictionaries(st.sampled_from(["metadata", "spec", "status", "involvedObject", "count", "series"]), JSON)
)
def test_whatever_a_server_says_can_be_read(raw):
    """Objects of any form are read and described without an error."""
    strange = parse_pod(raw)
    assert describe_pod(strange, None, all_ends=True)
    assert describe_events([parse_event(raw)], now=NOON)
    describe_node(raw, until=None)
    strange.trouble(since=None)
    match_pods([VICTIM], [strange], {})
    match_deleted_pods([VICTIM], [parse_event(raw)], [strange], {}, namespace="dask")


@pytest.mark.parametrize(
    ("container", "runs_dask"),
    [
        ({"name": "a", "command": ["/opt/conda/bin/dask-worker", "tcp://s:8786"]}, True),
        ({"name": "a", "args": ["dask", "worker", "--name", "x"]}, True),
        ({"name": "a", "args": ["sh", "-c", "exec dask-cuda-worker tcp://s:8786"]}, True),
        ({"name": "a", "args": ["python", "-m", "distributed.cli.dask_spec", "--spec-file", "s"]}, True),
        ({"name": "a", "env": [{"name": "DASK_WORKER_NAME", "value": "w"}]}, True),
        ({"name": "worker"}, True),
        ({"name": "istio-proxy", "args": ["proxy", "sidecar"]}, False),
    ],
)
def test_the_container_that_runs_dask_is_found_among_others(container, runs_dask):
    """By its command, else its variables, else its name; where nothing tells, none is taken."""
    side_car = {"name": "log-shipper", "image": "fluent-bit"}
    assert (pod(containers=[side_car, container]).container_name == container["name"]) is runs_dask


@pytest.mark.parametrize(
    ("container", "name"),
    [
        ({"name": "worker", "args": ["dask", "worker", "--name", "w7"]}, "w7"),
        (
            {
                "name": "worker",
                "args": ["--name", "$(W)"],
                "env": [{"name": "DASK_WORKER_NAME", "value": "w8"}],
            },
            "w8",
        ),
        (
            {
                "name": "worker",
                "env": [
                    {
                        "name": "DASK_GATEWAY_WORKER_NAME",
                        "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}},
                    }
                ],
            },
            "lab-default-worker-1-7d-x2v8k",
        ),
        ({"name": "worker"}, ""),
    ],
)
def test_the_name_that_a_pod_gives_its_worker_is_known(container, name):
    """From ``--name``, from the operator's variable, or from Dask Gateway's."""
    assert pod(containers=[container]).worker_name == name


@pytest.mark.parametrize(
    ("said", "size"),
    [
        ("350Mi", 350 * 2**20),
        ("2Gi", 2 * 2**30),
        ("1.5G", 1_500_000_000),
        ("1000", 1000),
        ("4x", None),
        ({}, None),
    ],
)
def test_quantities_are_read_as_kubernetes_means_them(said, size):
    """``Mi`` is 2**20, ``M`` is 10**6."""
    assert parse_quantity(said) == size


@pytest.mark.parametrize(
    ("stamp", "when"),
    [
        (STAMP, NOON),
        ("2026-11-21T12:00:00.250000Z", NOON + 0.25),
        ("2026-11-21", None),
        ("soon", None),
        ("", None),
    ],
)
def test_times_are_read_in_utc(stamp, when):
    """With or without fractions; what has no time zone is no time."""
    assert parse_timestamp(stamp) == when


def test_an_end_at_the_time_of_the_death_is_the_victims():
    """Pod by address and name, container by what it runs, end by time."""
    (found,) = match_pods([VICTIM], [pod(status=ended())], {})
    assert (found.name, found.end.exit_code) == ("lab-default-worker-1-7d-x2v8k", 137)


@pytest.mark.parametrize("at", ["2026-11-21T11:50:00Z", "2026-11-21T12:30:00Z"])
def test_an_end_at_another_time_is_another_ones(at):
    """Neither an older end nor a later one of the same container is the victim's."""
    assert all(each.end is None for each in match_pods([VICTIM], [pod(status=ended(at=at))], {}))


def test_one_end_is_given_to_one_victim():
    """Of two victims in one pod the nearer one in time has the end."""
    other = Victim(
        identity=Identity(worker="tcp://10.1.0.4:2", host="10.1.0.4", name="lab-default-worker-1"),
        when=NOON - 20,
    )
    found = match_pods([other, VICTIM], [pod(status=ended())], {})
    assert [each.victim for each in found if each.end is not None] == [VICTIM]


def test_an_address_alone_is_not_enough_where_pods_share_it():
    """A pod on its node's network has the address of all pods there."""
    nameless = Victim(identity=Identity(worker="tcp://10.1.0.4:1", host="10.1.0.4"), when=NOON)
    assert match_pods([nameless], [pod(status=ended())], {})
    assert not match_pods([nameless], [pod(status=ended(), hostNetwork=True)], {})


def test_a_pod_that_was_made_after_the_worker_joined_is_the_next_one():
    """A deployment replaces a pod that still ends; with the host's network both have one address."""
    long_there, just_joined = evolve(VICTIM, since=NOON - 55), evolve(VICTIM, since=NOON - 90)
    assert [each.victim for each in match_pods([long_there, just_joined], [pod(hostNetwork=True)], {})] == [
        long_there
    ]


def test_a_pod_that_was_evicted_long_before_is_left_aside():
    """Evicted pods are left over under their worker's name; a death hours later is not theirs."""
    condition = {"type": "Ready", "status": "False", "lastTransitionTime": "2026-11-21T09:00:00Z"}
    old = {"name": "lab-default-worker-1-7d-aaaaa", "uid": "u0", "creationTimestamp": "2026-11-21T08:00:00Z"}
    status = {"phase": "Failed", "reason": "Evicted", "podIP": "", "conditions": [condition]}
    left_over = pod(metadata=old, status=status)
    assert match_pods([VICTIM], [left_over], {}) == []
    assert [each.uid for each in match_pods([VICTIM], [left_over, pod(status=ended())], {})] == ["u1"]


def event(reason, at=STAMP, name="lab-default-worker-1-7d-zzzzz", **more):
    about = {"kind": "Pod", "name": name, "uid": "gone", "namespace": "dask"}
    return parse_event({"reason": reason, "lastTimestamp": at, "involvedObject": about, "type": "Normal", **more})


def test_a_pod_that_is_gone_is_known_by_its_events():
    """An end of a pod of the victim's worker, at its time, tells of the pod although it is gone."""
    (found,) = match_deleted_pods([VICTIM], [event("Killing")], [], {}, namespace="dask")
    assert (found.name, found.pod) == ("lab-default-worker-1-7d-zzzzz", None)


@pytest.mark.parametrize(
    "other",
    [
        event("Pulled"),
        event("Killing", at="2026-11-21T13:00:00Z"),
        event("Killing", name="lab-default-worker-11-7d-zzzzz"),
        event("Killing", name="lab-default-worker-1"[:-2]),
    ],
)
def test_events_of_others_and_of_other_times_do_not_count(other):
    """Neither a start, nor an hour later, nor a worker whose name only begins alike."""
    assert match_deleted_pods([VICTIM], [other], [], {}, namespace="dask") == []


def test_a_healthy_node_is_not_described():
    """Of a node that is well, or meant for some pods only, there is nothing to say."""
    well = {"type": "Ready", "status": "True"}
    dedicated = {"key": "k8s.dask.org/dedicated", "value": "worker", "effect": "NoSchedule"}
    assert describe_node({"spec": {"taints": [dedicated]}, "status": {"conditions": [well]}}, until=None) == ""


def test_what_befell_a_node_later_is_not_told():
    """A node that was lost an hour after the death did not cause it."""
    lost = {"type": "Ready", "status": "Unknown", "lastTransitionTime": "2026-11-21T13:00:00Z"}
    node = {"metadata": {"name": "node1"}, "status": {"conditions": [lost]}}
    assert describe_node(node, until=NOON + 120) == ""
    assert "Ready   Unknown" in describe_node(node, until=NOON + 7200)
