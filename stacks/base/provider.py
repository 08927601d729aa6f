"""What a provider is: `Provider`, facts that every plan may look at without its SDK, and behind it `Program`, which
makes resources of a stack file and is loaded for the stack's own provider alone. See `docs/adding-a-provider.md`.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from components.catalog.loader import Catalog, CatalogFolder
from components.catalog.schema import Fact, MachineType, Region
from components.core.findings import Finding, InputError
from components.core.retention import NO_RETENTION, Retention
from components.estimate.cost import CostComponent, CostEstimate, Declared
from stacks.base.start import Start
from stacks.config.provider_settings import ProviderSettings
from stacks.config.stack_config import StackConfig

if TYPE_CHECKING:
    import pulumi


class ProviderPlan(Protocol):
    """What a stack file means with a provider: its own type, of which everybody reads this."""

    @property
    def machine(self) -> MachineType:
        """One node."""
        ...

    @property
    def region(self) -> Region:
        """Where it is, with its grid and its building."""
        ...


PlanT = TypeVar("PlanT", bound=ProviderPlan)


class Program(Protocol[PlanT]):
    """From a stack file to resources: the module `program` of a provider's package."""

    def plan(self, config: StackConfig, /) -> PlanT:
        """Looks everything up and checks it, without declaring a resource. InputError: what cannot be planned."""
        ...

    def findings(self, config: StackConfig, planned: PlanT, cost: CostEstimate | None, /) -> tuple[Finding, ...]:
        """What a person should know before `up`; `cost` is None under the engine, which prices nothing."""
        ...

    def price(self, config: StackConfig, resources: Sequence[Declared], /) -> list[CostComponent]:
        """The bill of the declared resources. The lines of rung 0's nodes begin with `<stack>-0-<kind>:`."""
        ...

    def build(self, config: StackConfig, planned: PlanT, /) -> "Mapping[str, pulumi.Input[Any]]":
        """Declares the stack's resources and returns what it exports, the JobSpec as `job` among it."""
        ...


Tags = Sequence[Any]


def _nothing_more(_resource: Declared) -> Iterator[tuple[str, Tags]]:
    return iter(())


@dataclass(frozen=True)
class TagRules:
    """Which types of resources take tags, and where.

    Attributes:
        package: the first word of their type tokens.
        types: a line for each module of the package, `module: Class Class`.
        input_name: the input that holds the tags.
        other_inputs: by type, where it is another.
        more_types: whole type tokens of other packages, such as dynamic resources, with their inputs.
        spelled: by type, how a key is spelled there, where that is not as it is written.
        started: what a resource starts that is billed by itself, and the tags that it gets.
        started_inputs: the inputs that hold those tags.
    """

    package: str = ""
    types: str = ""
    input_name: str = "tags"
    other_inputs: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    more_types: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    spelled: Mapping[str, Callable[[str], str]] = field(default_factory=lambda: MappingProxyType({}))
    started: Callable[[Declared], Iterable[tuple[str, Tags]]] = _nothing_more
    started_inputs: frozenset[str] = frozenset()

    def inputs(self) -> dict[str, str]:
        """By package, module and class (`aws:ec2:LaunchTemplate`), the input that holds the tags."""
        found, module = dict(self.more_types), ""
        for word in self.types.split():
            if word.endswith(":"):
                module = word
            else:
                of_type = f"{self.package}:{module}{word}"
                found[of_type] = self.other_inputs.get(of_type, self.input_name)
        return found


@dataclass(frozen=True)
class NodeTypes:
    """Which of a provider's resources are nodes or make nodes. Types are written `package:module:Class`.

    Attributes:
        machines: machines, and groups that delete their machines with them.
        templates: what new nodes are made from. Running nodes keep what they were made with.
        restarting: by type, paths of inputs whose update in place stops machines or rolls over all of them; `*`: any.
    """

    machines: frozenset[str] = frozenset()
    templates: frozenset[str] = frozenset()
    restarting: Mapping[str, Sequence[str]] = field(default_factory=lambda: MappingProxyType({}))


