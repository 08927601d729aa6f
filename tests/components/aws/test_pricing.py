"""The bill of declared AWS resources, worked out by hand line by line."""

import copy
from collections.abc import Callable
from typing import Any

import boto3
import pytest
from botocore.exceptions import NoCredentialsError
from botocore.stub import Stubber

from gangway.components.aws.pricing import Difference, compare, fetch_types, not_offered, price_resources
from gangway.components.catalog.loader import load
from gangway.components.catalog.prices import stated_price
from gangway.components.catalog.schema import MachineType
from gangway.components.core.findings import InputError
from gangway.components.estimate.cost import Bound, CostComponent, bound
from tests.components.fixture_types import Resource


def template(machine: str, market: str | None = None, disk: float = 200.0, cap: str | None = None) -> Resource:
    inputs: dict[str, Any] = {"instanceType": machine, "blockDeviceMappings": [{"ebs": {"volumeSize": disk}}]}
    if market:
        inputs["instanceMarketOptions"] = {"marketType": market}
    if cap:
        inputs["instanceMarketOptions"]["spotOptions"] = {"maxPrice": cap}
    return Resource("aws:ec2/launchTemplate:LaunchTemplate", f"{machine}-{market}", inputs, "lt")


def group(desired: float | None, maximum: float = 4.0) -> Resource:
    inputs: dict[str, Any] = {"launchTemplate": {"id": "lt"}, "maxSize": maximum}
    if desired is not None:
        inputs["desiredCapacity"] = desired
    return Resource("aws:autoscaling/group:Group", "pool", inputs, "group")


def schedule(maximum: float) -> Resource:
    inputs = {"autoscalingGroupName": "group", "maxSize": maximum}
    return Resource("aws:autoscaling/schedule:Schedule", f"to {maximum}", inputs)


def bill(*resources: Resource, region: str = "us-east-1") -> list[CostComponent]:
    return price_resources(resources, load(), region)


def head_node(machine: str, disk: float) -> tuple[Resource, Resource]:
    """A head node and its template, which has the disk."""
    mappings = [{"deviceName": "/dev/xvda", "ebs": {"volumeSize": disk}}]
    return (
        Resource("aws:ec2/launchTemplate:LaunchTemplate", "head", {"blockDeviceMappings": mappings}, "lt-head"),
        Resource("aws:ec2/instance:Instance", "head", {"instanceType": machine, "launchTemplate": {"id": "lt-head"}}),
    )


def test_two_p5_on_spot_by_hand() -> None:
    nodes, disks = bill(template("p5.48xlarge", "spot"), group(2.0))
    assert nodes.name == "pool: 2 x p5.48xlarge, spot"
    assert nodes.hourly == pytest.approx(2 * 18.7089)
    assert nodes.hourly_high == pytest.approx(2 * 55.04), "two zones have none to spare"
    assert nodes.source.startswith("SkyPilot catalogue v9")
    assert disks.name == "pool: root volumes, 200 GiB a node"
    assert disks.hourly == pytest.approx(400 * 0.08 / 730)
    assert not nodes.standby
    assert not disks.standby


def test_throughput_beyond_gp3s_own_is_billed_by_the_month() -> None:
    """Infracost's test of it: 5 MiB/s more, 0.20 USD a month."""
    made = template("p5.48xlarge", "spot")
    made.inputs["blockDeviceMappings"][0]["ebs"]["throughput"] = 500.0
    _, disks, throughput = bill(made, group(2.0))
    assert throughput.name == "pool: root volumes, 375 MiB/s a node beyond gp3's own"
    assert throughput.hourly == pytest.approx(2 * 375 * 0.20 / 5 / 730)
    assert throughput.unit == "MiBps-months"
    assert disks.hourly == pytest.approx(400 * 0.08 / 730)


