"""The stand-ins for Pulumi's plugins, spoken to as the engine does. They need no CLI, so these tests always run."""

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc  # type: ignore[import-untyped]  # ships no types
import pytest
from pulumi.runtime.proto import provider_pb2 as pb
from pulumi.runtime.rpc import UNKNOWN

IMAGE = "docker-build:index:Image"
TOKEN = "aws:ecr/getAuthorizationToken:getAuthorizationToken"
TEMPLATE = "aws:ec2/launchTemplate:LaunchTemplate"
VPC = "aws:ec2/vpc:Vpc"
# How an archive begins on the wire: the keys are Pulumi's.
ARCHIVE = {"4dabf18193072939515e22adb298388d": "0def7320c3a5731c473e5ecbe6d01bc7", "assets": {}}


@pytest.fixture(scope="module")
def shared_plugin(tmp_path_factory: pytest.TempPathFactory, running_plugin: Any) -> Iterator[Any]:
    """One plugin for all tests: each start reads the AWS SDK."""
    with running_plugin("aws", tmp_path_factory.mktemp("cloud")) as plugin:
        yield plugin


@pytest.fixture
def plugin(shared_plugin: Any) -> Any:
    """The plugin over an empty cloud."""
    for file in shared_plugin.cloud.iterdir():
        file.unlink()
    return shared_plugin


@pytest.mark.parametrize(
    ("type_token", "inputs", "path", "reason"),
    [
        (VPC, {"cidr_block": "10.0.0.0/16"}, "cidr_block", "no such input; there are: assignGenerated"),
        (TEMPLATE, {"networkInterfaces": [{"deviceIndex": 0}, {"cardIndex": 1}]}, "networkInterfaces[1].cardIndex", ""),
        (TEMPLATE, {"networkInterfaces": {"deviceIndex": 0}}, "networkInterfaces", "an object is not expected here"),
        (TEMPLATE, {"imageId": ["ami-1"]}, "imageId", "a list is not expected here"),
        (TEMPLATE, {"placement": "cluster"}, "placement", "a list or an object is expected here, not 'cluster'"),
        ("aws:s3/bucketVersioning:BucketVersioning", {"enabled": True}, "enabled", "versioningConfiguration"),
        ("aws:lambda/function:Function", {"description": ARCHIVE}, "description", "an archive is not expected here"),
        ("aws:ec2/warp:Drive", {}, "", "no resource type aws:ec2/warp:Drive in pulumi_aws"),
    ],
)
def test_an_input_the_sdk_does_not_declare_is_refused(
    plugin: Any, type_token: str, inputs: dict[str, Any], path: str, reason: str
) -> None:
    (where, said), *_ = plugin.faults(type_token, inputs)
    assert where == path
    assert reason in said


def test_declared_inputs_pass_unchanged_also_while_unknown(plugin: Any) -> None:
    inputs = {
        "name": "template",
        "imageId": UNKNOWN,
        "networkInterfaces": [{"networkCardIndex": 1, "securityGroups": UNKNOWN}],
        "tags": {"any": "key"},
    }
    assert plugin.checked(TEMPLATE, inputs) == inputs


def test_a_name_is_chosen_once_and_kept(plugin: Any) -> None:
    first = plugin.checked("aws:s3/bucket:Bucket", {})
    assert first["bucket"].startswith("thing-")
    assert plugin.checked("aws:s3/bucket:Bucket", {}, first) == first
    lifecycle = {"bucket": "b"}
    assert plugin.checked("aws:s3/bucketPublicAccessBlock:BucketPublicAccessBlock", lifecycle) == lifecycle


def test_an_unknown_provider_input_is_refused(plugin: Any) -> None:
    assert plugin.check_config({"region": "us-east-2", "zone": "a"}) == ["zone"]


