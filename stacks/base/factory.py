"""What the component factories of all providers have in common."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, cast, get_type_hints

import pulumi

from gangway.components.core.limits import HeadPortsArgs
from gangway.stacks.base.shared import head_ports
from gangway.stacks.config.stack_config import StackConfig

PlanT = TypeVar("PlanT")
ComponentT = TypeVar("ComponentT", bound=pulumi.ComponentResource)


@dataclass(frozen=True)
class Image:
    """The trainer's image by digest, and the repository (ARN or id) from which nodes pull it."""

    reference: pulumi.Output[str]
    repository: pulumi.Input[str]


@dataclass(frozen=True)
class Factory(Generic[PlanT]):
    """One method per component; a provider's `build` connects them. `opts`: of every component."""

    config: StackConfig
    planned: PlanT
    opts: pulumi.ResourceOptions

    def declare(self, component: type[ComponentT], values: Mapping[str, Any], suffix: str = "") -> ComponentT:
        """A component named after the stack; unknown or missing arguments are our bug."""
        kind = get_type_hints(cast("Any", component).__init__)["args"]
        required, known = kind.__required_keys__, kind.__required_keys__ | kind.__optional_keys__
        assert required <= values.keys() <= known, (kind, sorted(values.keys() ^ required))
        return cast("Callable[..., ComponentT]", component)(f"{self.config.stack}{suffix}", values, self.opts)

    def ready_image(self, repository: pulumi.Input[str] | None) -> Image | None:
        """The prebuilt image, if any, in the `repository` of the plan."""
        if self.config.ready_image is None:
            return None
        assert repository is not None, "the plan has it for prebuilt images"
        return Image(pulumi.Output.from_input(self.config.ready_image), repository)

    def head_ports(self, *, lustre: bool = False) -> HeadPortsArgs:
        """The ports of the head node. `lustre`: it mounts the file system."""
        return head_ports(lustre=lustre)

    @property
    def budget_args(self) -> dict[str, Any]:
        """The arguments of every provider's Budget besides places and what its stop ends."""
        budget = self.config.budget
        return {
            "monthly_usd": budget.monthly_usd,
            "emails": list(budget.emails),
            "alert_percent": list(budget.alert_percent),
            "stop_at_percent": budget.stop_at_percent,
            "tag_value": self.config.stack,
        }

    @property
    def node_args(self) -> dict[str, Any]:
        """Numbers and rungs of a node pool."""
        cluster = self.config.cluster
        return {
            "num_nodes_min": cluster.nodes.min,
            "num_nodes_max": cluster.nodes.max,
            "capacity": [rung.model_dump(mode="json", exclude_none=True) for rung in cluster.capacity],
        }
