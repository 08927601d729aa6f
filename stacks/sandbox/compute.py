"""Sandbox handlers: placement groups and launch templates, as EC2 requests."""

from collections.abc import Mapping
from typing import Any

from stacks.sandbox.aws import Aws, expected, one, tag_specifications
from stacks.sandbox.rows import Applied
from stacks.sandbox.wire import Wire

__all__ = ["HANDLERS"]


def _placement_group(aws: Aws, wire: Wire) -> Applied:
    name = wire.physical_name()
    inputs = {"groupName": name, **wire.take("strategy", "partitionCount", "spreadLevel")}
    parameters = {
        **aws.request("ec2", "CreatePlacementGroup", inputs),
        **tag_specifications("placement-group", wire),
    }
    aws.validate("ec2", "CreatePlacementGroup", parameters)
    note = "moto has no CreatePlacementGroup: botocore checked and serialized the request"
    return Applied(name, wire.outputs(name=name), note=note)


def _launch_template(aws: Aws, wire: Wire) -> Applied:
    # The provider makes each new version the default one; the first is so by itself.
    wire.skip("updateDefaultVersion")
    name = wire.physical_name()
    tags = tag_specifications("launch-template", wire)
    inputs = {"launchTemplateName": name, "launchTemplateData": wire.rest()}
    parameters = {**aws.request("ec2", "CreateLaunchTemplate", inputs, securityGroups="Groups"), **tags}
    template = aws.call("ec2", "CreateLaunchTemplate", parameters)["LaunchTemplate"]
    id_ = template["LaunchTemplateId"]

    def held() -> Mapping[str, Any]:
        about = one(aws.read("ec2", "DescribeLaunchTemplates", {"LaunchTemplateIds": [id_]})["LaunchTemplates"])
        question = {"LaunchTemplateId": id_, "Versions": ["$Default"]}
        version = one(aws.read("ec2", "DescribeLaunchTemplateVersions", question)["LaunchTemplateVersions"])
        return {**about, "LaunchTemplateData": _without_own_tags(version["LaunchTemplateData"])}

    return Applied(id_, wire.outputs(name=name, latestVersion=1), expected(parameters, wire), held)


def _without_own_tags(data: Mapping[str, Any]) -> dict[str, Any]:
    """Moto adds the template's own tags to those of what it launches; EC2 keeps the two apart."""
    specifications = [tag for tag in data.get("TagSpecifications", []) if tag["ResourceType"] != "launch-template"]
    return {**data, "TagSpecifications": specifications}


HANDLERS = {
    "aws:ec2/placementGroup:PlacementGroup": _placement_group,
    "aws:ec2/launchTemplate:LaunchTemplate": _launch_template,
}
