"""The AWS components as a Pulumi plugin: `pulumi package add ./components/aws` in a program of any language.

The engine starts it (examples/README.md). One plugin per provider: a host puts all components into one module, and each
provider has a TrainingNetwork.
"""

import inspect
import sys
import typing
from pathlib import Path

# The engine makes this folder sys.path[0]. In a checkout that is not installed, `gangway` is found only so.
sys.path.append(str(next(top for top in Path(__file__).resolve().parents if (top / "gangway").is_dir())))

import pulumi
from pulumi.provider.experimental import component_provider_host

from gangway.components import aws
from gangway.components.core.image import TrainerImage


def with_inputs_described(component: type[pulumi.ComponentResource]) -> type[pulumi.ComponentResource]:
    """Append the docstring of the inputs to the component's: the schema has no other place for it."""
    args = typing.get_type_hints(component.__init__)["args"]
    component.__doc__ = f"{inspect.getdoc(component)}\n\n{inspect.getdoc(args)}"
    return component


if __name__ == "__main__":
    public = [getattr(aws, name) for name in aws.__all__]
    offered = [with_inputs_described(component) for component in (*public, TrainerImage)]
    component_provider_host(offered, name="gangway-aws", namespace="gangway", version="0.1.0")