@pytest.mark.parametrize(
    ("type_token", "inputs", "begins"),
    [
        (VPC, {}, {"id": "vpc-", "arn": "arn:aws:ec2:us-east-2:123456789012:vpc/vpc-"}),
        ("aws:ec2/subnet:Subnet", {}, {"id": "subnet-"}),
        ("aws:ec2/securityGroup:SecurityGroup", {"name": "n"}, {"id": "sg-"}),
        ("aws:fsx/lustreFileSystem:LustreFileSystem", {}, {"id": "fs-", "dnsName": "fs-", "mountName": ""}),
        ("aws:s3/bucket:Bucket", {"bucket": "b"}, {"id": "b", "arn": "arn:aws:s3:::b"}),
        ("aws:iam/role:Role", {"name": "r"}, {"id": "r", "arn": "arn:aws:iam::123456789012:role/r"}),
        ("aws:ecr/repository:Repository", {"name": "e"}, {"repositoryUrl": "123456789012.dkr.ecr.us-east-2.amaz"}),
        ("aws:sns/topic:Topic", {"name": "t"}, {"id": "arn:aws:sns:us-east-2:123456789012:t"}),
    ],
)
def test_a_new_resource_answers_in_the_form_of_aws(
    plugin: Any, type_token: str, inputs: dict[str, Any], begins: dict[str, str]
) -> None:
    plugin.configure(region="us-east-2")
    made = plugin.create(type_token, inputs)
    answered = {"id": made.id, **made.outputs}
    assert {key: answered[key][: len(text)] for key, text in begins.items()} == begins
    (file,) = plugin.cloud.iterdir()
    assert json.loads(file.read_text("utf-8"))["id"] == made.id


def test_a_preview_knows_no_output_and_makes_nothing(plugin: Any) -> None:
    previewed = plugin.create(TEMPLATE, {"name": "t"}, preview=True)
    assert previewed.id == ""
    outputs = previewed.outputs
    assert outputs["name"] == "t"
    assert {outputs["arn"], outputs["latestVersion"]} == {UNKNOWN}
    assert list(plugin.cloud.iterdir()) == []


def test_an_update_counts_the_version_and_keeps_what_aws_computed(plugin: Any) -> None:
    old = {"name": "t", "imageId": "ami-1"}
    made = plugin.create(TEMPLATE, old)
    new = {"name": "t", "imageId": "ami-2"}
    assert plugin.update(TEMPLATE, made, old, new, preview=True)["latestVersion"] == UNKNOWN
    outputs = plugin.update(TEMPLATE, made, old, new)
    assert (outputs["latestVersion"], outputs["imageId"]) == (2, "ami-2")
    assert outputs["arn"] == made.outputs["arn"]


@pytest.mark.parametrize(
    ("old", "new", "diffs", "replaces"),
    [
        ({"cidrBlock": "10.0.0.0/16"}, {"cidrBlock": "10.0.0.0/16"}, [], []),
        ({"tags": {"a": "1"}}, {"tags": {"a": "2"}}, ["tags"], []),
        ({"cidrBlock": "10.0.0.0/16"}, {"cidrBlock": "10.1.0.0/16"}, ["cidrBlock"], ["cidrBlock"]),
    ],
)
def test_a_change_of_what_aws_cannot_change_replaces(
    plugin: Any, old: dict[str, Any], new: dict[str, Any], diffs: list[str], replaces: list[str]
) -> None:
    answer = plugin.diff(VPC, old, new)
    assert (list(answer.diffs), list(answer.replaces)) == (diffs, replaces)
    assert answer.changes == (pb.DiffResponse.DIFF_SOME if diffs else pb.DiffResponse.DIFF_NONE)


def test_what_is_deleted_is_gone(plugin: Any) -> None:
    """Two resources under one id stay apart: a bucket and its versioning, which goes with the bucket."""
    bucket, versioning = "aws:s3/bucket:Bucket", "aws:s3/bucketVersioning:BucketVersioning"
    made = plugin.create(bucket, {"bucket": "b"})
    part, _ = (plugin.create(versioning, {"bucket": name}) for name in ("b", "other"))
    plugin.delete(versioning, part)
    assert dict(plugin.read(bucket, made).inputs) == {"bucket": "b"}
    plugin.create(versioning, {"bucket": "b"})
    plugin.delete(bucket, made)
    assert plugin.read(bucket, made).id == ""
    left = [json.loads(f.read_text("utf-8")) for f in plugin.cloud.iterdir()]
    assert [(each["type"], each["id"]) for each in left] == [(versioning, "other")]


def test_a_second_resource_of_one_name_is_refused(plugin: Any) -> None:
    plugin.create("aws:iam/role:Role", {"name": "r"}, name="first")
    with pytest.raises(grpc.RpcError, match="there is a aws:iam/role:Role r already"):
        plugin.create("aws:iam/role:Role", {"name": "r"}, name="second")


