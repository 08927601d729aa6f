"""Sandbox handlers: launch templates, fleets, Auto Scaling groups with alarms, single machines and their image, EKS."""

import re
from collections.abc import Mapping
from typing import Any

from gangway.sandbox.aws import Aws, Handler, Wire, expected, find, one, put, tag_specifications
from gangway.sandbox.rows import Applied
from gangway.stacks.config.paths import program_folder


def _launch_template(aws: Aws, wire: Wire) -> Applied:
    # The provider makes each new version the default; the first one is already.
    wire.skip("updateDefaultVersion")
    name = wire.physical_name()
    tags = tag_specifications("launch-template", wire)
    inputs = {"launchTemplateName": name, "launchTemplateData": wire.rest()}
    parameters = {**aws.request("ec2", "CreateLaunchTemplate", inputs, securityGroups="Groups"), **tags}
    template = aws.call("ec2", "CreateLaunchTemplate", parameters)["LaunchTemplate"]
    id_ = template["LaunchTemplateId"]

    def read_back() -> Mapping[str, Any]:
        about = one(aws.read("ec2", "DescribeLaunchTemplates", {"LaunchTemplateIds": [id_]})["LaunchTemplates"])
        question = {"LaunchTemplateId": id_, "Versions": ["$Default"]}
        version = one(aws.read("ec2", "DescribeLaunchTemplateVersions", question)["LaunchTemplateVersions"])
        return {**about, "LaunchTemplateData": _without_own_tags(version["LaunchTemplateData"])}

    return Applied(id_, wire.outputs(name=name, latestVersion=1), expected(parameters, wire), read_back)


def _without_own_tags(data: Mapping[str, Any]) -> dict[str, Any]:
    """Moto merges the template's tags into those of its instances; EC2 does not."""
    specifications = [tag for tag in data.get("TagSpecifications", []) if tag["ResourceType"] != "launch-template"]
    return {**data, "TagSpecifications": specifications}


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

    def read_back() -> Mapping[str, Any]:
        question = {"SpotFleetRequestIds": [id_]}
        fleet = one(aws.read("ec2", "DescribeSpotFleetRequests", question)["SpotFleetRequestConfigs"])
        return {**fleet["SpotFleetRequestConfig"], "Tags": fleet["Tags"]} if fleet else {}

    # Moto makes one launch specification per template, with its first override, and returns those.
    firsts = [launch["Overrides"][0] for launch in config["LaunchTemplateConfigs"]]
    launches = [{"InstanceType": item["InstanceType"], "SubnetId": item["SubnetId"]} for item in firsts]
    further = sum(len(launch["Overrides"]) - 1 for launch in config["LaunchTemplateConfigs"])
    return Applied(
        id_,
        wire.outputs(),
        {**config, "LaunchSpecifications": launches, **wire.tags()},
        read_back,
        unkept=("Type", "InstanceInterruptionBehavior", "TerminateInstancesWithExpiration", "LaunchTemplateConfigs"),
        note=f"moto keeps the first override of each template, {further} more were sent" if further else "",
    )


def _fleet(aws: Aws, wire: Wire) -> Applied:
    # The fate of nodes at the fleet's deletion is in that later request.
    wire.skip("terminateInstances")
    tags = tag_specifications("fleet", wire)
    inputs = wire.rest()
    for options in ("spotOptions", "onDemandOptions"):
        if inputs.get(options, {}).get("allocationStrategy") == "lowestPrice":
            # The provider uses EC2's older spelling; EC2 accepts both, botocore's model only the newer.
            inputs[options] = {**inputs[options], "allocationStrategy": "lowest-price"}
    parameters = {**aws.request("ec2", "CreateFleet", inputs), **tags}
    id_ = aws.call("ec2", "CreateFleet", parameters)["FleetId"]
    declared = expected(parameters, wire)
    return Applied(
        id_, wire.outputs(), declared, lambda: one(aws.read("ec2", "DescribeFleets", {"FleetIds": [id_]})["Fleets"])
    )


# Not returned by moto's DescribeInstances (user data: not by EC2's either).
UNKEPT = ("InstanceInitiatedShutdownBehavior", "MaintenanceOptions", "MetadataOptions", "UserData")


def _instance(aws: Aws, wire: Wire) -> Applied:
    wire.skip("userDataReplaceOnChange")
    tag_list = [{"Key": key, "Value": value} for key, value in wire.take_value("volumeTags", {}).items()]
    labels = {"instance": wire.tags(), "volume": {"Tags": tag_list}}
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
    parameters, answer = aws.create("ec2", "RunInstances", inputs, id="LaunchTemplateId", userDataBase64="UserData")
    made = one(answer["Instances"])
    id_ = made["InstanceId"]

    def read_back() -> Mapping[str, Any]:
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
    return Applied(id_, outputs, declared, read_back, unkept=UNKEPT, note="its AMI stays unresolved")


