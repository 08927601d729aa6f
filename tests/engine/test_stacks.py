"""Every stack file under the real Pulumi engine: its whole life, from a preview to an empty cloud."""

import json
import re
from dataclasses import dataclass, replace
from typing import Any

import pytest
import yaml

# A life is some ten runs of the engine, which share two cores with another one.
pytestmark = [pytest.mark.engine, pytest.mark.timeout(900)]

IMAGE = "docker-build:index:Image"
CLOUDS = ("aws:", "azure-native:", "gcp:", "openstack:", "docker-build:")
ALWAYS_EXPORTED = {"run_bucket"}
OF_A_JOB, OF_A_QUEUE = {"job", "image"}, {"partitions"}
# Where there is a service for lines.
LOGGED = frozenset({"log_group", "dashboard"})


# Of the budget's stop, of the flow log, of the head and of what brings slices back, which go before the nodes do.
OF_OTHERS = re.compile(r"-(stop|flows|head|slices)(-|$)")


@dataclass(frozen=True)
class Kind:
    """What differs from provider to provider, and from machines to slices, in what a life looks like.

    Attributes:
        said: by a finding of severity info, which a preview has to show too.
        exported: beside ALWAYS_EXPORTED.
        pool: the types that the nodes are made of.
        group: the one whose end is the nodes' end, as it stands in a URN.
        lost: the type of what somebody deletes by hand.
        password: how the passwords of the stand-in's registry begin.
        registry: what the image's host ends with.
        left: the types that `destroy` leaves, which hold runs.
        may_stay: beside them, what runs are encrypted with.
        needed: what a node that leaves still uses, as it stands in a URN: the head's store, the way out, where it
            saves, and its rights.
        replaced: the types that another number of nodes replaces.
        grown: those it makes more of, where every node is a resource.
    """

    said: str
    exported: frozenset[str]
    pool: frozenset[str]
    group: str
    lost: str
    password: str
    registry: str
    needed: tuple[str, ...]
    replaced: frozenset[str] = frozenset()
    grown: frozenset[str] = frozenset()
    left: frozenset[str] = frozenset()
    may_stay: frozenset[str] = frozenset()


AWS = Kind(
    said="gangway:budget.activate_tag: the budget counts",
    exported=LOGGED | frozenset({"group_names", "alarm_topic_arn", "budget_topic_arn"}),
    pool=frozenset({"aws:autoscaling/group:Group", "aws:ec2/launchTemplate:LaunchTemplate"}),
    group="aws:autoscaling/group:Group::",
    lost="aws:s3/bucket:Bucket",
    password="ecr-password-",
    registry=".amazonaws.com",
    needed=(
        "aws:ec2/instance:Instance::",
        "aws:ec2/route:Route::",
        "aws:ec2/routeTableAssociation:RouteTableAssociation::",
        "aws:ec2/vpcEndpoint:VpcEndpoint::",
        "aws:fsx/lustreFileSystem:LustreFileSystem::",
        "aws:iam/rolePolicy:RolePolicy::",
        "aws:s3/bucket:Bucket::",
        "aws:vpc/securityGroupEgressRule:SecurityGroupEgressRule::",
    ),
)
GCP = Kind(
    said="gangway:cluster.zone: us-central1-a chosen",
    exported=LOGGED | frozenset({"group_names", "budget_topic_id", "head_instance_id"}),
    pool=frozenset(
        {
            "gcp:compute/instanceGroupManager:InstanceGroupManager",
            "gcp:compute/instanceTemplate:InstanceTemplate",
        }
    ),
    group="gcp:compute/instanceGroupManager:InstanceGroupManager::",
    lost="gcp:storage/bucket:Bucket",
    password="ya29.access-token-",
    registry="-docker.pkg.dev",
    needed=(
        "gcp:compute/firewall:Firewall::",
        "gcp:compute/instance:Instance::",
        "gcp:compute/routerNat:RouterNat::",
        "gcp:filestore/instance:Instance::",
        "gcp:lustre/instance:Instance::",
        "gcp:projects/iAMMember:IAMMember::",
        "gcp:projects/service:Service::",
        "gcp:storage/bucket:Bucket::",
        "gcp:storage/bucketIAMMember:BucketIAMMember::",
    ),
    replaced=frozenset({"gcp:compute/instanceTemplate:InstanceTemplate"}),
)
TPU = Kind(
    said="gangway:cluster.accelerator: v5",
    exported=LOGGED | frozenset({"queued_resource", "budget_topic_id"}),
    pool=frozenset({"pulumi-python:dynamic/gangway:QueuedTpuRequest"}),
    group="pulumi-python:dynamic/gangway:QueuedTpuRequest::",
    lost=GCP.lost,
    password=GCP.password,
    registry=GCP.registry,
    needed=GCP.needed,
    replaced=frozenset({"pulumi-python:dynamic/gangway:QueuedTpuRequest"}),
)


