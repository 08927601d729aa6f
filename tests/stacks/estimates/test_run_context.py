"""What the launcher tells the trainer: each figure with its provenance, and nothing invented."""

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import gangway.stacks
from gangway.components.catalog.loader import load
from gangway.components.core.image import CONTENT_PREFIX
from gangway.images.specs import DOCKERFILE_FLAVOURS
from gangway.stacks.config.paths import trainer_context
from gangway.stacks.config.stack_config import StackConfig
from gangway.stacks.estimates.run_context import cloud_context, content_tag, dockerfile_for, local_context
from gangway.trainer.records.quantity import Quantity


def test_the_clouds_figures_come_from_the_catalogue(demo_config: StackConfig) -> None:
    catalog = load()
    machine, region = catalog.machine("p5.48xlarge"), catalog.region("us-east-2", "aws")
    context = cloud_context(demo_config, machine, region, catalog.get_prices("p5.48xlarge"), "sha256:ab")
    assert (context.stack, context.provider, context.machine_type) == ("aws-demo", "aws", "p5.48xlarge")
    assert (context.capacity, context.num_nodes) == (("spot", "on-demand"), 2)
    price, pue, intensity = context.usd_per_hour, context.pue, context.intensity_g_per_kwh
    assert context.image_digest == "sha256:ab"
    assert price is not None
    assert (price.value, price.unit, price.provenance) == (14.0818, "USD/h", "list-price")
    assert (price.source, price.as_of) == ("SkyPilot catalogue v9 (two undated copies) (list-price)", None)
    assert price.note.startswith("spot, us-east-2"), "whose price it is"
    assert pue is not None
    assert (pue.value, pue.unit) == (1.13, "1")
    assert intensity is not None
    assert (intensity.value, intensity.unit, intensity.as_of) == (396.25, "gCO2e/kWh", "2023-12-31")


def test_each_kind_of_capacity_has_its_price_and_each_card_its_emissions(demo_config: StackConfig) -> None:
    catalog = load()
    machine, region = catalog.machine("p5.48xlarge"), catalog.region("us-east-2", "aws")
    context = cloud_context(demo_config, machine, region, catalog.get_prices("p5.48xlarge"), "sha256:ab")
    prices = context.usd_per_hour_by_kind
    assert {kind: price.value for kind, price in prices.items()} == {"spot": 14.0818, "on-demand": 55.04}
    assert prices["spot"] == context.usd_per_hour
    assert context.accelerators_per_node == 8
    kg, life = context.embodied_kg_per_accelerator, context.accelerator_life_hours
    assert kg is not None
    assert life is not None
    assert (kg.value, life.value, life.provenance) == (7011 / 8, 35_040, "assumed")
    assert "(secondary)" in kg.source
    ends = (context.embodied_kg_low, context.embodied_kg_high)
    assert [end.value if end else None for end in ends] == [4384 / 8, 16800 / 8]


def test_a_block_costs_what_was_paid_for_it(edited: Callable[[Callable[[Any], object]], StackConfig]) -> None:
    """16,000 dollars for two nodes and a day; one that is owned already costs what nobody here knows."""
    block = {
        **{"kind": "capacity-block", "purchase": True, "offering_id": "cbo-0123456789abcdef0", "upfront_usd": 16000},
        **{"starts_at": "2026-06-30T11:30:00Z", "ends_at": "2026-07-01T11:30:00Z"},
    }
    owned = {"kind": "capacity-block", "id": "cr-0123456789abcdef0", "ends_at": "2026-07-01T11:30:00Z"}
    catalog = load()
    machine, region = catalog.machine("p5.48xlarge"), catalog.region("us-east-2", "aws")
    prices = catalog.get_prices("p5.48xlarge")

    def of(rung: dict[str, Any]) -> Quantity:
        config = edited(lambda values: values["gangway:cluster"].update(capacity=[rung, {"kind": "on-demand"}]))
        return cloud_context(config, machine, region, prices, "").usd_per_hour_by_kind["capacity-block"]

    bought = of(block)
    assert bought.value == pytest.approx(16000 / 24 / 2)
    assert bought.source.startswith("gangway:cluster.capacity: upfront_usd")
    assert of(owned).source == "the catalogue has no capacity-block price"
    assert of({**owned, "paid_usd_per_hour": 31.5}).value == 31.5


