"""What a configuration means on Google Cloud before anything is declared: nodes, zone, labels, image, job."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from gangway.components.core.findings import InputError
from gangway.stacks.config.stack_config import StackConfig
from gangway.stacks.plan.plan import Plan
from gangway.stacks.providers.gcp.plan import job_spec, plan, reservation_name
from gangway.trainer.records.run_record import RunContext

GPU, POD, SLICES = "gcp-a3-spot", "gcp-v5e-pod", "gcp-v5p-multislice"
Configs = dict[str, StackConfig]
Edited = Callable[..., StackConfig]
DIGEST = f"sha256:{'0a' * 32}"


def test_gpu_machines_lie_in_the_first_zone_that_has_them(gcp_configs: Configs) -> None:
    planned = plan(gcp_configs[GPU])
    assert (planned.machine.name, planned.tpu, planned.num_machines) == ("a3-megagpu-8g", None, 4)
    assert (planned.zone, planned.head, planned.project) == ("us-central1-a", True, "my-project")
    assert planned.tags == {
        "team": "ml-platform",
        "cost_center": "4711",
        "gangway-stack": "gcp-a3-spot",
        "gangway-run": "shared",
        "gangway-energy-class": "h100x8",
        "gangway-carbon-class": "high",
    }


def test_slices_are_nodes_of_several_machines(gcp_configs: Configs) -> None:
    planned = plan(gcp_configs[SLICES])
    assert planned.tpu is not None
    assert (planned.tpu.chips, planned.tpu.topology, planned.tpu.default_topology) == (32, "2x4x4", True)
    assert (planned.machine.name, planned.num_machines, planned.head) == ("v5p-64", 16, False)
    assert planned.zone == "us-east5-a"
    assert planned.repository_id == "projects/my-project/locations/us-east5/repositories/gan"
    (rung,) = gcp_configs[SLICES].cluster.capacity
    assert reservation_name(rung, "my-project", "us-east5-a") == (
        "projects/my-project/locations/us-east5-a/reservations/gan-v5p"
    )


@pytest.mark.parametrize(("name", "least"), [(GPU, 450), (POD, None)])
def test_the_job_is_what_the_machines_run(
    gcp_configs: Configs, gcp_plans: dict[str, Plan], name: str, least: Any
) -> None:
    job = gcp_plans[name].job
    training = job["training"]
    assert (training["fabric_min_gbps"], training["run_dir"]) == (least, f"/shared/runs/{name}")
    spec = job_spec(gcp_configs[name], plan(gcp_configs[name]), f"x@{DIGEST}")
    if name == GPU:
        assert (job["backend"], job["num_nodes_min"], job["num_nodes_max"]) == ("nccl", 2, 4)
        assert spec.rendezvous.host == "head.gcp-a3-spot.gangway.internal"
        assert "NCCL_FASTRAK_IFNAME" in spec.env
        assert "/var/lib/tcpxo/lib64" in {volume.target for volume in spec.volumes}
    else:
        assert (job["backend"], job["num_nodes_min"], job["num_nodes_max"]) == ("xla", 16, 16)
        assert training["config"]["backend"] == "xla"
        assert spec.world_size_max == 64
        assert [name for name in spec.env if name.startswith("MEGASCALE")] == [], "Google sets them in the metadata"


def test_the_record_counts_machines_and_not_slices(gcp_configs: Configs) -> None:
    """Dollars of a record are hours times machines times a machine's price."""
    config = gcp_configs[POD]
    spec = job_spec(config, plan(config), f"x@{DIGEST}")
    context = RunContext.model_validate_json(spec.env["GANGWAY_CONTEXT"])
    assert (context.provider, context.machine_type, context.num_nodes) == ("gcp", "v5litepod-64", 16)
    assert context.image_digest == DIGEST
    price, watts, host = context.usd_per_hour, context.accelerator_watts, context.host_watts
    assert price is not None
    assert price.value == pytest.approx(4 * 0.525363), "four chips of a host, on spot"
    assert watts is not None
    assert (watts.value, watts.provenance) == (None, "absent")
    assert "no power figure" in str(watts)
    assert host is not None
    assert host.value == 581


ZONE = {"cluster": {"zone": "us-central1-b"}}


def test_a_zone_that_was_chosen_needs_no_reason(gcp_edited: Edited) -> None:
    planned = plan(gcp_edited(GPU, **ZONE))
    assert (planned.zone, planned.zone_reason) == ("us-central1-b", "")


def test_a_reservations_zone_is_the_clusters(gcp_edited: Edited) -> None:
    rung = {"kind": "reservation", "id": "projects/their-project/reservations/r1", "zone": "us-east5-b"}
    config = gcp_edited(SLICES, cluster={"capacity": [rung]})
    planned = plan(config)
    assert planned.zone == "us-east5-b"
    assert (
        reservation_name(config.cluster.capacity[0], "my-project", "us-east5-b")
        == "projects/their-project/locations/us-east5-b/reservations/r1"
    )


