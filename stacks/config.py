"""StackConfig: what a person writes in `stacks/Pulumi.<stack>.yaml`, frozen and validated at the door.

Pieces that belong to one component are configured beside it (`components.capacity.Rung`); this module puts them
together and says where a mistake is: file, config path, value, what is allowed, nearest fix. Not a loader of secrets.
"""

import re
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import pulumi
import yaml
from pulumi.runtime.config import get_config_env
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from components.aws.names import Egress
from components.capacity import Rung
from components.findings import InputError, nearest, nearest_hint
from stacks.config_errors import explain
from trainer.config import PRESETS

__all__ = [
    "BudgetConfig",
    "ClusterConfig",
    "JobConfig",
    "NetworkConfig",
    "NodesConfig",
    "StackConfig",
    "StorageConfig",
    "find_stack_file",
    "from_file",
    "from_pulumi",
]

PLACEHOLDER_DIGEST = "sha256:" + "0" * 64
_STACK = re.compile(r"[a-z][a-z0-9-]{0,39}")
_EMAIL = re.compile(r"[^@\s]+@[^@\s.]+(\.[^@\s.]+)+")


def _email(value: str) -> str:
    if not _EMAIL.fullmatch(value):
        raise ValueError("an e-mail address; write it like ml-platform@example.com")
    return value


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class NodesConfig(_Frozen):
    """How many nodes: the job goes on with `min` and asks for `max`."""

    min: int = Field(ge=1, le=512)
    max: int = Field(ge=1, le=512)

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.min > self.max:
            raise ValueError(f"min not above max; set max: {self.min} or min: {self.max}")
        return self


class ClusterConfig(_Frozen):
    """The accelerators: what, how many, where from. `image_id` pins the AMI; else the newest Deep Learning AMI."""

    accelerator: str | None = None
    machine_type: str | None = None
    nodes: NodesConfig
    capacity: tuple[Rung, ...] = Field(min_length=1)
    zone: str | None = None
    image_id: str | None = Field(default=None, pattern=r"^ami-[0-9a-f]{8,17}$")
    root_volume_gib: int = Field(default=200, ge=100, le=16384)

    @model_validator(mode="after")
    def _one_name(self) -> Self:
        if (self.accelerator is None) == (self.machine_type is None):
            raise ValueError(
                "exactly one of accelerator and machine_type; write accelerator: H100x8 or machine_type: p5.48xlarge"
            )
        return self


class StorageConfig(_Frozen):
    """A parallel file system, filled on first read from an object store. Its provider's planner checks the size."""

    kind: Literal["lustre"]
    capacity_gib: int = Field(gt=0)
    throughput_mbps_per_tib: int = Field(gt=0)
    source: str | None = Field(default=None, pattern=r"^s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](/.*)?$")


class BudgetConfig(_Frozen):
    """A monthly limit and who hears of it at which percentages."""

    monthly_usd: float = Field(gt=0)
    emails: tuple[Annotated[str, AfterValidator(_email)], ...] = Field(min_length=1, max_length=10)
    alert_percent: tuple[Annotated[float, Field(gt=0, le=1000)], ...] = Field(default=(50, 80, 100), max_length=4)


class JobConfig(_Frozen):
    """What the nodes run. `max_hours` is what the run is priced for; `image_digest` is of the pushed trainer image."""

    preset: str
    kimg: float = Field(gt=0)
    max_hours: float = Field(gt=0, le=24 * 28)
    image_digest: str = Field(default=PLACEHOLDER_DIGEST, pattern=r"^sha256:[0-9a-f]{64}$")

    @field_validator("preset")
    @classmethod
    def _known_preset(cls, preset: str) -> str:
        if preset not in PRESETS:
            raise ValueError(f"one of {', '.join(PRESETS)}; {nearest_hint(preset, PRESETS)}")
        return preset


class NetworkConfig(_Frozen):
    """Address range of the VPC and how nodes reach AWS services."""

    cidr: str = "10.42.0.0/16"
    egress: Egress = Egress.ENDPOINTS


class StackConfig(_Frozen):
    """One environment, as its stack file declares it."""

    stack: str
    provider: Literal["aws"] = "aws"
    region: str
    cluster: ClusterConfig
    storage: StorageConfig | None = None
    budget: BudgetConfig
    job: JobConfig
    network: NetworkConfig = NetworkConfig()
    tags: dict[str, str]

    @field_validator("stack")
    @classmethod
    def _fits_every_name(cls, stack: str) -> str:
        """The stack's name begins those of buckets, repositories and security groups, which are the pickiest."""
        if not _STACK.fullmatch(stack) or stack.startswith("sg-"):
            raise ValueError("1 to 40 of a-z, 0-9 and -, beginning with a letter, not with sg-; rename the stack")
        return stack

    @field_validator("storage", mode="before")
    @classmethod
    def _empty_is_none(cls, value: Any) -> Any:
        return value or None

    @field_validator("tags")
    @classmethod
    def _who_pays(cls, tags: dict[str, str]) -> dict[str, str]:
        if missing := [key for key in ("team", "cost_center") if not tags.get(key)]:
            raise ValueError(f"team and cost_center among the tags; add {' and '.join(missing)}")
        return tags


