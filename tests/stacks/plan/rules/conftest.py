"""Resources to hold against the rules: those of the shipped stacks, copies with a mistake, and made-up ones."""

from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from gangway.components.estimate.cost import Declared
from gangway.stacks.base.rule import kind
from gangway.stacks.loading.loader import from_file
from gangway.stacks.plan.plan import Plan, make_plan

AWS_STACKS = ("aws-demo", "aws-existing", "aws-g5-dev", "aws-p4d-block", "aws-p5-slurm", "aws-p5-spot", "eks-p5-kueue")
SITE_STACKS = ("hosts-lab", "hosts-slurm", "openstack-gpu")
QUEUE_STACKS = ("gke-a3-jobset", "gke-tpu-v5e", "aks-ndv5")

EXISTING_STACKS = ("azure-existing", "gcp-existing", "openstack-existing")


@pytest.fixture(scope="session")
def plans(repo: Path, gcp_plans: dict[str, Plan], azure_plans: dict[str, Plan]) -> dict[str, Plan]:
    """The plans of all shipped stacks by their names."""
    names = (*AWS_STACKS, *SITE_STACKS, *QUEUE_STACKS, *EXISTING_STACKS)
    others = {name: make_plan(from_file(repo / "stacks" / f"Pulumi.{name}.yaml")) for name in names}
    return {**others, **gcp_plans, **azure_plans}


@dataclass(frozen=True)
class Made:
    """A resource of some other program."""

    type: str
    inputs: Mapping[str, Any]
    name: str = "made"
    id: str = "made-1"


@pytest.fixture(scope="session")
def made() -> Callable[..., Made]:
    """Makes a resource: its type token, then its inputs."""
    return lambda type_token, /, **inputs: Made(type_token, inputs)


def put(inputs: dict[str, Any], path: str, value: Any) -> None:
    """Sets what is at `a.0.b`; None removes it."""
    *parents, last = (int(word) if word.isdigit() else word for word in path.split("."))
    place: Any = inputs
    for parent in parents:
        place = place[parent]
    if value is None:
        del place[last]
    else:
        place[last] = value


@pytest.fixture(scope="session")
def broken(plans: dict[str, Plan]) -> Callable[..., list[Declared]]:
    """The resources of a shipped stack, the first of a kind with another value at a path; None removes."""

    def make(stack: str, of_kind: str, path: str, value: Any) -> list[Declared]:
        resources: list[Any] = list(plans[stack].resources)
        position = next(place for place, one in enumerate(resources) if kind(one.type) == of_kind)
        inputs = deepcopy(dict(resources[position].inputs))
        put(inputs, path, value)
        resources[position] = replace(resources[position], inputs=inputs)
        return resources

    return make
