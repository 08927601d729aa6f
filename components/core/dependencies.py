"""What has to stand before something else, and so has to outlive it. Pulumi destroys in the reverse order of creation,
and knows no order but references and `depends_on`. A value that waits carries the order to whoever takes it, also
from one component to another, where `depends_on` does not reach: it is not handed down to a component's children.
"""

from typing import TypeVar

import pulumi

__all__ = ["after"]

Value = TypeVar("Value")


def after(value: pulumi.Input[Value], *others: pulumi.CustomResource | pulumi.Output[str]) -> pulumi.Output[Value]:
    """`value`, known only when all `others` stand: whatever takes it comes after them, and goes before them."""
    # A URN is known in a preview, where an id is not: the value stays as known as it was.
    waits = [other.urn if isinstance(other, pulumi.CustomResource) else other for other in others]
    return pulumi.Output.all(value, *waits).apply(lambda known: known[0])
