"""Existing resources on Google Cloud: mistakes in the stack file, the plan with them, and findings."""

from collections.abc import Callable
from typing import Any

import pytest

from gangway.components.core.findings import InputError, Severity
from gangway.stacks.config.stack_config import StackConfig
from gangway.stacks.plan.plan import make_plan
from gangway.stacks.providers.gcp.existing_facts import (
    Facts,
    FileSystemFacts,
    NetworkFacts,
    RepositoryFacts,
    SubnetworkFacts,
    problems,
)
from gangway.stacks.providers.gcp.existing_findings import node_needs
from gangway.stacks.providers.gcp.findings import findings
from gangway.stacks.providers.gcp.plan import plan
from gangway.stacks.recording import Recording

Edited = Callable[..., StackConfig]
ALL, GPU, GKE, POD = "gcp-existing", "gcp-a3-spot", "gke-a3-jobset", "gcp-v5e-pod"
OWN = {
    "network": "projects/my-project/global/networks/lab",
    "subnetwork": "projects/my-project/regions/us-central1/subnetworks/lab",
}
SHARED = {
    "network": "projects/net-host/global/networks/lab",
    "subnetwork": "projects/net-host/regions/us-central1/subnetworks/lab",
}
RANGES = {"pods_range": "pods", "services_range": "services"}
KEY = "projects/keys-1/locations/us-east4/keyRings/r/cryptoKeys/k"
ONE = {"cluster": {"machine_type": "g2-standard-48", "nodes": {"min": 1, "max": 1}}, "storage": None}


def existing(**keys: Any) -> dict[str, Any]:
    return {"gcp": {"existing": keys}}


def nic(number: int, network: str = "", project: str = "my-project") -> dict[str, str]:
    return {
        "network": f"projects/{project}/global/networks/{network or f'nic-{number}'}",
        "subnetwork": f"projects/{project}/regions/us-central1/subnetworks/nic-{number}",
    }


MISTAKES: list[tuple[str, dict[str, Any], str, str]] = [
    (GPU, existing(network=OWN["network"]), "subnetwork", "add subnetwork"),
    (GPU, existing(network="lab"), "network", "network: projects/net-host/global/networks/shared"),
    (GPU, existing(subnetwork=OWN["subnetwork"]), "network", "add network"),
    (GPU, existing(network_tags={"fabric": "gpu"}), "network", "leave network_tags out"),
    (GPU, existing(**OWN), "services_cidr", "add services_cidr: 10.60.0.0/20"),
    (GPU, existing(**OWN, **RANGES, services_cidr="10.60.0.0/20"), "pods_range", "leave pods_range and services_range"),
    (GKE, existing(**OWN), "pods_range", "add pods_range and services_range"),
    (GKE, existing(**SHARED, **RANGES), "file_system", "add file_system: projects/net-host/locations/us-central1-a"),
    (
        GPU,
        existing(kms_key=KEY),
        "kms_key",
        "name one in us-central1",
    ),
    (POD, existing(kms_key="projects/keys-1/locations/us-west4/keyRings/r/cryptoKeys/k"), "kms_key", "customer-key"),
    (GPU, existing(repository="projects/my-project/locations/eu/repositories/gan"), "repository", "us-central1"),
    (GPU, existing(log_bucket="projects/others/locations/global/buckets/b"), "log_bucket", "name one in my-project"),
    (
        GPU,
        existing(file_system="projects/my-project/locations/us-east4-a/instances/i"),
        "file_system",
        "name one in us-central1",
    ),
    (
        GPU,
        existing(file_system="projects/others/locations/us-central1-a/instances/i"),
        "file_system",
        "name one in my-project",
    ),
    (
        GPU,
        {**ONE, **existing(file_system="projects/my-project/locations/us-central1-a/instances/i")},
        "file_system",
        "add gangway:storage",
    ),
    (
        GPU,
        existing(service_accounts={"nodes": "gpu-node@others.iam.gserviceaccount.com"}),
        "service_accounts.nodes",
        "name one in my-project",
    ),
    (
        GPU,
        {**existing(run_bucket="my-runs"), "job": {"keep_runs": False}},
        "gangway:job.keep_runs",
        "set gangway:job.keep_runs: true",
    ),
    (
        GPU,
        {
            **existing(repository="projects/my-project/locations/us-central1/repositories/gan"),
            "image": {"prebuilt": f"us-central1-docker.pkg.dev/my-project/gan/trainer@sha256:{'0' * 64}"},
        },
        "repository",
        "leave repository out",
    ),
]


