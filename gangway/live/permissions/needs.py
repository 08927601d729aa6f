"""From a plan's resources to the actions that commands make, and what every provider's adapter returns."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

from gangway.components.catalog.permissions import Extra, Permissions, Verb, load_permissions
from gangway.components.core.findings import InputError
from gangway.stacks.base.registry import get_provider, load_adapter, providers_with_adapter
from gangway.stacks.base.rule import kind
from gangway.stacks.plan.plan import Plan
from gangway.stacks.recording import PlannedResource

_NAMED = 2
"""Resources of a type that a reason names."""
KEY_TYPES = frozenset({"aws:kms:Key", "gcp:kms:CryptoKey", "azure-native:keyvault:Key"})


class Command(StrEnum):
    """A command for which permissions are listed."""

    UP = "up"
    PREFLIGHT = "preflight"
    DESTROY = "destroy"
    BENCH = "bench"


DEFAULT = (Command.UP, Command.DESTROY)
"""Both: `up` also deletes what a change replaces."""
_VERBS: Mapping[Command, tuple[Verb, ...]] = {
    Command.UP: ("create", "read", "update"),
    Command.PREFLIGHT: (),
    Command.DESTROY: ("read", "delete"),
    Command.BENCH: ("create", "read", "update", "delete"),
}


@dataclass(frozen=True)
class Use:
    """One action. `resources`: those of one type that need it, empty for a command; `extra`: how it is limited."""

    action: str
    verb: Verb
    type: str = ""
    resources: tuple[PlannedResource, ...] = ()
    extra: Extra | None = None
    command: str = ""

    @property
    def reason(self) -> str:
        """Which resources or which command need the action, and why."""
        if self.extra is not None and not self.type:
            return f"{self.command}: {self.extra.why}"
        names = ", ".join(one.name for one in self.resources[:_NAMED])
        more = f" and {len(self.resources) - _NAMED} more" if len(self.resources) > _NAMED else ""
        why = f"; {self.extra.why}" if self.extra is not None else ""
        return f"{self.verb} {self.type} {names}{more}{why}"


@dataclass(frozen=True)
class Need:
    """One action as a document grants it. `scope`: the resources; `condition`: further limits, as the provider writes
    them; `reasons`: which resources or commands need it; `limit`: why the scope is no narrower, or what limits it.
    """

    action: str
    scope: tuple[str, ...]
    reasons: tuple[str, ...]
    limit: str
    condition: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON data."""
        return {
            "action": self.action,
            "resource": list(self.scope),
            "condition": dict(self.condition),
            "reasons": list(self.reasons),
            "limit": self.limit,
        }


@dataclass(frozen=True)
class Document:
    """What the provider's tools take. `use`: the command that applies it, with FILE for its file."""

    content: Mapping[str, Any]
    use: str


class Adapter(Protocol):
    """A provider's module of permissions."""

    def needs(self, plan: Plan, uses: Sequence[Use], /) -> list[Need]:
        """The actions with their limits."""
        ...

    def documents(self, plan: Plan, needs: Sequence[Need], /) -> list[Document]:
        """The documents that grant them."""
        ...

    def notes(self, plan: Plan, needs: Sequence[Need], /) -> list[str]:
        """What the documents cannot grant."""
        ...


@dataclass(frozen=True)
class Answer:
    """What a stack's commands need, the documents that grant it, and what they cannot grant."""

    needs: list[Need]
    documents: list[Document]
    notes: list[str]


def make_needs(provider: str, plan: Callable[[], Plan], commands: Collection[Command]) -> Answer:
    """InputError: the provider has no policies, or the stack cannot be planned. `plan` is called only with policies."""
    known = providers_with_adapter("permissions")
    if provider not in known:
        raise InputError(
            "gangway:provider",
            f"has no policies: {get_provider(provider).instead_of_policies}",
            value=provider,
            allowed=", ".join(known),
            fix="limit the caller's access there; this command is for the other providers",
        )
    adapter: Adapter = load_adapter(provider, "permissions")
    made = plan()
    needs = adapter.needs(made, collect(made, load_permissions(provider), commands))
    return Answer(needs, adapter.documents(made, needs), [*adapter.notes(made, needs), *_common_notes(made, commands)])


def _common_notes(plan: Plan, commands: Collection[Command]) -> list[str]:
    if Command.PREFLIGHT in commands and len(commands) == 1:
        return []
    charts = ["in the cluster, charts and manifests need the role cluster-admin"]
    has_charts = any(one.type.startswith("kubernetes:") for one in plan.resources)
    return ["the backend with Pulumi's state needs separate permissions", *(charts if has_charts else [])]


def collect(plan: Plan, table: Permissions, commands: Collection[Command]) -> list[Use]:
    """Every action that `commands` make for the plan's resources."""
    by_type: dict[str, list[PlannedResource]] = {}
    for resource in plan.resources:
        by_type.setdefault(kind(resource.type), []).append(resource)
    has_key = not KEY_TYPES.isdisjoint(by_type) or plan.config.encryption == "customer-key"  # it may exist already
    verbs = {verb for command in commands for verb in _VERBS[command]}
    uses = [
        use
        for type_, resources in sorted(by_type.items())
        if type_ in table.types
        for use in _type_uses(table, type_, resources, verbs, has_key)
    ]
    for command in commands:
        extras = (one for one in table.commands.get(command, ()) if has_key or not one.needs)
        uses += [Use(one.action, "read", extra=one, command=f"gangway {command}") for one in extras]
    return uses


def actions_of_up(plan: Plan) -> tuple[str, ...]:
    """What a caller of `up` must be allowed to do; sorted."""
    uses = collect(plan, load_permissions(plan.config.provider), [Command.UP])
    return tuple(sorted({use.action for use in uses}))


def _type_uses(
    table: Permissions, type_: str, resources: Sequence[PlannedResource], verbs: Collection[Verb], has_key: bool
) -> Iterator[Use]:
    entry = table.types[type_]
    deleted = [one for one in resources if not one.is_retained]
    for verb in _VERBS[Command.BENCH]:
        found = tuple(deleted if verb == "delete" else resources)
        if verb not in verbs or not found:
            continue
        for action in entry.actions(verb):
            yield Use(action, verb, type_, found)
        for extra in entry.added:
            if extra.verb == verb and _applies(extra, found, has_key):
                yield Use(extra.action, verb, type_, found, extra)


def _applies(extra: Extra, resources: Sequence[PlannedResource], has_key: bool) -> bool:
    if extra.needs in ("", "encryption"):
        return has_key or not extra.needs
    return any(one.inputs.get(extra.needs) for one in resources)
