"""Programs run without the engine: what was registered, under whom, with which outputs, and what is asked."""

import json
from typing import Any

import pulumi
import pytest
from pulumi_aws import ec2, ecr
from pulumi_command import remote

from gangway.components.core.findings import InputError
from gangway.stacks.recording import PlaceholderCloud, record

TOKEN = "aws:ecr/getAuthorizationToken:getAuthorizationToken"


class Pair(pulumi.ComponentResource):
    """A network and its subnet."""

    def __init__(self, name: str) -> None:
        super().__init__("test:index:Pair", name)
        self.vpc = ec2.Vpc(
            name, cidr_block="10.0.0.0/16", tags={"b": "2", "a": "1"}, opts=pulumi.ResourceOptions(parent=self)
        )
        self.subnet = ec2.Subnet(
            name, vpc_id=self.vpc.id, cidr_block="10.0.0.0/20", opts=pulumi.ResourceOptions(parent=self.vpc)
        )
        self.register_outputs({"vpc_id": self.vpc.id})


def pair() -> dict[str, Any]:
    made = Pair("net")
    return {"vpc_id": made.vpc.id, "arn": made.subnet.arn, "plain": 1}


def test_resources_have_their_parents_and_refer_to_each_other() -> None:
    done = record(pair, PlaceholderCloud(), "test")
    by_type = {resource.type: resource for resource in done.resources}
    component, vpc, subnet = (by_type[t] for t in ("test:index:Pair", "aws:ec2/vpc:Vpc", "aws:ec2/subnet:Subnet"))
    assert (component.custom, vpc.custom) == (False, True)
    assert (vpc.parent, subnet.parent) == (component.urn, vpc.urn)
    assert component.parent.endswith("::gangway-test")
    assert (vpc.id, subnet.inputs["vpcId"]) == ("${Vpc.net.id}", "${Vpc.net.id}")
    assert [resource.urn for resource in done.resources] == sorted(resource.urn for resource in done.resources)
    assert len(done.resources) == 3, "the stack itself is none"


def test_inputs_are_in_the_order_of_their_keys() -> None:
    vpc = next(r for r in record(pair, PlaceholderCloud(), "test").resources if r.type.endswith(":Vpc"))
    assert list(vpc.inputs) == sorted(vpc.inputs)
    assert list(vpc.inputs["tags"]) == ["a", "b"]


def test_outputs_and_result_are_known() -> None:
    done = record(pair, PlaceholderCloud(), "test")
    assert done.result == {"vpc_id": "${Vpc.net.id}", "arn": "${Subnet.net.arn}", "plain": 1}
    (names,) = [names for urn, names in done.outputs.items() if "test:index:Pair" in urn]
    assert names == {"vpc_id"}


def test_a_resource_is_plain_json_and_an_archive_the_names_in_it() -> None:
    vpc = next(r for r in record(pair, PlaceholderCloud(), "test").resources if r.type.endswith(":Vpc"))
    data = vpc.to_json()
    assert list(data) == ["urn", "type", "name", "parent", "inputs"]
    assert data["inputs"] == vpc.inputs

    def function() -> dict[str, Any]:
        from pulumi_aws import lambda_

        files: Any = {"b.py": pulumi.StringAsset("pass"), "a.py": pulumi.StringAsset("pass")}
        lambda_.Function("stop", role="arn", code=pulumi.AssetArchive(files), runtime="python3.12", handler="a.b")
        return {}

    (made,) = record(function, PlaceholderCloud(), "test").resources
    assert made.to_json()["inputs"]["code"] == {"archive": ["a.py", "b.py"]}


def test_a_text_for_a_machine_is_its_length() -> None:
    """A plan's JSON would else hold every script, each in one line."""

    def program() -> dict[str, Any]:
        connection = remote.ConnectionArgs(host="a")
        remote.CopyToRemote("c", connection=connection, source=pulumi.StringAsset("echo"), remote_path="x")
        return {}

    (made,) = record(program, PlaceholderCloud(), "s").resources
    assert made.to_json()["inputs"]["source"] == {"asset": "4 characters"}


def test_a_secret_is_not_in_the_json() -> None:
    def parameter() -> dict[str, Any]:
        from pulumi_aws import ssm

        ssm.Parameter("p", type="SecureString", value=pulumi.Output.secret("hunter2"), tags={"team": "ml"})
        return {}

    (made,) = record(parameter, PlaceholderCloud(), "test").resources
    assert made.to_json()["inputs"]["value"] == "[secret]"
    assert made.to_json()["inputs"]["tags"] == {"team": "ml"}
    assert "hunter2" not in json.dumps(made.to_json())


