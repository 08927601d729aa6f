"""A namespace's ConfigMap that says what pods on several whole nodes take to use the network between GPUs; pure."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from components.kubernetes.manifest import Manifest, manifest
from components.kubernetes.spec import FABRIC, FABRIC_KEY

__all__ = ["fabric_config"]


def fabric_config(team: str, gpus: int, env: Mapping[str, str], *, needs: Sequence[str] = (), **more: Any) -> Manifest:
    """As `gangway.jobs.kubernetes.fabric.Fabric` reads it.

    Args:
        team: whose namespace it is in.
        gpus: of a whole node.
        env: of the pods, from `components.core.queue_fabric.fabric_variables`.
        needs: resources that pods have to ask for, or have no such network.
        more: further keys of `Fabric`.
    """
    said = {"gpus": gpus, "needs": list(needs), "env": dict(env), **more}
    return manifest("v1", "ConfigMap", FABRIC, {"data": {FABRIC_KEY: json.dumps(said, indent=2)}}, team)