def test_one_node_with_a_fallback_has_a_head_that_fills_it(gcp_edited: Edited) -> None:
    one = gcp_edited(GPU, cluster={"nodes": {"min": 1, "max": 1}})
    planned = plan(one)
    assert planned.head
    assert job_spec(one, planned, f"x@{DIGEST}").rendezvous.standalone
    alone = gcp_edited(GPU, cluster={"nodes": {"min": 1, "max": 1}, "capacity": [{"kind": "spot"}]})
    assert not plan(alone).head


FULL_RESERVATION = "projects/their-project/locations/us-east5-a/reservations/r"
MISTAKES: dict[str, tuple[str, dict[str, Any], str, str]] = {
    "region": (GPU, {"region": "us-central9"}, "gangway:region", "us-central1"),
    "machine type": (
        GPU, {"cluster": {"machine_type": "a3-megagpu-8"}}, "gangway:cluster.machine_type", "a3-megagpu-8g",
    ),
    "two types carry it": (
        GPU, {"cluster": {"machine_type": None, "accelerator": "H100x8"}}, "gangway:cluster.accelerator",
        "write machine_type: a3-megagpu-8g",
    ),
    "a topology beside GPUs": (
        GPU, {"cluster": {"machine_type": None, "accelerator": "A100x8", "topology": "4x4"}},
        "gangway:cluster.topology", "leave topology out",
    ),
    "zone": (GPU, {"cluster": {"zone": "us-central1-z"}}, "gangway:cluster.zone", "set zone: us-central1-a"),
    "zone of a reservation": (
        SLICES, {"cluster": {"capacity": [{"kind": "reservation", "id": "r", "zone": "us-west1-a"}]}},
        "gangway:cluster.capacity[0].zone", "set gangway:region: us-west1",
    ),
    "zones of a rung": (
        GPU, {"cluster": {"capacity": [{"kind": "spot"}, {"kind": "on-demand", "zones": ["us-east5-a"]}]}},
        "gangway:cluster.capacity[1].zones", "set gangway:region: us-east5",
    ),
    "a reservation as the API writes it": (
        SLICES, {"cluster": {"capacity": [{"kind": "reservation", "id": FULL_RESERVATION}]}},
        "gangway:cluster.capacity[0].id", "write id: projects/their-project/reservations/r, zone: us-east5-a",
    ),
    "a block of a reservation for slices": (
        SLICES, {"cluster": {"capacity": [{"kind": "reservation", "id": "r/reservationBlocks/b"}]}},
        "gangway:cluster.capacity[0].id", "write id: r",
    ),
    "a block of TPUs": (
        POD, {"cluster": {"capacity": [{"kind": "capacity-block", "id": "cr-0123456789abcdef0"}]}},
        "gangway:cluster.capacity[0].kind", "write {kind: reservation, id: NAME}",
    ),
    "head": (GPU, {"head": {"machine_type": "e2-medum"}}, "gangway:head.machine_type", "did you mean 'e2-medium'?"),
    "lustre size": (GPU, {"storage": {"capacity_gib": 9600}}, "gangway:storage.capacity_gib", "18000"),
    "lustre scratch": (
        GPU, {"storage": {"deployment": "scratch"}}, "gangway:storage.deployment", "leave deployment out",
    ),
    "filestore size": (POD, {"storage": {"capacity_gib": 100}}, "gangway:storage.capacity_gib", "2560"),
    "a block": (
        GPU, {"cluster": {"capacity": [{"kind": "capacity-block", "id": "cr-0123456789abcdef0"}]}},
        "gangway:cluster.capacity[0].kind", "flex-start",
    ),
    "flex-start of TPUs": (
        POD, {"cluster": {"capacity": [{"kind": "flex-start", "max_hours": 4}]}}, "gangway:cluster.capacity[0].kind",
        "write {kind: on-demand}",
    ),
    "two rungs of TPUs": (
        POD, {"cluster": {"capacity": [{"kind": "spot"}, {"kind": "on-demand"}]}}, "gangway:cluster.capacity",
        "keep one of them",
    ),
    "zones of TPUs": (
        POD, {"cluster": {"capacity": [{"kind": "spot", "zones": ["us-west4-a"]}]}}, "gangway:cluster.capacity[0]",
        "gangway:cluster.zone names the zone",
    ),
    "a slice of no size": (
        POD, {"cluster": {"accelerator": "v5litepod-63"}}, "gangway:cluster.accelerator", "v5litepod-64",
    ),
    "a generation by its nickname": (
        POD, {"cluster": {"accelerator": "v5e-64"}}, "gangway:cluster.accelerator", "v5litepod-64",
    ),
    "a topology of another size": (
        SLICES, {"cluster": {"topology": "4x4x4"}}, "gangway:cluster", "topologies of 32 chips: 2x4x4",
    ),
    "a currency without an amount": (GPU, {"gcp": {"currency": "EUR"}}, "gangway:gcp", "add monthly_amount"),
    "an amount without a currency": (GPU, {"gcp": {"monthly_amount": 9}}, "gangway:gcp", "add currency: EUR"),
    "dollars twice": (
        GPU, {"gcp": {"currency": "USD", "monthly_amount": 9}}, "gangway:gcp.currency", "leave currency and",
    ),
    "a slice in capitals": (
        POD, {"cluster": {"accelerator": "V6E-8"}}, "gangway:cluster.accelerator",
        "v4-NUMBER, v5litepod-NUMBER, v5p-NUMBER, v6e-NUMBER write v6e-8",
    ),
    "an accelerator of nobody": (
        GPU, {"cluster": {"machine_type": None, "accelerator": "v6e"}}, "gangway:cluster.accelerator",
        "; TPUs: v4-NUMBER, ",
    ),
    "a reservation of no project, for slices": (
        SLICES, {"cluster": {"capacity": [{"kind": "reservation", "id": "projects/other/reservations/r"}]}},
        "gangway:cluster.capacity[0].id", "an id of 6 to 30",
    ),
    "a reservation of no project": (
        GPU, {"cluster": {"capacity": [{"kind": "reservation", "id": "projects/other/reservations/r"}]}},
        "gangway:cluster.capacity[0].id", "write the id of the project that shares it",
    ),
    "a machine type as an accelerator": (
        GPU, {"cluster": {"machine_type": None, "accelerator": "a3-megagpu-8g"}}, "gangway:cluster.accelerator",
        "write machine_type: a3-megagpu-8g in place of accelerator",
    ),
    "no API for it": (
        POD, {"cluster": {"accelerator": "tpu7x-16"}}, "gangway:cluster.accelerator", "such as v6e-64",
    ),
    "an image of elsewhere": (
        POD, {"image": {"prebuilt": f"docker.io/x/y@{DIGEST}"}}, "gangway:image.prebuilt",
        "Artifact Registry in us-west4",
    ),
    "six addresses": (
        GPU, {"budget": {"emails": [f"{letter}@x.org" for letter in "abcdef"]}}, "gangway:budget.emails", "remove 1",
    ),
    "days of logs": (GPU, {"observe": {"log_days": 4000}}, "gangway:observe.log_days", "3650"),
    "a label": (GPU, {"tags": {"team": "ML Platform"}}, "gangway:tags.team", "ml-platform"),
    "a public range": (GPU, {"network": {"cidr": "8.8.0.0/16"}}, "gangway:network.cidr", "use 10.42.0.0/16"),
}  # fmt: skip


