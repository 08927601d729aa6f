"""What a user may ask of the controller: policy, objective, bounds. No torch."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from gangway.trainer.config.values.strict_numbers import NoTrue, Written
from gangway.trainer.core.errors import broken_rule

PolicyName = Literal["fixed", "rules", "model", "learned"]
Mode = Literal["observe", "act"]
Objective = Literal["time", "cost", "energy", "carbon"]
Precision = Literal["fp32", "bf16", "fp16"]
SWITCH_FILE = "controller-off"
"""While this file is in the run's directory, nothing is decided (`python -m gangway.trainer control off`)."""
JUDGE = "judge"
"""The policy of decisions that undo others."""
Least = Annotated[int, Field(ge=1), NoTrue]
Range = tuple[Least, Least]
_Few = Annotated[int, Field(ge=1, le=1024), NoTrue]
FewRange = tuple[_Few, _Few]
"""Threads or batches of one worker."""
RANGES = ("loader_threads", "prefetch", "threads", "batch_gpu", "batch_size", "nodes")
"""Bounds that are [least, most]."""
UNITS: Mapping[Objective, str] = {
    "time": "images/s",
    "cost": "images/USD",
    "energy": "images/J",
    "carbon": "images/gCO2e",
}
"""What each objective maximises."""


class Bounds(Written):
    """Limits of the controller's decisions. A setting without bounds is not changed, except loader_threads, prefetch
    and threads, which may use the node's cores: they do not change results.

    Attributes:
        loader_threads: loader threads of a worker, [least, most].
        prefetch: batches read ahead, [least, most].
        threads: operator threads of a worker on a CPU, [least, most].
        batch_gpu: images that a worker processes at once, [least, most].
        batch_size: global batch, [least, most]; learning rates scale with its square root.
        precision: allowed precisions.
        compile: whether compiled losses may be switched off and on.
        watts: power limit of a GPU, [least, most].
        nodes: nodes of the cluster, [least, most]; only job.autoscale uses it.
        usd_per_hour: most that all nodes may cost; only job.autoscale uses it.
    """

    loader_threads: FewRange | None = None
    prefetch: FewRange | None = None
    threads: FewRange | None = None
    batch_gpu: Range | None = None
    batch_size: Range | None = None
    precision: tuple[Precision, ...] = ()
    compile: bool = False
    watts: tuple[Annotated[float, Field(gt=0)], Annotated[float, Field(gt=0)]] | None = None
    nodes: Range | None = None
    usd_per_hour: Annotated[float, Field(gt=0)] | None = None

    @model_validator(mode="after")
    def _least_before_most(self) -> Self:
        for name in (*RANGES, "watts"):
            found = getattr(self, name)
            if found is not None and found[0] > found[1]:
                raise broken_rule(
                    "[least, most], the first no more than the second",
                    field=name,
                    value=list(found),
                    fix=f"write {name}: {[found[1], found[0]]}",
                )
        return self


class ControlSettings(Written):
    """The controller of one run.

    Attributes:
        policy: fixed changes nothing; rules follow the bottleneck; model uses a fitted model of throughput; learned
            uses the gains of earlier decisions.
        mode: act on decisions, or observe: only report them.
        objective: what to maximise: images per second, per dollar, per joule or per gram of CO2e.
        interval_sec: shortest time over which a decision is measured.
        patience: intervals before a decision is judged.
        min_gain: share of the objective that a decision must gain, or it is undone.
        decisions_per_hour: most changes per hour.
        lost_sec: time that tried decisions may lose in all; after that the controller only undoes decisions.
        bounds: limits of the decisions.
    """

    policy: PolicyName = "rules"
    mode: Mode = "act"
    objective: Objective = "time"
    interval_sec: float = Field(default=10.0, gt=0, le=3600)
    patience: int = Field(default=2, ge=1, le=100)
    min_gain: float = Field(default=0.02, ge=0, lt=1)
    decisions_per_hour: float = Field(default=60.0, gt=0, le=10_000)
    lost_sec: float = Field(default=300.0, ge=0, le=1e6)
    bounds: Bounds = Bounds()

    def document(self) -> dict[str, Any]:
        """The mode, and the fields that differ from the defaults, as JSON has them."""
        return {"mode": self.mode, **self.model_dump(mode="json", exclude_defaults=True)}

    @property
    def choice(self) -> str:
        """Policy, objective and mode in words."""
        return f"{self.policy} for {self.objective}, {self.mode}"
