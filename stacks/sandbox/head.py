"""Sandbox handlers: a single machine with its DNS name, and the container image that it pulls.

Images are not AWS's and moto builds none: what can be checked here is that the build would find its files.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stacks.sandbox.aws import Aws, one
from stacks.sandbox.rows import Applied
from stacks.sandbox.wire import Wire

__all__ = ["HANDLERS"]

# Where the program runs under the engine, and so what a relative build context starts from.
PROGRAM_FOLDER = Path(__file__).resolve().parent.parent
# What DescribeInstances of moto (or of EC2 itself: the user data) does not tell.
UNKEPT = (
    "InstanceInitiatedShutdownBehavior",
    "MaintenanceOptions",
    "MetadataOptions",
    "UserData",
)


def _instance(aws: Aws, wire: Wire) -> Applied:
    wire.skip("userDataReplaceOnChange")
    labels = {"instance": wire.tags(), "volume": {"Tags": _listed(wire.take("volumeTags").get("volumeTags", {}))}}
    network = wire.take("subnetId", "vpcSecurityGroupIds", "associatePublicIpAddress")
    inputs = {
        **wire.rest(),
        "minCount": 1,
        "maxCount": 1,
        "networkInterfaces": [
            {
                "deviceIndex": 0,
                "subnetId": network["subnetId"],
                "groups": network["vpcSecurityGroupIds"],
                "associatePublicIpAddress": network["associatePublicIpAddress"],
            }
        ],
        "tagSpecifications": [
            {"ResourceType": kind, "Tags": tags["Tags"]} for kind, tags in labels.items() if tags.get("Tags")
        ],
    }
    parameters = aws.request("ec2", "RunInstances", inputs, id="LaunchTemplateId", userDataBase64="UserData")
    made = one(aws.call("ec2", "RunInstances", parameters)["Instances"])
    id_ = made["InstanceId"]

    def held() -> Mapping[str, Any]:
        (reservation,) = aws.read("ec2", "DescribeInstances", {"InstanceIds": [id_]})["Reservations"]
        instance = one(reservation["Instances"])
        (interface,) = instance["NetworkInterfaces"]
        return {**instance, "SecurityGroups": interface["Groups"]}

    wrapped = {"MinCount", "MaxCount", "NetworkInterfaces", "TagSpecifications", "LaunchTemplate"}
    declared = {
        **{key: value for key, value in parameters.items() if key not in wrapped},
        "SubnetId": network["subnetId"],
        "SecurityGroups": [{"GroupId": group} for group in network["vpcSecurityGroupIds"]],
        **wire.tags(),
    }
    outputs = wire.outputs(privateIp=made["PrivateIpAddress"])
    return Applied(id_, outputs, declared, held, unkept=UNKEPT, note="its AMI stays unresolved")


def _listed(tags: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"Key": key, "Value": value} for key, value in tags.items()]


def _record(aws: Aws, wire: Wire) -> Applied:
    inputs = wire.take("zoneId", "name", "type", "ttl", "records")
    values = [{"Value": value} for value in inputs["records"]]
    declared = {"Name": inputs["name"], "Type": inputs["type"], "TTL": int(inputs["ttl"]), "ResourceRecords": values}
    batch = {"Changes": [{"Action": "CREATE", "ResourceRecordSet": declared}]}
    aws.call("route53", "ChangeResourceRecordSets", {"HostedZoneId": inputs["zoneId"], "ChangeBatch": batch})

    def held() -> Mapping[str, Any]:
        sets = aws.read("route53", "ListResourceRecordSets", {"HostedZoneId": inputs["zoneId"]})["ResourceRecordSets"]
        found = one([entry for entry in sets if entry["Type"] == declared["Type"]])
        return {**found, "Name": found["Name"].rstrip(".")} if found else {}

    return Applied(f"{inputs['zoneId']}_{inputs['name']}", wire.outputs(), declared, held)


def _image(aws: Aws, wire: Wire) -> Applied:
    """Checks that every file the Dockerfile copies from its context is there; builds nothing."""
    wire.rest()
    context = PROGRAM_FOLDER / wire.inputs["context"]["location"]
    sources = re.findall(r"^COPY (?!--from)(\S+) ", wire.inputs["dockerfile"]["inline"], re.MULTILINE)
    missing = [source for source in sources if not (context / source).exists()]
    assert not missing, f"the Dockerfile copies what is not in its context: {missing}"
    note = f"nothing is built without a container builder; {', '.join(sources)} are in the build context"
    return Applied(wire.name, wire.outputs(digest=f"sha256:{'0' * 64}", ref=""), note=note)


HANDLERS = {
    "aws:ec2/instance:Instance": _instance,
    "aws:route53/record:Record": _record,
    "docker-build:index:Image": _image,
}