def _no_mistakes(_config: StackConfig) -> Iterator[InputError]:
    return iter(())


def _no_data(_config: StackConfig) -> str | None:
    return None


def _rungs_mix(_machine: MachineType) -> bool:
    return False


def _nodes_leave(_resources: Sequence[Declared]) -> bool:
    return False


def _nothing_dynamic(_config: StackConfig, _planned: Any) -> str:
    return ""


@dataclass(frozen=True)
class Provider:
    """One provider, as `stacks.base.registry` names it.

    Attributes:
        name: as `gangway:provider` and the extra are called.
        sdk: Pulumi's package of it, as pip knows it.
        program: imports what needs that SDK.
        settings: its part of the stack file.
        start: what `gangway init` writes for it; None for a provider that it does not offer.
        adapters: what other packages have for it, module paths by purpose: `audit`, `prices`, `scaling`.
        home_region: the region whose list prices an overview shows.
        has_regional_buckets: whether a run bucket is addressed by the stack's region.
        has_spot_notice: whether a spot node is told before it is taken.
        has_tpus: whether it sells slices of TPUs besides machines.
        packages: what its extra brings beside the SDK, as it is imported.
        loads_by_name: whether the SDK is one that Pulumi generates with a package for each service.
        mistakes: what is wrong with a valid stack file of this provider that has its section, beyond what `settings`
            says.
        own_data: the data that the job trains on, where its own section names it.
        catalog: machines, prices and regions; None where the stack file describes them itself.
        bucket_service: of these resources' run bucket, the service of the catalogue that a GiB of it is priced as; None
            where no list has a price of one.
        spot_taken: of a machine type in a region, the share of spot nodes taken within 720 hours; None where it has no
            spot.
        caps_spot: whether `max_usd_per_hour` has an effect, as where spot machines are bid for.
        has_isolated_rungs: whether a job of such machines never has nodes of two rungs at once.
        tags: of its resources.
        retention: which of its resources hold, protect and decrypt data that outlives a `destroy`.
        machine_types: type tokens of what is billed by the hour as long as it stands.
        nodes: which resources are nodes, and which changes restart them.
        budget_types: type tokens of what counts that.
        region_inputs: type token -> the input that says in which region of the catalogue a stack's machines are.
        nodes_stay: whether nodes of these resources go on costing when `job.terminate_when_done` has done its work.
        dynamic: who among a stack's resources needs stacks/.venv, as the message begins; empty for nobody.
    """

    name: str
    sdk: str
    program: Callable[[], Program[Any]]
    settings: ProviderSettings
    start: Start | None = None
    adapters: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    home_region: str = ""
    has_regional_buckets: bool = False
    has_spot_notice: bool = True
    has_tpus: bool = False
    packages: tuple[str, ...] = ()
    loads_by_name: bool = True
    mistakes: Callable[[StackConfig], Iterable[InputError]] = _no_mistakes
    own_data: Callable[[StackConfig], str | None] = _no_data
    catalog: CatalogFolder | None = None
    bucket_service: Callable[[Sequence[Declared]], str] | None = None
    spot_taken: Callable[[str, str], Fact[float | None]] | None = None
    caps_spot: bool = False
    has_isolated_rungs: Callable[[MachineType], bool] = _rungs_mix
    tags: TagRules = TagRules()
    retention: Retention = NO_RETENTION
    machine_types: frozenset[str] = frozenset()
    nodes: NodeTypes = NodeTypes()
    budget_types: frozenset[str] = frozenset()
    region_inputs: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    nodes_stay: Callable[[Sequence[Declared]], bool] = _nodes_leave
    dynamic: Callable[[StackConfig, Any], str] = _nothing_dynamic

    @property
    def sdk_module(self) -> str:
        """The SDK as it is imported."""
        return self.sdk.replace("-", "_")

    def catalog_here(self) -> Catalog:
        """The catalogue, for who knows that there is one."""
        assert self.catalog is not None, "machines of a site are in no catalogue"
        return self.catalog()
