"""The run record: what one training run did, used and cost, every figure with its provenance. Does not import torch.

Computed by `trainer.records.summary`, read through `RunRecord.read` or, without Python, by the JSON schema beside this
file. A digest of its content shows changes (trainer.records.seal).
"""

import json
from pathlib import Path
from typing import Literal, Self

from pydantic import Field, ValidationError

from trainer.config import TrainConfig
from trainer.context import RunContext
from trainer.errors import from_validation
from trainer.exit_codes import EXIT_BAD_INPUT, EXIT_FAILED, EXIT_INTERRUPTED, EXIT_UNHEALTHY
from trainer.figure import Figure, Frozen
from trainer.files import read_input
from trainer.quality.record import QualityInTraining, QualityPoint, QualityProtocol, QualityRecord
from trainer.records.capacity import CapacityUse
from trainer.records.seal import BROKEN_SEAL, Sealed, broken_seal
from trainer.records.utilisation import UtilisationRecord
from trainer.workers.fabric import FabricRecord

__all__ = [
    "BROKEN_SEAL",
    "EXIT_BAD_INPUT",
    "EXIT_FAILED",
    "EXIT_INTERRUPTED",
    "EXIT_UNHEALTHY",
    "SCHEMA_FILE",
    "CapacityUse",
    "CarbonRecord",
    "CostRecord",
    "DatasetRecord",
    "EnergyRecord",
    "FabricRecord",
    "Figure",
    "InterruptionRecord",
    "QualityInTraining",
    "QualityPoint",
    "QualityProtocol",
    "QualityRecord",
    "RunContext",
    "RunRecord",
    "SessionRecord",
    "Summary",
    "UtilisationRecord",
    "schema",
]

SCHEMA_FILE = Path(__file__).with_name("run-record.schema.json")


class SessionRecord(Frozen):
    """One stretch of the run in one set of processes.

    Attributes:
        start: when its first step began, ISO 8601 UTC.
        end: when its last known moment was; for a killed session the last line it wrote.
        world_size: number of processes.
        num_nodes: number of machines they ran on.
        images_from: images already seen when it began.
        images_to: images seen when it ended.
        ended_by: done, interrupt (agreed stop with a checkpoint), failed (an error, told in notes), killed (no
            farewell, and a later session began or its last line is old), or running.
        wall_sec: from its first step to its end.
        backend: collectives, with the reason they were chosen.
        device: what it computed on.
        capacity: kind of capacity of each node, by its rank, as its scripts told; empty in older records.
        it_joules: energy of its devices.
    """

    start: str
    end: str
    world_size: int
    num_nodes: int
    images_from: int
    images_to: int
    ended_by: Literal["done", "interrupt", "failed", "killed", "running"]
    wall_sec: float
    backend: str
    device: str
    capacity: tuple[str, ...] = ()
    it_joules: Figure = Figure.absent("J", "not recorded by that version")


class InterruptionRecord(Frozen):
    """One stop before the end.

    Attributes:
        at: when the session stopped, ISO 8601 UTC.
        images: images the next session resumed from, or would.
        cause: spot-interruption, lifecycle-terminate, host-restart, max-hours, unhealthy-fabric, the signal's name,
            failed or killed.
        lost_sec: seconds from the moment the run first held those images to the moment it went on from them:
            stopping, downtime, starting up, and any work that had to be done again.
        save_sec: of the checkpoint made at the stop.
        stop_sec: from the first worker's signal to the state on disk; a preemption leaves about 20 s.
    """

    at: str
    images: int
    cause: str
    lost_sec: Figure
    save_sec: Figure = Figure.absent("s", "not recorded by that version")
    stop_sec: Figure = Figure.absent("s", "not recorded by that version")


class DatasetRecord(Frozen):
    """The data set, by content."""

    name: str
    sha256: str
    images: int


class Summary(Frozen):
    """A quantity over the run: its value at the end and its mean over all lines of stats.jsonl."""

    last: Figure
    mean: Figure