def test_a_group_without_a_declared_number_stands_by_at_its_largest() -> None:
    nodes, disks = bill(template("p5.48xlarge"), group(None, maximum=2.0))
    assert nodes.name == "pool: 2 x p5.48xlarge, on-demand"
    assert nodes.hourly == pytest.approx(110.08)
    assert nodes.standby
    assert disks.standby


def test_a_group_of_zero_costs_nothing() -> None:
    nodes, disks = bill(template("p5.48xlarge"), group(0.0))
    assert (nodes.hourly, disks.hourly, nodes.standby) == (0, 0, False)


def test_a_closed_group_is_priced_as_it_will_be_opened() -> None:
    """Behind a block that has not begun; the action that empties a group again says nothing of its price."""
    nodes, disks = bill(template("p5.48xlarge"), group(None, maximum=0.0), schedule(2.0), schedule(0.0))
    assert nodes.name == "pool: 2 x p5.48xlarge, on-demand"
    assert nodes.standby
    assert disks.standby
    first, _ = bill(template("p5.48xlarge", "spot"), group(0.0, maximum=0.0), schedule(2.0))
    assert first.hourly == pytest.approx(37.4178)
    assert not first.standby
    assert bill(template("p5.48xlarge"), group(2.0), schedule(0.0))[0].name.startswith("pool: 2 x")


@pytest.mark.parametrize(
    ("machine", "market", "why"),
    [
        ("x9.huge", None, "no on-demand price in the catalogue"),
        ("p5e.48xlarge", None, "no on-demand price in the catalogue"),
        ("trn2.48xlarge", "spot", "no spot price in the catalogue"),
    ],
)
def test_a_price_nobody_knows_stays_unknown(machine: str, market: str | None, why: str) -> None:
    nodes, disks = bill(template(machine, market), group(1.0))
    assert nodes.price is None
    assert nodes.hourly is None
    assert nodes.source.startswith(why)
    assert disks.hourly is not None


def test_spot_without_a_known_price_is_bounded_by_the_price_on_demand_and_says_so() -> None:
    nodes, _ = bill(template("p5en.48xlarge", "spot"), group(2.0), region="me-central-1")
    assert nodes.name == "pool: 2 x p5en.48xlarge, spot, at most"
    assert nodes.hourly == pytest.approx(2 * 75.9552)
    assert nodes.source.endswith(", as a limit: no spot price in the catalogue")
    assert nodes.is_limit


def test_another_regions_limit_is_none() -> None:
    """Spot of p5e in Ohio, where it has a price, for a region that has none."""
    nodes, _ = bill(template("p5e.48xlarge", "spot"), group(2.0))
    assert nodes.name == "pool: 2 x p5e.48xlarge, spot"
    assert (nodes.priced_in, nodes.is_limit) == ("us-east-2", False)
    assert bound([nodes], at_most=True) is Bound.NONE


@pytest.mark.parametrize(
    ("machine", "cap", "counted", "source"),
    [
        ("p5.48xlarge", "25", 18.7089, "SkyPilot catalogue v9"),
        ("p5.48xlarge", "17", 17, "as a limit: below the typical spot price in the catalogue, 18.7089 USD"),
        ("g5.xlarge", "0.5", 0.5, "as a limit: no spot price in the catalogue"),
        ("g5.xlarge", "2", 1.006, "as a limit: no spot price in the catalogue"),
        ("trn2.48xlarge", "40", 40, "as a limit: no spot price in the catalogue"),
    ],
)
def test_a_cap_below_the_counted_price_is_the_limit(machine: str, cap: str, counted: float, source: str) -> None:
    nodes, _ = bill(template(machine, "spot", cap=cap), group(2.0))
    assert nodes.hourly == pytest.approx(2 * counted)
    assert (nodes.hourly_high or 0.0) <= 2 * float(cap)
    assert source in nodes.source
    assert nodes.name.endswith("at most") == ("as a limit" in source)
    mixed = Resource(
        "aws:autoscaling/group:Group",
        "pool",
        {
            "maxSize": 2.0,
            "desiredCapacity": 2.0,
            "mixedInstancesPolicy": {
                "instancesDistribution": {"onDemandPercentageAboveBaseCapacity": 0, "spotMaxPrice": cap},
                "launchTemplate": {"overrides": [{"launchTemplateSpecification": {"launchTemplateId": "lt"}}]},
            },
        },
        "group",
    )
    several, _ = bill(template(machine, "spot"), mixed)
    assert (several.hourly, several.source) == (nodes.hourly, nodes.source)