@pytest.mark.parametrize(("stack", "edits", "key", "fix"), MISTAKES)
def test_a_mistake_names_key_and_fix(gcp_edited: Edited, stack: str, edits: dict[str, Any], key: str, fix: str) -> None:
    with pytest.raises(ExceptionGroup) as caught:
        gcp_edited(stack, **edits)
    place = key if key.startswith("gangway:") else f"gangway:gcp.existing.{key}"
    found = [one for one in caught.value.exceptions if isinstance(one, InputError) and one.place.endswith(place)]
    assert [fix for one in found if fix in one.fix] == [fix], caught.value.exceptions


@pytest.mark.parametrize(
    ("nics", "place", "words"),
    [
        ([], "fabric_subnetworks", "8, each with its network"),
        ([nic(number) for number in range(7)], "fabric_subnetworks", "name 8 subnetworks"),
        ([nic(number, "same") for number in range(8)], "fabric_subnetworks[1].network", "name another network"),
        ([{**nic(0), "network": OWN["network"]}, *map(nic, range(1, 8))], "fabric_subnetworks[0].network", "another"),
    ],
)
def test_every_nic_has_a_network_of_its_own(gcp_edited: Edited, nics: Any, place: str, words: str) -> None:
    config = gcp_edited(GPU, **existing(**OWN, services_cidr="10.60.0.0/20", fabric_subnetworks=nics))
    with pytest.raises(InputError) as caught:
        plan(config)
    assert caught.value.place == f"gangway:gcp.existing.{place}"
    assert words in str(caught.value)


def test_rdma_nics_share_a_network(gcp_edited: Edited) -> None:
    nics = [nic(0), *(nic(number, "rdma") for number in range(1, 9))]
    cluster = {"machine_type": "a3-ultragpu-8g", "capacity": [{"kind": "on-demand"}]}
    keys = {**OWN, "services_cidr": "10.60.0.0/20"}
    config = gcp_edited(GPU, cluster=cluster, **existing(**keys, fabric_subnetworks=nics))
    planned = plan(config)
    known = Facts(networks={one["network"]: NetworkFacts(8896, "us-central1-b-vpc-roce") for one in nics})
    found = [one.place.rpartition("[")[2] for one in problems(config, planned, known)]
    assert found == ["0].network"] if planned.zone == "us-central1-b" else len(found) == 9
    apart = [*nics[:8], nic(8, "other")]
    with pytest.raises(InputError, match="name projects/my-project/global/networks/rdma"):
        plan(gcp_edited(GPU, cluster=cluster, **existing(**keys, fabric_subnetworks=apart)))


def test_a_cluster_of_kubernetes_takes_no_nics_of_a_host_project(gcp_edited: Edited) -> None:
    nics = [nic(number, project="net-host") for number in range(8)]
    config = gcp_edited(GKE, storage=None, **existing(**SHARED, **RANGES, fabric_subnetworks=nics))
    with pytest.raises(InputError, match="not supported so far"):
        plan(config)


def types(made: Recording) -> set[str]:
    return {resource.type.rpartition(":")[2] for resource in made.resources}


