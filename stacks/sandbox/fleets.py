"""Sandbox handlers: EC2 Fleets, Spot Fleets, and the purchase of a capacity block, as EC2 requests."""

from collections.abc import Mapping
from typing import Any

from stacks.sandbox.aws import Aws, expected, one, tag_specifications
from stacks.sandbox.rows import Applied
from stacks.sandbox.wire import Wire

__all__ = ["HANDLERS"]


def _spot_fleet(aws: Aws, wire: Wire) -> Applied:
    wire.skip("terminateInstancesOnDelete", "waitForFulfillment")
    tags = tag_specifications("spot-fleet-request", wire)
    config = aws.request(
        "ec2",
        "RequestSpotFleet",
        {"spotFleetRequestConfig": wire.rest()},
        fleetType="Type",
        instanceInterruptionBehaviour="InstanceInterruptionBehavior",
        id="LaunchTemplateId",
    )["SpotFleetRequestConfig"]
    id_ = aws.call("ec2", "RequestSpotFleet", {"SpotFleetRequestConfig": {**config, **tags}})["SpotFleetRequestId"]

    def held() -> Mapping[str, Any]:
        question = {"SpotFleetRequestIds": [id_]}
        fleet = one(aws.read("ec2", "DescribeSpotFleetRequests", question)["SpotFleetRequestConfigs"])
        return {**fleet["SpotFleetRequestConfig"], "Tags": fleet["Tags"]} if fleet else {}

    # Moto makes one launch specification of each template, with its first override, and answers with those.
    firsts = [launch["Overrides"][0] for launch in config["LaunchTemplateConfigs"]]
    launches = [{"InstanceType": item["InstanceType"], "SubnetId": item["SubnetId"]} for item in firsts]
    further = sum(len(launch["Overrides"]) - 1 for launch in config["LaunchTemplateConfigs"])
    return Applied(
        id_,
        wire.outputs(),
        {**config, "LaunchSpecifications": launches, **wire.tags()},
        held,
        unkept=("Type", "InstanceInterruptionBehavior", "TerminateInstancesWithExpiration", "LaunchTemplateConfigs"),
        note=f"moto keeps the first override of each template, {further} more were sent" if further else "",
    )


def _fleet(aws: Aws, wire: Wire) -> Applied:
    # What becomes of the nodes when the fleet is deleted is said in that later request.
    wire.skip("terminateInstances")
    tags = tag_specifications("fleet", wire)
    inputs = wire.rest()
    for options in ("spotOptions", "onDemandOptions"):
        if inputs.get(options, {}).get("allocationStrategy") == "lowestPrice":
            # The provider keeps EC2's older spelling; EC2 takes both, botocore's model knows the newer.
            inputs[options] = {**inputs[options], "allocationStrategy": "lowest-price"}
    parameters = {**aws.request("ec2", "CreateFleet", inputs), **tags}
    id_ = aws.call("ec2", "CreateFleet", parameters)["FleetId"]

    def held() -> Mapping[str, Any]:
        return one(aws.read("ec2", "DescribeFleets", {"FleetIds": [id_]})["Fleets"])

    return Applied(id_, wire.outputs(), expected(parameters, wire), held)


def _capacity_block(aws: Aws, wire: Wire) -> Applied:
    # The provider tags what the purchase makes, which is a capacity reservation.
    tags = tag_specifications("capacity-reservation", wire)
    parameters = {**aws.request("ec2", "PurchaseCapacityBlock", wire.rest()), **tags}
    aws.validate("ec2", "PurchaseCapacityBlock", parameters)
    note = "moto has no PurchaseCapacityBlock: botocore checked and serialized the request, nothing was bought"
    return Applied(f"cr-{'0' * 17}", wire.outputs(), note=note)


HANDLERS = {
    "aws:ec2/capacityBlockReservation:CapacityBlockReservation": _capacity_block,
    "aws:ec2/fleet:Fleet": _fleet,
    "aws:ec2/spotFleetRequest:SpotFleetRequest": _spot_fleet,
}