def test_the_hours_of_a_block_are_paid_when_it_is_bought() -> None:
    nodes, disks = bill(template("p5en.48xlarge", "capacity-block"), group(2.0))
    assert (nodes.name, nodes.hourly) == ("pool: 2 x p5en.48xlarge, capacity-block, paid before", 0.0)
    assert nodes.source == (
        "a capacity block's hours are paid when it is bought: about 41.61 USD for a node's hour "
        "(Amazon EC2 Capacity Blocks pricing, recalled, noted 2026-09-06, recalled)"
    )
    assert (nodes.price, nodes.dated) == (None, ""), "programs that multiply it would count the purchase twice"
    assert disks.hourly
    unsold, _ = bill(template("g5.xlarge", "capacity-block"), group(2.0))
    assert (unsold.hourly, unsold.source.partition("; ")[2]) == (0.0, "the catalogue has no price of one")


def test_what_the_owner_of_a_block_paid_is_its_price() -> None:
    paid = {"pool": stated_price(31.5, "us-east-1", "paid_usd_per_hour")}
    resources = [template("p5en.48xlarge", "capacity-block"), group(2.0)]
    nodes, _ = price_resources(resources, load(), "us-east-1", paid)
    assert (nodes.price, nodes.hourly, nodes.confidence) == (31.5, 63.0, "stated")
    assert nodes.source == "stated by the stack file: paid_usd_per_hour"
    assert not nodes.is_limit


def test_scratch_metadata_key_and_head_node_by_hand() -> None:
    kind = "aws:fsx/lustreFileSystem:LustreFileSystem"
    tier = {"deploymentType": "PERSISTENT_2", "perUnitStorageThroughput": 125.0, "storageCapacity": 1200.0}
    scratch, lustre, iops, key, head, disk = bill(
        Resource(kind, "scratch", {"deploymentType": "SCRATCH_2", "storageCapacity": 1200.0}),
        Resource(kind, "data", {**tier, "metadataConfiguration": {"mode": "USER_PROVISIONED", "iops": 6000.0}}),
        Resource("aws:kms/key:Key", "key", {}),
        *head_node("t3.medium", 60.0),
    )
    assert scratch.hourly == pytest.approx(1200 * 0.14 / 730)
    assert lustre.hourly == pytest.approx(1200 * 0.145 / 730)
    assert (iops.name, iops.unit) == ("data: 6000 metadata IOPS", "IOPS-months")
    assert iops.hourly == pytest.approx(6000 * 0.055 / 730)
    assert key.hourly == pytest.approx(1 / 730)
    assert (head.name, head.hourly) == ("head: t3.medium, on-demand", 0.0416)
    assert disk.hourly == pytest.approx(60 * 0.08 / 730)


def test_a_head_node_of_unknown_price_says_so() -> None:
    head, disk = bill(*head_node("z9", 1.0))
    assert (head.hourly, head.source) == (None, "no price in the catalogue")
    assert disk.name == "head: root volume, 1 GiB"


def test_a_mixed_group_costs_what_its_dearest_type_costs() -> None:
    offers = [template("g6.12xlarge"), template("g6.48xlarge")]
    offers = [Resource(o.type, o.name, o.inputs, o.inputs["instanceType"]) for o in offers]
    overrides = [{"launchTemplateSpecification": {"launchTemplateId": o.id}} for o in offers]
    policy = {
        "instancesDistribution": {"onDemandPercentageAboveBaseCapacity": 100.0},
        "launchTemplate": {"overrides": overrides},
    }
    mixed = Resource(
        "aws:autoscaling/group:Group", "pool", {"mixedInstancesPolicy": policy, "maxSize": 2.0, "desiredCapacity": 2.0}
    )
    nodes, _ = bill(*offers, mixed)
    dearest = load().price("g6.48xlarge", "us-east-1", "on-demand")
    assert dearest is not None
    assert dearest.usd is not None
    assert nodes.name == "pool: 2 x g6.48xlarge, on-demand"
    assert nodes.hourly == pytest.approx(2 * dearest.usd)


