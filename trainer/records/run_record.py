"""The run record (run.json), every quantity with its provenance, and the launcher's context that it contains."""

import json
import shlex
from pathlib import Path
from typing import Literal, Self

from pydantic import Field, ValidationError

from trainer.config.parts.fields import ConfigFields
from trainer.config.train_config import TrainConfig
from trainer.core.docstrings import describe
from trainer.core.errors import TrainerError, from_validation
from trainer.core.files import read_input, read_text_input
from trainer.core.program import program
from trainer.records.decisions import CONTROLLER, DecisionRecord
from trainer.records.digest import DigestedRecord, wrong_digest_error
from trainer.records.file_hashes import FileSum
from trainer.records.other_version import get_writer
from trainer.records.quality import QualityInTraining, QualityRecord
from trainer.records.quantity import Frozen, Quantity
from trainer.records.utilisation import UtilisationRecord


class RunContext(Frozen):
    """What only the launcher knows; the trainer copies it into the record. Read from the file given by `--context`.

    Attributes:
        run_id: the record's id; empty for one the trainer makes up.
        stack: name of the stack that made the machines.
        provider: aws, azure, gcp, openstack, kubernetes, or empty.
        region: as the provider spells it.
        machine_type: as the provider spells it.
        capacity: kinds of capacity in use, such as ("spot", "on-demand").
        num_nodes: nodes the launcher started with.
        image_digest: of the container image, sha256:...
        usd_per_hour: price of one node of the first kind for one hour.
        usd_per_hour_by_kind: price of one node for one hour, by kind of capacity.
        pue: power usage effectiveness of the data centre.
        intensity_g_per_kwh: carbon intensity of its grid, gCO2e/kWh, location-based.
        accelerator_watts: board power of one accelerator, W; for the estimate where it has no meter.
        accelerator_utilisation: mean share of board power while training, 0..1.
        accelerators_per_node: accelerators in one node; 0 where the launcher does not say.
        embodied_kg_per_accelerator: emissions of making the machine, for each of its accelerators, kg CO2e.
        embodied_kg_low: the low end of that, as far as the sources leave it open.
        embodied_kg_high: the high end.
        accelerator_life_hours: how long a machine is in use, h; its emissions are shared out over them.
        host_watts: power of one node without its accelerators, W; for the estimate where it has no meter.
        fabric_gbps: bus bandwidth that an all-reduce over several nodes should reach, Gbit/s.
        accelerator_tflops: peak of one accelerator, TFLOP/s, by number format: fp32, tf32, bf16, fp16.
    """

    run_id: str = ""
    stack: str = ""
    provider: str = ""
    region: str = ""
    machine_type: str = ""
    capacity: tuple[str, ...] = ()
    num_nodes: int = Field(default=1, ge=1)
    image_digest: str = ""
    usd_per_hour: Quantity | None = None
    usd_per_hour_by_kind: dict[str, Quantity] = Field(default_factory=dict)
    pue: Quantity | None = None
    intensity_g_per_kwh: Quantity | None = None
    accelerator_watts: Quantity | None = None
    accelerator_utilisation: Quantity | None = None
    accelerators_per_node: int = Field(default=0, ge=0)
    embodied_kg_per_accelerator: Quantity | None = None
    embodied_kg_low: Quantity | None = None
    embodied_kg_high: Quantity | None = None
    accelerator_life_hours: Quantity | None = None
    host_watts: Quantity | None = None
    fabric_gbps: Quantity | None = None
    accelerator_tflops: dict[str, Quantity] = Field(default_factory=dict)

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a context file (TrainerError: missing, not JSON, an unknown field or a bad value)."""
        try:
            return cls.model_validate_json(read_text_input(path, "give --context an existing JSON file"))
        except ValidationError as error:
            raise from_validation(error, str(path), known=cls.model_fields) from None


class CapacityUse(Frozen):
    """Nodes of one kind of capacity in one session, and what they cost.

    Attributes:
        session: its number, from 0.
        capacity: the kind; empty where nobody knows.
        num_nodes: of that kind.
        start: of the session, ISO 8601 UTC.
        end: of the session, ISO 8601 UTC.
        node_hours: nodes x time of training.
        usd_per_hour: price of one such node.
        usd: node hours x price.
    """

    session: int
    capacity: str
    num_nodes: int
    start: str
    end: str
    node_hours: Quantity
    usd_per_hour: Quantity
    usd: Quantity


class FabricPoint(Frozen):
    """One message size.

    Attributes:
        size_bytes: of each worker's buffer.
        median_sec: of one all-reduce, on the worker where it took longest.
        algorithm_gbps: size / time, Gbit/s.
        bus_gbps: the same times 2 (n - 1) / n.
    """

    size_bytes: int
    median_sec: float
    algorithm_gbps: float
    bus_gbps: float


class FabricRecord(Frozen):
    """What was found.

    Attributes:
        bus_bandwidth: the best of all sizes.
        expected: what the launcher expects of these machines.
        threshold: what `--fabric-min-gbps` demands.
        verdict: passed; below the threshold, so that the job did not start; or skipped.
        reason: why that verdict.
        points: every size that was measured.
    """

    bus_bandwidth: Quantity
    expected: Quantity
    threshold: Quantity
    verdict: Literal["passed", "below", "skipped"]
    reason: str
    points: tuple[FabricPoint, ...] = ()


SCHEMA_FILE = Path(__file__).with_name("run-record.schema.json")


class DataVerification(Frozen):
    """A node's data set, every file compared with its hash.

    Attributes:
        node: its rank.
        at: when, ISO 8601 UTC.
        host: by which machine.
        sec: that it took, beside the training.
        remembered: by an earlier session, since when no file was written; this one read nothing for it.
    """

    node: int
    at: str
    host: str
    sec: float
    remembered: bool


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
        data_verified: its data set on each node; empty where the session ended before all had, and in older records.
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
    it_joules: Quantity = Quantity.absent("J", "not recorded by that version")
    data_verified: tuple[DataVerification, ...] = ()


class InterruptionRecord(Frozen):
    """One stop before the end.

    Attributes:
        at: when the session stopped, ISO 8601 UTC.
        images: images the next session resumed from, or would.
        cause: spot-interruption, lifecycle-terminate, host-restart, max-hours, unhealthy-fabric, segment (the next
            is for other workers), the signal's name, failed or killed.
        lost_sec: seconds from the moment the run first held those images to the moment it went on from them:
            stopping, downtime, starting up, and any work that had to be done again.
        save_sec: of the checkpoint made at the stop.
        stop_sec: from the first worker's signal to the state on disk; a preemption leaves about 20 s.
    """

    at: str
    images: int
    cause: str
    lost_sec: Quantity
    save_sec: Quantity = Quantity.absent("s", "not recorded by that version")
    stop_sec: Quantity = Quantity.absent("s", "not recorded by that version")


class DatasetRecord(Frozen):
    """The data set, by content."""

    name: str
    sha256: str
    images: int


class Summary(Frozen):
    """A quantity over the run: its value at the end and its mean over all lines of stats.jsonl."""

    last: Quantity
    mean: Quantity


class EnergyRecord(Frozen):
    """Energy of the devices, and what the building added.

    Attributes:
        devices: joules by device, such as node0/cpu, node0/gpu3.
        it_joules: their sum.
        pue: facility energy over IT energy.
        facility_joules: IT energy times PUE.
    """

    devices: dict[str, Quantity]
    it_joules: Quantity
    pue: Quantity
    facility_joules: Quantity


class CarbonRecord(Frozen):
    """Emissions, location-based, and Software Carbon Intensity: (E * I + M) / R.

    Attributes:
        gco2e: operational: IT energy x PUE x grid intensity.
        intensity_g_per_kwh: of the grid.
        method: how `gco2e` came about.
        embodied_gco2e: the run's share of making its machines.
        embodied_gco2e_low: the same at the low end of what the sources leave open.
        embodied_gco2e_high: the same at the high end.
        sci_g_per_run: both, for the run.
        sci_g_per_kimg: both, for 1,000 images.
    """

    gco2e: Quantity
    intensity_g_per_kwh: Quantity
    method: str
    embodied_gco2e: Quantity = Quantity.absent("gCO2e", "not recorded by that version")
    embodied_gco2e_low: Quantity = Quantity.absent("gCO2e", "not recorded by that version")
    embodied_gco2e_high: Quantity = Quantity.absent("gCO2e", "not recorded by that version")
    sci_g_per_run: Quantity = Quantity.absent("gCO2e", "not recorded by that version")
    sci_g_per_kimg: Quantity = Quantity.absent("gCO2e/kimg", "not recorded by that version")


class CostRecord(Frozen):
    """Dollars of the nodes while they trained.

    Attributes:
        components: by kind of capacity.
        total_usd: their sum.
        uses: which nodes were of which kind, when, at which price; empty in older records.
    """

    components: dict[str, Quantity]
    total_usd: Quantity
    uses: tuple[CapacityUse, ...] = ()


class SegmentRecord(Frozen):
    """A stretch of a run of one batch size and precision.

    Attributes:
        from_image: real images shown before it.
        step: steps made before it.
        batch_size: global batch.
        batch_gpu: images a worker takes at once, 0 for all.
        precision: of the forward passes.
        lr_factor: of the run's step sizes.
        begun_at: images at which its newest session began it, or went on with it.
        world_size: workers of that session.
    """

    from_image: int
    step: int
    batch_size: int
    batch_gpu: int
    precision: str
    lr_factor: float
    begun_at: int
    world_size: int


class RunRecord(DigestedRecord):
    """The whole record, `run.json`.

    Attributes:
        status: running, interrupted (by an agreed stop, failed or killed: resume it) or done.
        notes: what a reader must know of stats.jsonl: lines that were lost, a session that was taken as killed.
        code_sha256: over the trainer's own source files.
        segments: stretches of equal batch and precision, of a run that has such a plan, or a controller; else empty.
        decisions: what a controller changed in its course; empty for a run without one.
        choices: what the newest session trained with (precision, shard, compile), each with its reason.
        fabric: the newest session's acceptance test; null in records from before there was one.
        utilisation: how well the machines were used; null in records from before it was counted.
        images: real images shown so far.
        wall_sec: training time of all sessions, without the gaps between them.
        quality: the newest value of each metric, of `python -m trainer evaluate` or computed while training.
        quality_in_training: metrics computed while training and what they cost; null where there were none.
        summaries: loss_g, loss_d, r1, grad_norm_g, grad_norm_d.
        state_sha256: digest of the final tensors of g, d, ema, opt_g and opt_d, to compare two runs bit for bit.
        files: what lies beside it: stats.jsonl, pictures, checkpoints' manifests; empty in older records, whose
            signature covers the record alone.
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
    wall_sec: Quantity
    images_per_sec: Quantity
    sec_per_kimg: Quantity
    scaling_efficiency: Quantity
    summaries: dict[str, Summary]
    quality: tuple[QualityRecord, ...]
    quality_in_training: QualityInTraining | None = None
    segments: tuple[SegmentRecord, ...] = ()
    decisions: tuple[DecisionRecord, ...] = ()
    choices: dict[str, str] = Field(default_factory=dict)
    fabric: FabricRecord | None = None
    utilisation: UtilisationRecord | None = None
    energy: EnergyRecord
    carbon: CarbonRecord
    cost: CostRecord
    peak_memory_gib: Quantity
    state_sha256: dict[str, str]
    files: dict[str, FileSum] = Field(default_factory=dict)
    versions: dict[str, str]

    @property
    def has_controller(self) -> bool:
        """Whether a controller decided, or observed, in any session."""
        return bool(self.decisions) or CONTROLLER in self.choices

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a run.json (TrainerError: missing, changed after writing, or of an incompatible version, which is
        named).
        """
        command = f"{program()} record --run-dir {shlex.quote(str(path.parent))}"
        fix = f"name a run directory that has run.json, or write it: {command}"
        content = read_input(path, fix, missing="no run record")
        try:
            return cls.model_validate_json(content)
        except ValidationError as error:
            found = from_validation(error, str(path), known=cls.model_fields)
            if changed := wrong_digest_error(error, path):
                raise changed from None
            if writer := get_writer(content):
                raise TrainerError(
                    place=found.place,
                    problem=f"this version does not read records of another one, {writer}: {found.problem}",
                    value=found.value,
                    allowed=found.allowed,
                    fix=f"read it with the version that wrote it, or write it anew of the run's own files: {command}",
                ) from None
            raise found from None


def schema() -> str:
    """The JSON schema of run.json, as committed in `run-record.schema.json`."""
    found = RunRecord.model_json_schema(mode="serialization")
    describe(found["$defs"][TrainConfig.__name__], ConfigFields)
    return json.dumps(found, indent=2, sort_keys=True) + "\n"
