"""The sections of a stack file that every provider reads, one per `gangway:` key; frozen and validated."""

import re
from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import AfterValidator, Discriminator, Field, StrictBool, Tag, field_validator, model_validator

from gangway.components.core.capacity import Moment, Rung
from gangway.components.core.fields import (
    Amount,
    Egress,
    LustreDeployment,
    Number,
    Percent,
    PercentBelow100,
    PositiveNumber,
    PositiveWhole,
    Seed,
    Several,
    Whole,
)
from gangway.components.core.findings import InputError, nearest_hint
from gangway.components.core.image_reference import DIGEST, LETTERS, NAME, ONE_VERSION, is_reference
from gangway.components.estimate.cost import HOURS_PER_MONTH
from gangway.components.estimate.regions import RegionLimits, check_jurisdiction, check_name
from gangway.components.estimate.spot import RESTART_SEC
from gangway.images.specs import PROMETHEUS_IMAGE
from gangway.stacks.config.job_settings import Overrides, Settings, check_settings, effective_config
from gangway.stacks.config.own_command import COMMAND_KEYS, CommandKeys, check_one_workload
from gangway.stacks.config.section import COMMAND_TAG, PRESET_TAG, Section
from gangway.trainer.config.parts.fields import MOST_KIMG
from gangway.trainer.config.presets import PRESETS
from gangway.trainer.config.train_config import TrainConfig
from gangway.trainer.config.values.control import ControlSettings

_EMAIL = re.compile(r"[^@\s]+@[^@\s.]+(\.[^@\s.]+)+")


def _check_email(value: str) -> str:
    if not _EMAIL.fullmatch(value):
        raise ValueError("an e-mail address; write it like ml-platform@example.com")
    return value


# The pattern is for messages only; the validator's own message says more.
_Email = Annotated[str, AfterValidator(_check_email), Field(json_schema_extra={"pattern": f"^{_EMAIL.pattern}$"})]


class NodesConfig(Section):
    """How many nodes.

    Attributes:
        min: fewest nodes that the job runs on.
        max: nodes that are requested.
    """

    min: Whole = Field(ge=1, le=512)
    max: Whole = Field(ge=1, le=512)

    @model_validator(mode="before")
    @classmethod
    def _reject_number(cls, value: Any) -> Any:
        if isinstance(value, int) and not isinstance(value, bool):
            raise ValueError(
                "a mapping with min and max, such as {min: 2, max: 4}; "
                f"write nodes: {{min: {max(value, 1)}, max: {max(value, 1)}}}"
            )
        return value

    @model_validator(mode="after")
    def _check_order(self) -> Self:
        if self.min > self.max:
            raise ValueError(f"min of at most max; set max: {self.min} or min: {self.max}")
        return self


class ClusterNodesConfig(NodesConfig):
    """How many nodes.

    Attributes:
        min: fewest nodes that the job runs on; in a cluster with a queue, nodes that stay up, from 0.
    """

    min: Whole = Field(ge=0, le=512)


class FabricCheckConfig(Section):
    """An all-reduce that measures the network between nodes before the job starts.

    Attributes:
        enabled: whether to measure.
        min_fraction: share of the fabric's nominal bandwidth below which the job does not start. Working fabrics reach
            half or more, TCP far less than a quarter.
    """

    enabled: StrictBool = True
    min_fraction: Number = Field(default=0.25, gt=0, le=1)


class BreakerConfig(Section):
    """Circuit breaker: stops launching nodes when too many have failed, until `gangway breaker reset`. With Slurm it
    counts machines of a rung that end before they join, and pauses that rung until one of its nodes is undrained.

    Attributes:
        given_up: failed nodes that trip it; if omitted, half of nodes.max and at least 4.
        minutes: period in which they are counted.
    """

    given_up: Several | None = Field(default=None, examples=[4])
    minutes: Whole = Field(default=180, ge=30, le=1440)