AZURE = Kind(
    said="gangway:budget.monthly_usd",
    exported=LOGGED | frozenset({"group_names", "budget_topic_id", "head_instance_id", "resource_group"}),
    pool=frozenset({"azure-native:compute:VirtualMachineScaleSet"}),
    group="azure-native:compute:VirtualMachineScaleSet::",
    lost="azure-native:storage:ManagementPolicy",
    password="refresh-",
    registry=".azurecr.io",
    needed=(
        "azure-native:authorization:RoleAssignment::",
        "azure-native:compute:VirtualMachine::",
        "azure-native:network:NatGateway::",
        "azure-native:network:NetworkSecurityGroup::",
        "azure-native:network:Subnet::",
        "azure-native:privatedns:PrivateRecordSet::",
        "azure-native:storagecache:AmlFilesystem::",
    ),
    left=frozenset(
        {
            "azure-native:resources:ResourceGroup",
            "azure-native:storage:BlobContainer",
            "azure-native:storage:BlobServiceProperties",
            "azure-native:storage:ManagementPolicy",
            "azure-native:storage:StorageAccount",
        }
    ),
    may_stay=frozenset(
        {
            "azure-native:authorization:RoleAssignment",
            "azure-native:keyvault:Key",
            # Goes with its vault, of which the stand-in knows nothing.
            "azure-native:keyvault:Secret",
            "azure-native:keyvault:Vault",
            "azure-native:managedidentity:UserAssignedIdentity",
        }
    ),
)

OPENSTACK = Kind(
    said="gangway:cluster.nodes: `up` creates all 4 nodes or fails",
    exported=frozenset({"group_names", "head_instance_id", "mount_point", "run_bucket_url"}),
    pool=frozenset({"openstack:compute/instance:Instance"}),
    group="openstack:compute/instance:Instance::",
    lost="openstack:networking/secGroupRule:SecGroupRule",
    password="credential-secret-",
    registry=".example.com",
    needed=(
        "openstack:identity/applicationCredential:ApplicationCredential::",
        "openstack:networking/routerInterface:RouterInterface::",
        "openstack:networking/secGroupRule:SecGroupRule::",
        "openstack:sharedfilesystem/share:Share::",
        "openstack:sharedfilesystem/shareAccess:ShareAccess::",
    ),
    # All nodes are told how many there are, and the head where they are.
    replaced=frozenset({"openstack:compute/instance:Instance"}),
    grown=frozenset({"openstack:compute/instance:Instance", "openstack:networking/port:Port"}),
    left=frozenset({"openstack:objectstorage/container:Container"}),
)
# Its controller boots with another list of nodes; the queue's state is on the file system, and jobs go on.
SLURM = replace(
    AWS,
    pool=frozenset({"aws:autoscaling/group:Group"}),  # its nodes are not told how many there are
    replaced=frozenset({"aws:ec2/instance:Instance"}),
)
KINDS = {"aws": AWS, "azure": AZURE, "openstack": OPENSTACK}


@pytest.fixture
def kind(engine: Any) -> Kind:
    config = yaml.safe_load(engine.file.read_text("utf-8"))["config"]
    if config.get("gangway:engine", {}).get("kind") == "slurm":
        return SLURM
    if config["gangway:provider"] != "gcp":
        return KINDS[config["gangway:provider"]]
    return GCP if "machine_type" in config["gangway:cluster"] else TPU


