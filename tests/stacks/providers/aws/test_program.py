"""A stack on AWS: how the components are wired together, for every machine and both ways out."""

import base64
import gzip
import json
from collections.abc import Callable
from typing import Any

import pytest
import yaml

from gangway.components.aws.launch import plan_interfaces
from gangway.components.catalog.loader import load
from gangway.components.core.findings import InputError
from gangway.stacks.config.stack_config import StackConfig
from gangway.stacks.plan.plan import Plan, run_program
from gangway.stacks.providers.aws.plan import plan
from gangway.stacks.recording import PlaceholderCloud, PlannedResource

Edited = Callable[[Callable[[dict[str, Any]], object]], StackConfig]
ONE_OF_EACH_LAYOUT = {plan_interfaces(m): m.name for m in load().machines.values() if m.provider == "aws"}


def cluster(**changes: Any) -> Callable[[dict[str, Any]], object]:
    return lambda values: values["gangway:cluster"].update(changes)


def of(resources: tuple[PlannedResource, ...], kind: str) -> list[PlannedResource]:
    return [r for r in resources if r.type.startswith("aws:") and r.type.endswith(f":{kind}")]


def workers(resources: tuple[PlannedResource, ...]) -> list[PlannedResource]:
    """The launch templates of the node pool; the head node has a separate one."""
    return [
        r
        for r in of(resources, "LaunchTemplate")
        if "::gangway:aws:EfaNodePool::" in f"::{r.parent.rpartition('$')[2]}"
    ]


def node_statements(resources: tuple[PlannedResource, ...]) -> list[dict[str, Any]]:
    (policy,) = [r for r in of(resources, "RolePolicy") if r.name.endswith("-node")]
    statements: list[dict[str, Any]] = json.loads(policy.inputs["policy"])["Statement"]
    return statements


def test_the_demos_parts_refer_to_each_other(demo_plan: Plan) -> None:
    resources = demo_plan.resources
    subnet = next(r for r in of(resources, "Subnet") if r.name == "aws-demo-private-us-east-2a")
    fabric = next(r for r in of(resources, "SecurityGroup") if r.name == "aws-demo-fabric")
    lustre = of(resources, "LustreFileSystem")[0].inputs
    assert lustre["subnetIds"] == subnet.id
    assert lustre["securityGroupIds"] == [fabric.id]
    assert subnet.inputs["availabilityZone"] == "us-east-2a"
    for template in workers(resources):
        assert template.inputs["iamInstanceProfile"]["arn"] == "${InstanceProfile.aws-demo-node.arn}"
        assert {tuple(i["securityGroups"]) for i in template.inputs["networkInterfaces"]} == {(fabric.id,)}
        assert len(template.inputs["networkInterfaces"]) == 33
    for group in of(resources, "Group"):
        assert group.inputs["vpcZoneIdentifiers"] == [subnet.id]
    may = {statement["Sid"]: statement["Resource"] for statement in node_statements(resources)}
    assert may["OwnRuns"] == "${Bucket.aws-demo-runs.arn}/aws-demo/*"
    assert "my-bucket" not in json.dumps(may), "FSx reads the data set, and no node does"
    provider = next(r for r in resources if r.type == "pulumi:providers:aws")
    assert provider.inputs["region"] == "us-east-2"


def test_the_node_boots_with_the_plans_own_names(demo_plan: Plan) -> None:
    for template in workers(demo_plan.resources):
        text = gzip.decompress(base64.b64decode(template.inputs["userData"])).decode()
        files = {entry["path"]: entry for entry in yaml.safe_load(text)["write_files"]}
        everything = "\n".join(str(entry.get("content")) for entry in files.values())
        assert text.startswith("#cloud-config")
        for word in ("${LustreFileSystem.aws-demo-lustre.dnsName}", "us-east-2", "dcgan-digits"):
            assert word in everything, word


def test_without_a_file_system_nothing_waits_for_one(edited: Edited) -> None:
    config = edited(lambda values: values.pop("gangway:storage"))
    program = run_program(config, PlaceholderCloud())
    resources = program.resources
    assert not of(resources, "LustreFileSystem")
    assert program.result["lustre_dns_name"] is None