class IdleStopConfig(Section):
    """Ends a job whose GPUs are idle on all nodes, and removes the nodes. Counted as active: GPUs that cannot be
    measured, and nodes that prepare, compile, save or upload.

    Attributes:
        minutes: time without a break in which each GPU is idle.
        below_percent: utilization below which a GPU is idle.
    """

    minutes: Whole = Field(default=60, ge=10, le=1440)
    below_percent: Whole = Field(default=5, ge=1, le=50)


FEWEST_GIVEN_UP = 4


class MachineImageConfig(Section):
    """A machine image with the software of the nodes, which `up` builds from the provider's image, so that nodes start
    sooner. Nodes that run keep theirs.

    Attributes:
        keep: images that stay, the newest; `destroy` deletes all.
    """

    keep: Whole = Field(default=3, ge=2, le=20)


class ClusterConfig(Section):
    """The nodes: which accelerators, how many, from which capacity. Write either `accelerator` or `machine_type`.

    Attributes:
        accelerator: model and number per node, such as H100x8; or a TPU slice type, such as v5p-64, where one node is
            one slice.
        topology: topology of a TPU slice; the most cubic one if omitted.
        machine_type: machine type of the provider; `gangway catalog list` shows the known ones.
        capacity: ways to get nodes, called rungs, tried in this order.
        zone: zone of the nodes; the plan chooses one if omitted.
        image_id: machine image of the nodes; if omitted, the provider's image with NVIDIA's driver, the newest at the
            first `up`.
        image_refresh: change this number to take the newest images, also of the head, at the next `up`.
        software_refresh: change this number to bring machines and job from an earlier version of Gangway to the
            installed one: as a change of `job` does, it replaces or restarts them.
        root_volume_gib: size of each node's root volume.
        root_device_name: root device of `image_id`, AWS only; /dev/xvda for Amazon Linux.
    """

    accelerator: str | None = Field(default=None, examples=["H100x8"])
    topology: str | None = Field(default=None, pattern=r"^[0-9]+(x[0-9]+){1,2}$", examples=["4x4x8"])
    machine_type: str | None = Field(
        default=None,
        examples=["p5.48xlarge"],
    )
    nodes: ClusterNodesConfig = Field(examples=[{"min": 2, "max": 4}])
    capacity: tuple[Rung, ...] = Field(
        min_length=1,
        # An alarm's expression takes ten metrics, one of which is for steps.
        max_length=9,
        description="rungs, tried in this order",
        examples=[
            [{"kind": "spot", "max_usd_per_hour": 25}, {"kind": "on-demand"}],
            [{"kind": "capacity-block", "id": "cr-0123456789abcdef0"}],
        ],
    )
    zone: str | None = Field(
        default=None,
        examples=["us-east-2a"],
    )
    image_id: str | None = Field(
        default=None,
        # `gangway.stacks.loading.unsupported_settings` checks the provider's own form.
        pattern=r"^(ami-[0-9a-f]{8,17}|projects/[a-z0-9.:-]+/global/images/(family/)?[a-z]([a-z0-9-]*[a-z0-9])?"
        r"|/[A-Za-z]+(/[A-Za-z0-9_.()-]+)+|[A-Za-z0-9_.-]+(:[A-Za-z0-9_.-]+){2,3})$",
        examples=["ami-0123456789abcdef0"],
    )
    image_refresh: Whole = Field(default=0, ge=0, examples=[1])
    software_refresh: Whole = Field(default=0, ge=0, examples=[1])
    root_volume_gib: Whole = Field(default=200, ge=100, le=16384, examples=[200])
    root_device_name: str = Field(
        default="/dev/sda1", pattern=r"^/dev/(sd|xvd)[a-z][0-9]{0,2}$", examples=["/dev/xvda"]
    )
    fabric_check: FabricCheckConfig = FabricCheckConfig()
    breaker: BreakerConfig = BreakerConfig()
    idle_stop: IdleStopConfig | None = Field(default=None, examples=[{"minutes": 60, "below_percent": 5}])
    machine_image: MachineImageConfig | None = Field(default=None, examples=[{"keep": 3}])

    @property
    def given_up_limit(self) -> int:
        """Number of failed nodes that trips the breaker."""
        return self.breaker.given_up or max(FEWEST_GIVEN_UP, self.nodes.max // 2)

    @model_validator(mode="after")
    def _check_machine(self) -> Self:
        if (self.accelerator is None) == (self.machine_type is None):
            fix = "leave one of them out" if self.accelerator else "add one; `gangway catalog list` names both"
            raise ValueError(f"exactly one of accelerator and machine_type; {fix}")
        if self.image_id is None and "root_device_name" in self.model_fields_set:
            raise ValueError("root_device_name only with image_id; remove root_device_name")
        if self.image_id is not None and self.machine_image is not None:
            raise ValueError(
                "image_id and machine_image: nodes start from one of them; remove image_id, or machine_image, which is "
                "built from the provider's image"
            )
        return self


class StorageConfig(Section):
    """A shared file system, filled on first read from an object store.

    Attributes:
        kind: lustre on AWS, Google Cloud and Azure; filestore, cheaper NFS on Google Cloud; manila on OpenStack.
        deployment: scratch is cheaper, has one fixed throughput and loses data with a failed server; lustre only.
        capacity_gib: size; the plan names the sizes that the provider sells.
        throughput_mbps_per_tib: throughput per TiB of a persistent file system.
        efa: whether nodes reach it over EFA, AWS only; cannot be changed later.
        efa_setup_sha256: hash of AWS's EFA setup archive, which nodes run as root, if AWS has changed it.
        metadata_iops: metadata IOPS beyond those that come with the size.
        source: bucket, or folder in one, whose objects appear under /data.
        export_runs: whether to also copy /runs to the run bucket.
        tier: tier of a filestore.
    """

    kind: Literal["lustre", "filestore", "manila"]
    deployment: LustreDeployment = LustreDeployment.PERSISTENT
    capacity_gib: Whole = Field(gt=0)
    throughput_mbps_per_tib: PositiveWhole | None = None
    efa: StrictBool = False
    efa_setup_sha256: str | None = Field(default=None, pattern=r"^[0-9a-f]{64}$", examples=["0123456789abcdef" * 4])
    metadata_iops: PositiveWhole | None = None
    export_runs: StrictBool = False
    source: str | None = Field(
        default=None,
        pattern=r"^(s3|gs|az)://[a-z0-9][a-z0-9._-]{1,61}[a-z0-9](/[^*?\s]*)?$",
        description="without * ? and blanks",
        examples=["s3://my-bucket/celeba"],
    )
    tier: Literal["basic-hdd", "basic-ssd", "zonal"] | None = None


class LimitsConfig(Section):
    """What jobs may spend, in US dollars. A job counts with all its hours on all its nodes until it has ended.

    Attributes:
        job_usd: of one job.
        usd_per_hour: of the whole stack, or of all jobs of an engine, with all nodes up.
        user_usd_per_month: of one user's jobs in a calendar month (UTC); with a queue only.
        team_usd_per_month: of one team's jobs in a calendar month (UTC); with a queue only.
        usd_per_node_hour: price by which a stack ends its running job at job_usd; the plan names the list price.
    """

    job_usd: PositiveNumber | None = Field(default=None, examples=[500])
    usd_per_hour: PositiveNumber | None = Field(default=None, examples=[120])
    user_usd_per_month: PositiveNumber | None = Field(default=None, examples=[2000])
    team_usd_per_month: PositiveNumber | None = Field(default=None, examples=[9000])
    usd_per_node_hour: PositiveNumber | None = Field(default=None, examples=[55.04])


class BudgetConfig(Section):
    """A monthly limit, with alerts.

    Attributes:
        monthly_usd: the limit.
        emails: addresses that get the alerts.
        alert_percent: percentages of the limit at which to send an alert.
        stop_at_percent: percentage of the limit at which all node groups are set to zero; no stop if omitted.
        limits: what jobs may spend; these block a submit or `up`, and end a job.
        activate_tag: whether to activate the stack's cost allocation tag, AWS only. AWS refuses it until it has seen
            the tag, up to a day after the first `up`.
    """

    monthly_usd: Number = Field(gt=0)
    emails: tuple[_Email, ...] = Field(min_length=1, max_length=10)
    alert_percent: tuple[Percent, ...] = Field(default=(50, 80, 100), max_length=4)
    stop_at_percent: Percent | None = Field(default=None, examples=[100])
    limits: LimitsConfig | None = Field(default=None, examples=[{"job_usd": 500, "usd_per_node_hour": 55.04}])
    activate_tag: StrictBool = False


_BASE64 = r"^[A-Za-z0-9+/]+={0,2}$"
_SIGNATURE_COMMAND = "`gangway signature IMAGE --key FILE`"


class SignatureConfig(Section):
    """cosign's signature of the prebuilt image. With a public key, machines verify it before they run the image;
    keyless, with identity and issuer, `up` verifies it with cosign.

    Attributes:
        public_key: public key as in cosign.pub: PEM, ECDSA on P-256.
        payload: the signed payload, base64.
        signature: the signature, base64.
        signed_as: registry and repository in the payload, if the image was copied from another registry.
        identity: identity in the certificate: an e-mail address or a URL.
        issuer: URL of the identity provider.
    """

    public_key: str | None = Field(default=None, min_length=1, json_schema_extra={"value_source": _SIGNATURE_COMMAND})
    payload: str | None = Field(default=None, pattern=_BASE64, json_schema_extra={"value_source": _SIGNATURE_COMMAND})
    signature: str | None = Field(default=None, pattern=_BASE64, json_schema_extra={"value_source": _SIGNATURE_COMMAND})
    signed_as: str | None = Field(default=None, pattern=f"^{NAME}$", examples=["registry.example.com/gan/trainer"])
    identity: str | None = Field(default=None, min_length=1, examples=["releases@example.com"])
    issuer: str | None = Field(
        default=None, pattern=r"^https://[^\s]+$", examples=["https://token.actions.githubusercontent.com"]
    )

    @model_validator(mode="after")
    def _check_kind(self) -> Self:
        by_key = (self.public_key, self.payload, self.signature)
        keyless = (self.identity, self.issuer)
        if all(by_key) and not any(keyless):
            return self
        if all(keyless) and not any((*by_key, self.signed_as)):
            return self
        raise ValueError(
            "either public_key, payload and signature, which machines verify, or identity and issuer, which `up` "
            f"verifies with cosign; {_SIGNATURE_COMMAND} prints the first three"
        )


class ImageConfig(Section):
    """The trainer's container image. `up` builds and pushes it unless `prebuilt` names one.

    Attributes:
        prebuilt: an existing image by digest: `<registry>/<repository>@sha256:<digest>`.
        signature: signature of that image, which is verified.
    """

    prebuilt: str | None = Field(
        default=None,
        # The provider checks the form, since it can suggest the stack's region.
        min_length=1,
        json_schema_extra={"pattern": f"@{DIGEST}$"},
        examples=[f"123456789012.dkr.ecr.us-east-2.amazonaws.com/gan/trainer@sha256:{'0123456789abcdef' * 4}"],
    )

    signature: SignatureConfig | None = Field(
        default=None,
        examples=[{"identity": "releases@example.com", "issuer": "https://token.actions.githubusercontent.com"}],
    )

    @field_validator("prebuilt")
    @classmethod
    def _check_letters(cls, image: str | None) -> str | None:
        if image is not None and not set(image) <= LETTERS:
            raise ValueError(
                "<registry>/<repository>@sha256:<digest>; remove all but letters, digits and . _ - / : @ [ ]"
            )
        return image


MOST_HOURS = 24 * 28
LEAST_KIMG, LEAST_HOURS = 0.001, 0.01
"""One image, and 36 seconds. Anything shorter is a mistake and makes the plan's figures meaningless."""


class AutoscaleConfig(Section):
    """An objective that decides how many nodes the job gets.

    Attributes:
        deadline: when the job must be done.
        images_per_sec: throughput of the job.
        budget_usd: most that the run may cost; has priority over the other two.
        least_images_per_usd: images per dollar that the last nodes must add, or they are left out.
        hold_minutes: time between two changes.
    """

    deadline: Moment | None = Field(default=None, examples=["2027-01-31T18:00:00Z"])
    images_per_sec: PositiveNumber | None = Field(default=None, examples=[5000])
    budget_usd: PositiveNumber | None = Field(default=None, examples=[2000])
    least_images_per_usd: PositiveNumber | None = Field(default=None, examples=[100000])
    hold_minutes: Number = Field(default=15, ge=1, le=1440)

    @model_validator(mode="after")
    def _check_objective(self) -> Self:
        if self.deadline is None and self.images_per_sec is None and self.budget_usd is None:
            raise ValueError("at least one of deadline, images_per_sec and budget_usd; add images_per_sec: 5000")
        return self


_COMMAND_KEYS = (*COMMAND_KEYS, "processes_per_node")
"""A preset always has one process per accelerator."""


class StackJob(Section):
    """Keys of any job of a stack.

    Attributes:
        max_hours: the nodes stop the job after this; the plan prices it. Time without any node does not count.
        keep_runs: false lets `destroy` delete the run bucket with all its records.
        terminate_when_done: whether each node leaves its group when the job has ended: done, out of time, or after an
            error that no retry can fix.
        member_key_refresh: change this number to renew the member key at the next `up`.
    """

    max_hours: Number = Field(ge=LEAST_HOURS, le=MOST_HOURS)
    keep_runs: StrictBool = True
    terminate_when_done: StrictBool = False
    member_key_refresh: Whole = Field(default=0, ge=0, examples=[1])


class JobConfig(StackJob):
    """A preset of the trainer.

    Attributes:
        preset: the preset's name; `gangway presets` lists them.
        kimg: length of the run.
        checkpoint_kimg: distance of two checkpoints; the preset's if omitted.
        seed: seed of initial weights, image order, latents and augmentation; the preset's if omitted.
        settings: other fields of the training configuration, instead of the preset's values.
        run_id: id of the run record; generated if omitted.
        controller: changes settings of the run while it trains, within bounds; none if omitted.
        autoscale: objective that decides how many nodes the job gets; `gangway job --scale` applies it.
    """

    preset: str = Field(json_schema_extra={"pattern": f"^({'|'.join(PRESETS)})$"})
    kimg: Number = Field(ge=LEAST_KIMG, le=MOST_KIMG, json_schema_extra={"usual": "StyleGAN2 trains for 25,000 kimg"})
    checkpoint_kimg: PositiveNumber | None = Field(default=None, examples=[100])
    seed: Seed | None = Field(default=None, examples=[1])
    settings: Settings = Field(
        default={},
        examples=[{"batch_size": 256, "precision": "bf16"}],
        json_schema_extra={"takes": [*TrainConfig.model_fields]},
    )
    run_id: str | None = Field(default=None, pattern=r"^[a-z0-9][a-z0-9._-]{0,99}$", examples=["digits-s0-20260101"])
    controller: ControlSettings | None = Field(
        default=None, examples=[{"policy": "rules", "objective": "time", "bounds": {"batch_size": [256, 1024]}}]
    )

    autoscale: AutoscaleConfig | None = Field(default=None, examples=[{"deadline": "2027-01-31T18:00:00Z"}])

    @model_validator(mode="before")
    @classmethod
    def _reject_command_keys(cls, value: Any) -> Any:
        if isinstance(value, dict) and (odd := [name for name in _COMMAND_KEYS if name in value]):
            raise ValueError(f"{odd[0]} only with command; leave {odd[0]} out")
        return value

    @field_validator("preset")
    @classmethod
    def _check_preset(cls, preset: str) -> str:
        if preset not in PRESETS:
            raise ValueError(f"one of {', '.join(PRESETS)}; {nearest_hint(preset, PRESETS)}")
        return preset

    @model_validator(mode="after")
    def _check_settings(self) -> Self:
        check_settings(self.preset, self.settings)
        return self

    def overrides(self, backend: str | None = None) -> Overrides:
        """Fields of the trainer's configuration with their own key, and the backend that the machines need."""
        return {"backend": backend, "kimg": self.kimg, "checkpoint_kimg": self.checkpoint_kimg, "seed": self.seed}

    def effective_config(self) -> TrainConfig:
        """The configuration that nodes train, apart from the backend that their machines may need."""
        return effective_config(self.preset, self.settings, self.overrides())


class _WithoutTrainer(StackJob):
    run_id: ClassVar[None] = None
    controller: ClassVar[None] = None
    autoscale: ClassVar[None] = None


class QueueWork(_WithoutTrainer):
    """Replaces the job if the stack is a cluster with a queue; not a section of the stack file."""

    max_hours: Number = HOURS_PER_MONTH


class CommandConfig(_WithoutTrainer, CommandKeys):
    """A custom command in your own container."""

    @model_validator(mode="before")
    @classmethod
    def _check_workload(cls, value: Any) -> Any:
        if isinstance(value, dict):
            check_one_workload(
                value,
                has_preset="preset" in value,
                has_command=bool(value.get("command")),
                of_a_preset=sorted(JobConfig.model_fields.keys() - cls.model_fields.keys() - {"preset"}),
            )
        return value


def _job_tag(value: Any) -> str:
    if isinstance(value, dict):
        return COMMAND_TAG if "command" in value else PRESET_TAG
    return COMMAND_TAG if isinstance(value, CommandConfig) else PRESET_TAG


AnyJob = Annotated[
    Annotated[JobConfig, Tag(PRESET_TAG)] | Annotated[CommandConfig, Tag(COMMAND_TAG)], Discriminator(_job_tag)
]


class NetworkConfig(Section):
    """The stack's network.

    Attributes:
        cidr: address range of the network.
        egress: how nodes reach the provider's services: private endpoints, or a NAT gateway to the internet.
        dns_firewall: with `egress: endpoints`, whether to resolve only the names that the stack needs.
        flow_logs: whether to record flow logs.
    """

    cidr: str = Field(default="10.42.0.0/16", examples=["10.42.0.0/16"])
    egress: Egress = Egress.ENDPOINTS
    dns_firewall: StrictBool = True
    flow_logs: StrictBool = True


class HeadConfig(Section):
    """The small node with the rendezvous store of a job on several nodes, and Prometheus.

    Attributes:
        machine_type: if omitted, t3.medium, e2-medium or Standard_D2s_v5; on OpenStack required with several nodes.
        prometheus_image: image of Prometheus, or null for none. It is pulled from the internet: without a NAT gateway
            there is no Prometheus.
    """

    machine_type: str | None = Field(
        default=None,
        min_length=1,
        examples=["t3.medium"],
    )
    prometheus_image: str | None = Field(
        default=PROMETHEUS_IMAGE,
        json_schema_extra={"pattern": f"^{ONE_VERSION}$"},
        examples=[PROMETHEUS_IMAGE],
    )

    @field_validator("prometheus_image")
    @classmethod
    def _check_version(cls, image: str | None) -> str | None:
        if image is None:
            return None
        if image.endswith(":latest"):
            raise ValueError(f"an image of one version; write {image.removesuffix('latest')}v3.5.0")
        if not is_reference(image, ONE_VERSION):
            raise ValueError("<registry>/<repository>:<tag> or @sha256:<digest>; specify a version of Prometheus")
        return image


class ObserveConfig(Section):
    """Logs and alarms.

    Attributes:
        log_days: how long to keep logs.
        no_steps_minutes: time without a training step after which an alarm is sent.
        hardware: metrics of GPUs, fabric and file systems in Prometheus, with alerts. Off by default: nodes pull two
            more images, and a GPU whose counters are read cannot be profiled by Nsight.
    """

    log_days: Whole = Field(default=30, gt=0)
    no_steps_minutes: Whole = Field(default=30, ge=10, le=1440)
    hardware: bool = False


class EstimateConfig(Section):
    """Measured figures of an earlier run, which replace the plan's estimates.

    Attributes:
        taken_percent_per_month: share of spot nodes interrupted within 720 hours; the catalogue's if omitted.
        images_per_second: throughput of the whole job; projected, with a range, if omitted.
        checkpoint_sec: how long training pauses for a checkpoint; estimated from its size if omitted.
        restart_sec: from a node's end to the next training step.
        source_gib: size of storage.source, for its transfer from another region.
        source_region: region of storage.source; the stack's region if omitted.
        nat_gib: traffic of a run through the NAT gateway: packages, images.
        log_gib: logs of a run.
        download_gib: results of a run that leave the cloud.
        run_bucket_gib: size of the run bucket.
        image_gib: size of the image registry.
        flow_log_gib: flow logs of a run, if billed apart from log lines.
        key_operations: operations of a run with the stack's key.
    """

    taken_percent_per_month: PercentBelow100 | None = Field(default=None, examples=[8])
    images_per_second: PositiveNumber | None = Field(default=None, examples=[1200])
    checkpoint_sec: PositiveNumber | None = Field(default=None, examples=[3])
    restart_sec: Number = Field(default=RESTART_SEC, ge=0, examples=[420])
    source_gib: Amount | None = Field(default=None, examples=[40])
    source_region: str | None = Field(default=None, min_length=1, examples=["us-east-1"])
    nat_gib: Amount | None = Field(default=None, examples=[60])
    log_gib: Amount | None = Field(default=None, examples=[1])
    download_gib: Amount | None = Field(default=None, examples=[5])
    run_bucket_gib: Amount | None = Field(default=None, examples=[200])
    image_gib: Amount | None = Field(default=None, examples=[20])
    flow_log_gib: Amount | None = Field(default=None, examples=[0.5])
    key_operations: Amount | None = Field(default=None, examples=[100000])


# The reader of the file adds the place.
_RegionName = Annotated[str, AfterValidator(lambda entry: check_name(entry, ""))]
_Jurisdiction = Annotated[str, AfterValidator(lambda word: check_jurisdiction(word, ""))]
_MOST_REGIONS = 200


class RegionsConfig(Section):
    """Where the stack or job and its data may be.

    Attributes:
        allow: only these regions: names, or prefixes of names.
        deny: not these regions, even if `allow` or `residency` permits them.
        residency: only these countries or groups of countries.
    """

    allow: tuple[_RegionName, ...] = Field(
        default=(), max_length=_MOST_REGIONS, examples=[["aws:eu-", "gcp:europe-west4"]]
    )
    deny: tuple[_RegionName, ...] = Field(default=(), max_length=_MOST_REGIONS, examples=[["aws:eu-west-2"]])
    residency: tuple[_Jurisdiction, ...] = Field(default=(), max_length=_MOST_REGIONS, examples=[["EU", "CH"]])

    @property
    def limits(self) -> RegionLimits:
        """The section as planners take it."""
        return RegionLimits(self.allow, self.deny, self.residency)


def parse_limits(allow: str | None, deny: str | None, residency: str | None) -> RegionLimits:
    """Parses a command's options, each a list with commas. InputError: an unknown region or jurisdiction."""

    def words(option: str, text: str | None) -> Sequence[str]:
        found = () if text is None else tuple(word.strip() for word in text.split(","))
        if "" in found:
            raise InputError(
                option, "has an empty name", value=text, allowed="names separated by commas", fix="remove it"
            )
        return found

    return RegionLimits(
        tuple(check_name(word, "--allow") for word in words("--allow", allow)),
        tuple(check_name(word, "--deny") for word in words("--deny", deny)),
        tuple(check_jurisdiction(word, "--residency") for word in words("--residency", residency)),
    )
