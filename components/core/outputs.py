"""A component's outputs, and the order that one carries: what it waits for is created first and deleted last.

Pulumi knows only references and `depends_on`, which is not passed to a component's children: a value that waits carries
the order to its consumers in other components too.
"""

from inspect import get_annotations
from typing import TypeVar

import pulumi

Value = TypeVar("Value")


def register_outputs(component: pulumi.ComponentResource) -> None:
    """Register what its class annotates, all of which `__init__` has assigned."""
    component.register_outputs({name: getattr(component, name) for name in get_annotations(type(component))})


def after(value: pulumi.Input[Value], *others: pulumi.CustomResource | pulumi.Output[str]) -> pulumi.Output[Value]:
    """`value`, known only once all `others` exist, so its consumers are created after and deleted before them."""
    # A URN is known in a preview, an id is not: `value` must stay as known as it was.
    waits = [other.urn if isinstance(other, pulumi.CustomResource) else other for other in others]
    return pulumi.Output.all(value, *waits).apply(lambda known: known[0])


def resources_of(value: pulumi.Input[str] | None) -> pulumi.Output[list[pulumi.Resource]]:
    """What `value` comes from, for `depends_on` of a resource that must be deleted first without using `value`."""
    # The list itself is empty: Pulumi adds the resources that the output depends on.
    return pulumi.Output.from_input(value).apply(lambda _: [])