INSTANCE, FLEET, SPOT_FLEET = (
    "aws:ec2/instance:Instance",
    "aws:ec2/fleet:Fleet",
    "aws:ec2/spotFleetRequest:SpotFleetRequest",
)


@pytest.mark.parametrize(
    ("image", "type_token", "inputs", "refused"),
    [
        ("resolve:ssm:/x", INSTANCE, {"launchTemplate": {"id": "LT"}}, False),
        ("resolve:ssm:/x", INSTANCE, {"launchTemplate": {"id": "LT"}, "rootBlockDevice": {"volumeSize": 60}}, True),
        ("ami-1", INSTANCE, {"launchTemplate": {"id": "LT"}, "rootBlockDevice": {"volumeSize": 60}}, False),
        ("ami-1", INSTANCE, {"ami": "resolve:ssm:/x", "rootBlockDevice": {"volumeSize": 60}}, True),
        ("resolve:ssm:/x", FLEET, {"type": "maintain", "launchTemplateId": "LT"}, True),
        ("resolve:ssm:/x", FLEET, {"type": "instant", "launchTemplateId": "LT"}, False),
        ("ami-1", FLEET, {"type": "maintain", "launchTemplateId": "LT"}, False),
        ("resolve:ssm:/x", SPOT_FLEET, {"id": "LT"}, True),
        ("ami-1", SPOT_FLEET, {"id": "LT"}, False),
    ],
)
def test_a_reference_to_an_ami_is_resolved_only_where_aws_does(
    plugin: Any, image: str, type_token: str, inputs: dict[str, Any], refused: bool
) -> None:
    template = plugin.create(TEMPLATE, {"name": "t", "imageId": image}).id
    known = json.loads(json.dumps(inputs).replace('"LT"', f'"{template}"'))
    if type_token != INSTANCE:
        specification = {key: known.pop(key) for key in ("id", "launchTemplateId") if key in known}
        known["launchTemplateConfigs"] = [{"launchTemplateSpecification": {**specification, "version": "1"}}]
    if refused:
        with pytest.raises(grpc.RpcError, match=r"InvalidAMIID\.Malformed"):
            plugin.create(type_token, known)
    else:
        assert plugin.create(type_token, known).id


@pytest.mark.parametrize(
    ("principal", "refused"),
    [
        ({"AWS": "arn:aws:iam::123456789012:root"}, False),
        ({"AWS": "*"}, False),
        ({"Service": "logs.us-east-2.amazonaws.com"}, False),
        ({"AWS": "arn:aws:iam::123456789012:role/mine"}, False),
        ({"AWS": ["arn:aws:iam::123456789012:role/aws-service-role/autoscaling.amazonaws.com/X"]}, True),
    ],
)
def test_a_key_policy_that_names_a_role_which_is_not_there_is_refused(
    plugin: Any, principal: dict[str, Any], refused: bool
) -> None:
    plugin.create("aws:iam/role:Role", {"name": "mine"}, name="mine")
    inputs = {"keyId": "k", "policy": json.dumps({"Statement": [{"Principal": principal}]})}
    if refused:
        with pytest.raises(grpc.RpcError, match="invalid principals"):
            plugin.create("aws:kms/keyPolicy:KeyPolicy", inputs)
    else:
        assert plugin.create("aws:kms/keyPolicy:KeyPolicy", inputs).id == "k"


def test_a_part_is_named_within_its_whole(plugin: Any) -> None:
    """Each group has a hook of the same name."""
    hook = "aws:autoscaling/lifecycleHook:LifecycleHook"
    ids = {plugin.create(hook, {"name": "h", "autoscalingGroupName": group}).id for group in ("a", "b")}
    assert ids == {"a/h", "b/h"}


def test_a_registry_gives_a_new_password_each_time(plugin: Any) -> None:
    plugin.configure(region="us-east-2")
    answers = [plugin.invoke(TOKEN)[0] for _ in range(2)]
    assert answers[0]["password"] != answers[1]["password"]
    assert all(answer["password"].startswith("ecr-password-") for answer in answers)
    assert answers[0]["proxyEndpoint"] == "https://123456789012.dkr.ecr.us-east-2.amazonaws.com"


