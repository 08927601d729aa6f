"""Resources that Gangway does not declare, and inputs that nobody knows yet: the rules hold in any program."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangway.components.estimate.cost import Declared
from gangway.stacks.base.rule import UNKNOWN, Limits, ResourceRule, kind
from gangway.stacks.plan.rules.guardrails import BLOCK_ENDS, BUDGET_PRESENT, RESOURCE_RULES, STACK_RULES
from gangway.stacks.plan.rules.resource_rules import (
    CLEAN_REGION,
    ENCRYPTED,
    IMDS_V2,
    NO_PUBLIC_ADDRESS,
    REQUIRED_TAGS,
    SHIELDED,
    types_with_tags,
)

INSTANCE, VOLUME = "aws:ec2/instance:Instance", "aws:ebs/volume:Volume"
TEMPLATE = "aws:ec2/launchTemplate:LaunchTemplate"
FORWARDING = "gcp:compute/forwardingRule:ForwardingRule"
OURS = {"team": "a", "cost_center": "1"}
SPECIFICATIONS = [{"resourceType": kind, "tags": OURS} for kind in ("instance", "volume")]


def breaches(rule: ResourceRule, resource: Declared, **limits: Any) -> list[str]:
    return list(rule.check(resource, Limits(**limits)))


@pytest.mark.parametrize(
    ("rule", "type_token", "bad", "good"),
    [
        (NO_PUBLIC_ADDRESS, "aws:lb/loadBalancer:LoadBalancer", {}, {"internal": True}),
        (NO_PUBLIC_ADDRESS, "aws:ec2/eip:Eip", {"networkInterface": UNKNOWN}, {"domain": "vpc"}),
        (NO_PUBLIC_ADDRESS, INSTANCE, {"associatePublicIpAddress": True}, {"associatePublicIpAddress": UNKNOWN}),
        (NO_PUBLIC_ADDRESS, FORWARDING, {}, {"loadBalancingScheme": "INTERNAL"}),
        (NO_PUBLIC_ADDRESS, "openstack:networking/floatingIp:FloatingIp", {"portId": UNKNOWN}, {"pool": "public"}),
        (REQUIRED_TAGS, "openstack:compute/instance:Instance", {"tags": ["team=a"]},
         {"metadata": {"team": "a"}, "tags": ["cost_center=1"]}),
        (REQUIRED_TAGS, "openstack:networking/port:Port", {"tags": ["team", "cost_center"]},
         {"tags": ["team=a", "cost_center=1=2", "free"]}),
        (REQUIRED_TAGS, "openstack:objectstorage/container:Container", {"metadata": {"team": "a"}},
         {"metadata": {"team": "a", "cost-center": "1"}}),
        (NO_PUBLIC_ADDRESS, FORWARDING, {"loadBalancingScheme": "EXTERNAL_MANAGED"},
         {"loadBalancingScheme": "INTERNAL_MANAGED"}),
        (NO_PUBLIC_ADDRESS, "gcp:tpu/v2Vm:V2Vm", {"networkConfig": {"enableExternalIps": True}},
         {"networkConfig": {"enableExternalIps": False}}),
        (NO_PUBLIC_ADDRESS, "azure-native:network:LoadBalancer",
         {"frontendIPConfigurations": [{"publicIPAddress": {"id": UNKNOWN}}]},
         {"frontendIPConfigurations": [{"subnet": {"id": UNKNOWN}}]}),
        (NO_PUBLIC_ADDRESS, "azure-native:compute/v20240701:VirtualMachine",
         {"networkProfile": {"networkInterfaceConfigurations": [
             {"ipConfigurations": [{"name": "a"}, {"publicIPAddressConfiguration": {"name": "a"}}]}
         ]}}, {"networkProfile": {"networkInterfaces": [{"id": UNKNOWN}]}}),
        (ENCRYPTED, VOLUME, {"encrypted": False}, {"encrypted": True}),
        (ENCRYPTED, "aws:rds/instance:Instance", {}, {"storageEncrypted": True}),
        (ENCRYPTED, "aws:efs/fileSystem:FileSystem", {}, {"encrypted": UNKNOWN}),
        (ENCRYPTED, INSTANCE, {"ami": "ami-1"}, {"rootBlockDevice": {"encrypted": True}}),
        (ENCRYPTED, INSTANCE, {"rootBlockDevice": {"encrypted": True}, "ebsBlockDevices": [{"deviceName": "b"}]},
         {"launchTemplate": {"id": UNKNOWN}}),
        (NO_PUBLIC_ADDRESS, FORWARDING, {"target": UNKNOWN}, {"target": UNKNOWN, "loadBalancingScheme": ""}),
        (ENCRYPTED, TEMPLATE, {"blockDeviceMappings": [{"ebs": {"encrypted": False}}]},
         {"blockDeviceMappings": [{"ebs": UNKNOWN}]}),
        (ENCRYPTED, "azure-native:compute:VirtualMachineScaleSet", {"virtualMachineProfile": {}}, {"sku": UNKNOWN}),
        (ENCRYPTED, TEMPLATE, {"blockDeviceMappings": [{"ebs": {"volumeSize": 8}}]},
         {"instanceType": "g5.xlarge", "blockDeviceMappings": UNKNOWN}),
        (IMDS_V2, INSTANCE, {"instanceType": "g5.xlarge"}, {"launchTemplate": {"id": UNKNOWN}}),
        (IMDS_V2, TEMPLATE, {"instanceType": "g5.xlarge", "metadataOptions": {"httpTokens": "optional"}},
         {"instanceType": "g5.xlarge", "metadataOptions": {"httpEndpoint": "disabled"}}),
        (SHIELDED, "azure-native:compute:VirtualMachine",
         {"securityProfile": {"securityType": "TrustedLaunch", "uefiSettings": {"vTpmEnabled": False}}},
         {"securityProfile": {"securityType": "ConfidentialVM", "uefiSettings": {"vTpmEnabled": True}}}),
        (REQUIRED_TAGS, INSTANCE, {"tags": OURS}, {"tags": OURS, "rootBlockDevice": {"tags": OURS}}),
        (REQUIRED_TAGS, INSTANCE, {"tags": OURS, "volumeTags": {"team": "a"}}, {"tagsAll": OURS, "volumeTags": OURS}),
        (REQUIRED_TAGS, TEMPLATE, {"tags": OURS, "instanceType": "g5.xlarge", "tagSpecifications": SPECIFICATIONS[:1]},
         {"tags": OURS, "instanceType": "g5.xlarge", "tagSpecifications": SPECIFICATIONS}),
        (REQUIRED_TAGS, TEMPLATE, {"tags": OURS, "instanceType": "g5.xlarge"},
         {"tags": UNKNOWN, "instanceType": "g5.xlarge", "tagSpecifications": UNKNOWN}),
        (REQUIRED_TAGS, "gcp:container/cluster:Cluster", {"labels": OURS}, {"resourceLabels": OURS}),
        (CLEAN_REGION, "pulumi:providers:aws", {"region": "ap-northeast-1"}, {"region": UNKNOWN}),
        (CLEAN_REGION, "pulumi:providers:aws", {"region": "ap-northeast-1"}, {}),
    ],
)  # fmt: skip
def test_a_breach_is_told_from_what_keeps_the_rule(
    rule: ResourceRule, type_token: str, bad: dict[str, Any], good: dict[str, Any], made: Callable[..., Declared]
) -> None:
    told = breaches(rule, made(type_token, **bad))
    assert told
    assert all("made" in breach for breach in told) or rule is CLEAN_REGION
    assert breaches(rule, made(type_token, **good)) == []


def test_ways_out_are_allowed(made: Callable[..., Declared]) -> None:
    for type_token in ("aws:ec2/natGateway:NatGateway", "azure-native:network:PublicIPAddress",
                       "azure-native:network:BastionHost", "gcp:compute/routerNat:RouterNat"):  # fmt: skip
        out = made(type_token, allocationId="eipalloc-1", publicIpAddresses=[{"id": "ip"}], ipConfigurations=[{}])
        assert breaches(NO_PUBLIC_ADDRESS, out) == []


def test_an_association_is_always_public(made: Callable[..., Declared]) -> None:
    for type_token in (
        "aws:ec2/eipAssociation:EipAssociation",
        "openstack:networking/floatingIpAssociate:FloatingIpAssociate",
    ):
        assert breaches(NO_PUBLIC_ADDRESS, made(type_token))


def test_limits_are_the_organisations(made: Callable[..., Declared]) -> None:
    oregon = made("pulumi:providers:aws", region="us-west-2")
    assert breaches(CLEAN_REGION, oregon) == []
    (told,) = breaches(CLEAN_REGION, oregon, max_g_per_kwh=100)
    assert "us-west-2: 120 gCO2e per kWh" in told
    assert "above 100; the cleanest regions of aws are eu-north-1 (25), ca-central-1 (31), eu-west-3 (" in told
    assert breaches(CLEAN_REGION, oregon, max_g_per_kwh=100, allowed_regions=("us-west-2",)) == []
    topic = made("aws:sns/topic:Topic", tags={"owner": "a"})
    assert breaches(REQUIRED_TAGS, topic, required_tags=("owner",)) == []


def test_a_budget_is_asked_for_where_something_is_billed(made: Callable[..., Declared]) -> None:
    machine, budget = made(INSTANCE), made("azure-native:costmanagement:Budget")
    assert list(BUDGET_PRESENT.check([machine])) == ["1 resources are or start machines, but no budget counts them"]
    assert list(BUDGET_PRESENT.check([machine, budget])) == []
    assert list(BUDGET_PRESENT.check([made("aws:ec2/vpc:Vpc")])) == []


def test_each_block_wants_an_end(made: Callable[..., Declared]) -> None:
    block = made(TEMPLATE, instanceMarketOptions={"marketType": "capacity-block"})
    spot = made(TEMPLATE, instanceMarketOptions={"marketType": "spot"})
    start, end, unknown = (made("aws:autoscaling/schedule:Schedule", maxSize=size) for size in (2, 0, UNKNOWN))
    assert list(BLOCK_ENDS.check([spot])) == []
    assert list(BLOCK_ENDS.check([block, end])) == []
    assert list(BLOCK_ENDS.check([block, unknown])) == []
    (told,) = BLOCK_ENDS.check([block, block, start, end])
    assert "2 launch templates for capacity blocks, but 1 scheduled" in told


def test_an_unknown_type_is_not_judged(made: Callable[..., Declared]) -> None:
    strange = made("strange", tags={})
    assert kind(strange.type) == "strange"
    assert [breaches(rule, strange) for rule in RESOURCE_RULES] == [[]] * len(RESOURCE_RULES)


WORDS = (
    "associatePublicIpAddress", "blockDeviceMappings", "ebs", "encrypted", "httpTokens", "instanceMarketOptions",
    "instanceType", "ipConfigurations", "key", "labels", "launchTemplate", "location", "maxSize", "metadataOptions",
    "networkInterfaces", "networkProfile", "region", "rootBlockDevice", "securityProfile", "shieldedInstanceConfig",
    "tagSpecifications", "tags", "tagsAll", "userLabels", "virtualMachineProfile", "volumeTags",
)  # fmt: skip
JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.floats(allow_nan=False), st.sampled_from(["", "true", UNKNOWN, "x"])),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(WORDS), inner, max_size=4)),
    max_leaves=12,
)
JUDGED = sorted(
    {INSTANCE, TEMPLATE, VOLUME, "aws:autoscaling/schedule:Schedule", "pulumi:providers:aws", *types_with_tags()}
)


@given(type_token=st.sampled_from(JUDGED), inputs=st.dictionaries(st.sampled_from(WORDS), JSON, max_size=6))
def test_whatever_another_program_declares_is_answered(
    made: Callable[..., Declared], type_token: str, inputs: Mapping[str, Any]
) -> None:
    resource = made(type_token, **inputs)
    told: Sequence[str] = [
        *(breach for rule in RESOURCE_RULES for breach in rule.check(resource, Limits())),
        *(breach for whole in STACK_RULES for breach in whole.check([resource])),
    ]
    assert all(told), "a breach is a sentence"
