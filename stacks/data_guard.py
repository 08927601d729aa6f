"""Transformations that control replacements. Resources with fixed names are deleted before they are replaced. A change
that would replace or remove a resource with data is refused, in `preview` and `up`, unless `gangway:allow_replace`
names it. `destroy` runs no program, so it is not affected.
"""

from collections.abc import Sequence

import pulumi

from gangway.components.core.retention import Retention, refusal
from gangway.stacks.base.ownership import State
from gangway.stacks.base.rule import kind

Key = tuple[str, str]
"""The engine's type token and the logical name."""


def _key(urn: str) -> Key:
    _, _, types, name = urn.split("::", 3)
    return types.rpartition("$")[2], name


_NAMES = frozenset(
    {
        *("account_id", "account_name", "alarm_name", "bucket", "bucket_id", "container_name", "dashboard_id"),
        *("dashboard_name", "instance_id", "name", "repository", "repository_id", "role_id", "secret_id", "short_name"),
    }
)


def delete_named_first(args: pulumi.ResourceTransformationArgs) -> pulumi.ResourceTransformationResult | None:
    """A transformation: deletes a resource with a fixed name before replacing it, as clouds refuse a second one."""
    named = isinstance(args.resource, pulumi.CustomResource) and any(args.props.get(key) is not None for key in _NAMES)
    if not named or args.opts.delete_before_replace is not None:
        return None
    first = pulumi.ResourceOptions(delete_before_replace=True)
    return pulumi.ResourceTransformationResult(args.props, pulumi.ResourceOptions.merge(args.opts, first))


class DataGuard:
    """Refuses to replace or remove resources with data. `state`: the stack's before this run."""

    def __init__(self, retention: Retention, allowed: Sequence[str], state: State) -> None:
        self._types, self._allowed = retention.guarded, allowed
        self._existing = {
            _key(urn)
            for urn, resource in state.items()
            if kind(_key(urn)[0]) in self._types and not retention.is_disposable(urn, resource["outputs"])
        }
        self._hook = pulumi.ResourceHook(
            "gangway-data-guard", self._refuse_replacement, pulumi.ResourceHookOptions(on_dry_run=True)
        )
        self._declared: set[Key] = set()
        self._retained: set[Key] = set()

    def watch(self, args: pulumi.ResourceTransformationArgs) -> pulumi.ResourceTransformationResult | None:
        """A transformation that guards a resource with data: it is created before its predecessor is deleted, so that
        refusing the creation loses nothing.
        """
        if kind(args.type_) not in self._types:
            return None
        aliases = [
            alias if isinstance(alias, str) else getattr(alias, "name", None) for alias in args.opts.aliases or ()
        ]
        names = {args.name, *(name.rpartition("::")[2] for name in aliases if isinstance(name, str))}
        keys = {(args.type_, name) for name in names}
        self._declared |= keys
        if not self._existing & keys or args.name in self._allowed:
            return None
        if args.opts.retain_on_delete:
            self._retained.add((args.type_, args.name))
        guarded = pulumi.ResourceOptions(
            delete_before_replace=False, hooks=pulumi.ResourceHookBinding(before_create=[self._hook])
        )
        return pulumi.ResourceTransformationResult(args.props, pulumi.ResourceOptions.merge(args.opts, guarded))

    def _refuse_replacement(self, args: pulumi.ResourceHookArgs) -> None:
        """Called before a guarded resource is created. If it exists already, this is a replacement."""
        key = _key(args.urn)
        if key in self._existing:
            raise refusal(args.name, args.type, "replace", is_retained=key in self._retained)

    def check_removed(self) -> None:
        """Call after the program has declared everything. InputError: an existing guarded resource is not declared."""
        for type_, name in sorted(self._existing - self._declared):
            if name not in self._allowed:
                raise refusal(name, type_, "remove")

    def warn(self) -> None:
        """Warns of each resource that `allow_replace` names."""
        for name in self._allowed:
            pulumi.warn(
                f"gangway:allow_replace: {name} may be replaced or removed. Its data will be lost, or stay in the "
                "cloud outside the stack. Remove the name afterwards"
            )
