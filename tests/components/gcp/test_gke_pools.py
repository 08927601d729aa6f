"""GkeNodePools: what GKE is told of each rung, held against the API's own description."""

from typing import Any

import pytest
from pulumi_gcp import container

from gangway.components.gcp.gke_pools import GkeNodePools
from tests.components.fixture_types import Make, Mistakes

SPOT = {"kind": "spot"}
FLEX = {"kind": "flex-start", "max_hours": 24}
RESERVED = {"kind": "reservation", "id": "ours"}
NICS = {
    "a2-highgpu-8g": 0,
    "a3-highgpu-8g": 4,
    "a3-megagpu-8g": 8,
    "a3-ultragpu-8g": 9,
    "a4-highgpu-8g": 9,
    "g2-standard-4": 0,
}


@pytest.fixture
def args(labels: dict[str, str]) -> dict[str, Any]:
    """Arguments of GkeNodePools, to be varied."""
    return {
        "project": "lab",
        "region": "us-east4",
        "zone": "us-east4-b",
        "cluster": "projects/lab/locations/us-east4/clusters/demo",
        "num_nodes_min": 0,
        "num_nodes_max": 4,
        "capacity": [RESERVED, FLEX, SPOT],
        "security_group_ids": ["demo-fabric"],
        "service_account_email": "nodes@lab.iam.gserviceaccount.com",
        "root_volume_gib": 200,
        "kms_key_name": "projects/lab/locations/us-east4/keyRings/r/cryptoKeys/k",
        "tags": labels,
    }


@pytest.fixture
def make(declare: Make, args: dict[str, Any]) -> Make:
    """Declares pools of a machine type, with its NICs, or of what `changes` say."""

    def run(machine: str | None = "a3-megagpu-8g", **changes: Any) -> Any:
        of_machine: dict[str, Any] = {}
        if machine is not None:
            further = range(NICS[machine])
            of_machine = {
                "machine_type": machine,
                "fabric_network_ids": [f"net-{n}" for n in further],
                "fabric_subnet_ids": [f"sub-{n}" for n in further],
            }
        changed: Any = {**args, **of_machine, **changes}
        return declare(lambda: GkeNodePools("demo", changed))

    return run


def as_the_api_has_it(pool: Any) -> dict[str, Any]:
    """A node pool in the words of container.v1, whose provider's words differ in a few."""
    inputs = pool.inputs
    node = dict(inputs["nodeConfig"])
    renamed = {"tags": "tags", "guestAccelerators": "accelerators", "bootDiskKmsKey": "bootDiskKmsKey"}
    body = {renamed.get(key, key): value for key, value in node.items()}
    if accelerators := body.get("accelerators"):
        body["accelerators"] = [
            {
                "acceleratorType": one["type"],
                "acceleratorCount": float(one["count"]),
                "gpuDriverInstallationConfig": one["gpuDriverInstallationConfig"],
            }
            for one in accelerators
        ]
    body["kubeletConfig"] = {"insecureKubeletReadonlyPortEnabled": False}
    autoscaling = {"enabled": True, **inputs["autoscaling"]}
    named = ("name", "initialNodeCount", "management", "upgradeSettings", "placementPolicy", "queuedProvisioning")
    return {
        **{key: inputs[key] for key in named if key in inputs},
        "locations": inputs["nodeLocations"],
        "autoscaling": autoscaling,
        "networkConfig": inputs["networkConfig"],
        "config": body,
    }


@pytest.mark.parametrize("machine", sorted(NICS))
def test_the_api_takes_the_pools(make: Make, api_mistakes: Mistakes, machine: str) -> None:
    for pool in make(machine).each("NodePool"):
        assert api_mistakes("container.v1", "NodePool", as_the_api_has_it(pool)) == []


@pytest.mark.parametrize("accelerator", ["v5litepod-16", "v5p-8", "v6e-16"])
def test_the_api_takes_slices(make: Make, api_mistakes: Mistakes, accelerator: str) -> None:
    made = make(None, accelerator_type=accelerator, capacity=[RESERVED, SPOT], num_nodes_max=2)
    for pool in made.each("NodePool"):
        assert api_mistakes("container.v1", "NodePool", as_the_api_has_it(pool)) == []
        assert "guestAccelerators" not in pool.inputs["nodeConfig"]


def test_one_pool_a_rung_that_grows_from_nothing(make: Make) -> None:
    reserved, flex, spot = (pool.inputs for pool in make().of("NodePool"))
    for inputs in (reserved, flex, spot):
        assert inputs["autoscaling"] == {
            "minNodeCount": 0,
            "maxNodeCount": 4,
            "locationPolicy": "ANY",
        }
        assert "nodeCount" not in inputs, "the autoscaler owns it"
        assert inputs["nodeLocations"] == ["us-east4-b"]
        assert inputs["networkConfig"]["enablePrivateNodes"] is True
    affinity = reserved["nodeConfig"]["reservationAffinity"]
    assert affinity["values"] == ["projects/lab/reservations/ours"]
    assert affinity["consumeReservationType"] == "SPECIFIC_RESERVATION"
    assert (flex["nodeConfig"]["flexStart"], flex["queuedProvisioning"]) == (True, {"enabled": True})
    assert flex["nodeConfig"]["maxRunDuration"] == "86400s"
    assert flex["management"]["autoRepair"] is False
    assert spot["nodeConfig"]["spot"] is True
    assert spot["placementPolicy"] == {"type": "COMPACT"}
    for inputs in (flex, spot):
        assert inputs["nodeConfig"]["reservationAffinity"] == {"consumeReservationType": "NO_RESERVATION"}


