"""Builds on this machine with Docker buildx, or with Podman. Their logins to the registry are the user's."""

import json
import re
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from shutil import which

from gangway.components.core.findings import InputError
from gangway.components.core.image_reference import DIGEST
from gangway.live.image_build.context import DOCKERFILE, PLATFORM, BuildContext, unpack_context

ENGINES = ("docker", "podman")
_INSTALL = "install Docker with buildx (docs.docker.com/engine/install) or Podman (podman.io)"


def find_engine() -> str | None:
    """The first of ENGINES on this machine; Docker only with buildx."""
    return next((name for name in ENGINES if which(name) and (name != "docker" or _has_buildx())), None)


def need_engine() -> str:
    """As find_engine. InputError: this machine has none."""
    engine = find_engine()
    if engine is None:
        allowed = "docker with the plug-in buildx, or podman, on PATH"
        fix = f"{_INSTALL}; or build in the cloud: --remote"
        raise InputError("--local", "this machine cannot build images", allowed=allowed, fix=fix)
    return engine


def _has_buildx() -> bool:
    done = subprocess.run(["docker", "buildx", "version"], stdin=subprocess.DEVNULL, capture_output=True, check=False)
    return done.returncode == 0


def build_argv(engine: str, context: BuildContext, folder: str) -> list[str]:
    """The command that builds the context in `folder`."""
    options = ["--platform", PLATFORM, "--file", f"{folder}/{DOCKERFILE}", "--tag", context.image]
    options += ["--build-arg", f"REVISION={context.tag}", folder]
    return ["docker", "buildx", "build", "--load", *options] if engine == "docker" else ["podman", "build", *options]


def build(context: BuildContext, engine: str) -> None:
    """Builds the image on this machine. InputError: the engine fails."""
    with tempfile.TemporaryDirectory(prefix="gangway-image-") as folder:
        unpack_context(context, Path(folder))
        _run(build_argv(engine, context, folder), "read its output above, and free disk space if it is full")


def push(context: BuildContext, engine: str) -> str:
    """Pushes what was built, and returns the digest that the registry has. InputError: the engine fails."""
    fix = f"log in to {context.repository.partition('/')[0]} with `{engine} login`, and check the repository"
    if engine == "podman":
        with tempfile.NamedTemporaryFile(mode="r", prefix="gangway-digest-") as file:
            _run(["podman", "push", "--digestfile", file.name, context.image], fix)
            return _digest(Path(file.name).read_text("utf-8").strip(), context)
    _run(["docker", "push", context.image], fix)
    # With some of Docker's drivers the build names the digest of a configuration; the registry's answer is sure.
    inspect = ["docker", "buildx", "imagetools", "inspect", context.image, "--format", "{{json .Manifest}}"]
    try:
        manifest = json.loads(_run(inspect, fix, captured=True))
    except ValueError:
        manifest = {}
    return _digest(str(manifest.get("digest", "")), context)


def _run(argv: Sequence[str], fix: str, *, captured: bool = False) -> str:
    """Output goes to stderr, since stdout is the command's answer."""
    out = subprocess.PIPE if captured else 2
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=out, text=True, check=False)
    if done.returncode != 0:
        command = " ".join(argv[: 3 if argv[1] == "buildx" else 2])
        raise InputError(command, f"failed with exit status {done.returncode}", value=argv[-1], fix=fix)
    return done.stdout or ""


def _digest(text: str, context: BuildContext) -> str:
    if not re.fullmatch(DIGEST, text):
        fix = f"docker buildx imagetools inspect {context.image}"
        raise InputError(context.image, "its digest is not known after the push", value=text or None, fix=fix)
    return text