def test_a_price_of_another_region_says_so_on_its_line() -> None:
    lustre = Resource(
        "aws:fsx/lustreFileSystem:LustreFileSystem",
        "data",
        {"deploymentType": "PERSISTENT_2", "perUnitStorageThroughput": 500.0, "storageCapacity": 9600.0},
    )
    lines = bill(template("p5.48xlarge"), group(1.0), lustre, region="sa-east-1")
    nodes, disks, files = lines
    assert all(line.source.endswith(" (price of us-east-1)") for line in (nodes, files))
    assert [line.priced_in for line in (nodes, files, disks)] == ["us-east-1", "us-east-1", ""]
    assert disks.hourly is not None
    assert disks.hourly > 0.15 * disks.quantity / 730, "dearer there than anywhere"
    assert not any(line.priced_in for line in bill(template("p5.48xlarge"), group(1.0), lustre))


def test_lustre_nat_and_endpoints_by_hand() -> None:
    endpoint = "aws:ec2/vpcEndpoint:VpcEndpoint"
    lustre, nat, endpoints = bill(
        Resource(
            "aws:fsx/lustreFileSystem:LustreFileSystem",
            "data",
            {"deploymentType": "PERSISTENT_2", "perUnitStorageThroughput": 500.0, "storageCapacity": 9600.0},
        ),
        Resource("aws:ec2/natGateway:NatGateway", "nat", {}),
        Resource(endpoint, "s3", {"vpcEndpointType": "Gateway"}),
        Resource(endpoint, "ssm", {"vpcEndpointType": "Interface", "subnetIds": ["a", "b"]}),
        Resource(endpoint, "logs", {"vpcEndpointType": "Interface", "subnetIds": ["a"]}),
        Resource("aws:ec2/vpc:Vpc", "vpc", {}),
    )
    assert lustre.name == "data: 9600 GiB at 500 MB/s/TiB"
    assert lustre.hourly == pytest.approx(9600 * 0.34 / 730)
    assert (nat.name, nat.hourly) == ("nat: NAT gateway", 0.045)
    assert (endpoints.name, endpoints.quantity) == ("interface endpoints", 3)
    assert endpoints.hourly == pytest.approx(0.03)


def test_the_firewall_for_names_costs_by_the_name_in_its_lists() -> None:
    domains = "aws:route53/resolverFirewallDomainList:ResolverFirewallDomainList"
    (line,) = bill(
        Resource(domains, "answered", {"domains": ["a.", "b.", "*.c."]}),
        Resource(domains, "refused", {"domains": ["*."]}),
        Resource("aws:route53/resolverFirewallRule:ResolverFirewallRule", "refused", {}),
    )
    assert (line.name, line.quantity) == ("names of the DNS firewall", 4)
    assert line.hourly == pytest.approx(4 * 0.0005 / 730)


