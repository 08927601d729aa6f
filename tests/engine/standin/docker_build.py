"""The stand-in for Pulumi's docker-build plugin: an image is its Dockerfile and its tags, and nothing is built.

It refuses what the real one, or BuildKit below it, would: a context that is no folder, a COPY of what is not there, a
push without a login for that registry.
"""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from .provider import RefusedError, Service
from .shapes import Fault

_COPY = re.compile(r"^(?:COPY|ADD) (?!--from)(.+) \S+$", re.MULTILINE)


class DockerBuild(Service):
    """Builds no image. Paths are relative to where the engine starts a plugin: the program's own folder."""

    sdk = "pulumi_docker_build"
    volatile = frozenset({"contextHash", "digest", "ref"})

    def faults(self, type_token: str, inputs: Mapping[str, Any]) -> Iterator[Fault]:
        """See Service."""
        location = inputs["context"]["location"]
        if not Path(location).is_dir():
            yield "context.location", f'"{location}": not a valid directory or URL'

    def compared(self, inputs: dict[str, Any]) -> dict[str, Any]:
        """See Service. Registries give a new password each time, which is no reason to build."""
        logins = [{**login, "password": None} for login in inputs.get("registries", [])]
        return {**inputs, "registries": logins}

    def computed(
        self, type_token: str, id_: str, inputs: Mapping[str, Any], before: Mapping[str, Any]
    ) -> dict[str, Any]:
        """See Service."""
        context, dockerfile = Path(inputs["context"]["location"]), inputs["dockerfile"]["inline"]
        missing = [path for line in _COPY.findall(dockerfile) for path in line.split() if not (context / path).exists()]
        if missing:
            raise RefusedError(f"failed to compute cache key: {missing[0]}: not found in the context {context}")
        hosts = {login["address"].removeprefix("https://") for login in inputs["registries"]}
        for tag in inputs["tags"]:
            if tag.partition("/")[0] not in hosts:
                raise RefusedError(f"push of {tag}: no basic auth credentials; there are some for {sorted(hosts)}")
        text = json.dumps([dockerfile, inputs["tags"], inputs.get("buildArgs")])
        digest = f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"
        return {"digest": digest, "ref": f"{inputs['tags'][0]}@{digest}", "contextHash": digest.removeprefix("sha256:")}
