"""The run context for the trainer, and the build of its image, tagged by content."""

import hashlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Literal

import pulumi

from gangway.components.catalog.machine_facts import load_embodied, machine_emissions
from gangway.components.catalog.prices import Kind, resolve_price, stated_price
from gangway.components.catalog.schema import Fact, MachinePrice, MachineType, Region
from gangway.components.core.capacity import AnyRung, CapacityBlock, Reservation
from gangway.components.core.image import CONTENT_PREFIX, RegistryLogin, TrainerImage
from gangway.components.core.job import JobSpec, Rendezvous, Volume
from gangway.components.estimate.energy import board_share
from gangway.images.render import render_dockerfile
from gangway.images.specs import DOCKERFILE_FLAVOURS, Flavour
from gangway.stacks.base.shared import get_training
from gangway.stacks.config.paths import ROOT, trainer_context
from gangway.stacks.config.stack_config import StackConfig, image_signature
from gangway.stacks.estimates.throughput import throughput
from gangway.trainer.records.quantity import Quantity
from gangway.trainer.records.run_record import RunContext


def dockerfile_for(flavour: Flavour) -> str:
    """The Dockerfile of a flavour."""
    return render_dockerfile(DOCKERFILE_FLAVOURS[flavour])


def context_files(root: Path = ROOT) -> list[Path]:
    """The files of the build context, in a fixed order: what the Dockerfile copies, and .dockerignore, which leaves out
    the same.
    """
    found = sorted([*(root / "trainer").rglob("*"), *(root / "images" / "locks").glob("*.lock")])
    copied = [path for path in found if not _is_left_out(path, root)]
    return [path for path in (root / ".dockerignore", *copied) if path.is_file()]


def _is_left_out(path: Path, root: Path) -> bool:
    return any(part == "__pycache__" or part.startswith(".") for part in path.relative_to(root).parts)


def content_tag(dockerfile: str, root: Path = ROOT) -> str:
    """A hash of the Dockerfile and the build context, so that equal content is built once."""
    digest = hashlib.sha256(dockerfile.encode())
    for path in context_files(root):
        digest.update(path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return CONTENT_PREFIX + digest.hexdigest()[:16]


def build_image(
    name: str,
    flavour: Flavour,
    repository_url: pulumi.Input[str],
    registry: RegistryLogin,
    opts: pulumi.ResourceOptions,
) -> TrainerImage:
    """Has `up` build the image of a flavour, push it to `repository_url` and return its digest."""
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
    """The context of a run in the cloud. `machine`: one node in the trainer's sense; `peak_tflops`: of one worker."""
    ladder = config.cluster.capacity
    kinds = tuple(rung.kind for rung in ladder)
    # The first rung of each kind: nodes of one kind cost the same, except separate blocks.
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
        embodied_kg_low=_band_end(each(made.low), "low"),
        embodied_kg_high=_band_end(each(made.high), "high"),
        accelerator_life_hours=_quantity(load_embodied().life_hours, "h"),
        accelerator_watts=_quantity(machine.accelerator_watts, "W"),
        accelerator_tflops={numbers: _quantity(peak, "TFLOP/s") for numbers, peak in (peak_tflops or {}).items()},
        accelerator_utilisation=_utilisation(config, machine, num_nodes),
        host_watts=_quantity(machine.host_watts, "W"),
        fabric_gbps=_quantity(machine.network_gbps, "Gbit/s", note="nominal, of one node"),
        pue=_quantity(region.pue, "1"),
        intensity_g_per_kwh=_quantity(region.intensity_g_per_kwh, "gCO2e/kWh"),
    )


def training_job(
    config: StackConfig,
    machine: MachineType,
    region: Region,
    prices: Sequence[MachinePrice],
    image: str,
    *,
    state: str,
    run_dir: str,
    data_dir: str,
    fabric_min_gbps: float | None,
    at: Rendezvous,
    volumes: Sequence[Volume] = (),
    env: Mapping[str, str] = MappingProxyType({}),
    backend: Literal["nccl", "xla"] = "nccl",
    num_nodes: tuple[int, int] | None = None,
    peak_tflops: Mapping[str, Fact[float | None]] | None = None,
    shutdown_timeout_sec: int = 25,
) -> JobSpec:
    """The job of nodes that train. `state`: its folder, shared by nodes; `shutdown_timeout_sec`: fits into 30 s of
    notice.
    """
    least, most = num_nodes or (config.cluster.nodes.min, config.cluster.nodes.max)
    context = cloud_context(config, machine, region, prices, image.rpartition("@")[2], most, peak_tflops)
    return JobSpec(
        name=config.stack,
        image=image,
        image_signature=image_signature(config),
        backend=backend,
        num_nodes_min=least,
        num_nodes_max=most,
        processes_per_node=machine.num_accelerators.value,
        rendezvous=at,
        volumes=(Volume(source=state, target=state), *volumes),
        env={"GANGWAY_CONTEXT": context.model_dump_json(), **env},
        run_id=context.run_id,
        training=get_training(
            config,
            run_dir=run_dir,
            data_dir=data_dir,
            fabric_min_gbps=fabric_min_gbps,
            backend="xla" if backend == "xla" else None,
        ),
        shutdown_timeout_sec=shutdown_timeout_sec,
    )


def local_context(stack: str, run_id: str) -> RunContext:
    """The context of a run on this machine, whose cost and grid are unknown."""
    return RunContext(
        run_id=run_id,
        stack=stack,
        provider="local",
        region="this machine",
        machine_type=f"{os.cpu_count()} CPU cores",
        usd_per_hour=Quantity.absent("USD/h", "this machine is not billed; the plan estimates the cloud's bill"),
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


def _band_end(fact: Fact[float | None], name: str) -> Quantity:
    """One end of the band of embodied emissions. Only the figure itself has the source, since user data is limited."""
    if fact.value is None:
        return Quantity.absent("kg", fact.source)
    return Quantity(value=fact.value, unit="kg", provenance="assumed", source=name)


def _utilisation(config: StackConfig, machine: MachineType, num_nodes: int | None) -> Quantity:
    """The share of board power that an accelerator without a meter draws, as in the plan. TPUs are not counted."""
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