def test_what_watches_costs_by_metric_and_dashboard() -> None:
    """3 metrics in two alarms, one of them an old-fashioned one without queries; a composite; two filters."""
    queries = [{"id": "a", "metric": {}}, {"id": "b", "metric": {}}, {"id": "sum", "expression": "a + b"}]
    lines = bill(
        Resource("aws:cloudwatch/metricAlarm:MetricAlarm", "sum", {"metricQueries": queries}),
        Resource("aws:cloudwatch/metricAlarm:MetricAlarm", "old", {"metricName": "CPUUtilization"}),
        Resource("aws:cloudwatch/compositeAlarm:CompositeAlarm", "both", {}),
        Resource("aws:cloudwatch/dashboard:Dashboard", "page", {}),
        *(Resource("aws:cloudwatch/logMetricFilter:LogMetricFilter", name, {}) for name in ("steps", "images")),
    )
    assert {line.name: round((line.hourly or 0) * 730, 6) for line in lines} == {
        "CloudWatch: dashboards, 1": 3.0,
        "CloudWatch: metrics that alarms look at, 3": 0.3,
        "CloudWatch: composite alarms, 1": 0.5,
        "CloudWatch: metrics out of log lines, 2": 0.6,
    }
    assert [len(line.of) for line in lines] == [1, 2, 1, 2]


def test_an_address_costs_also_while_it_is_in_use() -> None:
    address, zone = bill(Resource("aws:ec2/eip:Eip", "nat", {}), Resource("aws:route53/zone:Zone", "z", {}))
    assert (address.name, address.hourly) == ("nat: public address", 0.005)
    assert zone.name == "z: private DNS zone"
    assert zone.hourly == pytest.approx(0.5 / 730)
    assert address.of == ("aws:ec2/eip:Eip::nat",)


def test_of_groups_that_a_queue_sizes_the_first_is_paid_for_when_all_nodes_are_up() -> None:
    tags = [{"key": "gangway:sized-by", "value": "queue"}]
    first = Resource("aws:autoscaling/group:Group", "pool", {**group(None).inputs, "tags": tags}, "group")
    second = Resource("aws:autoscaling/group:Group", "second", first.inputs, "second")
    lines = bill(template("p5.48xlarge"), first, second)
    assert [(line.name.partition(":")[0], line.standby) for line in lines] == [
        ("pool", False),
        ("pool", False),
        ("second", True),
        ("second", True),
    ]
    assert lines[0].quantity == 4


def test_a_cluster_of_kubernetes_is_its_control_plane_and_the_machines_of_its_own() -> None:
    mappings = [{"deviceName": "/dev/xvda", "ebs": {"volumeSize": 40.0}}]
    inputs = {"instanceType": "t3.large", "blockDeviceMappings": mappings}
    control, machines, disks = bill(
        Resource("aws:eks/cluster:Cluster", "demo", {}),
        Resource("aws:ec2/launchTemplate:LaunchTemplate", "system", inputs, "lt"),
        Resource(
            "aws:eks/nodeGroup:NodeGroup",
            "system",
            {"launchTemplate": {"id": "lt"}, "scalingConfig": {"desiredSize": 2.0}},
        ),
    )
    assert control.hourly == pytest.approx(0.10)
    assert machines.hourly == pytest.approx(2 * 0.0832)
    assert machines.name == "system: 2 x t3.large, on-demand"
    assert disks.hourly == pytest.approx(2 * 40 * 0.08 / 730, rel=1e-3)


P5 = load().machine("p5.48xlarge")
AWS_MACHINES = [machine for machine in load().machines.values() if machine.provider == "aws"]


def card(index: int, room: int) -> dict[str, Any]:
    return {
        "NetworkCardIndex": index,
        "NetworkPerformance": "100 Gigabit",
        "MaximumNetworkInterfaces": room,
        "BaselineBandwidthInGbps": 100.0,
        "PeakBandwidthInGbps": 100.0,
    }