def test_an_unknown_function_is_refused(plugin: Any) -> None:
    function = "aws:ec2/getAmi:getAmi"
    assert plugin.invoke(function) == ({}, [f"the stand-in for pulumi_aws knows no function {function}"])


@pytest.fixture
def builder(tmp_path: Path, running_plugin: Any) -> Iterator[Any]:
    """The docker-build plugin, in a program's folder beside the one that is copied."""
    for name in ("cloud", "program", "trainer"):
        (tmp_path / name).mkdir()
    with running_plugin("docker-build", tmp_path / "cloud", tmp_path / "program") as plugin:
        yield plugin


def image(**changes: Any) -> dict[str, Any]:
    """Inputs of an image that can be built."""
    return {
        "push": True,
        "context": {"location": ".."},
        "dockerfile": {"inline": "FROM x AS y\nCOPY --from=y /a /a\nCOPY trainer/ /b\n"},
        "tags": ["registry.example/r:1"],
        "registries": [{"address": "https://registry.example", "username": "u", "password": "p"}],
        **changes,
    }


def test_each_build_has_a_digest_of_its_own(builder: Any) -> None:
    digests = set()
    for number, changes in enumerate([{}, {}, {"tags": ["registry.example/r:2"]}]):
        made = builder.create(IMAGE, image(**changes), name=f"image{number}").outputs
        assert made["ref"] == f"{made['tags'][0]}@{made['digest']}"
        digests.add(made["digest"])
    assert len(digests) == 3


@pytest.mark.parametrize(
    ("mutability", "refused"),
    [
        ({"imageTagMutability": "IMMUTABLE"}, True),
        ({"imageTagMutability": "MUTABLE"}, False),
        ({"imageTagMutability": "IMMUTABLE_WITH_EXCLUSION", "imageTagMutabilityExclusionFilters": ["x*"]}, True),
        ({"imageTagMutability": "IMMUTABLE_WITH_EXCLUSION", "imageTagMutabilityExclusionFilters": ["1*"]}, False),
    ],
)
def test_a_tag_is_moved_only_where_the_registry_lets_it(
    builder: Any, mutability: dict[str, Any], refused: bool
) -> None:
    filters = [{"filter": text} for text in mutability.get("imageTagMutabilityExclusionFilters", [])]
    repository = {
        "type": "aws:ecr/repository:Repository",
        "inputs": {**mutability, "imageTagMutabilityExclusionFilters": filters},
        "outputs": {"repositoryUrl": "registry.example/r"},
    }
    (builder.cloud / "repository.json").write_text(json.dumps(repository), "utf-8")
    builder.create(IMAGE, image(), name="first")
    if not refused:
        builder.create(IMAGE, image(), name="second")
        return
    with pytest.raises(grpc.RpcError, match="it exists already and cannot be overwritten"):
        builder.create(IMAGE, image(), name="second")


def test_a_context_that_is_no_folder_is_refused(builder: Any) -> None:
    assert builder.faults(IMAGE, image()) == []
    faults = builder.faults(IMAGE, image(context={"location": "./nowhere"}))
    assert faults == [("context.location", '"./nowhere": not a valid directory or URL')]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"context": {"location": "."}}, "trainer/: not found in the context"),
        ({"tags": ["other.example/r:1"]}, "push of other.example/r:1: no basic auth credentials"),
    ],
)
def test_what_buildkit_would_refuse_is_refused(builder: Any, changes: dict[str, Any], said: str) -> None:
    with pytest.raises(grpc.RpcError, match=said):
        builder.create(IMAGE, image(**changes))
    assert list(builder.cloud.iterdir()) == []


def test_another_password_is_no_reason_to_build(builder: Any) -> None:
    login = {"address": "https://registry.example", "username": "u", "password": "q"}
    for changes, diffs in (({"registries": [login]}, []), ({"tags": ["registry.example/r:2"]}, ["tags"])):
        assert list(builder.diff(IMAGE, image(), image(**changes)).diffs) == diffs


def test_sigint_ends_it_with_status_0(tmp_path: Path, running_plugin: Any) -> None:
    with running_plugin("aws", tmp_path) as plugin:
        plugin.process.send_signal(signal.SIGINT)
        assert plugin.process.wait(timeout=30) == 0
