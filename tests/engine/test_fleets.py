"""Ec2Fleet and SpotFleet under the real Pulumi engine: they come up, stay as they are, change their size, and go."""

import json
from collections.abc import Callable
from typing import Any

import pytest

pytestmark = pytest.mark.engine

FLEET = "aws:ec2/fleet:Fleet"
SPOT_FLEET = "aws:ec2/spotFleetRequest:SpotFleetRequest"
PROGRAM = """
import json
from pathlib import Path

import pulumi
from pulumi_aws import ec2, iam

from gangway.components.aws.fleets import Ec2Fleet, SpotFleet

args = json.loads(Path("args.json").read_text())
vpc = ec2.Vpc("net", cidr_block="10.7.0.0/16")
zones = {"us-east-2a": "10.7.0.0/20", "us-east-2b": "10.7.16.0/20"}
subnets = {
    zone: ec2.Subnet(zone, vpc_id=vpc.id, cidr_block=cidr, availability_zone=zone).id for zone, cidr in zones.items()
}
template = ec2.LaunchTemplate("node", image_id="ami-12345678", instance_type="g5.xlarge")
fleet = {
    "num_nodes": args["num_nodes"],
    "templates": [
        {
            "launch_template_id": template.id,
            "launch_template_version": template.latest_version.apply(str),
            "machine_types": ["g5.xlarge", "g5.2xlarge"],
        }
    ],
    "subnet_ids": subnets,
    "tags": {"team": "ml"},
}
allocation = args["allocation"]
spot = Ec2Fleet("spot", {**fleet, "market": "spot", "max_usd_per_hour": 2, "allocation": allocation})
Ec2Fleet("on-demand", {**fleet, "market": "on-demand"})
role = iam.Role("fleet", assume_role_policy=json.dumps({"Version": "2012-10-17", "Statement": []}))
old = SpotFleet("old", {**fleet, "fleet_role_arn": role.arn, "max_usd_per_hour": 2, "allocation": allocation})
pulumi.export("fleets", [spot.fleet_id, old.fleet_id])
"""


@pytest.fixture
def engine(make_program_engine: Callable[[str, dict[str, Any]], Any]) -> Any:
    return make_program_engine(PROGRAM, {"num_nodes": 2, "allocation": "lowest-price"})


def change(engine: Any, **changes: Any) -> None:
    file = engine.project / "args.json"
    file.write_text(json.dumps({**json.loads(file.read_text("utf-8")), **changes}), "utf-8")


def fleets(engine: Any) -> dict[str, dict[str, Any]]:
    """The fleets in the cloud, by id."""
    return {resource["id"]: resource for resource in engine.resources() if resource["type"] in (FLEET, SPOT_FLEET)}


def answer_as_ec2_does(engine: Any) -> None:
    """EC2 reports a number of pools that nobody has set."""
    for file in engine.cloud.glob("*.json"):
        resource = json.loads(file.read_text("utf-8"))
        if resource["type"] == FLEET and "spotOptions" in resource["inputs"]:
            for side in ("inputs", "outputs"):
                resource[side]["spotOptions"]["instancePoolsToUseCount"] = 0
            file.write_text(json.dumps(resource), "utf-8")


def test_fleets_live_and_leave_nothing_behind(engine: Any) -> None:
    """One life for all phases: each `up` from nothing would cost as much as all of them."""
    preview = engine.run("preview")
    assert preview.status == 0, preview.text
    up = engine.applied("up")
    assert up.types("create") == preview.types("create") > {FLEET, SPOT_FLEET, "gangway:aws:Ec2Fleet"}
    made = fleets(engine)
    assert sorted(fleet["type"] for fleet in made.values()) == [FLEET, FLEET, SPOT_FLEET]
    assert set(json.loads(engine.plain("stack", "output", "--json", "--show-secrets"))["fleets"]) < set(made)

    assert set(engine.applied("up", "--expect-no-changes").changes) == {"same"}
    engine.applied("refresh", "--expect-no-changes")

    answer_as_ec2_does(engine)
    engine.applied("refresh")
    assert set(engine.applied("up", "--expect-no-changes").changes) == {"same"}, "a default is no reason to replace"

    change(engine, num_nodes=4)
    assert engine.applied("up").types("update") == {FLEET, SPOT_FLEET}
    assert fleets(engine).keys() == made.keys(), "another size is no reason to end nodes"

    change(engine, allocation="capacity-optimized")
    replaced = engine.applied("up")
    assert replaced.types("replace") == {FLEET, SPOT_FLEET}
    assert len(fleets(engine).keys() & made.keys()) == 1, "on demand there is nothing to choose"

    engine.applied("destroy")
    assert engine.resources() == []


def test_a_mistake_is_named_and_makes_no_fleet(engine: Any) -> None:
    change(engine, allocation="capacity-optimised")
    outcome = engine.run("up", "--yes", "--skip-preview")
    assert outcome.status != 0
    assert "did you mean 'capacity-optimized'?" in outcome.text
    assert fleets(engine) == {}