def _record(aws: Aws, wire: Wire) -> Applied:
    inputs = wire.take("zoneId", "name", "type", "ttl", "records")
    values = [{"Value": value} for value in inputs["records"]]
    declared = {"Name": inputs["name"], "Type": inputs["type"], "TTL": int(inputs["ttl"]), "ResourceRecords": values}
    batch = {"Changes": [{"Action": "CREATE", "ResourceRecordSet": declared}]}
    aws.call("route53", "ChangeResourceRecordSets", {"HostedZoneId": inputs["zoneId"], "ChangeBatch": batch})

    def read_back() -> Mapping[str, Any]:
        sets = aws.read("route53", "ListResourceRecordSets", {"HostedZoneId": inputs["zoneId"]})["ResourceRecordSets"]
        found = find(sets, Type=declared["Type"])
        return {**found, "Name": found["Name"].rstrip(".")} if found else {}

    return Applied(f"{inputs['zoneId']}_{inputs['name']}", wire.outputs(), declared, read_back)


def _image(aws: Aws, wire: Wire) -> Applied:
    """Checks that every file copied by the Dockerfile exists in its context; builds nothing."""
    wire.rest()
    context = program_folder() / wire.inputs["context"]["location"]
    sources = re.findall(r"^COPY (?!--from)(\S+) ", wire.inputs["dockerfile"]["inline"], re.MULTILINE)
    missing = [source for source in sources if not (context / source).exists()]
    assert not missing, f"the Dockerfile copies what is not in its context: {missing}"
    note = f"nothing is built without a container builder; {', '.join(sources)} are in the build context"
    return Applied(wire.name, wire.outputs(digest=f"sha256:{'0' * 64}", ref=""), note=note)


def _group(aws: Aws, wire: Wire) -> Applied:
    wire.skip("waitForCapacityTimeout", "forceDelete")
    name = wire.physical_name()
    suspended = wire.take_value("suspendedProcesses", [])
    metrics = wire.take("enabledMetrics", "metricsGranularity")
    subnets = wire.take_value("vpcZoneIdentifiers", [])
    hooks = _hooks(aws, name, wire)
    sizes = aws.request("autoscaling", "UpdateAutoScalingGroup", wire.take("minSize", "maxSize", "desiredCapacity"))
    parameters = aws.request(
        "autoscaling",
        "CreateAutoScalingGroup",
        {"autoScalingGroupName": name, "vpcZoneIdentifier": ",".join(subnets), **wire.take("tags"), **wire.rest()},
        id="LaunchTemplateId",
    )
    group = {"AutoScalingGroupName": name}
    # The provider's two steps: an empty group gets its hooks, then its nodes.
    aws.call("autoscaling", "CreateAutoScalingGroup", {**parameters, "MinSize": 0, "MaxSize": 0})
    for hook in hooks:
        aws.call("autoscaling", "PutLifecycleHook", hook)
    # Moto drops a mixed policy that an update omits.
    mixed = {key: value for key, value in parameters.items() if key == "MixedInstancesPolicy"}
    aws.call("autoscaling", "UpdateAutoScalingGroup", {**group, **sizes, **mixed})
    if suspended:
        aws.call("autoscaling", "SuspendProcesses", {**group, "ScalingProcesses": suspended})
    collection = aws.request(
        "autoscaling", "EnableMetricsCollection", metrics, enabledMetrics="Metrics", metricsGranularity="Granularity"
    )
    if "Metrics" in collection:
        aws.call("autoscaling", "EnableMetricsCollection", {**group, **collection})

    declared = {
        **parameters,
        **sizes,
        "LifecycleHooks": hooks,
        "SuspendedProcesses": suspended,
        "EnabledMetrics": [f"{name} {collection['Granularity']}" for name in collection.get("Metrics", [])],
    }
    arn = _read_group(aws, name)["AutoScalingGroupARN"]
    return Applied(
        name, wire.outputs(name=name, arn=arn), declared, lambda: _read_group(aws, name), note=_nodes(aws, name)
    )


def _hooks(aws: Aws, group_name: str, wire: Wire) -> list[dict[str, Any]]:
    return [
        aws.request(
            "autoscaling", "PutLifecycleHook", {"autoScalingGroupName": group_name, **hook}, name="LifecycleHookName"
        )
        for hook in wire.take_value("initialLifecycleHooks", [])
    ]