def test_a_stack_lives_and_leaves_nothing_behind(engine: Any, kind: Kind, standin: Any) -> None:
    """One life for all phases: each `up` from nothing would cost as much as all of them."""
    preview_creates_nothing(engine, kind)
    up_makes_what_it_says(engine, kind)
    exports_are_true(engine, kind, standin)
    password_stays_secret(engine, kind)
    second_up_changes_nothing(engine)
    other_size_changes_the_pool(engine, kind)
    what_was_deleted_by_hand_is_made_again(engine, kind)
    destroy_leaves_nothing(engine, kind, standin)


def preview_creates_nothing(engine: Any, kind: Kind) -> None:
    preview = engine.run("preview")
    assert preview.status == 0, preview.text
    assert set(preview.changes) == {"create"}
    assert kind.said in preview.text, "findings of severity info are seen too"
    assert engine.resources() == []


def up_makes_what_it_says(engine: Any, kind: Kind) -> None:
    up = engine.applied("up")
    made = up.types("create")
    assert made > kind.pool
    clouds = {type_token for type_token in made if type_token.startswith(CLOUDS)}
    assert {resource["type"] for resource in engine.resources()} == clouds


def exports_are_true(engine: Any, kind: Kind, standin: Any) -> None:
    exports = json.loads(engine.plain("stack", "output", "--json", "--show-secrets"))
    summary = engine.plain("stack", "output").splitlines()
    assert len(summary) <= 25, "what `up` ends with is read at a glance"
    assert exports["next_command"].startswith("gangway job ")
    names = {name for name, value in exports.items() if value}
    assert names >= ALWAYS_EXPORTED | kind.exported
    assert names & (OF_A_JOB | OF_A_QUEUE) in (OF_A_JOB, OF_A_QUEUE), "it is the one or the other"
    if "job" in exports:
        assert exports["image"] == exports["job"]["image"]
        assert exports["image"].partition("/")[0].endswith(kind.registry)
    for image in built(engine):
        assert exports["image"].endswith(f"@{image['outputs']['digest']}")
    groups = [r for r in engine.resources() if f"{r['type']}::" == kind.group and not OF_OTHERS.search(r["urn"])]
    assert set(exports["group_names"]) == {group["outputs"]["name"] for group in groups}
    assert list(standin.cloud.queued) == ([exports["queued_resource"]] if exports.get("queued_resource") else [])


def built(engine: Any) -> list[dict[str, Any]]:
    """The image that `up` built; none where the stack file names one."""
    return [resource for resource in engine.resources() if resource["type"] == IMAGE]


def password_stays_secret(engine: Any, kind: Kind) -> None:
    """It reaches the builder and, encrypted, the state; nowhere does it stand in plain text."""
    for image in built(engine):
        password = image["inputs"]["registries"][0]["password"]
        assert password.startswith(kind.password)
        assert password in engine.plain("stack", "export", "--show-secrets")
        files = [file for file in engine.state.rglob("*") if file.is_file()]
        where = "the state is not where it was looked for"
        assert any(image["urn"].encode() in file.read_bytes() for file in files), where
    exported = engine.plain("stack", "export")
    # Nor does what the registry of Azure gave the password for.
    for secret in (kind.password, "azure-token-"):
        assert secret not in exported
        assert not [file for file in engine.state.rglob("*") if file.is_file() and secret.encode() in file.read_bytes()]
    no_plain_secrets(exported)


PLAIN_SECRET = re.compile(
    r"-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY|\bA(?:KI|SI)A[0-9A-Z]{16}\b|\bgh[pousr]_[0-9A-Za-z]{30}|\bya29\.[\w-]{10}"
    r"|\beyJ[\w-]{10,}\.eyJ[\w-]{10,}\.|AGE-SECRET-KEY-1|AccountKey=[0-9A-Za-z+/]{40}|\bAIza[\w-]{30}"
)
"""Private keys, and tokens that say what they are. In an exported state secrets are encrypted."""


def no_plain_secrets(exported: str) -> None:
    found = [match[0][:40] for match in PLAIN_SECRET.finditer(exported)]
    assert not found, f"in plain text in the state: {found}"


