"""A namespace's ConfigMap with the settings that multi-node pods need for the network between GPUs; pure."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from gangway.components.kubernetes.manifest import Manifest, manifest
from gangway.components.kubernetes.spec import FABRIC, FABRIC_KEY

__all__ = ["fabric_config"]


def fabric_config(team: str, gpus: int, env: Mapping[str, str], *, needs: Sequence[str] = (), **more: Any) -> Manifest:
    """The ConfigMap, as `gangway.jobs.kubernetes.fabric.Fabric` reads it. `gpus`: per node; `env`: `fabric_variables`;
    `needs`: resources that pods must request to get the network; `more`: further keys of `Fabric`.
    """
    config = {"gpus": gpus, "needs": list(needs), "env": dict(env), **more}
    return manifest("v1", "ConfigMap", FABRIC, {"data": {FABRIC_KEY: json.dumps(config, indent=2)}}, team)
