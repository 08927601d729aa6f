"""Toys as a provider: what is known of it without its SDK, which is Pulumi itself."""

from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

from gangway.components.catalog.loader import CatalogFolder
from gangway.components.catalog.schema import Fact
from gangway.components.core.findings import InputError
from gangway.stacks.base.provider import EXAMPLE_IMAGE, Program, Provider, Start, TagRules
from gangway.stacks.config.stack_config import StackConfig

from .settings import SETTINGS, toy_of

if TYPE_CHECKING:
    from .program import ToyPlan

__all__ = ["PROVIDER", "catalog"]


catalog = CatalogFolder(Path(__file__).parent, "toy")
"""The files beside this one."""


def _program() -> "Program[ToyPlan]":
    from . import program

    return program


def _owner_mistakes(config: StackConfig) -> Iterator[InputError]:
    if toy_of(config).owner == "nobody":
        yield InputError("gangway:toy.owner", "toys have an owner", value="nobody", fix="write owner: ann")


def _spot_taken(_machine: str, _region: str) -> Fact[float | None]:
    return Fact[float | None](value=0.5, source="seen", as_of=date(2026, 11, 1), confidence="assumed")


PROVIDER = Provider(
    name="toy",
    sdk="pulumi",
    program=_program,
    loads_by_name=False,
    settings=SETTINGS,
    home_region="attic",
    start=Start(
        "attic",
        "toy.8",
        sections={"toy": {"owner": "ann"}, "image": {"prebuilt": EXAMPLE_IMAGE}},
        questions={"toy.owner": "Whose they are"},
    ),
    adapters={"prices": f"{__package__}.prices"},
    mistakes=_owner_mistakes,
    catalog=catalog,
    spot_taken=_spot_taken,
    tags=TagRules(package="toy", types="compute: Machine", input_name="labels"),
    machine_types=frozenset({"toy:compute:Machine"}),
    budget_types=frozenset({"toy:billing:Budget"}),
    region_inputs={"toy:compute:Machine": "place"},
)
