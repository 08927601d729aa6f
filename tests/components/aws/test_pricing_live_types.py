"""The catalogue against answers of DescribeInstanceTypes, shaped as botocore wants them, and against a public dump."""

import copy
from collections.abc import Callable
from typing import Any

import boto3
import pytest
from botocore.exceptions import NoCredentialsError
from botocore.stub import Stubber

from gangway.components.aws.pricing import Difference, compare, fetch_types, not_offered
from gangway.components.catalog.loader import load
from gangway.components.catalog.schema import MachineType
from gangway.components.core.findings import InputError

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
