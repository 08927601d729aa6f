"""What has to stand before something else, and so has to outlive it. Pulumi destroys in the reverse order of creation,
and knows no order but references and `depends_on`. A value that waits carries the order to whoever takes it, also
from one component to another, where `depends_on` does not reach: it is not handed down to a component's children.
"""

from typing import TypeVar

import pulumi

__all__ = ["after", "resources_of"]

Value = TypeVar("Value")


def after(value: pulumi.Input[Value], *others: pulumi.CustomResource | pulumi.Output[str]) -> pulumi.Output[Value]:
    """`value`, known only when all `others` stand: whatever takes it comes after them, and goes before them."""
    # A URN is known in a preview, where an id is not: the value stays as known as it was.
    waits = [other.urn if isinstance(other, pulumi.CustomResource) else other for other in others]
    return pulumi.Output.all(value, *waits).apply(lambda known: known[0])


def resources_of(value: pulumi.Input[str] | None) -> pulumi.Output[list[pulumi.Resource]]:
    """For `depends_on`: the resources that `value` comes from. For a resource that does not take `value` as an input,
    but must be deleted before them, as a bucket is before the key of its objects.
    """
    # The list itself is empty: Pulumi adds the resources that the output depends on.
    return pulumi.Output.from_input(value).apply(lambda _: [])
