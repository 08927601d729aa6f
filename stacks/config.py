"""StackConfig: what a person writes in `stacks/Pulumi.<stack>.yaml`, frozen and validated at the door.

Pieces that belong to one component are configured beside it (`components.capacity.Rung`); this module puts them
together. Only the models: `stacks.loader` fills them from a file or from the engine, `stacks.config_errors` explains.
"""

import re
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from components.aws.names import Egress
from components.capacity import Rung
from components.findings import nearest_hint
from trainer.config import PRESETS

__all__ = [
    "BudgetConfig",
    "ClusterConfig",
    "JobConfig",
    "NetworkConfig",
    "NodesConfig",
    "StackConfig",
    "StorageConfig",
]

PLACEHOLDER_DIGEST = "sha256:" + "0" * 64
_STACK = re.compile(r"[a-z][a-z0-9-]{0,39}")
_EMAIL = re.compile(r"[^@\s]+@[^@\s.]+(\.[^@\s.]+)+")


def _email(value: str) -> str:
    if not _EMAIL.fullmatch(value):
        raise ValueError("an e-mail address; write it like ml-platform@example.com")
    return value


def _not_bool(value: Any) -> Any:
    """Pydantic takes True for 1; nobody who writes it means that."""
    if isinstance(value, bool):
        raise PydanticCustomError("not_a_number", "true or false is no number")
    return value


Number = Annotated[float, BeforeValidator(_not_bool)]
Whole = Annotated[int, BeforeValidator(_not_bool)]


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class NodesConfig(_Frozen):
    """How many nodes: the job goes on with `min` and asks for `max`."""

    min: Whole = Field(ge=1, le=512)
    max: Whole = Field(ge=1, le=512)

    @model_validator(mode="before")
    @classmethod
    def _one_number(cls, value: Any) -> Any:
        if isinstance(value, int) and not isinstance(value, bool):
            raise ValueError(
                "a mapping with min and max, such as {min: 2, max: 4}; "
                f"write nodes: {{min: {max(value, 1)}, max: {max(value, 1)}}}"
            )
        return value

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.min > self.max:
            raise ValueError(f"min not above max; set max: {self.min} or min: {self.max}")
        return self


class ClusterConfig(_Frozen):
    """The accelerators: what, how many, where from. `image_id` pins the AMI; else the newest Deep Learning AMI."""

    accelerator: str | None = Field(default=None, examples=["H100x8"])
    machine_type: str | None = Field(default=None, examples=["p5.48xlarge"])
    nodes: NodesConfig = Field(examples=[{"min": 2, "max": 4}])
    capacity: tuple[Rung, ...] = Field(
        min_length=1,
        description="rungs, tried in this order",
        examples=[
            [{"kind": "spot", "max_usd_per_hour": 25}, {"kind": "on-demand"}],
            [{"kind": "capacity-block", "id": "cr-0123456789abcdef0"}],
        ],
    )
    zone: str | None = Field(default=None, examples=["us-east-2a"])
    image_id: str | None = Field(default=None, pattern=r"^ami-[0-9a-f]{8,17}$", examples=["ami-0123456789abcdef0"])
    root_volume_gib: Whole = Field(default=200, ge=100, le=16384, examples=[200])

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
    capacity_gib: Whole = Field(gt=0)
    throughput_mbps_per_tib: Whole = Field(gt=0)
    source: str | None = Field(
        default=None, pattern=r"^s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](/.*)?$", examples=["s3://my-bucket/celeba"]
    )


class BudgetConfig(_Frozen):
    """A monthly limit and who hears of it at which percentages."""

    monthly_usd: Number = Field(gt=0)
    emails: tuple[Annotated[str, AfterValidator(_email)], ...] = Field(min_length=1, max_length=10)
    alert_percent: tuple[Annotated[float, Field(gt=0, le=1000), BeforeValidator(_not_bool)], ...] = Field(
        default=(50, 80, 100), max_length=4
    )


class JobConfig(_Frozen):
    """What the nodes run. `max_hours` is what the run is priced for; `image_digest` is of the pushed trainer image."""

    preset: str
    kimg: Number = Field(gt=0)
    max_hours: Number = Field(gt=0, le=24 * 28)
    image_digest: str = Field(
        default=PLACEHOLDER_DIGEST, pattern=r"^sha256:[0-9a-f]{64}$", examples=[f"sha256:{'0123456789abcdef' * 4}"]
    )

    @field_validator("preset")
    @classmethod
    def _known_preset(cls, preset: str) -> str:
        if preset not in PRESETS:
            raise ValueError(f"one of {', '.join(PRESETS)}; {nearest_hint(preset, PRESETS)}")
        return preset


class NetworkConfig(_Frozen):
    """Address range of the VPC and how nodes reach AWS services."""

    cidr: str = Field(default="10.42.0.0/16", examples=["10.42.0.0/16"])
    egress: Egress = Egress.ENDPOINTS


class StackConfig(_Frozen):
    """One environment, as its stack file declares it."""

    stack: str
    provider: Literal["aws"] = "aws"
    region: str = Field(examples=["us-east-2"])
    cluster: ClusterConfig = Field(
        examples=[{"accelerator": "H100x8", "nodes": {"min": 2, "max": 4}, "capacity": [{"kind": "on-demand"}]}]
    )
    storage: StorageConfig | None = Field(
        default=None, examples=[{"kind": "lustre", "capacity_gib": 9600, "throughput_mbps_per_tib": 500}]
    )
    budget: BudgetConfig = Field(
        examples=[{"monthly_usd": 50000, "emails": ["ml-platform@example.com"], "alert_percent": [50, 80, 100]}]
    )
    job: JobConfig = Field(examples=[{"preset": "dcgan-digits", "kimg": 150, "max_hours": 1}])
    network: NetworkConfig = Field(default=NetworkConfig(), examples=[{"egress": "nat"}])
    tags: dict[str, str] = Field(examples=[{"team": "ml-platform", "cost_center": "4711"}])

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
