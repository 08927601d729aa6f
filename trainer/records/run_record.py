"""The run record (run.json), every quantity with its provenance, and the launcher's context that it contains."""

import json
import shlex
from pathlib import Path
from typing import Literal, Self

from pydantic import Field, ValidationError

from gangway.trainer.config.parts.fields import ConfigFields
from gangway.trainer.config.train_config import TrainConfig
from gangway.trainer.core.docstrings import describe
from gangway.trainer.core.errors import TrainerError
from gangway.trainer.core.files import read_input, read_text_input
from gangway.trainer.core.host import code_sha256, program
from gangway.trainer.core.validation import from_validation
from gangway.trainer.records.decisions import CONTROLLER, DecisionRecord
from gangway.trainer.records.digest import DigestedRecord, FileSum, wrong_digest_error
from gangway.trainer.records.quality import QualityInTraining, QualityRecord
from gangway.trainer.records.quantity import Frozen, Quantity

SCHEMA_VERSION = 1  # Version of records. Later fields have defaults, so that all records of this version are readable.


def get_writer(content: bytes) -> str:
    """Schema, code and torch of another writing version; empty for this one or an unknown one."""
    try:
        values = json.loads(content)
    except (ValueError, RecursionError):
        return ""
    if not isinstance(values, dict):
        return ""
    schema, code, versions = (values.get(name) for name in ("schema_version", "code_sha256", "versions"))
    if not isinstance(schema, int) or not isinstance(code, str):
        return ""
    if schema == SCHEMA_VERSION and code == code_sha256():
        return ""
    torch = versions.get("torch") if isinstance(versions, dict) else None
    return f"schema {schema}, code {code[:12]}{f', torch {torch:.20}' if isinstance(torch, str) else ''}"


class RunContext(Frozen):
    """What only the launcher knows; copied into the record from the `--context` file.

    Attributes:
        run_id: empty for one the trainer makes up.
        capacity: kinds of capacity in use, such as ("spot", "on-demand").
        usd_per_hour: of one node of the first kind.
        usd_per_hour_by_kind: of one node, by kind of capacity.
        pue: power usage effectiveness of the data centre.
        intensity_g_per_kwh: of its grid, gCO2e/kWh, location-based.
        accelerator_watts: board power of one accelerator, W; for estimates without a meter.
        accelerator_utilisation: mean share of board power while training, 0..1.
        accelerators_per_node: 0 if unknown.
        embodied_kg_per_accelerator: emissions of making the machine per accelerator, kg CO2e; _low and _high bound
            them.
        accelerator_life_hours: hours of use that share these emissions.
        host_watts: power of one node without accelerators, W; for estimates without a meter.
        fabric_gbps: expected bus bandwidth of an all-reduce over several nodes, Gbit/s.
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
        """Read a context file (TrainerError: missing, not JSON, an unknown key or a bad value)."""
        try:
            return cls.model_validate_json(read_text_input(path, "give --context an existing JSON file"))
        except ValidationError as error:
            raise from_validation(error, str(path), known=cls.model_fields) from None


class CapacityUse(Frozen):
    """Nodes of one kind of capacity (empty: unknown) in one session, counted from 0, and their cost. `start` and `end`
    are the session's, ISO 8601 UTC; `usd_per_hour` is of one node.
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
    """One message size per worker, median of the slowest. Bus bandwidth: size / time x 2 (n - 1) / n, Gbit/s."""

    size_bytes: int
    median_sec: float
    algorithm_gbps: float
    bus_gbps: float


class FabricRecord(Frozen):
    """Result of the fabric check.

    Attributes:
        bus_bandwidth: the best of all sizes.
        expected: what the launcher expects of these machines.
        threshold: what `--fabric-min-gbps` demands.
        verdict: passed; below the threshold, so that the job did not start; or skipped.
    """

    bus_bandwidth: Quantity
    expected: Quantity
    threshold: Quantity
    verdict: Literal["passed", "below", "skipped"]
    reason: str
    points: tuple[FabricPoint, ...] = ()


SCHEMA_FILE = Path(__file__).with_name("run-record.schema.json")


class DataVerification(Frozen):
    """A node's verified data set; `remembered`: by an earlier session, nothing was read again."""

    node: int
    at: str
    host: str
    sec: float
    remembered: bool