class EnergyRecord(Frozen):
    """Energy of the devices, and what the building added.

    Attributes:
        devices: joules by device, such as node0/cpu, node0/gpu3.
        it_joules: their sum.
        pue: facility energy over IT energy.
        facility_joules: IT energy times PUE.
    """

    devices: dict[str, Figure]
    it_joules: Figure
    pue: Figure
    facility_joules: Figure


class CarbonRecord(Frozen):
    """Emissions, location-based, and Software Carbon Intensity: (E * I + M) / R.

    Attributes:
        gco2e: operational: IT energy x PUE x grid intensity.
        intensity_g_per_kwh: of the grid.
        method: how `gco2e` came about.
        embodied_gco2e: the run's share of making its accelerator cards.
        sci_g_per_run: both, for the run.
        sci_g_per_kimg: both, for 1,000 images.
    """

    gco2e: Figure
    intensity_g_per_kwh: Figure
    method: str
    embodied_gco2e: Figure = Figure.absent("gCO2e", "not recorded by that version")
    sci_g_per_run: Figure = Figure.absent("gCO2e", "not recorded by that version")
    sci_g_per_kimg: Figure = Figure.absent("gCO2e/kimg", "not recorded by that version")


class CostRecord(Frozen):
    """Dollars of the nodes while they trained.

    Attributes:
        components: by kind of capacity.
        total_usd: their sum.
        uses: which nodes were of which kind, when, at which price; empty in older records.
    """

    components: dict[str, Figure]
    total_usd: Figure
    uses: tuple[CapacityUse, ...] = ()


class RunRecord(Sealed):
    """The whole record, `run.json`.

    Attributes:
        status: running, interrupted (by an agreed stop, failed or killed: resume it) or done.
        notes: what a reader must know of the diary: lines that were lost, a session that was taken as killed.
        code_sha256: over the trainer's own source files.
        choices: what the newest session trained with (precision, shard, compile), each with its reason.
        fabric: the newest session's acceptance test; null in records from before there was one.
        utilisation: how well the machines were used; null in records from before it was counted.
        images: real images shown so far.
        wall_sec: training time of all sessions, without the gaps between them.
        quality: the newest value of each metric, of `python -m trainer evaluate` or computed while training.
        quality_in_training: metrics computed while training and what they cost; null where there were none.
        summaries: loss_g, loss_d, r1, grad_norm_g, grad_norm_d.
        state_sha256: digest of the final tensors of g, d, ema, opt_g and opt_d, to compare two runs bit for bit.
    """

    schema_version: Literal[1] = 1
    id: str
    status: Literal["running", "interrupted", "done"]
    notes: tuple[str, ...] = ()
    stack: str
    provider: str
    region: str
    machine_type: str
    capacity: tuple[str, ...]
    num_nodes: int
    sessions: tuple[SessionRecord, ...]
    interruptions: tuple[InterruptionRecord, ...]
    code_sha256: str
    image_digest: str
    seed: int
    dataset: DatasetRecord
    config: TrainConfig
    images: int
    wall_sec: Figure
    images_per_sec: Figure
    sec_per_kimg: Figure
    scaling_efficiency: Figure
    summaries: dict[str, Summary]
    quality: tuple[QualityRecord, ...]
    quality_in_training: QualityInTraining | None = None
    choices: dict[str, str] = Field(default_factory=dict)
    fabric: FabricRecord | None = None
    utilisation: UtilisationRecord | None = None
    energy: EnergyRecord
    carbon: CarbonRecord
    cost: CostRecord
    peak_memory_gib: Figure
    state_sha256: dict[str, str]
    versions: dict[str, str]

    @classmethod
    def read(cls, path: Path) -> Self:
        """Reads a run.json (TrainerError: none, not a record of this version, or changed after it was written)."""
        fix = "name a run directory that has run.json, or write it: python -m trainer record --run-dir DIR"
        try:
            return cls.model_validate_json(read_input(path, fix, missing="no run record"))
        except ValidationError as error:
            raise broken_seal(error, path) or from_validation(error, str(path), known=cls.model_fields) from None


def schema() -> str:
    """The JSON schema of run.json, as committed in `run-record.schema.json`."""
    return json.dumps(RunRecord.model_json_schema(mode="serialization"), indent=2, sort_keys=True) + "\n"