def test_a_cloud_of_ones_own_is_asked_for_ids_and_outputs() -> None:
    class Counting(PlaceholderCloud):
        def __call__(self, type_token: str, name: str, inputs: dict[str, Any]) -> tuple[str, dict[str, Any]]:
            return f"id-of-{name}", {**inputs, "arn": f"arn:{type_token}"}

    result = record(pair, Counting(), "test").result
    assert result == {"vpc_id": "id-of-net", "arn": "arn:aws:ec2/subnet:Subnet", "plain": 1}


def test_who_may_push_is_the_one_question_a_plan_answers() -> None:
    answer = PlaceholderCloud().ask(TOKEN, {})
    assert answer["password"] == "${getAuthorizationToken.password}"

    def program() -> dict[str, Any]:
        return {"user": ecr.get_authorization_token_output().user_name}

    assert record(program, PlaceholderCloud(), "test").result == {"user": "${getAuthorizationToken.userName}"}
    with pytest.raises(AssertionError, match="a plan has no cloud"):
        PlaceholderCloud().ask("aws:index/getRegion:getRegion", {})


def test_azures_identities_go_in_as_a_list_and_come_back_by_their_ids() -> None:
    from pulumi_azure_native import compute

    def program() -> dict[str, Any]:
        identity: Any = {"type": "UserAssigned", "user_assigned_identities": ["/one", "/two"]}
        made = compute.DiskEncryptionSet("keys", resource_group_name="g", identity=identity)
        return {"identity": made.identity.apply(lambda told: told and told.user_assigned_identities)}

    done = record(program, PlaceholderCloud(), "test")
    assert set(done.result["identity"]) == {"/one", "/two"}
    (keys,) = done.resources
    assert keys.inputs["identity"]["userAssignedIdentities"] == ["/one", "/two"], "as it was sent"


def test_what_the_program_raises_goes_on_and_the_next_begins_anew() -> None:
    def broken() -> dict[str, Any]:
        Pair("net")
        raise LookupError("no such thing")

    with pytest.raises(LookupError, match="no such thing"):
        record(broken, PlaceholderCloud(), "test")
    again = record(pair, PlaceholderCloud(), "other")
    assert len(again.resources) == 3
    assert {r.urn.split("::")[0] for r in again.resources} == {"urn:pulumi:other"}


def test_a_mistake_found_in_an_outputs_function_is_told_as_any_other() -> None:
    """The SDK wraps it once per resource that waits for the output."""

    def refuse(_: str) -> str:
        raise InputError("gangway:job.kimg", "too many", value=5, allowed="4", fix="set 4")

    def program() -> dict[str, Any]:
        vpc = ec2.Vpc("net", cidr_block="10.0.0.0/16")
        subnet = ec2.Subnet("net", vpc_id=vpc.id.apply(refuse), cidr_block="10.0.0.0/20")
        return {"second": ec2.Subnet("second", vpc_id=subnet.vpc_id, cidr_block="10.0.16.0/20").id}

    with pytest.raises(InputError, match=r"gangway:job.kimg: too many"):
        record(program, PlaceholderCloud(), "test")


@pytest.mark.timeout(60)
@pytest.mark.parametrize("innermost", [InputError("gangway:job.kimg", "too many"), OSError("gone")], ids=["", "none"])
def test_causes_in_a_circle_end(innermost: Exception) -> None:
    """The SDK makes them: each waiting resource raises an error from the one before it."""
    raised, between = RuntimeError("while waiting"), LookupError("no such output")
    raised.__cause__, between.__context__, innermost.__cause__ = between, innermost, raised

    def program() -> dict[str, Any]:
        raise raised

    expected = innermost if isinstance(innermost, InputError) else raised
    with pytest.raises(type(expected)) as caught:
        record(program, PlaceholderCloud(), "test")
    assert caught.value is expected


def test_a_secret_beside_others_hides_itself_alone() -> None:
    """As on the wire: read back by Pulumi's mocks, the whole mapping is one."""

    def tagged() -> dict[str, Any]:
        ec2.Vpc("v", cidr_block="10.0.0.0/16", tags={"team": "ml", "key": pulumi.Output.secret("hunter2")})
        return {}

    (made,) = record(tagged, PlaceholderCloud(), "test").resources
    assert made.inputs["tags"]["team"] == "ml"
    assert made.to_json()["inputs"]["tags"] == {"team": "ml", "key": "[secret]"}