def test_rungs_are_told_apart_by_their_labels(make: Make) -> None:
    made = make(node_labels=[{"a": "1"}, {"a": "2"}, {"a": "3"}], node_taints=[])
    labels = [pool.inputs["nodeConfig"]["labels"] for pool in made.of("NodePool")]
    assert labels == [
        {"gangway.dev/rung": "0-reservation", "a": "1"},
        {"gangway.dev/rung": "1-flex-start", "a": "2"},
        {"gangway.dev/rung": "2-spot", "a": "3"},
    ]


def test_taints_are_of_every_pool(make: Make) -> None:
    taint = {"key": "gangway.dev/job", "value": "true", "effect": "NO_SCHEDULE"}
    assert all(pool.inputs["nodeConfig"]["taints"] == [taint] for pool in make(node_taints=[taint]).each("NodePool"))
    assert all("taints" not in pool.inputs["nodeConfig"] for pool in make().each("NodePool"))


@pytest.mark.parametrize("machine", sorted(NICS))
def test_nics_of_gpus_in_the_machines_order(make: Make, machine: str) -> None:
    (pool,) = make(machine, capacity=[SPOT]).of("NodePool")
    further = pool.inputs["networkConfig"].get("additionalNodeNetworkConfigs", [])
    assert further == [{"network": f"net-{n}", "subnetwork": f"sub-{n}"} for n in range(NICS[machine])]


def test_gpus_with_the_driver_that_gke_installs(make: Make) -> None:
    (pool,) = make("a3-ultragpu-8g", capacity=[SPOT]).of("NodePool")
    node = pool.inputs["nodeConfig"]
    assert node["guestAccelerators"] == [
        {
            "type": "nvidia-h200-141gb",
            "count": 8,
            "gpuDriverInstallationConfig": {"gpuDriverVersion": "LATEST"},
        }
    ]
    assert node["ephemeralStorageLocalSsdConfig"] == {"localSsdCount": 32}
    assert node["diskType"] == "hyperdisk-balanced"


def test_slices_have_their_topology(make: Make) -> None:
    made = make(None, accelerator_type="v5litepod-16", capacity=[SPOT], num_nodes_min=1, num_nodes_max=2)
    first, second = (pool.inputs for pool in made.of("NodePool"))
    for inputs in (first, second):
        assert inputs["placementPolicy"] == {"type": "COMPACT", "tpuTopology": "4x4"}
        assert inputs["nodeConfig"]["machineType"] == "ct5lp-hightpu-4t"
        assert inputs["autoscaling"]["maxNodeCount"] == 4
    assert [one["autoscaling"]["minNodeCount"] for one in (first, second)] == [4, 0]


def gke_refuses(inputs: Any) -> bool:
    """What GKE says "max node count 0" to: a slice's pool whose most is counted for all zones."""
    sliced = any(inputs.get("placementPolicy", {}).get(key) for key in ("tpuTopology", "policyName"))
    return sliced and "maxNodeCount" not in inputs["autoscaling"]


@pytest.mark.parametrize("accelerator", ["v5litepod-16", "v5p-16", "v6e-16", "tpu7x-16", "tpu7x-64"])
def test_gke_takes_a_slices_counts(make: Make, accelerator: str) -> None:
    for pool in make(None, accelerator_type=accelerator, capacity=[SPOT]).each("NodePool"):
        assert not gke_refuses(pool.inputs)
        total = {name: count for name, count in pool.inputs["autoscaling"].items() if name.startswith("total")}
        assert gke_refuses({**pool.inputs, "autoscaling": {**total, "totalMaxNodeCount": 4}})


def test_slices_of_ironwood_are_placed_by_a_policy(make: Make) -> None:
    made = make(None, accelerator_type="tpu7x-64", capacity=[SPOT, RESERVED], num_nodes_max=1)
    (policy,) = made.of("ResourcePolicy")
    assert policy.inputs["workloadPolicy"] == {"type": "HIGH_THROUGHPUT", "acceleratorTopology": "2x4x4"}
    for pool in made.each("NodePool"):
        assert pool.inputs["placementPolicy"]["type"] == "COMPACT"
        assert pool.inputs["placementPolicy"]["policyName"] == policy.inputs["name"] == "demo-2x4x4"
        assert "tpuTopology" not in pool.inputs["placementPolicy"]
        assert pool.inputs["nodeConfig"]["machineType"] == "tpu7x-standard-4t"
    alone = make(None, accelerator_type="tpu7x-8", capacity=[SPOT], num_nodes_max=1)
    assert not alone.of("ResourcePolicy")
    assert "placementPolicy" not in alone.of("NodePool")[0].inputs


def test_walls_of_every_node(make: Make, args: dict[str, Any], labels: dict[str, str]) -> None:
    for pool in make().each("NodePool"):
        node = pool.inputs["nodeConfig"]
        assert node["shieldedInstanceConfig"] == {"enableSecureBoot": True, "enableIntegrityMonitoring": True}
        assert node["workloadMetadataConfig"] == {"mode": "GKE_METADATA"}
        assert node["bootDiskKmsKey"] == args["kms_key_name"]
        assert node["serviceAccount"] == args["service_account_email"]
        assert node["kubeletConfig"] == {"insecureKubeletReadonlyPortEnabled": "FALSE"}
        assert node["resourceLabels"] == labels
        assert node["tags"] == ["demo-fabric"]


def test_up_leaves_sizes_alone_and_never_makes_two_of_a_name(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    options: list[Any] = []
    real = container.NodePool

    def noting(logical: str, **values: Any) -> Any:
        options.append(values["opts"])
        return real(logical, **values)

    monkeypatch.setattr(container, "NodePool", noting)
    make()
    assert len(options) == 3
    assert all(set(one.ignore_changes) == {"initial_node_count", "node_count"} for one in options)
    assert all(one.delete_before_replace for one in options)
