"""What a provider is: `Provider`, facts that every plan can use without the SDK, and `Program`, which makes resources
from a stack file and is loaded only for the stack's provider. See `docs/extending.md`.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from gangway.components.catalog.loader import Catalog, CatalogFolder
from gangway.components.catalog.schema import Fact, MachineType, Region
from gangway.components.core.findings import Finding, InputError
from gangway.components.core.retention import NO_RETENTION, Retention, get_types
from gangway.components.estimate.cost import CostComponent, CostEstimate, Declared
from gangway.images.specs import Flavour
from gangway.stacks.config.provider_settings import ProviderSettings
from gangway.stacks.config.stack_config import StackConfig

EXAMPLE_SITE: Mapping[str, Any] = {
    "as_of": "2026-11-01",
    "accelerator": "H100x8",
    "vcpus": 224,
    "memory_gib": 2048,
    "interconnect": "nvswitch",
    "network_gbps": 100,
    "usd_per_node_hour": 14.5,
    "intensity_g_per_kwh": 380,
    "pue": 1.3,
    "country": "DE",
}
"""An example of the section `site`."""
EXAMPLE_IMAGE = f"registry.example.com/gan/trainer@sha256:{'0123456789abcdef' * 4}"


def _empty() -> Mapping[str, Any]:
    return MappingProxyType({})


@dataclass(frozen=True)
class Start:
    """The first stack file of a provider.

    Attributes:
        questions: dotted settings of `sections` that only the user knows -> how to ask for them.
        shared: sections for several nodes: the smallest file system for data and checkpoints.
    """

    region: str
    machine_type: str
    sections: Mapping[str, Any] = field(default_factory=_empty)
    questions: Mapping[str, str] = field(default_factory=_empty)
    shared: Mapping[str, Any] = field(default_factory=_empty)
    job: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({"terminate_when_done": True}))
    refreshes: bool = False

    def example(self, path: str) -> str:
        """The value of a dotted setting of `sections`."""
        place: Any = self.sections
        for part in path.split("."):
            place = place[int(part)] if isinstance(place, list) else place[part]
        return str(place)


if TYPE_CHECKING:
    import pulumi


class ProviderPlan(Protocol):
    """A provider's plan of a stack file; common code reads only these properties."""

    @property
    def machine(self) -> MachineType:
        """One node."""
        ...

    @property
    def region(self) -> Region:
        """The region, with its grid and data centre."""
        ...

    @property
    def flavour(self) -> Flavour:
        """The trainer's image for these nodes."""
        ...


PlanT = TypeVar("PlanT", bound=ProviderPlan)


class Program(Protocol[PlanT]):
    """From a stack file to resources: the module `program` of a provider's package."""

    def plan(self, config: StackConfig, /) -> PlanT:
        """Looks everything up and checks it, without declaring resources. InputError: it cannot be planned."""
        ...

    def findings(self, config: StackConfig, planned: PlanT, cost: CostEstimate | None, /) -> tuple[Finding, ...]:
        """What users should know before `up`; `cost` is None under the engine, which prices nothing."""
        ...

    def price(self, config: StackConfig, resources: Sequence[Declared], /) -> list[CostComponent]:
        """The bill of the declared resources. The lines of rung 0's nodes begin with `<stack>-0-<kind>:`."""
        ...

    def build(self, config: StackConfig, planned: PlanT, /) -> "Mapping[str, pulumi.Input[Any]]":
        """Declares the stack's resources and returns its exports, with the JobSpec as `job`."""
        ...


Tags = Sequence[Any]


@dataclass(frozen=True)
class TagRules:
    """Which types of resources take tags, and in which input.

    Attributes:
        package: the first word of their type tokens.
        types: a line for each module of the package, `module: Class Class`.
        more_types: type tokens of other packages, such as dynamic resources, with their inputs.
        spelled: by type, how it spells keys, if it changes them.
        started: what a resource starts that is billed separately, with its tags.
    """

    package: str = ""
    types: str = ""
    input_name: str = "tags"
    other_inputs: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    more_types: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    spelled: Mapping[str, Callable[[str], str]] = field(default_factory=lambda: MappingProxyType({}))
    started: Callable[[Declared], Iterable[tuple[str, Tags]]] = lambda _resource: ()
    started_inputs: frozenset[str] = frozenset()

    def inputs(self) -> dict[str, str]:
        """By package, module and class (`aws:ec2:LaunchTemplate`), the input for tags."""
        listed = get_types(self.package, {self.input_name: self.types})
        return {
            **self.more_types,
            **listed,
            **{name: self.other_inputs[name] for name in listed & self.other_inputs.keys()},
        }