def test_a_network_of_the_project_gets_rules_but_nothing_else(
    gcp_edited: Edited, recorded: Callable[[StackConfig], Recording]
) -> None:
    nics = [nic(number) for number in range(8)]
    keys = {**OWN, "services_cidr": "10.60.0.0/20", "fabric_subnetworks": nics}
    made = recorded(gcp_edited(GPU, **existing(**keys)))
    rules = [one.inputs for one in made.resources if one.type.endswith(":Firewall")]
    assert {rule["network"] for rule in rules} == {OWN["network"], *(one["network"] for one in nics)}
    assert not types(made) & {"Network", "Subnetwork", "Router", "RouterNat", "Route", "Connection"}
    (lustre,) = (one for one in made.resources if one.type == "gcp:lustre/instance:Instance")
    assert lustre.inputs["network"] == OWN["network"]
    tagged = recorded(gcp_edited(GPU, **existing(**keys, network_tags={"fabric": "gpu"})))
    assert "Firewall" not in types(tagged)
    (template, *_) = (one for one in tagged.resources if one.type.endswith(":InstanceTemplate"))
    assert template.inputs["tags"] == ["gpu"]
    assert [one["subnetwork"] for one in template.inputs["networkInterfaces"]] == [
        OWN["subnetwork"],
        *(one["subnetwork"] for one in nics),
    ]


def test_a_cluster_of_kubernetes_uses_ranges_account_and_share(
    gcp_edited: Edited, recorded: Callable[[StackConfig], Recording]
) -> None:
    keys = {
        **SHARED,
        **RANGES,
        "file_system": "projects/net-host/locations/us-central1-a/instances/share",
        "repository": "projects/my-project/locations/us-central1/repositories/gan",
        "service_accounts": {"nodes": "gpu-node@my-project.iam.gserviceaccount.com"},
    }
    cluster = {"machine_type": "g2-standard-48"}
    made = recorded(gcp_edited(GKE, cluster=cluster, **existing(**keys)))
    (control,) = (one for one in made.resources if one.type == "gcp:container/cluster:Cluster")
    assert control.inputs["subnetwork"] == SHARED["subnetwork"]
    assert control.inputs["ipAllocationPolicy"] == {
        "clusterSecondaryRangeName": "pods",
        "servicesSecondaryRangeName": "services",
    }
    assert control.inputs["nodeConfig"]["serviceAccount"] == keys["service_accounts"]["nodes"]  # type: ignore[index]
    assert not types(made) & {"Network", "Repository", "RepositoryIamMember"}
    assert not [one for one in made.resources if one.type == "gcp:filestore/instance:Instance"]


def test_without_existing_accounts_those_of_the_stack_get_access(
    gcp_edited: Edited, recorded: Callable[[StackConfig], Recording]
) -> None:
    repository = "projects/my-project/locations/us-central1/repositories/gan"
    config = gcp_edited(GPU, **existing(run_bucket="my-runs", repository=repository))
    grants = [
        one.inputs for one in recorded(config).resources if one.type.endswith("IamMember") or "IAMMember" in one.type
    ]
    assert {one["role"] for one in grants if one.get("bucket") == "my-runs"} == {"roles/storage.objectUser"}
    assert [one for one in grants if one.get("repository") == repository]
    codes = {one.code: one for one in findings(config, plan(config), None)}
    assert "run_bucket and repository" in codes["existing.policies"].message
    assert "existing.log-name" in codes


def test_the_account_of_nodes_that_leave_when_idle_has_to_let_them(gcp_edited: Edited) -> None:
    needs = {}
    for idle in (None, {"minutes": 30}):
        config = gcp_edited(ALL, cluster={"idle_stop": idle}, job={"terminate_when_done": False})
        needs[idle is None] = " ".join(node_needs(config, plan(config)))
    leave = "compute.instanceGroupManagers.update"
    assert leave in needs[False]
    assert leave not in needs[True]


def test_the_plan_shows_them_and_prices_none(gcp_edited: Edited) -> None:
    made = make_plan(gcp_edited(ALL))
    found = {one.code: one for one in made.findings if one.code.startswith("existing.")}
    assert "projects/my-keys/" in found["existing.provided"].message
    assert "tcp 988 from 10.60.0.0/20 to gpu-node" in found["existing.network-owner"].message
    assert "dns.networks.bindPrivateDNSZone" in found["existing.host-project"].message
    assert "compute, storage, artifactregistry" in found["existing.key-policy"].message
    assert "roles/storage.objectUser on gs://my-gan-runs" in found["existing.role-permissions"].message
    assert {one.severity for one in found.values()} == {Severity.INFO}
    lines = " ".join(line.name for line in made.cost.components)
    assert not [word for word in ("lustre", "nat", "key version") if word in lines]
    quotas = [one.message for one in made.findings if one.code == "capacity.quota"]
    assert not [text for text in quotas if "NETWORKS" in text or "Lustre" in text]


