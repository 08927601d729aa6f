"""What the engine may replace, and in which order. A change that would replace or remove what holds data is refused, in
a preview as in an update, unless `gangway:allow_replace` names the resource. `destroy` runs no program, and takes what
it always took.
"""

from collections.abc import Sequence

import pulumi

from components.core.findings import InputError
from stacks.planning.rules.rule import kind
from stacks.providers.ownership import State

Held = tuple[str, str]
"""Type token, as the engine has it, and logical name."""


def _held(urn: str) -> Held:
    _, _, types, name = urn.split("::", 3)
    return types.rpartition("$")[2], name


_NAMES = frozenset(
    {
        *("account_id", "account_name", "alarm_name", "bucket", "bucket_id", "container_name", "dashboard_id"),
        *("dashboard_name", "instance_id", "name", "repository", "repository_id", "role_id", "secret_id", "short_name"),
    }
)


def delete_named_first(args: pulumi.ResourceTransformationArgs) -> pulumi.ResourceTransformationResult | None:
    """A transformation: what has a name of its own goes before another of that name is made, which clouds refuse."""
    named = isinstance(args.resource, pulumi.CustomResource) and any(args.props.get(key) is not None for key in _NAMES)
    if not named or args.opts.delete_before_replace is not None:
        return None
    first = pulumi.ResourceOptions(delete_before_replace=True)
    return pulumi.ResourceTransformationResult(args.props, pulumi.ResourceOptions.merge(args.opts, first))


class DataGuard:
    """Watches the resources that a program declares.

    Args:
        types: `package:module:Class` of what holds data.
        allowed: names of resources that may be replaced or removed all the same.
        state: of the stack, before this run.
    """

    def __init__(self, types: frozenset[str], allowed: Sequence[str], state: State) -> None:
        self._types, self._allowed = types, allowed
        self._standing = {held for urn in state if kind((held := _held(urn))[0]) in types}
        self._hook = pulumi.ResourceHook(
            "gangway-data-guard", self._refuse_another, pulumi.ResourceHookOptions(on_dry_run=True)
        )
        self._declared: set[Held] = set()

    def watch(self, args: pulumi.ResourceTransformationArgs) -> pulumi.ResourceTransformationResult | None:
        """A transformation of the stack's resources. What is guarded is made before the one that it replaces goes, or
        there would be nothing left to refuse.
        """
        if kind(args.type_) not in self._types:
            return None
        former = [
            alias if isinstance(alias, str) else getattr(alias, "name", None) for alias in args.opts.aliases or ()
        ]
        names = {args.name, *(name.rpartition("::")[2] for name in former if isinstance(name, str))}
        self._declared |= {(args.type_, name) for name in names}
        # What a replacement leaves in the cloud is not lost.
        if args.name in self._allowed or args.opts.retain_on_delete:
            return None
        guarded = pulumi.ResourceOptions(
            delete_before_replace=False, hooks=pulumi.ResourceHookBinding(before_create=[self._hook])
        )
        return pulumi.ResourceTransformationResult(args.props, pulumi.ResourceOptions.merge(args.opts, guarded))

    def _refuse_another(self, args: pulumi.ResourceHookArgs) -> None:
        """Called before a guarded resource is made: where it stands already, it is to be replaced."""
        if _held(args.urn) in self._standing:
            raise _refusal(args.name, args.type, "replace")

    def check_removed(self) -> None:
        """Called when all is declared, while nothing has been sent. InputError: something that stands is left out."""
        for type_, name in sorted(self._standing - self._declared):
            if name not in self._allowed:
                raise _refusal(name, type_, "remove")

    def warn(self) -> None:
        """Says what is not guarded."""
        for name in self._allowed:
            pulumi.warn(
                f"gangway:allow_replace: {name} may be replaced or removed, and what it holds is lost then. Take the "
                "name out once that is done"
            )


def _refusal(name: str, type_: str, action: str) -> InputError:
    return InputError(
        f"gangway:allow_replace: {name}",
        f"this change would {action} a resource of type {type_}, and what it holds would be lost",
        allowed="changes that leave it as it is",
        fix=f"undo the change; or copy the data away, and write gangway:allow_replace: [{name}]",
    )