@pytest.mark.parametrize("what", MISTAKES)
def test_a_mistake_names_its_place_and_its_fix(gcp_edited: Edited, what: str) -> None:
    name, changes, place, fix = MISTAKES[what]
    config = gcp_edited(name, **changes)
    with pytest.raises(InputError) as caught:
        plan(config)
    assert caught.value.place == place
    assert fix in f"{caught.value.allowed} {caught.value.fix}"


def test_an_accelerator_of_two_machines_is_advised_the_one_that_the_plan_does_not_warn_about(
    gcp_edited: Edited,
) -> None:
    def refused(**cluster: Any) -> InputError:
        with pytest.raises(InputError) as caught:
            plan(gcp_edited(GPU, cluster={"machine_type": None, "accelerator": "H100x8", **cluster}))
        return caught.value

    two = refused()
    assert two.fix.startswith("write machine_type: a3-megagpu-8g in place of accelerator")
    assert (
        "a3-highgpu-8g (88.49 USD an hour on demand in us-central1; tcpx needs the kernel linux-gcp-tcpx" in two.allowed
    )
    assert "a3-megagpu-8g (92.21 USD an hour on demand in us-central1)" in two.allowed
    for fits in ({"image_id": "projects/p/global/images/family/ours"}, {"nodes": {"min": 1, "max": 1}}):
        assert "kernel" not in refused(**fits).allowed


def test_an_image_may_lie_in_a_multi_region(gcp_edited: Edited) -> None:
    config = gcp_edited(POD, image={"prebuilt": f"us-docker.pkg.dev/p/r/trainer/x@{DIGEST}"})
    assert plan(config).repository_id == "projects/p/locations/us/repositories/r"


def test_the_plans_versions_name_the_providers_package(gcp_plans: dict[str, Plan]) -> None:
    data = gcp_plans[POD].to_json()
    assert set(data["versions"]) == {"gangway", "pulumi", "pulumi-gcp"}
    assert data["energy"]["kwh"] is None
    assert data["carbon"]["gco2e"] is None
    json.dumps(data, allow_nan=False)
