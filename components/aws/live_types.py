"""The catalogue beside what EC2 itself answers: DescribeInstanceTypes, field by field.

`compare` is pure; `fetch_types` asks with a client it is given. Neither changes the catalogue: a difference is for a
person to look at, because either side can be wrong (EC2 has been seen to state 512 GiB for a Trainium2 of 96).
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from components.catalog import EfaFabric, MachineType
from components.findings import InputError

__all__ = ["Difference", "Ec2Client", "compare", "fetch_types", "not_offered"]

Answer = Mapping[str, Any]
Value = str | int | float | None

_PERFORMANCE = re.compile(r"(?:Up to )?(?:(\d+)x )?([\d.]+) Gigabit$")


class Ec2Client(Protocol):
    """What is used of `boto3.client("ec2")`."""

    def get_paginator(self, operation_name: str) -> Any:
        """As boto3 has it."""
        ...


@dataclass(frozen=True)
class Difference:
    """A field on which the catalogue and EC2 do not agree; None in `catalogue` is one it does not know."""

    machine_type: str
    field: str
    catalogue: Value
    live: Value

    def to_json(self) -> dict[str, Value]:
        """Plain JSON data."""
        return asdict(self)


def fetch_types(client: Ec2Client, place: str) -> list[Answer]:
    """Every instance type of the client's region, about ten requests.

    Raises:
        InputError: no credentials, or EC2 cannot be reached or refuses; `place` is the option that asked for it.
    """
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        pages = client.get_paginator("describe_instance_types").paginate()
        return [row for page in pages for row in page["InstanceTypes"]]
    except (BotoCoreError, ClientError) as problem:
        raise InputError(
            place,
            "EC2 did not answer",
            value=str(problem),
            allowed="credentials that may call ec2:DescribeInstanceTypes, and a region of AWS",
            fix="sign in (aws sso login, or AWS_PROFILE) and try again; without --live nothing is asked",
        ) from None


def compare(machines: Iterable[MachineType], answer: Sequence[Answer]) -> list[Difference]:
    """Where the catalogue's AWS machines and `answer` disagree, and the accelerated EFA types it lacks.

    A field that the answer leaves out, and a type that its region does not offer, are no differences.
    """
    live = {row["InstanceType"]: row for row in answer}
    known = {machine.name: machine for machine in machines if machine.provider == "aws"}
    found = [
        difference for name, machine in known.items() if name in live for difference in _of_one(machine, live[name])
    ]
    lacking = [name for name, row in live.items() if name not in known and _trains_over_efa(row)]
    return [*found, *(Difference(name, "machine_type", None, name) for name in sorted(lacking))]


def not_offered(machines: Iterable[MachineType], answer: Sequence[Answer]) -> list[str]:
    """The catalogue's AWS machines that the answer's region does not have."""
    offered = {row["InstanceType"] for row in answer}
    return [machine.name for machine in machines if machine.provider == "aws" and machine.name not in offered]


def _of_one(machine: MachineType, row: Answer) -> Iterable[Difference]:
    stated = {**_of_machine(machine), **_of_fabric(machine)}
    for field, value in {**_live_machine(row), **_live_network(row)}.items():
        if value is not None and field in stated and stated[field] != value:
            yield Difference(machine.name, field, stated[field], value)


def _of_machine(machine: MachineType) -> dict[str, Value]:
    return {
        "architecture": machine.architecture,
        "num_accelerators": machine.num_accelerators.value,
        "accelerator_memory_gib": machine.accelerator_memory_gib.value,
        "vcpus": machine.vcpus.value,
        "memory_gib": machine.memory_gib.value,
        "network_gbps": machine.network_gbps.value,
        "instance_store_gib": machine.instance_store_gib.value,
    }


def _of_fabric(machine: MachineType) -> dict[str, Value]:
    fabric = machine.fabric
    if not isinstance(fabric, EfaFabric):
        return {"max_efa_interfaces": 0}
    runs = fabric.layout.value
    return {
        "max_efa_interfaces": fabric.max_efa_interfaces.value,
        "num_cards": fabric.num_cards.value,
        "max_interfaces of each card": _spans([(run.last - run.first + 1, run.max_interfaces) for run in runs]),
    }


def _live_machine(row: Answer) -> dict[str, Value]:
    devices = [*row.get("GpuInfo", {}).get("Gpus", ()), *(row.get("NeuronInfo") or {}).get("NeuronDevices", ())]
    architectures = row.get("ProcessorInfo", {}).get("SupportedArchitectures", ())
    memory = devices[0].get("MemoryInfo", {}).get("SizeInMiB") if devices else None
    return {
        "architecture": architectures[0] if len(architectures) == 1 else None,
        "num_accelerators": sum(device["Count"] for device in devices) or None,
        "accelerator_memory_gib": None if memory is None else round(memory / 1024, 2),
        "vcpus": row.get("VCpuInfo", {}).get("DefaultVCpus"),
        "memory_gib": row["MemoryInfo"]["SizeInMiB"] / 1024 if "MemoryInfo" in row else None,
        "network_gbps": _gbps(row.get("NetworkInfo", {}).get("NetworkPerformance", "")),
        "instance_store_gib": round(row.get("InstanceStorageInfo", {}).get("TotalSizeInGB", 0) * 1e9 / 2**30),
    }


def _live_network(row: Answer) -> dict[str, Value]:
    network = row.get("NetworkInfo", {})
    cards = network.get("NetworkCards", ())
    efa = network.get("EfaInfo", {}).get("MaximumEfaInterfaces")
    return {
        "max_efa_interfaces": 0 if network.get("EfaSupported") is False else efa,
        "num_cards": network.get("MaximumNetworkCards"),
        "max_interfaces of each card": _spans([(1, card["MaximumNetworkInterfaces"]) for card in cards]) or None,
    }


def _spans(counted: Sequence[tuple[int, int | None]]) -> str:
    """`1 x 2, 16 x 4`: how many cards in a row take how many interfaces."""
    spans: list[tuple[int, int | None]] = []
    for cards, most in counted:
        before = spans.pop() if spans and spans[-1][1] == most else (0, most)
        spans.append((before[0] + cards, most))
    return ", ".join(f"{cards} x {'unknown' if most is None else most}" for cards, most in spans)


def _gbps(performance: str) -> float | None:
    """`8x 100 Gigabit` -> 800; words such as `High` say no number."""
    match = _PERFORMANCE.match(performance)
    return int(match[1] or 1) * float(match[2]) if match else None


def _trains_over_efa(row: Answer) -> bool:
    return bool(row.get("NetworkInfo", {}).get("EfaSupported") and ("GpuInfo" in row or "NeuronInfo" in row))
