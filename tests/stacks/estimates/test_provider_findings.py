"""What was copied from an example is told, in the stacks that come with Gangway too; real values are not."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from gangway.components.core.findings import Finding, Severity
from gangway.components.estimate.cost import load_billing
from gangway.stacks.config.sections import EstimateConfig
from gangway.stacks.config.stack_config import StackConfig
from gangway.stacks.estimates.provider_findings import (
    CODE,
    Coverage,
    coverage,
    example_kind,
    placeholder_findings,
    region_limit_findings,
    resource_findings,
    unpriced,
)
from gangway.stacks.estimates.usage_costs import BILLED_SETTINGS
from gangway.stacks.loading.loader import from_file
from gangway.stacks.plan.plan import Plan, make_plan
from gangway.stacks.recording import PlannedResource


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


Edited = Callable[[Callable[[dict[str, Any]], object]], StackConfig]
SHIPPED = sorted((Path(__file__).resolve().parents[3] / "stacks").glob("Pulumi.*.yaml"))
US = {"residency": ["US"]}


def with_regions(config: StackConfig, **limits: Any) -> StackConfig:
    regions = type(config.regions).model_validate(limits)
    return config.model_copy(update={"regions": regions})


def resource(kind: str, **inputs: Any) -> PlannedResource:
    return PlannedResource(urn="urn", type=kind, name="it", parent="", custom=True, inputs=inputs, id="")


def of_code(findings: Any) -> list[Finding]:
    return [finding for finding in findings if finding.code == CODE]


@pytest.mark.slow
@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_a_shipped_stack_is_where_it_says_and_nowhere_else(path: Path, tmp_path: Path) -> None:
    """Every region in every resource is held against the limits: none of them may look like another place."""
    values = yaml.safe_load(path.read_text("utf-8"))
    provider = values["config"].get("gangway:provider", "aws")
    own = f"{provider}:{values['config']['gangway:region']}"
    copy = tmp_path / path.name
    for limits, refused in (({"allow": [own]}, []), ({"deny": [own]}, ["gangway:region"])):
        values["config"]["gangway:regions"] = limits
        copy.write_text(yaml.safe_dump(values))
        plan = make_plan(from_file(copy))
        assert [finding.path for finding in of_code(plan.findings)] == refused
        assert not refused or plan.has_errors


def test_no_limits_say_nothing(demo_config: StackConfig) -> None:
    assert list(region_limit_findings(demo_config)) == []
    assert list(resource_findings(demo_config, [resource("aws:s3/bucket:Bucket", region="eu-west-1")])) == []


@pytest.mark.parametrize(
    ("limits", "refused"),
    [
        ({"residency": ["EU"]}, True),
        ({"residency": ["EU", "US"]}, False),
        ({"allow": ["aws:us-"]}, False),
        ({"allow": ["aws:us-"], "deny": ["aws:us-east-2"]}, True),
        ({"allow": ["gcp:"]}, True),
        ({"deny": ["aws:eu-"]}, False),
    ],
)
def test_the_stacks_own_region(demo_config: StackConfig, limits: dict[str, Any], refused: bool) -> None:
    found = of_code(region_limit_findings(with_regions(demo_config, **limits)))
    assert [(each.severity, each.path, bool(each.fix)) for each in found] == (
        [(Severity.ERROR, "gangway:region", True)] if refused else []
    )


def test_the_bucket_that_data_are_copied_from(edited: Edited) -> None:
    def change(values: dict[str, Any]) -> None:
        values["gangway:storage"]["source"] = "s3://my-bucket/celeba"
        values["gangway:regions"] = US

    def told(region: str | None) -> list[tuple[str, Severity]]:
        config = edited(change)
        estimate = config.estimate.model_copy(update={"source_region": region})
        found = region_limit_findings(config.model_copy(update={"estimate": estimate}))
        return [(finding.code, finding.severity) for finding in found]

    assert told("eu-west-1") == [(CODE, Severity.ERROR)]
    assert told("us-west-2") == []
    assert told("us-east-2") == [], "the stack's own"
    assert told("nowhere-1") == [(CODE, Severity.ERROR)], "nobody knows where it is"
    assert told(None) == [("regions.source-unsaid", Severity.WARNING)]


@pytest.mark.parametrize(
    ("name", "kind", "inputs", "refused"),
    [
        ("aws-demo", "aws:s3/bucketV2:BucketV2", {"region": "eu-west-1"}, True),
        ("aws-demo", "aws:ec2/amiCopy:AmiCopy", {"sourceAmiRegion": "x", "sourceRegion": "eu-west-1"}, True),
        ("aws-demo", "aws:ec2/subnet:Subnet", {"availabilityZone": "eu-west-1a"}, True),
        ("aws-demo", "aws:ec2/subnet:Subnet", {"availabilityZone": "us-west-2c"}, False),
        ("aws-demo", "aws:ec2/subnet:Subnet", {"availabilityZone": "${Zone.it.name}"}, False),
        ("aws-demo", "docker-build:index:Image", {"context": {"location": ".."}}, False),
        ("gcp-a3-spot", "gcp:storage/bucket:Bucket", {"location": "EU"}, True),
        ("gcp-a3-spot", "gcp:compute/snapshot:Snapshot", {"storageLocations": ["us-east1", "europe-west4"]}, True),
        ("gcp-a3-spot", "gcp:compute/snapshot:Snapshot", {"storageLocations": ["us-east1"]}, False),
        ("gcp-a3-spot", "gcp:compute/instance:Instance", {"zone": "us-east5-a"}, False),
        ("gcp-a3-spot", "gcp:compute/instance:Instance", {"zone": "europe-west4-b"}, True),
        ("azure-ndv4", "azure-native:storage:StorageAccount", {"location": "East US 2"}, False),
        ("azure-ndv4", "azure-native:storage:StorageAccount", {"location": "West Europe"}, True),
        ("azure-ndv4", "azure-native:storage:StorageAccount", {"location": "westus4"}, True),
        ("azure-ndv4", "azure-native:compute:Disk", {"zones": ["1"], "location": "westus2"}, False),
        ("azure-ndv4", "azure-native:monitor:ActionGroup", {"location": "Global"}, False),
        ("openstack-gpu", "openstack:objectstorage/container:Container", {"region": "RegionTwo"}, True),
    ],
)
def test_what_resources_say(repo: Path, name: str, kind: str, inputs: dict[str, Any], refused: bool) -> None:
    config = with_regions(from_file(repo / "stacks" / f"Pulumi.{name}.yaml"), **US)
    found = list(resource_findings(config, [resource(kind, **inputs)]))
    assert [finding.severity for finding in found] == ([Severity.ERROR] if refused else [])


def test_another_region_is_proposed_only_within_the_limits(repo: Path, tmp_path: Path) -> None:
    path = tmp_path / "Pulumi.dirty.yaml"
    text = (repo / "stacks" / "Pulumi.gcp-a3-spot.yaml").read_text("utf-8")
    path.write_text(f"{text}  gangway:regions: {{allow: ['gcp:us-'], residency: [US]}}\n")
    (finding,) = [each for each in make_plan(from_file(path)).findings if each.code == "region.carbon-intensity"]
    assert " --allow gcp:us- --residency US` ranks" in finding.fix


def test_a_site_says_its_country(repo: Path) -> None:
    bare = from_file(repo / "stacks" / "Pulumi.hosts-lab.yaml")
    assert bare.site is not None
    for country, refused in (("DE", False), ("US", True), (None, True)):
        site = bare.site.model_copy(update={"country": country})
        config = with_regions(bare.model_copy(update={"site": site}), residency=["EU"])
        found = of_code(region_limit_findings(config))
        assert bool(found) == refused
        assert country is not None or "gangway:site.country" in found[0].fix


FILES = sorted((Path(__file__).resolve().parents[3] / "stacks").glob("Pulumi.*.yaml"))


def planned(kind: str, name: str = "it") -> PlannedResource:
    return PlannedResource(urn=f"urn::{kind}::{name}", type=kind, name=name, parent="", custom=True, inputs={}, id="")


@pytest.mark.slow
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_nothing_of_a_shipped_stack_is_left_out(path: Path) -> None:
    made = make_plan(from_file(path))
    found = coverage(made.resources, made.cost.components)
    assert [key for key, what in found.items() if what is Coverage.NOWHERE] == []
    assert [finding for finding in made.findings if finding.code == "cost.not-covered"] == []
    unknown = {line.name for line in made.cost.components if line.hourly is None and not line.standby}
    warned = [finding.message for finding in made.findings if finding.code == "cost.price-unknown"]
    assert all(any(name in message for message in warned) for name in unknown)
    assert Counter(found.values())[Coverage.FREE] > 0


def test_what_nobody_knows_anything_of_is_warned_of(demo_plan: Plan) -> None:
    new = [planned("aws:rds/instance:Instance", name) for name in ("a", "b")]
    (finding,) = unpriced([*demo_plan.resources, *new], demo_plan.cost.components)
    assert finding.code == "cost.not-covered"
    assert finding.message.endswith("2 x aws:rds/instance:Instance")


def test_an_endpoint_without_its_line_is_not_free() -> None:
    endpoint = planned("aws:ec2/vpcEndpoint:VpcEndpoint")
    endpoint.inputs["vpcEndpointType"] = "Interface"
    assert list(coverage([endpoint], []).values()) == [Coverage.NOWHERE]
    assert list(coverage([planned("gangway:aws:RunBucket"), planned("pulumi:providers:aws")], [])) == []


def test_settings_that_pay_for_a_type_are_the_estimates() -> None:
    named = {setting for row in load_billing().by_use for setting in row.settings}
    assert named <= set(BILLED_SETTINGS) <= set(EstimateConfig.model_fields)
    assert {"run_bucket_gib", "image_gib", "flow_log_gib", "key_operations", "log_gib"} <= named