def _read_group(aws: Aws, name: str) -> Mapping[str, Any]:
    question = {"AutoScalingGroupNames": [name]}
    group = one(aws.read("autoscaling", "DescribeAutoScalingGroups", question)["AutoScalingGroups"])
    if not group:
        return {}
    hooks = aws.read("autoscaling", "DescribeLifecycleHooks", {"AutoScalingGroupName": name})
    return {
        **group,
        "LifecycleHooks": hooks["LifecycleHooks"],
        "SuspendedProcesses": [item["ProcessName"] for item in group["SuspendedProcesses"]],
        "EnabledMetrics": [f"{item['Metric']} {item['Granularity']}" for item in group["EnabledMetrics"]],
    }


def _nodes(aws: Aws, group_name: str) -> str:
    """Moto's nodes: it starts them, but without the template's network and AMI."""
    filters = [{"Name": "tag:aws:autoscaling:groupName", "Values": [group_name]}]
    reservations = aws.read("ec2", "DescribeInstances", {"Filters": filters})["Reservations"]
    nodes = [instance for reservation in reservations for instance in reservation["Instances"]]
    if not nodes:
        return ""
    group = _read_group(aws, group_name)
    template = (
        group["LaunchTemplate"]
        if "LaunchTemplate" in group
        else group["MixedInstancesPolicy"]["LaunchTemplate"]["LaunchTemplateSpecification"]
    )
    question = {"LaunchTemplateId": template["LaunchTemplateId"], "Versions": [template["Version"]]}
    version = one(aws.read("ec2", "DescribeLaunchTemplateVersions", question)["LaunchTemplateVersions"])
    declared = version["LaunchTemplateData"].get("NetworkInterfaces", [])
    read_back = sorted({len(node["NetworkInterfaces"]) for node in nodes})
    notes = [f"moto started {len(nodes)} {nodes[0]['InstanceType']}"]
    if read_back != [len(declared)]:
        notes.append(f"with {', '.join(map(str, read_back))} of the template's {len(declared)} network interfaces")
    if nodes[0]["ImageId"].startswith("resolve:"):
        notes.append("and left the AMI reference unresolved, which EC2 resolves at launch")
    return " ".join(notes)


def _policy(aws: Aws, wire: Wire) -> Applied:
    name = wire.physical_name()
    parameters, _ = aws.create("autoscaling", "PutScalingPolicy", {"policyName": name, **wire.rest()})

    def read_back() -> Mapping[str, Any]:
        question = {"AutoScalingGroupName": parameters["AutoScalingGroupName"], "PolicyNames": [name]}
        return one(aws.read("autoscaling", "DescribePolicies", question)["ScalingPolicies"])

    # AWS returns the ARN at once, moto only on request.
    return Applied(name, wire.outputs(name=name, arn=read_back()["PolicyARN"]), parameters, read_back)