def p5_answer() -> dict[str, Any]:
    """What EC2 says of p5.48xlarge, less what has no counterpart in the catalogue."""
    return {
        "InstanceType": "p5.48xlarge",
        "CurrentGeneration": True,
        "ProcessorInfo": {"SupportedArchitectures": ["x86_64"], "Manufacturer": "AMD"},
        "VCpuInfo": {"DefaultVCpus": 192, "DefaultCores": 96, "DefaultThreadsPerCore": 2},
        "MemoryInfo": {"SizeInMiB": 2097152},
        "InstanceStorageSupported": True,
        "InstanceStorageInfo": {"TotalSizeInGB": 30400, "Disks": [{"SizeInGB": 3800, "Count": 8, "Type": "ssd"}]},
        "GpuInfo": {
            "Gpus": [{"Name": "H100", "Manufacturer": "NVIDIA", "Count": 8, "MemoryInfo": {"SizeInMiB": 81920}}],
            "TotalGpuMemoryInMiB": 655360,
        },
        "NetworkInfo": {
            "NetworkPerformance": "3200 Gigabit",
            "MaximumNetworkInterfaces": 64,
            "MaximumNetworkCards": 32,
            "NetworkCards": [card(index, 2) for index in range(32)],
            "EfaSupported": True,
            "EfaInfo": {"MaximumEfaInterfaces": 32},
        },
    }