def find_stack_file(stack_or_file: str, stacks_dir: Path) -> Path:
    """The stack file for a stack name, or the file itself.

    Raises:
        InputError: naming the stacks there are.
    """
    path = Path(stack_or_file)
    if path.suffix in {".yaml", ".yml"} or _is_file(path):
        if _is_file(path):
            return path
        raise InputError(stack_or_file, "no such stack file", fix="check the path")
    candidate = stacks_dir / f"Pulumi.{stack_or_file}.yaml"
    if _is_file(candidate):
        return candidate
    names = sorted(p.name.removeprefix("Pulumi.").removesuffix(".yaml") for p in stacks_dir.glob("Pulumi.*.yaml"))
    raise InputError(
        f"stack {stack_or_file!r}",
        f"no file {candidate.name} in {stacks_dir}",
        allowed=", ".join(names),
        fix=nearest_hint(stack_or_file, names),
    )


def _is_file(path: Path) -> bool:
    """Whether `path` is a file; a name that no file can have, such as one too long, is none."""
    try:
        return path.is_file()
    except OSError:
        return False


def from_file(path: Path) -> StackConfig:
    """Reads a stack file.

    Raises:
        ExceptionGroup: of InputError, one for each mistake.
        InputError: when the file cannot be read at all.
    """
    try:
        data = yaml.load(path.read_text("utf-8"), Loader=yaml.CSafeLoader)
    except yaml.YAMLError as error:
        where = getattr(error, "problem_mark", None)
        line = f", line {where.line + 1}" if where else ""
        problem = getattr(error, "problem", None) or str(error)
        raise InputError(f"{path}{line}", f"not readable as YAML: {problem}", fix="mend the YAML there") from None
    # ValueError: bytes that are no UTF-8, or a date such as 2026-13-01, which PyYAML passes on to Python.
    except (OSError, ValueError) as error:
        raise InputError(str(path), f"cannot be read: {error}", fix="check the file") from None
    config = data.get("config") if isinstance(data, dict) else None
    if not isinstance(config, dict):
        raise InputError(str(path), "holds no `config:` mapping", fix="begin the file with `config:`")
    values = {_own_key(str(key), str(path)): value for key, value in config.items()}
    values.pop("", None)
    stack = path.name.removeprefix("Pulumi.").removesuffix(".yaml").removesuffix(".yml")
    return _validate(stack, values, str(path))


def _own_key(key: str, place: str) -> str:
    """The key without its namespace; empty for those of other namespaces (aws:...), the providers' own business."""
    namespace, colon, name = key.partition(":")
    if not colon or (namespace != "gangway" and nearest(namespace, ["gangway"])):
        raise InputError(
            f"{place}: {key}",
            "a setting outside the gangway namespace would be ignored",
            allowed="keys that begin with gangway:, or with a provider's name",
            fix=f"write gangway:{name or key}",
        )
    return name if namespace == "gangway" else ""


def from_pulumi() -> StackConfig:
    """Reads the configuration the Pulumi engine holds for the selected stack. Raises as `from_file` does."""
    config = pulumi.Config("gangway")
    fields = StackConfig.model_fields
    # What the engine was given beyond our fields is a misspelled key, not one to ignore.
    given = {key.removeprefix("gangway:") for key in get_config_env() if key.startswith("gangway:")}
    values: dict[str, Any] = {}
    for name in sorted(fields.keys() | given):
        plain = name == "provider" or name not in fields or fields[name].annotation is str
        try:
            value = config.get(name) if plain else config.get_object(name)
        except pulumi.ConfigTypeError:  # no JSON: the model says what it wants instead
            value = config.get(name)
        if value is not None:
            values[name] = value
    return _validate(pulumi.get_stack(), values, f"stack {pulumi.get_stack()}")


def _validate(stack: str, values: dict[str, Any], place: str) -> StackConfig:
    if "stack" in values:
        raise InputError(
            f"{place}: gangway:stack",
            "unknown key: a stack is named by its file",
            value=values["stack"],
            fix="leave it out, or rename the file",
        )
    try:
        return StackConfig.model_validate({**values, "stack": stack})
    except ValidationError as error:
        raise ExceptionGroup(f"{place} is not valid", explain(error, StackConfig, place)) from None