def _read_schedule(aws: Aws, sent: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    question = {"AutoScalingGroupName": sent["AutoScalingGroupName"], "ScheduledActionNames": [name]}
    action = one(aws.read("autoscaling", "DescribeScheduledActions", question)["ScheduledUpdateGroupActions"])
    # Boto3 returns a time where the request has text.
    start = {"StartTime": f"{action['StartTime']:%Y-%m-%dT%H:%M:%SZ}"} if "StartTime" in action else {}
    return {**action, **start}


def _metric_alarm(aws: Aws, wire: Wire) -> Applied:
    name = wire.physical_name()
    queries = [_metric_query(query) for query in wire.take_value("metricQueries", [])]
    inputs = {"alarmName": name, **({"metrics": queries} if queries else {}), **wire.tags(), **wire.rest()}
    parameters, _ = aws.create("cloudwatch", "PutMetricAlarm", inputs)
    arn = _read_alarm(aws, name)["AlarmArn"]

    def read_back() -> Mapping[str, Any]:
        tags = aws.read("cloudwatch", "ListTagsForResource", {"ResourceARN": arn})["Tags"]
        return {**_read_alarm(aws, name), "Tags": tags}

    return Applied(name, wire.outputs(name=name, arn=arn), parameters, read_back)


def _metric_query(query: Mapping[str, Any]) -> dict[str, Any]:
    """Pulumi flattens CloudWatch's MetricStat: metric, period and statistic."""
    if "metric" not in query:
        return dict(query)
    stat = ("period", "stat", "unit")
    metric = {key: value for key, value in query["metric"].items() if key not in stat}
    flat = {key: query["metric"][key] for key in stat if key in query["metric"]}
    return {
        **{key: value for key, value in query.items() if key != "metric"},
        "metricStat": {"metric": metric, **flat},
    }


def _read_alarm(aws: Aws, name: str) -> Mapping[str, Any]:
    return one(aws.read("cloudwatch", "DescribeAlarms", {"AlarmNames": [name]})["MetricAlarms"])


def _cluster(aws: Aws, wire: Wire) -> Applied:
    name, kinds = wire.physical_name(), wire.take_value("enabledClusterLogTypes", [])
    encryption = wire.take_value("encryptionConfig")
    inputs = {
        "name": name,
        "tags": wire.take_value("tags", {}),
        **({"logging": {"clusterLogging": [{"types": kinds, "enabled": True}]}} if kinds else {}),
        **({"encryptionConfig": [encryption]} if encryption else {}),
        **wire.rest(),
    }
    parameters, answer = aws.create("eks", "CreateCluster", inputs, vpcConfig="resourcesVpcConfig")
    made = answer["cluster"]
    computed = {
        "name": name,
        "arn": made["arn"],
        "endpoint": made["endpoint"],
        "certificateAuthority": {"data": made["certificateAuthority"]["data"]},
        "vpcConfig": {**wire.inputs.get("vpcConfig", {}), "clusterSecurityGroupId": "sg-0123456789abcdef0"},
    }
    unkept = (
        "accessConfig.authenticationMode",
        "accessConfig.bootstrapClusterCreatorAdminPermissions",
        "bootstrapSelfManagedAddons",
        "kubernetesNetworkConfig.serviceIpv4Cidr",
        "resourcesVpcConfig.endpointPrivateAccess",
        "resourcesVpcConfig.endpointPublicAccess",
        "resourcesVpcConfig.publicAccessCidrs",
        "resourcesVpcConfig.subnetIds",
        "upgradePolicy.supportType",
    )
    outputs = wire.outputs(**computed)
    return Applied(
        name, outputs, parameters, lambda: aws.read("eks", "DescribeCluster", {"name": name})["cluster"], unkept
    )


HANDLERS: Mapping[str, Handler] = {
    "aws:autoscaling/group:Group": _group,
    "aws:autoscaling/policy:Policy": _policy,
    "aws:autoscaling/schedule:Schedule": put(
        "autoscaling", "PutScheduledUpdateGroupAction", "{ScheduledActionName}", _read_schedule
    ),
    "aws:cloudwatch/metricAlarm:MetricAlarm": _metric_alarm,
    # The provider tags the purchased capacity reservation.
    "aws:ec2/capacityBlockReservation:CapacityBlockReservation": put(
        "ec2", "PurchaseCapacityBlock", f"cr-{'0' * 17}", tag_type="capacity-reservation", more=", nothing was bought"
    ),
    "aws:ec2/fleet:Fleet": _fleet,
    "aws:ec2/instance:Instance": _instance,
    "aws:ec2/launchTemplate:LaunchTemplate": _launch_template,
    "aws:ec2/placementGroup:PlacementGroup": put(
        "ec2", "CreatePlacementGroup", "{GroupName}", named="groupName", tag_type="placement-group"
    ),
    "aws:ec2/spotFleetRequest:SpotFleetRequest": _spot_fleet,
    "aws:eks/accessEntry:AccessEntry": put("eks", "CreateAccessEntry", "eks-{wire.name}"),
    # Conflict handling has two inputs on the wire, one in the API.
    "aws:eks/addon:Addon": put(
        "eks",
        "CreateAddon",
        "eks-{wire.name}",
        skipped=("resolveConflictsOnUpdate",),
        resolveConflictsOnCreate="resolveConflicts",
    ),
    "aws:eks/cluster:Cluster": _cluster,
    "aws:eks/nodeGroup:NodeGroup": put(
        "eks",
        "CreateNodegroup",
        "{clusterName}:{nodegroupName}",
        lambda aws, sent, _: aws.read(
            "eks", "DescribeNodegroup", {key: sent[key] for key in ("clusterName", "nodegroupName")}
        )["nodegroup"],
        named="nodeGroupName",
        unkept=("updateConfig.maxUnavailable",),
        nodeRoleArn="nodeRole",
        subnetIds="subnets",
    ),
    "aws:eks/podIdentityAssociation:PodIdentityAssociation": put(
        "eks", "CreatePodIdentityAssociation", "eks-{wire.name}"
    ),
    "aws:route53/record:Record": _record,
    "docker-build:index:Image": _image,
}
