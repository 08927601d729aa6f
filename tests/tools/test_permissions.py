"""The tables of permissions follow the decisions that tools/permissions reads, and how it reads sources."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from gangway.components.catalog.permissions import load_permissions
from tools.permissions import aws, azure, gcp

DECISIONS = {"aws": aws.DECISIONS, "gcp": gcp.DECISIONS, "azure": azure.DECISIONS}


def decisions(provider: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(DECISIONS[provider].read_text("utf-8"))
    return found


@pytest.mark.parametrize("provider", sorted(DECISIONS))
def test_the_table_has_what_is_added_by_hand(provider: str) -> None:
    table = load_permissions(provider)
    for entry in decisions(provider)["added"]:
        for kind in entry["types"]:
            verb = entry.get("verb", "create")
            found = {(each.action, each.verb, each.why) for each in table.types[kind].added}
            assert (entry["action"], verb, entry["why"]) in found, f"{kind}: run tools.permissions again"


def test_unused_requests_are_left_out_with_a_reason() -> None:
    table = load_permissions("aws")
    for kind, entry in decisions("aws")["unused"].items():
        assert entry["why"]
        each = table.types[kind]
        assert not {*entry["actions"]} & {*each.create, *each.read, *each.update, *each.delete}, kind


def test_requests_are_found_through_functions_and_methods(tmp_path: Path) -> None:
    service = tmp_path / "index/internal/service/ec2"
    service.mkdir(parents=True)
    (tmp_path / "index/resources").mkdir()
    head = 'package x\nimport (\n\t"context"\n)\n'
    entry = {
        "namespace": "github.com/x/internal/service/ec2",
        "struct_type": "thing",
        "create_index": "method.thing.Create.goindex",
    }
    (tmp_path / "index/resources/aws_thing.json").write_text(json.dumps(entry))
    clients = "conn := r.Meta().EC2Client(ctx)\n iamconn := r.Meta().IAMClient(ctx)\n"
    create = f"{clients} conn.CreateThing(ctx, &in)\n r.wait(ctx, conn)\n"
    (service / "method.thing.Create.goindex").write_text(f"{head}{create}iamconn.GetRole(ctx)\n")
    (service / "method.thing.wait.goindex").write_text(f"{head}func x(conn *ec2.Client) {{ findThings(ctx, conn) }}\n")
    (service / "func.findThings.goindex").write_text(f"{head}pages := ec2.NewDescribeThingsPaginator(conn, in)\n")
    (service / "func.updateTags.goindex").write_text(f"{head}func x(conn *ec2.Client) {{ conn.CreateTags(ctx) }}\n")
    git = ["git", "-C", str(tmp_path), "-c", "user.name=x", "-c", "user.email=x@example.com"]
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "sources"]):
        subprocess.run([*git, *words], check=True)
    found = aws.Sources(tmp_path / ".git").requests("aws_thing", tagged=True)
    assert found["create"] == {("ec2", "CreateThing"), ("ec2", "DescribeThings"), ("iam", "GetRole")}
    assert found["update"] == {("ec2", "CreateTags")}
    assert found["delete"] == set()


def test_a_type_is_read_from_a_url() -> None:
    types = azure.client_types()
    assert {"microsoft.compute/virtualmachines", "microsoft.storage/storageaccounts/blobservices/containers"} <= types


def test_methods_are_read_from_a_discovery_document() -> None:
    assert {"compute.networks.insert", "compute.instances.delete"} <= gcp.methods("compute.v1")