@pytest.mark.parametrize(
    ("edits", "code", "path"),
    [
        ({"network": {"cidr": "10.50.0.0/16"}}, "existing.ignored-setting", "gangway:network.cidr"),
        ({"network": {"flow_logs": False}}, "existing.ignored-setting", "gangway:network.flow_logs"),
        ({"observe": {"log_days": 90}}, "existing.ignored-setting", "gangway:observe.log_days"),
        ({"cluster": {"zone": "us-central1-b"}}, "existing.other-zone", "gangway:gcp.existing.file_system"),
        (
            {"gcp": {"service_perimeter": {"access_policy": 7, "existing": "corp"}}},
            "existing.perimeter",
            "gangway:gcp.service_perimeter",
        ),
    ],
)
def test_settings_without_effect_are_warned_of(gcp_edited: Edited, edits: dict[str, Any], code: str, path: str) -> None:
    config = gcp_edited(ALL, **edits)
    found = [one for one in findings(config, plan(config), None) if one.code == code]
    assert [(one.severity, one.path) for one in found] == [(Severity.WARNING, path)]


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        (Facts(file_system=FileSystemFacts(network="projects/net-host/global/networks/old")), "networks/old"),
        (Facts(file_system=FileSystemFacts(squashes_root=True)), "maps root"),
        (Facts(file_system=FileSystemFacts(throughput_mbps_per_tib=250)), "set throughput_mbps_per_tib: 250"),
        (Facts(repository=RepositoryFacts("DOCKER", "STANDARD_REPOSITORY", True)), "immutable"),
    ],
)
def test_facts_that_do_not_fit(gcp_edited: Edited, facts: Facts, words: str) -> None:
    config = gcp_edited(ALL)
    (found,) = problems(config, plan(config), facts)
    assert words in str(found)


@pytest.mark.parametrize(
    ("ranges", "words"),
    [
        ({}, ["no such secondary range", "no such secondary range"]),
        ({"pods": "10.64.0.0/24", "services": "10.65.0.0/20"}, ["too small"]),
        ({"pods": "10.64.0.0/16", "services": "10.65.0.0/20"}, []),
    ],
)
def test_secondary_ranges_exist_and_hold_all_pods(gcp_edited: Edited, ranges: Any, words: list[str]) -> None:
    config = gcp_edited(GKE, cluster={"machine_type": "g2-standard-48"}, storage=None, **existing(**OWN, **RANGES))
    known = SubnetworkFacts(network=OWN["network"], cidr="10.20.0.0/22", ranges=ranges)
    found = problems(config, plan(config), Facts(subnetworks={OWN["subnetwork"]: known}))
    assert [word for one, word in zip(found, words, strict=True) if word in one.problem] == words


def test_slices_have_one_interface_and_a_workflow_that_reads_the_bucket(
    gcp_edited: Edited, recorded: Callable[[StackConfig], Recording]
) -> None:
    accounts = {"nodes": "gpu-node@my-project.iam.gserviceaccount.com"}
    keys = {
        "network": "projects/net-host/global/networks/lab",
        "subnetwork": "projects/net-host/regions/us-west4/subnetworks/lab",
        "run_bucket": "my-runs",
        "service_accounts": accounts,
    }
    config = gcp_edited(POD, storage=None, **existing(**keys))
    (asked,) = (one for one in recorded(config).resources if one.type.endswith(":QueuedTpuRequest"))
    assert asked.inputs["subnetwork"] == keys["subnetwork"]
    assert asked.inputs["service_account"] == accounts["nodes"]
    codes = {one.code: one for one in findings(config, plan(config), None)}
    assert "cloud-tpu.iam" in codes["existing.host-project"].message
    assert codes["existing.policies"].message.startswith("the IAM policy of run_bucket gets")
    nics = [{"network": keys["network"], "subnetwork": keys["subnetwork"]}]
    with pytest.raises(InputError, match="a host of a slice has 0 network interfaces"):
        plan(gcp_edited(POD, storage=None, **existing(**keys, fabric_subnetworks=nics)))
