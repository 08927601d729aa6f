"""AWS's list by tag, against moto: pages, regions, what is gone, whose it is, what it costs."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from moto import mock_aws
from typer.testing import CliRunner

from gangway.cli.costs.bills import run_audit
from gangway.cli.main import app
from gangway.components.core.findings import InputError
from gangway.finops.audit.aws import DETAILS, get_regions, list_aws, state_keys
from gangway.finops.audit.classify_orphans import Billed, CloudResource
from gangway.finops.audit.state import State, StateResource

REGION, STACK = "us-east-2", "aws-demo"
TAGS = [{"Key": "gangway:stack", "Value": STACK}, {"Key": "team", "Value": "ml"}]


@pytest.fixture(autouse=True)
def _cloud(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    with mock_aws():
        yield


def client(service: str, region: str = REGION) -> Any:
    return boto3.client(service, region_name=region)  # type: ignore[call-overload]  # one overload a service


def tagged(kind: str, tags: list[dict[str, str]] = TAGS) -> list[dict[str, Any]]:
    return [{"ResourceType": kind, "Tags": tags}]


def run_instance(**more: Any) -> str:
    image = client("ec2").describe_images(Owners=["amazon"])["Images"][0]["ImageId"]
    kinds = [*tagged("instance"), *tagged("volume")]
    answer = client("ec2").run_instances(
        ImageId=image, MinCount=1, MaxCount=1, **{"InstanceType": "p5.48xlarge", "TagSpecifications": kinds, **more}
    )
    made: str = answer["Instances"][0]["InstanceId"]
    return made


def group_of_two() -> list[str]:
    """An Auto Scaling group as a stack makes it; its nodes are in no state."""
    ec2, scaling = client("ec2"), client("autoscaling")
    image = ec2.describe_images(Owners=["amazon"])["Images"][0]["ImageId"]
    ec2.create_launch_template(
        LaunchTemplateName="nodes",
        LaunchTemplateData={
            "ImageId": image,
            "InstanceType": "p5.48xlarge",
            "TagSpecifications": [*tagged("instance"), *tagged("volume")],
        },
    )
    scaling.create_auto_scaling_group(
        AutoScalingGroupName="aws-demo-0-spot-4711",
        MinSize=2,
        MaxSize=2,
        LaunchTemplate={"LaunchTemplateName": "nodes"},
        AvailabilityZones=[f"{REGION}a"],
        Tags=[{**tag, "PropagateAtLaunch": True} for tag in TAGS],
    )
    return [each["InstanceId"] for each in scaling.describe_auto_scaling_instances()["AutoScalingInstances"]]


def found(*regions: str) -> dict[str, CloudResource]:
    """By kind and last part of the ARN."""
    listing = list_aws(client, STACK, regions or [REGION])
    return {each.id.rpartition("/")[2].rpartition(":")[2]: each for each in listing.resources}


def verdicts(state: State) -> dict[str, str]:
    outcome = run_audit(STACK, "aws", state, list_aws(client, STACK, [REGION]))
    return {each.resource.id.rpartition("/")[2].rpartition(":")[2]: each.verdict for each in outcome.judged}


def state(*resources: tuple[str, str, dict[str, Any]]) -> State:
    return State(tuple(StateResource(*resource) for resource in resources), "test")


@pytest.mark.slow
def test_a_leaked_machine_and_its_disk_are_orphans_with_their_price() -> None:
    instance = run_instance()
    outcome = run_audit(STACK, "aws", state(), list_aws(client, STACK, [REGION]))
    machine, disk = outcome.orphans
    assert machine.judged.resource.name == instance
    assert machine.hourly_usd == pytest.approx(55.04)
    assert disk.judged.resource.kind == "ec2:volume"
    assert disk.judged.reason.endswith(f"its owner is not in the state either: {instance}")
    assert outcome.counts == {"orphan": 2}


@pytest.mark.slow
def test_spot_is_priced_as_spot_and_what_is_stopped_as_nothing() -> None:
    spot = run_instance(InstanceMarketOptions={"MarketType": "spot"})
    stopped = run_instance()
    client("ec2").stop_instances(InstanceIds=[stopped])
    there = found()
    assert there[spot].billed == (Billed("p5.48xlarge", kind="machine", market="spot"),)
    assert there[stopped].billed == ()


@pytest.mark.slow
def test_nodes_of_a_group_in_the_state_belong_to_it_and_so_do_their_disks() -> None:
    nodes = group_of_two()
    with_group = state(("aws:autoscaling/group:Group", "aws-demo-0-spot-4711", {"name": "aws-demo-0-spot-4711"}))
    told = verdicts(with_group)
    assert len(nodes) == 2
    assert all(told[node] == "belongs" for node in nodes)
    assert told.pop("aws-demo-0-spot-4711") == "in-state"
    assert set(told.values()) == {"belongs"}


@pytest.mark.slow
def test_a_group_that_is_left_over_is_an_orphan_with_all_it_makes() -> None:
    nodes = group_of_two()
    outcome = run_audit(STACK, "aws", state(), list_aws(client, STACK, [REGION]))
    reasons = {row.judged.resource.name: row.judged.reason for row in outcome.orphans}
    assert reasons["aws-demo-0-spot-4711"] == "not in the state"
    assert all(reasons[node].endswith("not in the state either: aws-demo-0-spot-4711") for node in nodes)
    assert list_aws(client, "another-stack", [REGION]).resources == ()


@pytest.mark.slow
def test_a_machine_of_the_state_holds_its_own_disk() -> None:
    instance = run_instance()
    arn = f"arn:aws:ec2:{REGION}:123456789012:instance/{instance}"
    told = verdicts(state(("aws:ec2/instance:Instance", instance, {"arn": arn})))
    assert sorted(told.values()) == ["belongs", "in-state"]
    assert told[instance] == "in-state"


@pytest.mark.slow
def test_what_is_terminated_is_gone_though_it_is_still_listed() -> None:
    instance = run_instance()
    client("ec2").terminate_instances(InstanceIds=[instance])
    assert found()[instance].gone in ("terminated", "shutting-down")
    outcome = run_audit(STACK, "aws", state(), list_aws(client, STACK, [REGION]))
    assert outcome.orphans == ()


def test_what_its_own_service_does_not_know_any_more_is_gone() -> None:
    row = {"ResourceARN": f"arn:aws:ec2:{REGION}:123456789012:volume/vol-0123456789abcdef0", "Tags": TAGS}

    class Paginator:
        def paginate(self, **_: Any) -> list[dict[str, Any]]:
            return [{"ResourceTagMappingList": [row]}]

    class Tagging:
        def get_paginator(self, _: str) -> Paginator:
            return Paginator()

    def clients(service: str, region: str) -> Any:
        return Tagging() if service == "resourcegroupstaggingapi" else client(service, region)

    (volume,) = list_aws(clients, STACK, [REGION]).resources
    assert volume.gone == "no longer exists"


def test_the_run_bucket_and_bought_blocks_are_expected_to_stay() -> None:
    s3 = client("s3", "us-east-1")
    for name in ("aws-demo-runs-0a1b2c3", "aws-demo-other"):
        s3.create_bucket(Bucket=name)
        s3.put_bucket_tagging(Bucket=name, Tagging={"TagSet": TAGS})
    outcome = run_audit(STACK, "aws", state(), list_aws(client, STACK, ["us-east-1"]))
    assert [row.judged.resource.name for row in outcome.kept] == ["aws-demo-runs-0a1b2c3"]
    assert [row.judged.resource.name for row in outcome.orphans] == ["aws-demo-other"]
    assert outcome.orphans[0].hourly_usd is None, "storage is paid by use"
    known = state(("aws:s3/bucket:Bucket", "aws-demo-other", {"arn": "arn:aws:s3:::aws-demo-other"}))
    assert not run_audit(STACK, "aws", known, list_aws(client, STACK, ["us-east-1"])).orphans


def test_a_key_on_its_way_out_is_gone() -> None:
    kms = client("kms")
    tags = [{"TagKey": tag["Key"], "TagValue": tag["Value"]} for tag in TAGS]
    kept, leaving = (kms.create_key(Tags=tags)["KeyMetadata"]["KeyId"] for _ in range(2))
    kms.schedule_key_deletion(KeyId=leaving, PendingWindowInDays=7)
    there = found()
    assert there[leaving].gone == "scheduled for deletion"
    assert (there[kept].gone, there[kept].billed) == ("", (Billed("kms-key"),))


def test_a_key_that_is_no_more_is_gone_too() -> None:
    kms = client("kms")
    there = kms.create_key()["KeyMetadata"]
    gone = "00000000-0000-4000-8000-000000000000"
    arns = {there["KeyId"]: there["Arn"], gone: there["Arn"].replace(there["KeyId"], gone)}
    assert DETAILS["kms:key"].look(arns, kms).keys() == {there["KeyId"]}


def test_only_the_stacks_own_tag_counts_and_every_page_is_read() -> None:
    ec2 = client("ec2")
    for number in range(120):
        stack = STACK if number % 2 else f"{STACK}-2"
        tags = [{"Key": "gangway:stack", "Value": stack}]
        ec2.create_volume(AvailabilityZone=f"{REGION}a", Size=1, TagSpecifications=tagged("volume", tags))
    volumes = [each for each in found().values() if each.kind == "ec2:volume"]
    assert len(volumes) == 60
    assert {each.billed for each in volumes} == {(Billed("ebs-gp2", 1),)}


def test_regions_are_asked_one_by_one() -> None:
    there = client("ec2", "eu-north-1")
    there.create_volume(AvailabilityZone="eu-north-1a", Size=8, VolumeType="gp3", TagSpecifications=tagged("volume"))
    assert found() == {}
    (volume,) = found(REGION, "eu-north-1").values()
    assert volume.region == "eu-north-1"


@pytest.mark.slow
def test_which_regions() -> None:
    assert get_regions(client, None, REGION) == [REGION, "us-east-1"]
    assert get_regions(client, None, "us-east-1") == ["us-east-1"]
    assert get_regions(client, "eu-north-1, us-east-1,eu-north-1", REGION) == ["eu-north-1", "us-east-1"]
    every = get_regions(client, "all", REGION)
    assert len(every) > 10
    assert REGION in every


@pytest.mark.parametrize("words", ["", " , "])
def test_no_region_is_no_question(words: str) -> None:
    """Else nothing would be asked, and nothing be left over."""
    with pytest.raises(InputError, match=f"--regions: names no region(.|\\n)*write --regions {REGION}"):
        get_regions(client, words, REGION)


def test_a_region_that_nobody_could_have_and_a_profile_that_is_not_there_are_named(
    monkeypatch: pytest.MonkeyPatch, demo_file: Path
) -> None:
    with pytest.raises(InputError, match=r"AWS, us_east 1: request failed(.|\n)*supported format"):
        list_aws(client, STACK, ["us_east 1"])
    monkeypatch.setenv("AWS_PROFILE", "nope")
    refused = CliRunner().invoke(app, ["audit", str(demo_file), "--no-state", "--regions", REGION])
    assert isinstance(refused.exception, InputError)
    assert "nope" in str(refused.exception.value)


def test_a_gateway_and_an_endpoint_are_known_by_their_own_service() -> None:
    ec2 = client("ec2")
    vpc = ec2.create_vpc(CidrBlock="10.0.0.0/16", TagSpecifications=tagged("vpc"))["Vpc"]["VpcId"]
    subnet = ec2.create_subnet(VpcId=vpc, CidrBlock="10.0.0.0/24", TagSpecifications=tagged("subnet"))["Subnet"]
    nat = ec2.create_nat_gateway(SubnetId=subnet["SubnetId"], TagSpecifications=tagged("natgateway"))["NatGateway"]
    endpoint = ec2.create_vpc_endpoint(
        VpcId=vpc,
        ServiceName=f"com.amazonaws.{REGION}.sqs",
        VpcEndpointType="Interface",
        SubnetIds=[subnet["SubnetId"]],
        TagSpecifications=tagged("vpc-endpoint"),
    )["VpcEndpoint"]
    ids = {nat["NatGatewayId"]: "a", endpoint["VpcEndpointId"]: "b", "nat-0123456789abcdef0": "c"}
    gateways = DETAILS["ec2:natgateway"].look(ids, ec2)
    assert gateways[nat["NatGatewayId"]]["billed"] == (Billed("nat-gateway"),)
    endpoints = DETAILS["ec2:vpc-endpoint"].look(ids, ec2)
    assert endpoints[endpoint["VpcEndpointId"]]["billed"] == (Billed("interface-endpoint", 1),)
    ec2.delete_nat_gateway(NatGatewayId=nat["NatGatewayId"])
    after = DETAILS["ec2:natgateway"].look(ids, ec2).get(nat["NatGatewayId"])
    assert after is None or after["gone"]
    interface = ec2.create_network_interface(SubnetId=subnet["SubnetId"], TagSpecifications=tagged("network-interface"))
    free = interface["NetworkInterface"]["NetworkInterfaceId"]
    assert DETAILS["ec2:network-interface"].look({free: "d"}, ec2) == {free: {"owners": frozenset()}}


@pytest.mark.slow
def test_a_file_system_is_billed_by_size_tier_and_metadata() -> None:
    fsx = client("fsx")
    subnet = client("ec2").describe_subnets()["Subnets"][0]["SubnetId"]
    made = [
        fsx.create_file_system(
            FileSystemType="LUSTRE",
            StorageCapacity=4800,
            SubnetIds=[subnet],
            Tags=TAGS,
            LustreConfiguration=own,
        )["FileSystem"]["FileSystemId"]
        for own in (
            {"DeploymentType": "SCRATCH_2"},
            {
                "DeploymentType": "PERSISTENT_2",
                "PerUnitStorageThroughput": 500,
                "MetadataConfiguration": {"Mode": "USER_PROVISIONED", "Iops": 6000},
            },
        )
    ]
    answers = DETAILS["fsx:file-system"].look(dict.fromkeys(made, ""), fsx)
    assert answers[made[0]]["billed"] == (Billed("lustre-scratch-2", 4800),)
    assert answers[made[1]]["billed"] == (Billed("lustre-persistent-2-500", 4800), Billed("lustre-metadata-iops", 6000))


def test_state_names_are_arns_short_ids_and_the_names_of_groups() -> None:
    assert state_keys(StateResource("aws:ec2/vpc:Vpc", "vpc-0123456789abcdef0", {"arn": "arn:x"})) == {
        "vpc-0123456789abcdef0",
        "arn:x",
    }
    group = "arn:aws:logs:us-east-2:1:log-group:/aws/fsx/demo"
    assert state_keys(StateResource("aws:cloudwatch/logGroup:LogGroup", "/aws/fsx/demo", {"arn": f"{group}:*"})) == {
        group
    }
    assert state_keys(StateResource("aws:iam/role:Role", "aws-demo-node", {})) == set()
    assert state_keys(StateResource("aws:ec2/fleet:Fleet", "fleet-1", {})) == {"fleet-1"}


def test_without_credentials_the_way_in_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    from botocore.exceptions import NoCredentialsError

    class Nobody:
        def get_paginator(self, _: str) -> Any:
            raise NoCredentialsError

    with pytest.raises(InputError, match="request failed") as caught:
        list_aws(lambda *_: Nobody(), STACK, [REGION])
    assert "AWS_PROFILE" in caught.value.fix
    assert "Unable to locate credentials" in str(caught.value)


@pytest.mark.slow
def test_the_command_prints_orphans_last_and_exits_with_one(tmp_path: Path, demo_file: Path) -> None:
    run_instance()
    path = tmp_path / "state.json"
    path.write_text(json.dumps({"version": 3, "deployment": {"resources": []}}))
    runner = CliRunner()
    argv = ["audit", str(demo_file), "--state", str(path), "--regions", REGION]
    shown = runner.invoke(app, argv, env={"COLUMNS": "160"})
    assert shown.exit_code == 1, shown.output
    *_, total, advice = shown.output.splitlines()
    assert total.startswith("2 orphans: $55.")
    assert advice.startswith("nothing was changed: ")
    assert shown.output.index("note: ") < shown.output.index("orphaned: not in the state")
    assert "only tagged resources in these regions are listed" in " ".join(shown.output.split())
    told = json.loads(runner.invoke(app, [*argv, "--json"]).stdout)
    assert told["counts"] == {"orphan": 2}
    assert told["orphans"][0]["bill"][0]["source"]
    assert told["known_usd_per_hour"] > 55
    clean = runner.invoke(app, ["audit", str(demo_file), "--no-state", "--regions", "eu-north-1"])
    assert clean.exit_code == 0, clean.output
    assert "no orphaned resources" in clean.output
    both = runner.invoke(app, [*argv, "--no-state"])
    assert isinstance(both.exception, InputError)
