"""Ec2Fleet and SpotFleet: every template in every zone, the words each resource knows, and nothing left behind."""

from typing import Any

import pulumi
import pytest

from gangway.components.aws.fleets import Ec2Fleet, SpotFleet
from gangway.components.core.findings import InputError
from tests.components.fixture_types import Make

POOLS = {
    "lt-1": [
        ("p4d.24xlarge", "subnet-1"),
        ("p4d.24xlarge", "subnet-2"),
        ("p4de.24xlarge", "subnet-1"),
        ("p4de.24xlarge", "subnet-2"),
    ],
    "lt-2": [("p5.48xlarge", "subnet-1"), ("p5.48xlarge", "subnet-2")],
}


def spread(configs: list[dict[str, Any]], id_key: str) -> dict[str, list[tuple[str, str]]]:
    """Machine types and subnets of every template, as declared."""
    return {
        config["launchTemplateSpecification"][id_key]: [(o["instanceType"], o["subnetId"]) for o in config["overrides"]]
        for config in configs
    }


def test_the_spot_fleet_spreads_over_templates_and_zones(make: Make) -> None:
    fleet = make(SpotFleet).one("SpotFleetRequest").inputs
    expected = {
        "allocationStrategy": "priceCapacityOptimized",
        "targetCapacity": 2,
        "spotPrice": "23.125",
        "fleetType": "maintain",
        "terminateInstancesOnDelete": "true",
        "instanceInterruptionBehaviour": "terminate",
        "waitForFulfillment": False,
        "iamFleetRole": "arn:aws:iam::1:role/fleet",
    }
    assert {key: fleet[key] for key in expected} == expected
    assert spread(fleet["launchTemplateConfigs"], "id") == POOLS
    assert [c["launchTemplateSpecification"]["version"] for c in fleet["launchTemplateConfigs"]] == ["1", "3"]


def test_the_ec2_fleet_maintains_spot_nodes(make: Make) -> None:
    fleet = make(Ec2Fleet).one("Fleet").inputs
    expected = {
        "type": "maintain",
        "targetCapacitySpecification": {"defaultTargetCapacityType": "spot", "totalTargetCapacity": 2},
        "spotOptions": {"allocationStrategy": "capacity-optimized", "instanceInterruptionBehavior": "terminate"},
        "terminateInstances": True,
        "replaceUnhealthyInstances": False,
    }
    assert {key: fleet[key] for key in expected} == expected
    assert "onDemandOptions" not in fleet
    assert spread(fleet["launchTemplateConfigs"], "launchTemplateId") == POOLS
    assert {o["maxPrice"] for config in fleet["launchTemplateConfigs"] for o in config["overrides"]} == {"23.125"}


def test_a_default_that_ec2_does_not_keep_replaces_no_fleet(declare: Make, fleet_args: dict[str, Any]) -> None:
    ignored: dict[str, list[str]] = {}

    def look(args: pulumi.ResourceTransformationArgs) -> None:
        ignored[args.type_] = args.opts.ignore_changes or []

    args: Any = {**fleet_args, "market": "spot"}
    declare(lambda: Ec2Fleet("demo", args, pulumi.ResourceOptions(transformations=[look])))
    assert ignored["aws:ec2/fleet:Fleet"] == ["spotOptions.instancePoolsToUseCount"]


def test_the_ec2_fleet_maintains_on_demand_nodes(declare: Make, fleet_args: dict[str, Any]) -> None:
    args: Any = {**fleet_args, "market": "on-demand"}
    fleet = declare(lambda: Ec2Fleet("demo", args)).one("Fleet").inputs
    assert fleet["targetCapacitySpecification"]["defaultTargetCapacityType"] == "on-demand"
    assert fleet["onDemandOptions"] == {"allocationStrategy": "lowestPrice"}
    assert "spotOptions" not in fleet
    assert not any("maxPrice" in o for config in fleet["launchTemplateConfigs"] for o in config["overrides"])


@pytest.mark.parametrize("component", [SpotFleet, Ec2Fleet])
def test_a_fleet_keeps_to_its_zones(make: Make, component: type[SpotFleet | Ec2Fleet]) -> None:
    (fleet,) = (r for r in make(component, zones=["us-east-2b"]).resources if r.type.startswith("aws:"))
    subnets = {o["subnetId"] for config in fleet.inputs["launchTemplateConfigs"] for o in config["overrides"]}
    assert subnets == {"subnet-2"}
    with pytest.raises(InputError, match="no subnet is given for this zone") as caught:
        make(component, zones=["us-east-2b", "us-east-2c"])
    assert (caught.value.place, caught.value.value) == ("zones[1]", "us-east-2c")
    assert caught.value.allowed == "us-east-2a, us-east-2b"


@pytest.mark.parametrize(
    ("component", "word", "spelled"),
    [
        (SpotFleet, "price-capacity-optimized", "priceCapacityOptimized"),
        (SpotFleet, "capacity-optimized", "capacityOptimized"),
        (SpotFleet, "lowest-price", "lowestPrice"),
        (Ec2Fleet, "capacity-optimized", "capacity-optimized"),
        (Ec2Fleet, "lowest-price", "lowestPrice"),
    ],
)
def test_each_resource_has_its_own_spelling(
    make: Make, component: type[SpotFleet | Ec2Fleet], word: str, spelled: str
) -> None:
    (fleet,) = (r for r in make(component, allocation=word).resources if r.type.startswith("aws:"))
    said = fleet.inputs.get("allocationStrategy") or fleet.inputs["spotOptions"]["allocationStrategy"]
    assert said == spelled


@pytest.mark.parametrize(
    ("changes", "place", "fix"),
    [
        ({"allocation": "price-capacity-optimized"}, "allocation", "did you mean 'capacity-optimized'?"),
        ({"market": "spott"}, "market", "did you mean 'spot'?"),
        ({"market": "on-demand"}, "max_usd_per_hour", "remove max_usd_per_hour"),
        ({"market": "on-demand", "allocation": "lowest-price"}, "allocation", "remove allocation"),
    ],
)
def test_what_an_ec2_fleet_cannot_do_is_refused(make: Make, changes: dict[str, Any], place: str, fix: str) -> None:
    with pytest.raises(InputError) as caught:
        make(Ec2Fleet, **changes)
    assert (caught.value.place, caught.value.fix) == (place, fix)


@pytest.mark.parametrize("component", [SpotFleet, Ec2Fleet])
def test_a_reference_in_place_of_an_ami_is_refused(
    make: Make, fleet_args: dict[str, Any], component: type[SpotFleet | Ec2Fleet]
) -> None:
    """EC2 resolves it for Auto Scaling groups and for fleets of type instant only."""

    def templates(image: str) -> list[dict[str, Any]]:
        first, second = fleet_args["templates"]
        return [first, {**second, "image_id": image}]

    with pytest.raises(InputError, match="resolves no SSM reference") as caught:
        make(component, templates=templates("resolve:ssm:/aws/service/x"))
    assert (caught.value.place, caught.value.value) == ("templates[1].image_id", "resolve:ssm:/aws/service/x")
    assert make(component, templates=templates("ami-0123456789abcdef0")).resources