def test_a_pinned_image_is_used(edited: Edited) -> None:
    resources = run_program(edited(cluster(image_id="ami-0123456789abcdef0")), PlaceholderCloud()).resources
    assert {t.inputs["imageId"] for t in workers(resources)} == {"ami-0123456789abcdef0"}


@pytest.mark.parametrize("egress", ["endpoints", "nat"])
@pytest.mark.parametrize("machine_type", sorted(ONE_OF_EACH_LAYOUT.values()))
def test_nothing_of_any_layout_is_reachable_from_outside(edited: Edited, machine_type: str, egress: str) -> None:
    def change(values: dict[str, Any]) -> None:
        values["gangway:cluster"].pop("accelerator")
        values["gangway:cluster"].update(machine_type=machine_type)
        values["gangway:network"] = {"egress": egress}

    config = edited(change)
    resources = run_program(config, PlaceholderCloud()).resources
    text = json.dumps([r.inputs for r in resources])
    assert '"associatePublicIpAddress": true' not in text
    assert '"mapPublicIpOnLaunch": true' not in text
    templates = workers(resources)
    machines = [*templates, *of(resources, "Instance")]
    assert {m.inputs["metadataOptions"]["httpTokens"] for m in machines} == {"required"}
    expected = len(plan_interfaces(plan(config).machine))
    assert {len(t.inputs["networkInterfaces"]) for t in templates} == {expected}
    sources = {rule.inputs.get("cidrIpv4") for rule in of(resources, "SecurityGroupIngressRule")}
    assert sources <= {None, config.network.cidr}, "from our own groups, or HTTPS from within the VPC"


def test_a_job_too_long_for_the_nodes_file_is_refused_before_anything_is_declared(edited: Edited) -> None:
    letters = "".join(map(chr, range(0x4E00, 0x9FFF)))

    def change(values: dict[str, Any]) -> None:
        values["gangway:job"] = {
            "command": ["python", "train.py"],
            "image": f"123456789012.dkr.ecr.us-east-2.amazonaws.com/gan/trainer@sha256:{'0' * 64}",
            "max_hours": 4,
            "env": {f"K{n}": letters[n * 250 : n * 250 + 250] for n in range(40)},
        }

    class Untouched(PlaceholderCloud):
        def __call__(self, type_token: str, name: str, inputs: dict[str, Any]) -> tuple[str, dict[str, Any]]:
            raise AssertionError(f"{name} was declared")

    with pytest.raises(InputError, match="at most 16384"):
        run_program(edited(change), Untouched())


def needed_by(resources: tuple[PlannedResource, ...], resource: PlannedResource) -> set[tuple[str, str]]:
    """All that a resource rests on, near and far, as (kind, name): what `destroy` leaves standing until it is gone."""
    by_urn = {r.urn: r for r in resources}
    found: dict[str, PlannedResource] = {}
    waiting = list(resource.dependencies)
    while waiting:
        urn = waiting.pop()
        if urn not in found:
            found[urn] = by_urn[urn]
            waiting += by_urn[urn].dependencies
    return {(r.type.rpartition(":")[2], r.name) for r in found.values()}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("egress", "way_out"),
    [
        ("nat", {("Route", "edited-nat-out"), ("Route", "edited-private-out"), ("NatGateway", "edited-nat")}),
        ("endpoints", {("VpcEndpoint", f"edited-{service}") for service in ("autoscaling", "logs", "ecr.api")}),
    ],
)
def test_destroy_ends_the_nodes_before_anything_they_need_while_leaving(
    edited: Edited, egress: str, way_out: set[tuple[str, str]]
) -> None:
    """The last checkpoint: over the head's store, to Lustre or S3; then the word to the group, by the role's policy."""

    def change(values: dict[str, Any]) -> None:
        values["gangway:network"] = {"egress": egress}
        values["gangway:storage"]["export_runs"] = True
        values["gangway:encryption"] = "customer-key"

    resources = run_program(edited(change), PlaceholderCloud()).resources
    needed = way_out | {
        ("RolePolicy", "edited-node"),
        ("VpcEndpoint", "edited-s3"),
        ("RouteTableAssociation", "edited-private-us-east-2a"),
        ("SecurityGroupEgressRule", "edited-fabric-egress-out"),
        ("SecurityGroupIngressRule", "edited-fabric-ingress-self"),
        ("Instance", "edited-head"),
        ("Record", "edited-head"),
        ("LustreFileSystem", "edited-lustre"),
        ("DataRepositoryAssociation", "edited-runs"),
        ("Bucket", "edited-runs"),
        ("KeyPolicy", "edited-data"),
    }
    groups = of(resources, "Group")
    assert len(groups) == 2
    for group in groups:
        stands = needed_by(resources, group)
        assert needed <= stands, sorted(needed - stands)
        assert not [kind for kind, _ in stands if kind in ("MetricAlarm", "Policy", "Schedule")], "these go first"