class SessionRecord(Frozen):
    """One part of the run in one set of processes.

    Attributes:
        start: of its first step, ISO 8601 UTC.
        end: its last known moment; for a killed session its last line.
        world_size: number of processes.
        ended_by: done, interrupt (agreed stop with a checkpoint), failed (an error, in notes), killed (no last line,
            and a later session began or its last line is old), or running.
        wall_sec: from its first step to its end.
        backend: collectives, with the reason for them.
        capacity: kind of capacity of each node by rank; empty in older records.
        it_joules: energy of its devices.
        data_verified: its data set on each node; empty if the session ended before, and in older records.
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
        images: from which the next session resumed, or would.
        cause: spot-interruption, lifecycle-terminate, host-restart, max-hours, unhealthy-fabric, segment (the next
            needs other workers), the signal's name, failed or killed.
        lost_sec: from first holding those images to resuming from them: stop, downtime, start and repeated work.
        save_sec: of the checkpoint at the stop.
        stop_sec: from the first worker's signal to the saved state; a preemption leaves about 20 s.
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
    """Energy in joules by device, such as node0/cpu or node0/gpu3, their sum, and that times PUE."""

    devices: dict[str, Quantity]
    it_joules: Quantity
    pue: Quantity
    facility_joules: Quantity


class CarbonRecord(Frozen):
    """Emissions, location-based, and Software Carbon Intensity: (E * I + M) / R.

    Attributes:
        gco2e: operational: IT energy x PUE x grid intensity.
        embodied_gco2e: the run's share of making its machines; _low and _high bound it.
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
    """Dollars of the nodes while they trained, by kind of capacity; `uses` is empty in older records."""

    components: dict[str, Quantity]
    total_usd: Quantity
    uses: tuple[CapacityUse, ...] = ()


class SegmentRecord(Frozen):
    """A part of a run with one batch size and precision.

    Attributes:
        from_image: real images shown before it; `step` steps.
        batch_gpu: images a worker takes at once, 0 for all.
        lr_factor: of the run's step sizes.
        begun_at: images at which its newest session, with `world_size` workers, began or continued it.
    """

    from_image: int
    step: int
    batch_size: int
    batch_gpu: int
    precision: str
    lr_factor: float
    begun_at: int
    world_size: int


UNCOUNTED = "the lines are of a version that did not count it"


class UtilisationRecord(Frozen):
    """Use of the machines, over all sessions. Shares are 0..1.

    Attributes:
        flop_per_image: counted work of a step per real image.
        peak_flops: of one device in the run's number format.
        mfu: model FLOPs utilisation: work over what all devices could have done at peak in that time.
        loader_stall_share: of the wall time that steps waited for images.
        checkpoint_stall_share: waits for a copy of the state or the previous save; saves beside training do not count.
        telemetry_share: waits for statistics lines, sample grids and trackers.
        controller_share: waits for decisions and their changes, in sessions with a controller.
        cpu_utilisation: CPU time of the workers over their nodes' cores.
        gpu_utilisation: share of the time in which a GPU ran any kernel, as NVML samples it.
        host_memory_gib: in use on all nodes by all processes; the maximum of all lines.
    """

    flop_per_image: Quantity
    peak_flops: Quantity
    mfu: Quantity
    loader_stall_share: Quantity
    checkpoint_stall_share: Quantity
    telemetry_share: Quantity
    cpu_utilisation: Quantity
    gpu_utilisation: Quantity
    host_memory_gib: Quantity
    controller_share: Quantity = Quantity.absent("1", UNCOUNTED)


class RunRecord(DigestedRecord):
    """The whole record, `run.json`.

    Attributes:
        status: running, interrupted (by an agreed stop, failed or killed: resume it) or done.
        notes: caveats of stats.jsonl: lost lines, a session that counts as killed.
        code_sha256: over the trainer's source files.
        segments: parts with equal batch and precision, with a plan or a controller.
        choices: what the newest session trained with (precision, shard, compile), each with its reason.
        fabric: the newest session's acceptance test; null in older records.
        utilisation: null in older records.
        images: real images shown so far.
        wall_sec: training time of all sessions, without the gaps between them.
        quality: the newest value of each metric, of `python -m gangway.trainer evaluate` or computed while training.
        summaries: loss_g, loss_d, r1, grad_norm_g, grad_norm_d.
        state_sha256: of the final tensors of g, d, ema, opt_g and opt_d, to compare two runs bit for bit.
        files: stats.jsonl, pictures, checkpoints' manifests; empty in older records, whose signature omits them.
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
        """Read a run.json (TrainerError: missing, changed after writing, or of a named incompatible version)."""
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
                    fix=f"read it with the version that wrote it, or write it again from the run's files: {command}",
                ) from None
            raise found from None


def schema() -> str:
    """The JSON schema of run.json, as committed in `run-record.schema.json`."""
    found = RunRecord.model_json_schema(mode="serialization")
    describe(found["$defs"][TrainConfig.__name__], ConfigFields)
    return json.dumps(found, indent=2, sort_keys=True) + "\n"
