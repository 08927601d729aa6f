"""StackConfig: one environment as `stacks/Pulumi.<stack>.yaml` declares it, frozen and validated."""

from collections.abc import Iterator
from typing import Any, Literal, TypeVar

from pydantic import Field, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError

from gangway.components.catalog.site import SiteConfig
from gangway.components.core.findings import InputError
from gangway.components.core.image_reference import ImageSignature, checked_signature, signed_name
from gangway.stacks.config.engine_settings import AnyEngine, KubernetesConfig, SlurmConfig, SystemdConfig
from gangway.stacks.config.identity import is_valid_identity
from gangway.stacks.config.section import Section
from gangway.stacks.config.sections import (
    AnyJob,
    BudgetConfig,
    ClusterConfig,
    CommandConfig,
    EstimateConfig,
    HeadConfig,
    ImageConfig,
    JobConfig,
    NetworkConfig,
    ObserveConfig,
    QueueWork,
    RegionsConfig,
    StorageConfig,
)

SectionT = TypeVar("SectionT", bound=Section)


def _check_quotas(engine: SlurmConfig | KubernetesConfig, cluster: ClusterConfig) -> None:
    promised, most = sum(team.nodes for team in engine.teams), cluster.nodes.max
    needs = [(promised, f"gangway:engine.teams guarantees {promised} nodes", "guarantee fewer nodes")]
    for team in engine.teams:
        problem = f"team {team.name} of gangway:engine.teams may use {team.max_nodes} nodes"
        needs.append((team.max_nodes or 0, problem, "a smaller max_nodes"))
    for nodes, problem, otherwise in needs:
        if nodes > most:
            fix = f"write max: {nodes}, or {otherwise}"
            raise InputError("nodes.max", problem, value=most, allowed=f"at least {nodes}", fix=fix)


