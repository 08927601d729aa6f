"""What a configuration means on Azure before anything is declared: machine, zone, fabric, file system, tags, job."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from gangway.components.catalog.loader import load_provider
from gangway.components.core.findings import InputError
from gangway.stacks.config.stack_config import StackConfig
from gangway.stacks.plan.plan import Plan
from gangway.stacks.providers.azure.plan import data_dir, fabric_min_gbps, job_spec, plan
from gangway.trainer.records.run_record import RunContext
from tests.stacks.drawn import DIGEST as DRAWN_DIGEST
from tests.stacks.drawn import JOB, Settings, some

DEV, V4, V5 = "azure-nc-dev", "azure-ndv4", "azure-ndv5-spot"
Configs = dict[str, StackConfig]
Edited = Callable[..., StackConfig]
DIGEST = f"sha256:{'0a' * 32}"
ONE, OTHER = ("11111111-0000-0000-0000-111111111111", "99999999-0000-0000-0000-999999999999")
REGISTRY = f"/subscriptions/{ONE}/resourceGroups/images/providers/Microsoft.ContainerRegistry/registries/ourimages"
ACCOUNT = "/subscriptions/{}/resourceGroups/data/providers/Microsoft.Storage/storageAccounts/{}"
GROUP = f"/subscriptions/{ONE}/resourceGroups/g/providers/Microsoft.Compute/capacityReservationGroups/ours"


def test_nodes_with_infiniband(azure_configs: Configs) -> None:
    planned = plan(azure_configs[V5])
    assert (planned.machine.name, planned.num_machines, planned.head) == ("Standard_ND96isr_H100_v5", 4, True)
    assert (planned.fabric.num_hcas, planned.fabric.gbps, planned.fabric.generation) == (8, 3200, "NDR")
    assert (planned.zone, planned.zone_reason) == ("1", "")
    assert planned.lustre is not None
    assert (planned.lustre.sku, planned.lustre.capacity_tib) == ("AMLFS-Durable-Premium-500", 8)
    assert planned.root_volume_gib == 256
    assert planned.tags == {
        "team": "ml-platform",
        "cost_center": "4711",
        "gangway-stack": V5,
        "gangway-run": "shared",
        "gangway-energy-class": "H100x8",
        "gangway-carbon-class": "medium",
    }


def test_one_node_alone_still_has_a_head_that_asks_for_it(azure_configs: Configs) -> None:
    config = azure_configs[DEV]
    planned = plan(config)
    assert (planned.head, planned.num_machines, planned.fabric.num_hcas) == (True, 1, 0)
    assert (planned.zone, planned.lustre, planned.source, planned.registry_id) == ("", None, None, None)
    job = job_spec(config, planned, f"x@{DIGEST}")
    assert job.rendezvous.standalone
    assert {volume.target for volume in job.volumes} == {"/var/lib/gangway"}
    assert job.data_dir is None


@pytest.mark.parametrize(("name", "least"), [(V5, 800), (V4, 400)])
def test_the_job_is_what_the_nodes_run(
    azure_configs: Configs, azure_plans: dict[str, Plan], name: str, least: float
) -> None:
    job = azure_plans[name].job
    assert (job["training"]["fabric_min_gbps"], job["training"]["run_dir"]) == (least, f"/shared/runs/{name}")
    spec = job_spec(azure_configs[name], plan(azure_configs[name]), f"x@{DIGEST}")
    assert (spec.backend, spec.processes_per_node) == ("nccl", 8)
    assert (spec.rendezvous.host, spec.rendezvous.port) == (f"head.{name}.gangway.internal", 29400)
    assert spec.env["NCCL_NET"] == "IB", "InfiniBand or nothing"
    read_only = {volume.target for volume in spec.volumes if volume.read_only}
    assert read_only == {"/etc/nccl.conf", "/opt/microsoft"}


def test_data_lies_under_its_own_path(azure_configs: Configs, azure_plans: dict[str, Plan]) -> None:
    assert data_dir(azure_configs[V5], plan(azure_configs[V5])) == "/shared/digits"
    assert azure_plans[V5].job["training"]["data_dir"] == "/shared/digits"
    assert azure_plans[V4].job["training"]["data_dir"] == ""


def test_the_record_knows_machine_price_and_grid(azure_configs: Configs) -> None:
    config = azure_configs[V4]
    context = RunContext.model_validate_json(job_spec(config, plan(config), f"x@{DIGEST}").env["GANGWAY_CONTEXT"])
    assert (context.provider, context.machine_type, context.num_nodes) == ("azure", "Standard_ND96asr_v4", 2)
    assert context.usd_per_hour is not None
    assert context.usd_per_hour.value == 32.63
    assert context.image_digest == DIGEST


def test_what_is_tested_before_the_job(azure_edited: Edited) -> None:
    def least(name: str, **cluster: Any) -> float | None:
        config = azure_edited(name, cluster=cluster)
        return fabric_min_gbps(config, plan(config))

    assert least(V5, fabric_check={"min_fraction": 0.5}) == 1600
    assert least(V5, fabric_check={"enabled": False}) is None
    assert least(V5, nodes={"min": 1, "max": 1}) is None
    assert least(DEV) is None


def test_where_the_zone_is_from(azure_edited: Edited) -> None:
    def zone(name: str, **sections: Any) -> tuple[str, str]:
        planned = plan(azure_edited(name, **sections))
        return planned.zone, planned.zone_reason

    assert zone(V4) == ("1", "the first of southcentralus")
    assert zone(V4, cluster={"zone": "3"}) == ("3", "")
    assert zone(V4, region="westus") == ("", ""), "it has no zones"
    reserved = {"kind": "reservation", "id": GROUP, "zone": "2"}
    assert zone(DEV, cluster={"capacity": [reserved]}) == ("2", "gangway:cluster.capacity[0], a reservation, is there")


def test_a_root_disk_is_as_large_as_is_written(azure_edited: Edited) -> None:
    assert plan(azure_edited(V4, cluster={"root_volume_gib": 200})).root_volume_gib == 200


@pytest.mark.parametrize("host", ["ourimages", "ourimages-a1b2c3"])
def test_an_image_that_is_there_names_its_registry(azure_edited: Edited, host: str) -> None:
    image = {"prebuilt": f"{host}.azurecr.io/gan/trainer@{DIGEST}"}
    assert plan(azure_edited(V4, image=image, azure={"registry_id": REGISTRY})).registry_id == REGISTRY


OWN_IMAGE = f"ourimages.azurecr.io/gan/trainer@{DIGEST}"
RESERVED = {"kind": "reservation", "id": GROUP}
MISTAKES: dict[str, tuple[str, dict[str, Any], str, str]] = {
    "region": (V4, {"region": "eastuss"}, "gangway:region", "did you mean 'eastus'?"),
    "machine type": (
        V5, {"cluster": {"machine_type": "Standard_ND96isr_H100_v6"}}, "gangway:cluster.machine_type",
        "did you mean 'Standard_ND96isr_H100_v5'?",
    ),
    "a machine of AWS": (
        V5, {"cluster": {"machine_type": "p5.48xlarge"}}, "gangway:cluster.machine_type", "Standard_ND96isr_H100_v5",
    ),
    "accelerator": (V4, {"cluster": {"accelerator": "A100x7"}}, "gangway:cluster.accelerator", "A100x8"),
    "zone": (V4, {"cluster": {"zone": "southcentralus-1"}}, "gangway:cluster.zone", "set zone: '1', or leave it out"),
    "an id that is no image's": (
        V5, {"cluster": {"image_id": f"{GROUP.partition('/providers/')[0]}/foo"}}, "gangway:cluster.image_id",
        "az sig image-version list",
    ),
    "a watcher that is none": (
        DEV, {"azure": {"network_watcher": "nw-eastus"}}, "gangway:azure.network_watcher", "az network watcher list",
    ),
    "a watcher of somebody else's": (
        DEV, {"azure": {"network_watcher": "/subscriptions/22222222-0000-0000-0000-222222222222/resourceGroups/g"
                        "/providers/Microsoft.Network/networkWatchers/w"}},
        "gangway:azure.network_watcher", "a watcher in the subscription 11111111-0000-0000-0000-111111111111",
    ),
    "data in the container of the import's log": (
        V5, {"storage": {"source": f"az://myaccount/{V5}-lustre-log/digits"}}, "gangway:storage.source",
        "another container",
    ),
    "a zone where there is none": (
        V4, {"region": "westus", "cluster": {"zone": "1"}}, "gangway:cluster.zone", "leave zone out",
    ),
    "a block": (
        V4, {"cluster": {"capacity": [{"kind": "capacity-block", "id": "cr-0123456789abcdef0"}]}},
        "gangway:cluster.capacity[0].kind", "reservation, spot, on-demand",
    ),
    "a reservation of InfiniBand": (
        V5, {"cluster": {"capacity": [{"kind": "spot"}, RESERVED]}}, "gangway:cluster.capacity[1].kind",
        "remove rung 1",
    ),
    "nothing but such a reservation": (
        V5, {"cluster": {"capacity": [RESERVED]}}, "gangway:cluster.capacity[0].kind", "write kind: on-demand",
    ),
    "no id of a reservation": (
        DEV, {"cluster": {"capacity": [{"kind": "reservation", "id": "cr-1"}]}}, "gangway:cluster.capacity[0].id",
        "az capacity reservation group list",
    ),
    "machine types of a rung": (
        V5, {"cluster": {"capacity": [{"kind": "spot", "machine_types": ["Standard_ND96isr_H200_v5"]}]}},
        "gangway:cluster.capacity[0].machine_types", "remove machine_types",
    ),
    "nodes": (V5, {"cluster": {"nodes": {"min": 2, "max": 301}}}, "gangway:cluster.nodes.max", "at most 300"),
    "no image that fits": (
        DEV, {"cluster": {"machine_type": "Standard_NV36ads_A10_v5"}}, "gangway:cluster.image_id", "name one with",
    ),
    "head": (
        DEV, {"head": {"machine_type": "Standard_D2s_v6"}}, "gangway:head.machine_type",
        "did you mean 'Standard_D2s_v5'?",
    ),
    "lustre size": (V5, {"storage": {"capacity_gib": 9600}}, "gangway:storage.capacity_gib", "set capacity_gib: 8192"),
    "lustre tier": (
        V5, {"storage": {"throughput_mbps_per_tib": 1000}}, "gangway:storage.throughput_mbps_per_tib",
        "set throughput_mbps_per_tib: 500",
    ),
    "lustre scratch": (
        V5, {"storage": {"deployment": "scratch"}}, "gangway:storage.deployment", "leave deployment out",
    ),
    "lustre over the fabric": (V5, {"storage": {"efa": True}}, "gangway:storage.efa", "leave efa out"),
    "a source without account": (
        V5, {"storage": {"source": "az://digits"}}, "gangway:storage.source", "az://ACCOUNT/CONTAINER",
    ),
    "a container without a folder": (
        V5, {"storage": {"source": "az://myaccount/images"}}, "gangway:storage.source",
        "az://myaccount/images/data",
    ),
    "data among the runs": (
        V5, {"storage": {"source": "az://myaccount/images/runs/x"}}, "gangway:storage.source",
        "az://myaccount/images/data",
    ),
    "another account's id": (
        V5, {"azure": {"source_account_id": ACCOUNT.format(ONE, "other")}}, "gangway:azure.source_account_id",
        "az storage account show --name myaccount",
    ),
    "an account of another subscription": (
        V5, {"azure": {"source_account_id": ACCOUNT.format(OTHER, "myaccount")}}, "gangway:azure.source_account_id",
        "copy the data into an account of this subscription",
    ),
    "an image of elsewhere": (
        V4, {"image": {"prebuilt": f"docker.io/x/y@{DIGEST}"}}, "gangway:image.prebuilt", "Azure Container Registry",
    ),
    "an image by its tag": (
        V4, {"image": {"prebuilt": "ourimages.azurecr.io/gan/trainer:latest"}}, "gangway:image.prebuilt", "@sha256:",
    ),
    "no registry's id": (
        V4, {"image": {"prebuilt": OWN_IMAGE}}, "gangway:azure.registry_id", "az acr show --name ourimages --query id",
    ),
    "another registry's id": (
        V4, {"image": {"prebuilt": OWN_IMAGE}, "azure": {"registry_id": f"{REGISTRY}2"}}, "gangway:azure.registry_id",
        "the resource id of ourimages",
    ),
    "the budget's day": (
        V4, {"azure": {"budget_starts_on": "2026-11-21"}}, "gangway:azure.budget_starts_on",
        "set budget_starts_on: '2026-11-01'",
    ),
    "a day that is none": (
        V4, {"azure": {"budget_starts_on": "2026-13-01"}}, "gangway:azure.budget_starts_on", "first of this month",
    ),
    "too many alarms": (
        V5, {"budget": {"alert_percent": [10, 50, 80, 100]}}, "gangway:budget.alert_percent", "remove 1",
    ),
    "days of logs": (V4, {"observe": {"log_days": 4000}}, "gangway:observe.log_days", "set log_days: 730"),
    "a tag": (V4, {"tags": {"azure-team": "x"}}, "gangway:tags.azure-team", "give the tag another name"),
    "proximity around InfiniBand": (V5, {"azure": {"proximity": True}}, "gangway:azure.proximity", "remove proximity"),
    "Secure Boot of the HPC image": (
        V5, {"azure": {"secure_boot": True}}, "gangway:azure.secure_boot", "remove secure_boot",
    ),
    "Secure Boot of a size without": (
        V4, {"azure": {"secure_boot": True}}, "gangway:azure.secure_boot", "remove secure_boot",
    ),
    "data above its container": (
        V5, {"storage": {"source": "az://myaccount/images/../digits"}}, "gangway:storage.source", "no folder empty",
    ),
    "a public range": (V4, {"network": {"cidr": "8.8.0.0/16"}}, "gangway:network.cidr", "use 10.42.0.0/16"),
}  # fmt: skip


@pytest.mark.parametrize("what", MISTAKES)
def test_a_mistake_names_its_place_and_its_fix(azure_edited: Edited, what: str) -> None:
    name, changes, place, fix = MISTAKES[what]
    config = azure_edited(name, **changes)
    with pytest.raises(InputError) as caught:
        plan(config)
    assert caught.value.place == place
    assert fix in f"{caught.value.allowed} {caught.value.fix}"


def test_a_name_with_two_dashes_is_no_containers_and_no_vaults(azure_configs: Configs) -> None:
    config = azure_configs[V5].model_copy(update={"stack": "my--stack"})
    with pytest.raises(InputError) as caught:
        plan(config)
    assert (caught.value.place, caught.value.fix) == ("gangway:stack", "rename the stack, for example to my-stack")
    bare = config.model_copy(update={"encryption": "provider-key", "storage": None})
    assert plan(bare).tags["gangway-stack"] == "my--stack", "nothing is called so that may not be"


def test_the_plans_versions_name_the_providers_package(azure_plans: dict[str, Plan]) -> None:
    data = azure_plans[DEV].to_json()
    assert set(data["versions"]) == {"gangway", "pulumi", "pulumi-azure-native"}
    json.dumps(data, allow_nan=False)


MACHINES = [
    *sorted(load_provider("azure").machines),
    *["Standard_ND96isr_H100_v5", "Standard_ND96asr_v4", "Standard_NC96ads_A100_v4"] * 8,
]
REGIONS = sorted(load_provider("azure").regions)
DRAWN_ACCOUNT = "/subscriptions/{}/resourceGroups/g/providers/Microsoft.Storage/storageAccounts/mydata"
DRAWN_REGISTRY = f"/subscriptions/{ONE}/resourceGroups/g/providers/Microsoft.ContainerRegistry/registries/ourimages"
DRAWN_IMAGE = f"/subscriptions/{ONE}/resourceGroups/g/providers/Microsoft.Compute/images/ours"


ZONE = st.sampled_from([*["1", "2", "3"] * 5, "4"])
ZONES = {"zones": st.lists(ZONE, max_size=2, unique=True)}
# Mostly right, here and below: a file with ten sections is told for the first thing that is wrong.
PLAIN = st.sampled_from([{"kind": "spot"}, {"kind": "on-demand"}, {"kind": "spot", "max_usd_per_hour": 9}])
RUNG = st.one_of(
    some({"kind": st.just("spot")}, max_usd_per_hour=st.floats(1e-6, 100), **ZONES),
    some({"kind": st.just("on-demand")}, **ZONES),
    some({"kind": st.just("spot")}, allocation=st.just("lowest-price")),
    some({"kind": st.just("reservation"), "id": st.sampled_from([GROUP] * 3 + ["cr-1"])}, zone=ZONE),
    some({"kind": st.just("flex-start"), "max_hours": st.just(12)}),
)
CLUSTER = some(
    {
        "machine_type": st.sampled_from(MACHINES),
        "nodes": st.tuples(st.integers(1, 3), st.sampled_from([*[0, 1, 110] * 5, 310])).map(
            lambda n: {"min": n[0], "max": n[0] + n[1]}
        ),
        "capacity": st.one_of(*[st.lists(PLAIN, min_size=1, max_size=3)] * 4, st.lists(RUNG, min_size=1, max_size=3)),
    },
    zone=ZONE,
    image_id=st.sampled_from([*["microsoft-dsvm:ubuntu-hpc:2404:latest", DRAWN_IMAGE] * 8, "ami-01234567"]),
    root_volume_gib=st.integers(100, 16384),
    fabric_check=some({}, enabled=st.booleans(), min_fraction=st.floats(1e-9, 1)),
)
STORAGE = some(
    {
        "kind": st.just("lustre"),
        "capacity_gib": st.sampled_from([*[49152] * 9, 16384, 9600]),
        "throughput_mbps_per_tib": st.sampled_from([*[40, 125, 250, 500] * 4, 1000]),
    },
    source=st.sampled_from(
        [*["az://mydata/images/d", "az://mydata/images/d/e'f"] * 8, "az://mydata/images", "s3://b-1"]
    ),
    efa=st.sampled_from([*[False] * 15, True]),
    export_runs=st.booleans(),
)
IDS = {
    "source_account_id": st.sampled_from([*[DRAWN_ACCOUNT.format(ONE)] * 15, DRAWN_ACCOUNT.format(OTHER)]),
    "importer_principal_id": st.just(OTHER),
}
BUDGET = some(
    {"monthly_usd": st.sampled_from([*[1e12] * 15, 50]), "emails": st.just(["ml@example.com"])},
    alert_percent=st.lists(st.floats(1, 1000), max_size=3),
    stop_at_percent=st.floats(1, 1000),
)
NETWORK = some(
    {},
    cidr=st.sampled_from([*["10.42.0.0/16", "172.16.0.0/20", "192.168.0.0/18"] * 5, "10.42.0.0/21"]),
    egress=st.sampled_from(["nat", "endpoints"]),
    flow_logs=st.booleans(),
)
TAGS = some(
    {"team": st.just("ml-platform"), "cost_center": st.just("4711")},
    owner=st.sampled_from([*["a-b", "A B", "", "x" * 256] * 5, "x" * 257]),
)


@st.composite
def stack_settings(draw: st.DrawFn) -> Settings:
    """The `config:` mapping of a stack file in which each value may stand where it is."""
    storage = draw(st.one_of(STORAGE, STORAGE, st.just({})))
    prebuilt = draw(st.sampled_from([*[None, "ourimages"] * 12, "otherimages"]))
    section = {
        **{"subscription_id": st.just(ONE), "tenant_id": st.just(OTHER)},
        **{"budget_starts_on": st.sampled_from([*["2026-11-01", "2020-01-01"] * 8, "2026-11-02"])},
        **(IDS if "source" in storage else {}),
        **({"registry_id": st.just(DRAWN_REGISTRY)} if prebuilt else {}),
    }
    sections = some(
        {"cluster": CLUSTER, "budget": BUDGET, "job": JOB, "tags": TAGS, "azure": some(section)},
        network=NETWORK,
        head=some({}, machine_type=st.sampled_from([*["Standard_B2s", "Standard_D2s_v5"] * 8, "t3.medium"])),
        observe=some({}, log_days=st.sampled_from([*[30, 365] * 8, 731]), no_steps_minutes=st.sampled_from([10, 1440])),
        encryption=st.sampled_from(["provider-key", "customer-key"]),
    )
    image = {"prebuilt": f"{prebuilt}.azurecr.io/gan/trainer@{DRAWN_DIGEST}"} if prebuilt else {}
    region = draw(st.sampled_from(REGIONS))
    return {"provider": "azure", "region": region, "storage": storage, "image": image, **draw(sections)}


# A plan takes 0.2 to 0.5 s. To search deeper, raise the profile's max_examples (tests/conftest.py)
# and give pytest another --hypothesis-seed.
@settings(
    max_examples=settings().max_examples * 2 // 3,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(values=stack_settings(), mistakes=st.sampled_from([*[0] * 8, 1, 2]), data=st.data())
def test_any_stack_file_is_planned_or_refused(
    planned_or_told: Callable[..., Plan | None], values: Settings, mistakes: int, data: st.DataObject
) -> None:
    plan = planned_or_told(values, mistakes, data)
    event("refused" if plan is None else f"InfiniBand: {'NCCL_NET' in plan.job['env']}")
