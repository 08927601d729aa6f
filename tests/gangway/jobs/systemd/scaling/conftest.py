"""A ladder of two groups as each provider has it: four nodes run in the first, of at most eight, none in the second."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import boto3
import pytest
import requests
from moto import mock_aws

from gangway.images.node.azure.fallback import WANTED_TAG
from gangway.jobs.systemd.scaling.aws import AwsScaler
from gangway.jobs.systemd.scaling.azure import AzureScaler
from gangway.jobs.systemd.scaling.base import Scaler
from gangway.jobs.systemd.scaling.gcp import GcpScaler

NAMES = ["demo-0-on-demand", "demo-1-spot"]
REGION, PROJECT, ZONE = "us-east-2", "acme-ml", "us-central1-a"
SUBSCRIPTION = "00000000-0000-0000-0000-000000000001"
NOW = datetime(2030, 1, 1, tzinfo=UTC)


@dataclass
class World:
    """A provider in small.

    Attributes:
        scaler: of it; `held` is one that knows of an open breaker.
        refuse: has the provider refuse every change from now on.
        cloud: what holds the groups.
    """

    scaler: Scaler
    held: Callable[[], Scaler]
    refuse: Callable[[], None]
    cloud: Any

    @property
    def asked(self) -> int:
        """What the first group is asked for."""
        return self.scaler.get_groups(NAMES)[0].asked


@pytest.fixture
def session() -> Iterator[requests.Session]:
    """Of somebody who is logged in at the stand-ins."""
    with requests.Session() as made:
        made.trust_env = False
        made.headers["Authorization"] = "Bearer token-of-a-person"
        yield made


@pytest.fixture
def aws_world(monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    with mock_aws():
        ec2, client = (boto3.client(name, region_name=REGION) for name in ("ec2", "autoscaling"))
        node = {"ImageId": "ami-12c6146b", "InstanceType": "t3.medium"}
        ec2.create_launch_template(LaunchTemplateName="node", LaunchTemplateData=node)
        for name, wanted in zip(NAMES, (4, 0), strict=True):
            client.create_auto_scaling_group(
                AutoScalingGroupName=name,
                LaunchTemplate={"LaunchTemplateName": "node", "Version": "1"},
                MinSize=0,
                MaxSize=8,
                DesiredCapacity=wanted,
                VPCZoneIdentifier=ec2.describe_subnets()["Subnets"][0]["SubnetId"],
            )

        def held() -> Scaler:
            client.suspend_processes(AutoScalingGroupName=NAMES[0], ScalingProcesses=["Launch"])
            return AwsScaler(REGION)

        def refuse() -> None:
            monkeypatch.setattr(AwsScaler, "_client", lambda _: client)
            monkeypatch.setattr(client, "set_desired_capacity", _no_right)

        yield World(AwsScaler(REGION), held, refuse, client)


def _no_right(**_: Any) -> Any:
    from botocore.exceptions import ClientError

    raise ClientError({"Error": {"Code": "AccessDenied", "Message": "no"}}, "SetDesiredCapacity")


@pytest.fixture
def azure_world(azure_vm: Any, session: requests.Session) -> World:
    azure_vm.tokens["token-of-a-person"] = "https://management.azure.com/"
    azure_vm.sets.clear()
    for name, size, priority in zip(NAMES, (4, 0), ("Regular", "Spot"), strict=True):
        azure_vm.add_set(name, size, {str(number): "running" for number in range(size)})
        azure_vm.sets[name]["model"] = {"priority": priority}
    # Four of eight: as somebody has asked, who left no word.
    azure_vm.tags = {"gangway-nodes": "8", "gangway-nodes-min": "1", WANTED_TAG: "4"}

    def scaler(*, is_held: bool = False) -> Scaler:
        url = f"{azure_vm.url}/management.azure.com"
        return AzureScaler(session, SUBSCRIPTION, "demo-rg", together=True, is_held=is_held, api_url=url)

    return World(scaler(), lambda: scaler(is_held=True), lambda: azure_vm.denied.add("PATCH"), azure_vm)


@pytest.fixture
def gcp_world(gce: Any, session: requests.Session) -> World:
    gce.tokens.add("token-of-a-person")
    gce.groups.clear()
    for name, size in zip(NAMES, (4, 0), strict=True):
        gce.add_group(name, size, {f"demo-0-{letter}": "RUNNING" for letter in "abcd"[:size]})

    def scaler(*, is_held: bool = False) -> Scaler:
        url = f"{gce.url}/compute.googleapis.com"
        zones = dict.fromkeys([*NAMES, "demo-0-gone"], ZONE)
        return GcpScaler(session, PROJECT, zones, most=8, is_held=is_held, api_url=url)

    return World(scaler(), lambda: scaler(is_held=True), lambda: gce.denied.update({"resize", "setTags"}), gce)


@pytest.fixture(params=["aws", "azure", "gcp"])
def world(request: pytest.FixtureRequest) -> World:
    """Each of them."""
    made: World = request.getfixturevalue(f"{request.param}_world")
    return made