@dataclass(frozen=True)
class NodeTypes:
    """Which of a provider's resources are nodes or make nodes. Types are written `package:module:Class`.

    Attributes:
        machines: machines, and groups that are deleted with their machines.
        templates: templates of new nodes. Running nodes do not change with them.
        restarting: by type, paths of inputs whose update in place stops or replaces machines; `*`: any.
    """

    machines: frozenset[str] = frozenset()
    templates: frozenset[str] = frozenset()
    restarting: Mapping[str, Sequence[str]] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True)
class Provider:
    """One provider, as `gangway.stacks.base.registry` names it.

    Attributes:
        name: name of `gangway:provider` and of the extra.
        sdk: Pulumi's package for it, as pip knows it.
        adapters: modules of other packages for it, by purpose: `audit`, `image-build`, `live`, `permissions`,
            `preflight`, `prices`, `scaling`.
        instead_of_policies: what limits the caller without an adapter for `permissions`.
        home_region: the region whose list prices an overview shows.
        has_regional_buckets: whether the address of a run bucket contains its region.
        has_spot_notice: whether spot nodes get a notice before they are reclaimed.
        loads_by_name: whether Pulumi generates the SDK with a package for each service.
        mistakes: further mistakes of a valid stack file with the provider's section.
        existing: resources that exist already and that the stack only uses: config path -> id.
        catalog: machines, prices and regions; None if the stack file describes them.
        bucket_service: service of the catalogue that prices a GiB of the run bucket among these resources; None if it
            has no list price.
        spot_taken: share of spot nodes interrupted within 720 hours, by machine type and region; None without spot.
        caps_spot: whether `max_usd_per_hour` has an effect, as with bids for spot machines.
        has_isolated_rungs: whether a job on such machines never mixes nodes of two rungs.
        machine_types: type tokens of resources that are billed by the hour while they exist.
        region_inputs: type token -> the input with the machines' region.
        nodes_stay: whether nodes of these resources still cost after `job.terminate_when_done`.
        dynamic: start of the message about resources that need stacks/.venv; empty without such resources.
    """

    name: str
    sdk: str
    program: Callable[[], Program[Any]]
    settings: ProviderSettings
    start: Start | None = None
    adapters: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    instead_of_policies: str = ""
    home_region: str = ""
    has_regional_buckets: bool = False
    has_spot_notice: bool = True
    has_tpus: bool = False
    packages: tuple[str, ...] = ()
    loads_by_name: bool = True
    mistakes: Callable[[StackConfig], Iterable[InputError]] = lambda _config: ()
    existing: Callable[[StackConfig], Mapping[str, str]] = lambda _config: {}
    own_data: Callable[[StackConfig], str | None] = lambda _config: None
    catalog: CatalogFolder | None = None
    bucket_service: Callable[[Sequence[Declared]], str] | None = None
    spot_taken: Callable[[str, str], Fact[float | None]] | None = None
    caps_spot: bool = False
    has_isolated_rungs: Callable[[MachineType], bool] = lambda _machine: False
    tags: TagRules = TagRules()
    retention: Retention = NO_RETENTION
    machine_types: frozenset[str] = frozenset()
    nodes: NodeTypes = NodeTypes()
    budget_types: frozenset[str] = frozenset()
    region_inputs: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    nodes_stay: Callable[[Sequence[Declared]], bool] = lambda _resources: False
    dynamic: Callable[[StackConfig, Any], str] = lambda _config, _planned: ""

    @property
    def sdk_module(self) -> str:
        """The SDK's module."""
        return self.sdk.replace("-", "_")

    def catalog_here(self) -> Catalog:
        """The catalogue, which must exist."""
        assert self.catalog is not None, "a site has no catalogue"
        return self.catalog()