def test_a_price_nobody_knows_is_absent_with_its_reason(demo_config: StackConfig) -> None:
    catalog = load()
    machine, region = catalog.machine("g5.xlarge"), catalog.region("us-east-2", "aws")
    price = cloud_context(demo_config, machine, region, [], "").usd_per_hour
    assert price is not None
    assert (price.value, price.provenance) == (None, "absent")
    assert "the catalogue has no spot price" in str(price)


def test_this_machine_has_no_bill_and_an_assumed_grid() -> None:
    context = local_context("aws-demo", "run-1")
    assert (context.run_id, context.stack, context.provider) == ("run-1", "aws-demo", "local")
    assert context.machine_type == f"{os.cpu_count()} CPU cores"
    price, pue, intensity = context.usd_per_hour, context.pue, context.intensity_g_per_kwh
    assert price is not None
    assert (price.value, price.provenance) == (None, "absent")
    assert pue is not None
    assert (pue.value, pue.provenance) == (1.0, "assumed")
    assert intensity is not None
    assert (intensity.value, intensity.provenance) == (480.0, "assumed")
    assert "Ember" in str(intensity.source)


DOCKERFILE = "FROM scratch\n"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A build context in small."""
    names = (".dockerignore", "trainer/run/loop.py", "trainer/data/packaged_data.py", "images/locks/trainer.lock")
    for name in (*names, "images/render.py"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    return tmp_path


def test_each_flavour_has_its_dockerfile() -> None:
    assert len({dockerfile_for(flavour) for flavour in DOCKERFILE_FLAVOURS}) == len(DOCKERFILE_FLAVOURS)
    assert "efa_installer" in dockerfile_for("cuda-efa")
    assert "efa_installer" not in dockerfile_for("cuda")


def test_the_context_is_the_repository_seen_from_the_programs_folder(repo: Path) -> None:
    context = Path(gangway.stacks.__file__).parent / trainer_context()
    assert context.resolve() == repo
    for source in re.findall(r"^COPY (?!--from)(\S+) ", dockerfile_for("cuda"), re.MULTILINE):
        assert (context / source).is_dir(), source
    assert not Path(trainer_context()).is_absolute(), "the state would name somebody's machine"


def test_equal_content_has_one_tag(root: Path) -> None:
    tag = content_tag(DOCKERFILE, root)
    assert re.fullmatch("content-[0-9a-f]{16}", tag)
    assert tag.startswith(CONTENT_PREFIX), "or the registry would refuse the same content twice"
    (root / "trainer/__pycache__").mkdir()
    (root / "trainer/__pycache__/loop.cpython-311.pyc").write_bytes(b"compiled")
    (root / "trainer/.env").write_text("TOKEN=1")
    (root / "images/render.py").write_text("not in the image")
    (root / "images/locks/README.md").write_text("not in the image")
    assert content_tag(DOCKERFILE, root) == tag
    assert content_tag(dockerfile_for("cuda")) == content_tag(dockerfile_for("cuda"))


@pytest.mark.parametrize(
    "name", [".dockerignore", "trainer/run/loop.py", "trainer/data/packaged_data.py", "images/locks/trainer.lock"]
)
def test_whatever_goes_in_changes_the_tag(root: Path, name: str) -> None:
    tag = content_tag(DOCKERFILE, root)
    (root / name).write_text("another content")
    changed = content_tag(DOCKERFILE, root)
    (root / name).rename(root / f"{name}2.lock")
    assert len({tag, changed, content_tag(DOCKERFILE, root), content_tag("FROM other\n", root)}) == 4


def test_where_one_file_ends_and_the_next_begins_matters(root: Path) -> None:
    """Moving bytes from a file's name into it, or from file to file, is another content."""
    tags = set()
    for first, second in (("ab", "c"), ("a", "bc")):
        (root / "trainer/data/packaged_data.py").write_text(first)
        (root / "trainer/run/loop.py").write_text(second)
        tags.add(content_tag(DOCKERFILE, root))
    assert len(tags) == 2
