"""What a plan says of a stack that is, or whose data or resources are, where its file does not allow it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from gangway.components.core.findings import Finding, Severity
from gangway.stacks.config.stack_config import StackConfig
from gangway.stacks.estimates.region_limits import CODE, region_findings, resource_findings
from gangway.stacks.loading.loader import from_file
from gangway.stacks.plan.plan import make_plan
from gangway.stacks.recording import PlannedResource

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
    assert list(region_findings(demo_config)) == []
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
    found = of_code(region_findings(with_regions(demo_config, **limits)))
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
        found = region_findings(config.model_copy(update={"estimate": estimate}))
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
        found = of_code(region_findings(config))
        assert bool(found) == refused
        assert country is not None or "gangway:site.country" in found[0].fix
