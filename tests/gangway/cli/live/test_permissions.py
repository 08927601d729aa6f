"""`gangway permissions`: what it prints and writes, and how it ends on bad input."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from gangway.cli.main import app
from gangway.components.core.findings import InputError

STACK = str(Path(__file__).resolve().parents[4] / "stacks/Pulumi.aws-g5-dev.yaml")


def run(*words: str) -> tuple[str, str]:
    done = CliRunner().invoke(app, ["permissions", *words], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout, done.stderr


def refusal(*words: str) -> InputError:
    done = CliRunner().invoke(app, ["permissions", *words])
    assert isinstance(done.exception, InputError), done.output
    return done.exception


def test_a_short_policy_is_one_document() -> None:
    out, notes = run(STACK, "--for", "preflight")
    policy = json.loads(out)
    assert policy["Version"] == "2012-10-17"
    assert {each["Effect"] for each in policy["Statement"]} == {"Allow"}
    assert notes == ""


def test_several_policies_are_a_list_and_files_with_numbers(tmp_path: Path) -> None:
    out, notes = run(STACK)
    policies = json.loads(out)
    assert len(policies) > 1
    assert f"note: {len(policies)} policies, since IAM limits one to 6,144 characters" in notes
    _, said = run(STACK, "--out", str(tmp_path / "policy.json"))
    written = [json.loads((tmp_path / f"policy-{number}.json").read_text()) for number in range(1, len(policies) + 1)]
    assert written == policies
    assert f"aws iam create-policy --policy-name aws-g5-dev-1 --policy-document file://{tmp_path}/policy-1.json" in said
    assert refusal(STACK, "--out", str(tmp_path / "policy.json")).place == "--out"
    run(STACK, "--out", str(tmp_path / "policy.json"), "--overwrite")
    assert len(list(tmp_path.iterdir())) == len(policies)


def test_each_action_is_explained_with_limits_and_reasons() -> None:
    table, _ = run(STACK, "--explain", "--for", "up")
    assert table.splitlines()[0].split("┃")[0].strip() == "action"
    assert "CreateVpc" in table
    rows = json.loads(run(STACK, "--json", "--for", "up")[0])
    (row,) = [each for each in rows if each["action"] == "ec2:CreateVpc"]
    assert row == {
        "action": "ec2:CreateVpc",
        "resource": ["arn:aws:ec2:us-east-1:*:*"],
        "condition": {"StringEquals": {"aws:RequestTag/gangway:stack": "aws-g5-dev"}},
        "reasons": ["create aws:ec2:Vpc aws-g5-dev-vpc"],
        "limit": "resources that the request tags gangway:stack=aws-g5-dev",
    }


@pytest.mark.parametrize(
    ("words", "place", "allowed"),
    [
        (("no-such-stack",), "stack 'no-such-stack'", "aws-demo"),
        ((STACK, "--for", "upp"), "--for", "up, preflight, destroy, bench"),
        ((STACK, "--explain", "--json"), "--explain", "one of them"),
        ((STACK, "--json", "--out", "x.json"), "--out", "the policy alone"),
    ],
)
def test_bad_input_names_place_allowed_values_and_the_fix(words: tuple[str, ...], place: str, allowed: str) -> None:
    error = refusal(*words)
    assert error.place.startswith(place)
    assert allowed in str(error.allowed)
    assert error.fix


def test_providers_without_policies_are_refused() -> None:
    error = refusal(STACK.replace("aws-g5-dev", "hosts-lab"))
    assert (error.place, error.value, error.allowed) == ("gangway:provider", "hosts", "aws, gcp, azure")
    assert "SSH" in error.problem


def test_google_and_azure_get_one_role_each() -> None:
    role, notes = run(STACK.replace("aws-g5-dev", "gcp-a3-spot"))
    included = json.loads(role)["includedPermissions"]
    assert {"compute.networks.create", "compute.networks.delete"} <= {*included}
    assert not any(each.startswith("billing.") for each in included)
    assert "on the billing account" in notes
    assert "billing.budgets.create" in notes
    role, notes = run(STACK.replace("aws-g5-dev", "azure-nc-dev"), "--for", "bench")
    content = json.loads(role)
    assert "Microsoft.Network/virtualNetworks/write" in content["Actions"]
    assert content["DataActions"] == ["Microsoft.Storage/storageAccounts/blobServices/containers/blobs/read"]
    assert content["AssignableScopes"][0].startswith("/subscriptions/")
    assert "lets the caller grant any role" in notes