def test_the_head_node_has_a_way_out_and_its_permissions_from_its_first_second(demo_plan: Plan) -> None:
    (head,) = of(demo_plan.resources, "Instance")
    assert {
        ("RolePolicy", "aws-demo-head"), ("Route", "aws-demo-private-out"), ("VpcEndpoint", "aws-demo-s3"),
        ("SecurityGroupEgressRule", "aws-demo-head-egress-lustre-988"),
    } <= needed_by(demo_plan.resources, head)  # fmt: skip


def test_the_head_reaches_lustre_only_where_there_is_one(edited: Edited) -> None:
    def lustre_rules(config: StackConfig) -> set[str]:
        resources = run_program(config, PlaceholderCloud()).resources
        rules = [*of(resources, "SecurityGroupIngressRule"), *of(resources, "SecurityGroupEgressRule")]
        return {rule.name for rule in rules if "lustre" in rule.name}

    assert len(lustre_rules(edited(lambda values: None))) == 8, "two ranges of ports, both ways, both sides"
    assert lustre_rules(edited(lambda values: values.pop("gangway:storage"))) == set()


@pytest.mark.slow
def test_the_stacks_key_encrypts_every_disk(edited: Edited) -> None:
    def disks(config: StackConfig) -> list[str | None]:
        templates = of(run_program(config, PlaceholderCloud()).resources, "LaunchTemplate")
        return [d["ebs"].get("kmsKeyId") for t in templates for d in t.inputs["blockDeviceMappings"]]

    assert disks(edited(lambda values: None)) == [None] * 3, "two rungs and the head node"
    own = disks(edited(lambda values: values.update({"gangway:encryption": "customer-key"})))
    assert own == ["${Key.edited-data.arn}"] * 3


def test_the_root_device_is_the_one_of_the_users_image(edited: Edited) -> None:
    image = {"image_id": "ami-0123456789abcdef0", "root_device_name": "/dev/xvda"}
    templates = workers(run_program(edited(cluster(**image)), PlaceholderCloud()).resources)
    assert {t.inputs["blockDeviceMappings"][0]["deviceName"] for t in templates} == {"/dev/xvda"}


@pytest.mark.slow
def test_the_door_to_s3_is_narrow_where_it_is_the_only_one(edited: Edited) -> None:
    def policies(egress: str) -> list[str | None]:
        config = edited(lambda values: values.update({"gangway:network": {"egress": egress}}))
        endpoints = of(run_program(config, PlaceholderCloud()).resources, "VpcEndpoint")
        return [endpoint.inputs.get("policy") for endpoint in endpoints if endpoint.name == "edited-s3"]

    (closed,) = policies("endpoints")
    assert closed is not None
    reachable = [statement["Resource"] for statement in json.loads(closed)["Statement"]]
    assert reachable[0] == ["${Bucket.edited-runs.arn}", "${Bucket.edited-runs.arn}/*"]
    assert "my-bucket" not in closed
    assert policies("nat") == [None], "the rest of the internet is open too"