def changed(edit: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
    row = copy.deepcopy(p5_answer())
    edit(row)
    return row


def test_the_answer_for_p5_is_what_the_catalogue_says() -> None:
    assert compare([P5], [p5_answer()]) == []


@pytest.mark.parametrize(
    ("edit", "field", "catalogue", "live"),
    [
        (lambda r: r["VCpuInfo"].update(DefaultVCpus=96), "vcpus", 192, 96),
        (lambda r: r["MemoryInfo"].update(SizeInMiB=1048576), "memory_gib", 2048, 1024),
        (lambda r: r["GpuInfo"]["Gpus"][0].update(Count=4), "num_accelerators", 8, 4),
        (
            lambda r: r["GpuInfo"]["Gpus"][0]["MemoryInfo"].update(SizeInMiB=144384),
            "accelerator_memory_gib",
            80,
            141,
        ),
        (lambda r: r["ProcessorInfo"].update(SupportedArchitectures=["arm64"]), "architecture", "x86_64", "arm64"),
        (lambda r: r["NetworkInfo"].update(NetworkPerformance="8x 100 Gigabit"), "network_gbps", 3200, 800),
        (lambda r: r.pop("InstanceStorageInfo"), "instance_store_gib", 28312, 0),
        (lambda r: r["NetworkInfo"]["EfaInfo"].update(MaximumEfaInterfaces=16), "max_efa_interfaces", 32, 16),
        (lambda r: r["NetworkInfo"].update(EfaSupported=False), "max_efa_interfaces", 32, 0),
        (lambda r: r["NetworkInfo"].update(MaximumNetworkCards=16), "num_cards", 32, 16),
        (
            lambda r: r["NetworkInfo"]["NetworkCards"][0].update(MaximumNetworkInterfaces=4),
            "max_interfaces of each card",
            "32 x 2",
            "1 x 4, 31 x 2",
        ),
    ],
)
def test_each_field_that_differs_is_one_difference(
    edit: Callable[[dict[str, Any]], object], field: str, catalogue: object, live: object
) -> None:
    found = compare([P5], [changed(edit)])
    assert [(d.machine_type, d.field, d.catalogue, d.live) for d in found] == [("p5.48xlarge", field, catalogue, live)]


def test_what_the_answer_leaves_out_is_not_compared() -> None:
    assert compare([P5], [{"InstanceType": "p5.48xlarge", "InstanceStorageInfo": {"TotalSizeInGB": 30400}}]) == []
    vague = changed(lambda row: row["NetworkInfo"].update(NetworkPerformance="High"))
    assert compare([P5], [vague]) == []


def test_a_value_the_catalogue_does_not_know_shows_as_none() -> None:
    gb200 = load().machine("p6e-gb200.36xlarge")
    row = {
        "InstanceType": gb200.name,
        "InstanceStorageInfo": {"TotalSizeInGB": 22500},
        "NetworkInfo": {"EfaSupported": True, "EfaInfo": {"MaximumEfaInterfaces": 16}},
    }
    assert compare([gb200], [row]) == [Difference(gb200.name, "max_efa_interfaces", None, 16)]


def test_an_accelerated_type_with_efa_that_is_not_listed_is_told() -> None:
    new = changed(lambda row: row.update(InstanceType="p7.48xlarge"))
    neuron = {"InstanceType": "trn3.48xlarge", "NetworkInfo": {"EfaSupported": True}, "NeuronInfo": {}}
    cpu = {"InstanceType": "hpc8a.96xlarge", "NetworkInfo": {"EfaSupported": True}}
    small = {"InstanceType": "g9.xlarge", "NetworkInfo": {"EfaSupported": False}, "GpuInfo": {}}
    found = compare([P5], [p5_answer(), neuron, cpu, new, small])
    assert [d.machine_type for d in found] == ["p7.48xlarge", "trn3.48xlarge"]
    assert found[0].to_json() == {
        "machine_type": "p7.48xlarge",
        "field": "machine_type",
        "catalogue": None,
        "live": "p7.48xlarge",
    }


def test_a_type_its_region_does_not_offer_is_no_difference() -> None:
    other = P5.model_copy(update={"provider": "gcp", "name": "a3-highgpu-8g"})
    assert compare([P5, other], []) == []
    assert not_offered([P5, other], []) == ["p5.48xlarge"]
    assert not_offered([P5], [p5_answer()]) == []


@pytest.mark.parametrize("machine", AWS_MACHINES, ids=lambda machine: machine.name)
def test_the_catalogue_agrees_with_the_public_dump(machine: MachineType) -> None:
    """Field by field, every type of the dump that moto ships. The dump is wrong about the memory of a Trainium2."""
    from moto.ec2.models.instance_types import INSTANCE_TYPES

    known = [row for name, row in INSTANCE_TYPES.items() if name == machine.name]
    found = [(d.field, d.live) for d in compare([machine], known)]
    assert found == ([("accelerator_memory_gib", 512)] if machine.name in ("trn2.3xlarge", "trn2.48xlarge") else [])


def test_the_dump_has_no_training_type_that_the_catalogue_lacks() -> None:
    from moto.ec2.models.instance_types import INSTANCE_TYPES

    found = [d.machine_type for d in compare(AWS_MACHINES, list(INSTANCE_TYPES.values())) if d.field == "machine_type"]
    assert found == []
    assert len(not_offered(AWS_MACHINES, list(INSTANCE_TYPES.values()))) < 8, "most rows are checked by the dump"


def client() -> Any:
    return boto3.client("ec2", region_name="us-east-1", aws_access_key_id="testing", aws_secret_access_key="testing")


def test_all_pages_are_fetched() -> None:
    ec2 = client()
    with Stubber(ec2) as stub:
        stub.add_response("describe_instance_types", {"InstanceTypes": [p5_answer()], "NextToken": "more"}, {})
        second = {"InstanceTypes": [changed(lambda row: row.update(InstanceType="p5e.48xlarge"))]}
        stub.add_response("describe_instance_types", second, {"NextToken": "more"})
        rows = fetch_types(ec2, "--live")
        stub.assert_no_pending_responses()
    assert [row["InstanceType"] for row in rows] == ["p5.48xlarge", "p5e.48xlarge"]
    assert compare([P5], rows[:1]) == []


def test_a_refusal_is_one_error_that_names_the_permission() -> None:
    ec2 = client()
    with Stubber(ec2) as stub:
        stub.add_client_error("describe_instance_types", "UnauthorizedOperation", "You are not authorized")
        with pytest.raises(InputError) as caught:
            fetch_types(ec2, "--live --region us-east-1")
    assert caught.value.place == "--live --region us-east-1"
    assert "UnauthorizedOperation" in str(caught.value.value)
    assert "ec2:DescribeInstanceTypes" in caught.value.allowed


def test_no_credentials_is_one_error() -> None:
    class Nobody:
        def get_paginator(self, operation_name: str) -> Any:
            raise NoCredentialsError

    with pytest.raises(InputError, match="EC2 did not answer") as caught:
        fetch_types(Nobody(), "--live")
    assert "Unable to locate credentials" in str(caught.value)
