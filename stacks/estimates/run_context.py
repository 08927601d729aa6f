"""What the trainer is told by who starts it: the context of the run, and the image, by the digest of its content."""

import hashlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import pulumi

from components.catalog.embodied import life_hours, machine_emissions
from components.catalog.resolve import Kind, resolve_price, stated_price
from components.catalog.schema import Fact, MachinePrice, MachineType, Region
from components.core.capacity import AnyRung, CapacityBlock, Reservation
from components.core.image import CONTENT_PREFIX, RegistryLogin, TrainerImage
from components.estimate.energy import board_share
from images.render import render_dockerfile
from images.specs import DOCKERFILE_FLAVOURS, Flavour
from stacks.config.paths import ROOT, trainer_context
from stacks.config.stack_config import StackConfig
from stacks.estimates.throughput import throughput
from trainer.records.quantity import Quantity
from trainer.records.run_record import RunContext


def dockerfile_for(flavour: Flavour) -> str:
    """The Dockerfile of a flavour."""
    return render_dockerfile(DOCKERFILE_FLAVOURS[flavour])


def content_tag(dockerfile: str, root: Path = ROOT) -> str:
    """The image's tag: `content-` and 16 hexadecimal digits over all that goes in. Equal content is built once.

    All that goes in is the Dockerfile, what it copies, and .dockerignore, which decides what of that the builder sees.
    """
    digest = hashlib.sha256(dockerfile.encode())
    copied = sorted([*(root / "trainer").rglob("*"), *(root / "images" / "locks").glob("*.lock")])
    for path in [root / ".dockerignore", *copied]:
        if path.is_file() and "__pycache__" not in path.parts:
            digest.update(path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return CONTENT_PREFIX + digest.hexdigest()[:16]


def build_image(
    name: str,
    flavour: Flavour,
    repository_url: pulumi.Input[str],
    registry: RegistryLogin,
    opts: pulumi.ResourceOptions,
) -> TrainerImage:
    """Has `up` build the image of a flavour, push it to `repository_url` and know it by its digest from then on."""
    dockerfile = dockerfile_for(flavour)
    return TrainerImage(
        name,
        {
            "repository_url": repository_url,
            "registry": registry,
            "dockerfile": dockerfile,
            "context": trainer_context(),
            "platform": "linux/amd64",
            "tag": content_tag(dockerfile),
        },
        opts,
    )


def cloud_context(
    config: StackConfig,
    machine: MachineType,
    region: Region,
    rows: Sequence[MachinePrice],
    image_digest: str,
    num_nodes: int | None = None,
    peak_tflops: Mapping[str, Fact[float | None]] | None = None,
) -> RunContext:
    """The context of a run in the cloud, with the price of each kind of capacity that its nodes may come from.
    `machine`: one node, as the trainer counts nodes: what runs one launcher; `rows`: its prices by region; `num_nodes`:
    how many of them; the stack's own number when left out; `peak_tflops`: of what one worker drives, by number format,
    where the trainer does not know the device's itself.
    """
    ladder = config.cluster.capacity
    kinds = tuple(rung.kind for rung in ladder)
    # The first rung of a kind stands for all of them: their nodes cost alike, but for two blocks bought apart.
    prices = {rung.kind: _price(rung, config.cluster.nodes.max, rows, config.region) for rung in reversed(ladder)}
    made, boards = machine_emissions(machine), machine.num_accelerators.value

    def each(fact: Fact[float | None]) -> Fact[float | None]:
        return fact if fact.value is None else fact.model_copy(update={"value": fact.value / boards})

    return RunContext(
        run_id=config.work.run_id or "",
        stack=config.stack,
        provider=config.provider,
        region=region.name,
        machine_type=machine.name,
        capacity=kinds,
        num_nodes=config.cluster.nodes.max if num_nodes is None else num_nodes,
        image_digest=image_digest,
        usd_per_hour=prices[kinds[0]],
        usd_per_hour_by_kind=prices,
        accelerators_per_node=machine.num_accelerators.value,
        embodied_kg_per_accelerator=_quantity(each(made.kg), "kg"),
        embodied_kg_low=_end(each(made.low), "low"),
        embodied_kg_high=_end(each(made.high), "high"),
        accelerator_life_hours=_quantity(life_hours(), "h"),
        accelerator_watts=_quantity(machine.accelerator_watts, "W"),
        accelerator_tflops={numbers: _quantity(peak, "TFLOP/s") for numbers, peak in (peak_tflops or {}).items()},
        accelerator_utilisation=_utilisation(config, machine, num_nodes),
        host_watts=_quantity(machine.host_watts, "W"),
        fabric_gbps=_quantity(machine.network_gbps, "Gbit/s", note="nominal, of one node"),
        pue=_quantity(region.pue, "1"),
        intensity_g_per_kwh=_quantity(region.intensity_g_per_kwh, "gCO2e/kWh"),
    )


def local_context(stack: str, run_id: str) -> RunContext:
    """The context of a run on this machine, about whose bill and grid nothing is known."""
    return RunContext(
        run_id=run_id,
        stack=stack,
        provider="local",
        region="this machine",
        machine_type=f"{os.cpu_count()} CPU cores",
        usd_per_hour=Quantity.absent("USD/h", "nobody bills this machine; the plan estimates the cloud's bill"),
        pue=Quantity(value=1.0, unit="1", provenance="assumed", source="no data centre around this machine"),
        intensity_g_per_kwh=Quantity(
            value=480.0,
            unit="gCO2e/kWh",
            provenance="assumed",
            source="world average, Ember Global Electricity Review 2024 (for 2023); this machine's grid is not known",
            as_of="2024-05-08",
        ),
    )


def _price(rung: AnyRung, num_nodes: int, rows: Sequence[MachinePrice], region: str) -> Quantity:
    """What a node of a rung is expected to cost an hour: reservations what they do on demand."""
    if isinstance(rung, CapacityBlock) and rung.upfront_usd and rung.starts_at and rung.ends_at:
        hours = (rung.ends_at - rung.starts_at).total_seconds() / 3600
        return Quantity(
            value=rung.upfront_usd / hours / num_nodes,
            unit="USD/h",
            provenance="assumed",
            source="gangway:cluster.capacity: upfront_usd of the block, over its hours and nodes",
        )
    kind: Kind = "on-demand" if isinstance(rung, Reservation) else rung.kind
    quote = resolve_price(rows, region, kind)
    if isinstance(rung, CapacityBlock) and rung.paid_usd_per_hour is not None:
        quote = stated_price(rung.paid_usd_per_hour, region, "paid_usd_per_hour of the block")
    if quote is None:
        stated = next((row.on_demand.source for row in rows if row.on_demand.confidence == "stated"), None)
        return Quantity.absent("USD/h", stated or f"the catalogue has no {rung.kind} price")
    at_most = ", as a limit" if quote.limit else ""
    return _quantity(quote.expected, "USD/h", note=f"{rung.kind}, {quote.priced_in}{at_most}")


def _end(fact: Fact[float | None], name: str) -> Quantity:
    """One end of the band of embodied emissions. The source stands at the figure itself: user data has little room."""
    if fact.value is None:
        return Quantity.absent("kg", fact.source)
    return Quantity(value=fact.value, unit="kg", provenance="assumed", source=name)


def _utilisation(config: StackConfig, machine: MachineType, num_nodes: int | None) -> Quantity:
    """The share of its board power that an accelerator without a meter draws: as the plan counts it, less while it
    waits. No record counts a TPU's energy.
    """
    waiting = 0.0 if machine.backend == "xla" else throughput(config, machine, num_nodes).usual_waiting
    share = _quantity(board_share(machine, waiting), "1")
    return share.model_copy(update={"provenance": "estimated"}) if waiting else share


def _quantity(fact: Fact[float] | Fact[float | None], unit: str, note: str = "") -> Quantity:
    if fact.value is None:
        return Quantity.absent(unit, fact.source)
    provenance = "list-price" if fact.confidence == "list-price" else "assumed"
    return Quantity(
        value=fact.value,
        unit=unit,
        provenance=provenance,
        source=f"{fact.source} ({fact.confidence})",
        as_of=fact.as_of_text or None,
        note=note,
    )
