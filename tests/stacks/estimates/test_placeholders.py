"""What was copied from an example is told, in the stacks that come with Gangway too; real values are not."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gangway.stacks.config.stack_config import StackConfig
from gangway.stacks.estimates.placeholders import example_kind, placeholder_findings
from gangway.stacks.loading.loader import from_file


@pytest.mark.parametrize(
    "text",
    [
        "ops@example.com",
        "https://cloud.example.org:5000/v3",
        "registry.example.com/gan/trainer",
        "db.corp.invalid",
        "203.0.113.0/24",
        "123456789012.dkr.ecr.us-east-2.amazonaws.com/gan/trainer",
        "arn:aws:iam::111122223333:role/x",
        "cr-0123456789abcdef0",
        "012345-6789AB-CDEF01",
        "11111111-0000-4000-8000-111111111111",
        "my-project",
        "s3://my-bucket/celeba",
        "changeme",
        "REPLACE_ME",
        "<your account>",
        "TODO",
    ],
)
def test_an_example_is_known(text: str) -> None:
    assert example_kind(text)


@pytest.mark.parametrize(
    "text",
    [
        "ops@acme.io",
        "example@acme.com",
        "https://examples.acme.com",
        "10.20.0.11",
        "203.0.114.0/24",
        "210987654321",
        "cr-0a1b2c3d4e5f60718",
        "our-project",
        "my-project-42",
        "army-bucket",
        "9f1c2d3e-1111-4000-8000-1234567890ab",
        "us-east-1",
        "todos",
        "a < b",
    ],
)
def test_a_value_of_somebodys_own_is_none(text: str) -> None:
    assert not example_kind(text)


def test_one_finding_names_all_of_them(edited: Callable[[Callable[[dict[str, Any]], object]], StackConfig]) -> None:
    def change(values: dict[str, Any]) -> None:
        values["gangway:budget"]["emails"] = ["ops@acme.io", "ops@example.com"]
        values["gangway:storage"]["source"] = "s3://my-bucket/digits"
        values["gangway:tags"]["team"] = "my-team"

    (finding,) = placeholder_findings(edited(change))
    assert finding.code == "config.placeholder"
    assert "budget.emails[1]: ops@example.com" in finding.message
    assert "storage.source: s3://my-bucket/digits" in finding.message
    assert "my-team" not in finding.message, "a tag is a label"


LEFT = {
    "aws-demo": 2,
    "aws-g5-dev": 1,
    "aws-p4d-block": 3,
    "aws-p5-slurm": 1,
    "aws-p5-spot": 2,
    "eks-p5-kueue": 1,
    "aks-ndv5": 5,
    "azure-nc-dev": 2,
    "azure-ndv4": 2,
    "azure-ndv5-spot": 5,
    "gcp-a3-spot": 4,
    "gcp-v5e-pod": 3,
    "gcp-v5p-multislice": 5,
    "gke-a3-jobset": 3,
    "gke-tpu-v5e": 3,
    "hosts-lab": 3,
    "hosts-slurm": 1,
    "openstack-gpu": 5,
}
"""Values that whoever takes one of the shipped stacks has to replace."""


@pytest.mark.parametrize("stack", LEFT)
def test_a_shipped_stack_says_what_is_to_be_replaced(stack: str, repo: Path) -> None:
    (finding,) = placeholder_findings(from_file(repo / f"stacks/Pulumi.{stack}.yaml"))
    more = finding.message.partition("; and ")[2].split(" ")[0]
    assert finding.message.count(" (a") + int(more or 0) == LEFT[stack], finding.message
    assert "emails[0]: ml-platform@example.com" in finding.message or int(more) > 0