class StackConfig(Section):
    """One environment, as its stack file declares it. The loader adds a field for each provider's section
    (`gangway.stacks.loading.loader.stack_model`), which `section` finds by type, and sets `stack` and `stack_name`.

    Attributes:
        stack: its identity (`gangway.stacks.config.identity`), which all names, tags and filters carry.
        stack_name: its name among the project's stacks, for commands.
        identity: prefix of all names and value of the stack's tag; derived from project and stack if omitted.
        provider: where the machines come from.
        region: region of the provider; with hosts, any name for the site.
        engine: what runs jobs: units on the nodes for the job of this file, or a Slurm or Kubernetes cluster with
            queues.
        job: the job of the stack, with `preset` or `command`; required without a queue, refused with one.
        encryption: key for data at rest: the provider's own, at no cost, or a key of the stack.
        allow_replace: names of file systems and buckets that an update may replace or delete with their data.
        tags: tags of all resources; team and cost_center are required.
    """

    stack: str
    stack_name: str = Field(default_factory=lambda data: data.get("stack", ""))
    identity: str = Field(default="", examples=["team-a-dev"])
    provider: str = "aws"
    region: str = Field(
        examples=["us-east-2"],
    )
    engine: AnyEngine = Field(default=SystemdConfig(), examples=[{"kind": "systemd"}])
    cluster: ClusterConfig = Field(
        examples=[{"accelerator": "H100x8", "nodes": {"min": 2, "max": 4}, "capacity": [{"kind": "on-demand"}]}],
    )
    storage: StorageConfig | None = Field(
        default=None,
        examples=[{"kind": "lustre", "capacity_gib": 9600, "throughput_mbps_per_tib": 500}],
    )
    budget: BudgetConfig = Field(
        examples=[{"monthly_usd": 50000, "emails": ["ml-platform@example.com"], "alert_percent": [50, 80, 100]}]
    )
    job: AnyJob | None = Field(
        default=None, validate_default=True, examples=[{"preset": "dcgan-digits", "kimg": 150, "max_hours": 1}]
    )
    image: ImageConfig = ImageConfig()
    network: NetworkConfig = Field(default=NetworkConfig(), examples=[{"egress": "nat"}])
    head: HeadConfig = HeadConfig()
    observe: ObserveConfig = ObserveConfig()
    estimate: EstimateConfig = Field(default=EstimateConfig(), examples=[{"images_per_second": 1200, "source_gib": 40}])
    regions: RegionsConfig = Field(default=RegionsConfig(), examples=[{"residency": ["EU"], "deny": ["aws:eu-west-2"]}])
    encryption: Literal["provider-key", "customer-key"] = "provider-key"
    site: SiteConfig | None = Field(
        default=None,
        examples=[
            {
                "as_of": "2026-11-01",
                "accelerator": "H100x8",
                "vcpus": 224,
                "memory_gib": 2048,
                "interconnect": "nvswitch",
            }
        ],
    )
    allow_replace: tuple[str, ...] = Field(default=(), max_length=20, examples=[["aws-demo-lustre"]])
    tags: dict[str, str] = Field(examples=[{"team": "ml-platform", "cost_center": "4711"}])

    @field_validator("engine", mode="before")
    @classmethod
    def _default_engine(cls, engine: Any) -> Any:
        return engine or SystemdConfig()

    @field_validator("stack", "identity")
    @classmethod
    def _check_identity(cls, identity: str, info: ValidationInfo) -> str:
        setting = info.field_name == "identity"
        if not is_valid_identity(identity) and not (setting and not identity):
            raise ValueError(
                "1 to 40 of a-z, 0-9 and -, starting with a letter, not with sg-, not ending with -; "
                + ("write another identity, or leave it out" if setting else "rename the stack")
            )
        return identity

    @field_validator("storage", "site", mode="before")
    @classmethod
    def _empty_is_none(cls, value: Any) -> Any:
        return value or None

    @field_validator("tags")
    @classmethod
    def _check_tags(cls, tags: dict[str, str]) -> dict[str, str]:
        if missing := [key for key in ("team", "cost_center") if not tags.get(key)]:
            raise ValueError(f"tags with team and cost_center; add {' and '.join(missing)}")
        return tags

    @field_validator("cluster")
    @classmethod
    def _check_nodes(cls, cluster: ClusterConfig, info: ValidationInfo) -> ClusterConfig:
        engine = info.data.get("engine")
        if isinstance(engine, SystemdConfig) and cluster.nodes.min == 0:
            raise InputError(
                "nodes.min",
                "a stack's job needs at least one node",
                value=0,
                allowed="1 to 512; 0 only with a queue in gangway:engine",
                fix="write min: 1",
            )
        if isinstance(engine, SlurmConfig | KubernetesConfig):
            _check_quotas(engine, cluster)
        return cluster

    @field_validator("job", mode="before")
    @classmethod
    def _check_job(cls, job: Any, info: ValidationInfo) -> Any:
        engine = info.data.get("engine")
        if engine is None:  # it is invalid and reported itself
            return job
        job = job or None
        if job is None and not engine.has_queue:
            raise PydanticCustomError("missing", "Field required")
        if job is not None and engine.has_queue:
            raise InputError(
                "",
                "a cluster with a queue cannot have its own job",
                value=engine.kind,
                allowed="gangway:job only without gangway:engine, or with kind: systemd",
                fix="leave gangway:job out, and submit the job: gangway job submit FILE",
            )
        return job

    def find_section(self, model: type[SectionT]) -> SectionT | None:
        """The section of the stack's provider; None if the stack has none."""
        return next((value for _, value in self if isinstance(value, model)), None)

    def section(self, model: type[SectionT]) -> SectionT:
        """The section of the stack's provider, which the loader requires."""
        found = self.find_section(model)
        assert found is not None, f"{self.provider} has no section {model.__name__}"
        return found

    @property
    def work(self) -> JobConfig | CommandConfig | QueueWork:
        """The job, or in a cluster with a queue a month of work."""
        if self.job is not None:
            return self.job
        assert isinstance(self.engine, SlurmConfig | KubernetesConfig), "a job is required without a queue"
        return QueueWork(keep_runs=self.engine.keep_runs)

    @property
    def nodes_leave(self) -> bool:
        """Whether nodes may leave their group by themselves."""
        return self.work.terminate_when_done or self.cluster.idle_stop is not None

    @property
    def expected_nodes(self) -> int:
        """The number of nodes that should be up; the minimum for an autoscaled job."""
        nodes = self.cluster.nodes
        return nodes.max if self.work.autoscale is None else nodes.min

    @property
    def trains(self) -> bool:
        """Whether the job is a preset; speed, memory and energy of other work are unknown."""
        return isinstance(self.job, JobConfig)

    @property
    def training(self) -> JobConfig:
        """The job, which must be a preset."""
        assert isinstance(self.job, JobConfig), "only presets train"
        return self.job

    @property
    def own_command(self) -> CommandConfig | None:
        """The job, if it is a custom command."""
        return self.job if isinstance(self.job, CommandConfig) else None

    @property
    def ready_image(self) -> str | None:
        """The existing image that the nodes run; None if `up` builds it."""
        return self.image.prebuilt if self.own_command is None else self.own_command.image


_SIGNATURE = "gangway:image.signature"


def signature_mistakes(config: StackConfig) -> Iterator[InputError]:
    """Mistakes of a valid section: no image to sign, or a wrong signature."""
    if config.image.signature is None:
        return
    if config.ready_image is None:
        yield InputError(
            _SIGNATURE,
            "there is no signed image yet, since `up` builds it",
            allowed="only with image.prebuilt",
            fix="sign the output of `pulumi stack output image` with `cosign sign`, and write it as prebuilt",
        )
        return
    try:
        image_signature(config)
    except InputError as error:
        yield error.within(_SIGNATURE, ".")


def image_signature(config: StackConfig) -> ImageSignature | None:
    """What machines verify, if anything. InputError: an invalid signature."""
    signed, image = config.image.signature, config.ready_image
    if signed is None or image is None or signed.public_key is None:
        return None
    return checked_signature(
        image,
        signed.public_key,
        signed.payload or "",
        signed.signature or "",
        signed.signed_as or signed_name(image),
    )
