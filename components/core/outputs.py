"""The outputs of a component."""

from inspect import get_annotations

import pulumi

__all__ = ["register_outputs"]


def register_outputs(component: pulumi.ComponentResource) -> None:
    """Register what its class annotates, all of which `__init__` has assigned."""
    component.register_outputs({name: getattr(component, name) for name in get_annotations(type(component))})