def test_a_private_key_planted_in_plain_state_is_found(make_program_engine: Any) -> None:
    program = """
import pulumi
from gangway.components.core.keys import signing_key
own = signing_key("dev")
pulumi.Stash("planted", input=pulumi.Output.unsecret(own.pem))
"""
    engine = make_program_engine(program, {})
    engine.applied("up")
    with pytest.raises(AssertionError, match="PRIVATE KEY"):
        no_plain_secrets(engine.plain("stack", "export"))
    (engine.project / "__main__.py").write_text(
        program.replace('"planted", input=pulumi.Output.unsecret(own.pem)', '"kept", input=own.pem'), "utf-8"
    )
    engine.applied("up")
    no_plain_secrets(engine.plain("stack", "export"))


def second_up_changes_nothing(engine: Any) -> None:
    """Although the registry gives another password."""
    again = engine.applied("up", "--expect-no-changes")
    assert set(again.changes) == {"same"}
    engine.applied("refresh", "--expect-no-changes")


def other_size_changes_the_pool(engine: Any, kind: Kind) -> None:
    before = lasting(engine, kind)
    engine.change(grow)
    preview = engine.run("preview")
    allowed = {"same", "update", *(["replace"] if kind.replaced else []), *(["create"] if kind.grown else [])}
    assert set(preview.changes) <= allowed, preview.text
    more = engine.applied("up")
    assert set(more.changes) <= allowed
    changed = more.types("update") | more.types("replace")
    assert changed == preview.types("update") | preview.types("replace") >= kind.pool
    # Templates, requests and user data cannot be edited; the groups and all else stay.
    assert more.types("replace") <= kind.replaced
    assert more.types("create") <= kind.grown
    assert lasting(engine, kind) == before


def lasting(engine: Any, kind: Kind) -> set[str]:
    """The ids of what another number of nodes neither replaces nor adds to."""
    changing = kind.replaced | kind.grown
    return {resource["id"] for resource in engine.resources() if resource["type"] not in changing}


def grow(config: dict[str, Any]) -> None:
    """Twice as many nodes, for the global batch has to divide; or a larger disk, where no more than one is allowed."""
    cluster = config["gangway:cluster"]
    if cluster.get("accelerator", "").startswith("v5"):
        # More slices would be more workers than images in a batch.
        config["gangway:job"]["kimg"] = 100
    elif "gangway:storage" in config:
        cluster["nodes"] = {bound: 2 * number for bound, number in cluster["nodes"].items()}
    else:
        cluster["root_volume_gib"] = 400


def what_was_deleted_by_hand_is_made_again(engine: Any, kind: Kind) -> None:
    before = engine.resources()
    bucket = next(file for file in engine.cloud.glob("*.json") if f'"{kind.lost}"' in file.read_text("utf-8"))
    bucket.unlink()
    refresh = engine.applied("refresh")
    assert refresh.changes["delete"] == 1, refresh.text
    engine.applied("up")
    assert len(engine.resources()) == len(before)


def destroy_leaves_nothing(engine: Any, kind: Kind, standin: Any) -> None:
    destroy = engine.applied("destroy")
    nodes_are_gone_before_what_they_need(destroy, kind)
    # The right of an agent that is the project's own, which another stack's file system may need as well.
    left = {resource["type"] for resource in engine.resources() if "gcp-sa-lustre" not in resource["id"]}
    assert left - kind.may_stay == kind.left
    assert (standin.cloud.queued, standin.cloud.nodes) == ({}, {})
    assert json.loads(engine.plain("stack", "export"))["deployment"].get("resources", []) == []


def nodes_are_gone_before_what_they_need(destroy: Any, kind: Kind) -> None:
    """Or the last checkpoint and `destroy` would race: a group's end is the end of its nodes."""
    ended = destroy.ended("delete").items()
    gone = max(place for urn, place in ended if f"${kind.group}" in urn and not OF_OTHERS.search(urn))
    needed = {
        urn: place
        for urn, place in destroy.began("delete").items()
        if any(needs in urn for needs in kind.needed) and not OF_OTHERS.search(urn)
    }
    assert len(needed) > 5
    assert not [urn for urn, place in needed.items() if place < gone]
