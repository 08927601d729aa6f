"""The recorded image, by its digest, in a container on this machine: program, image, and the whole argument list.

Nothing here starts a container or asks a registry. The list is the nodes' own (images.shell), with the
run's folder at its own path, so that files and arguments mean the same inside and outside.
"""

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

from components.findings import InputError
from components.job import JobSpec, Volume
from images.shell import container_argv
from trainer.record import RunRecord

__all__ = ["Container", "container_job", "find_container", "start_argv"]

_UNSAYABLE = {",": "a comma", '"': "a quotation mark", "\n": "a line break"}
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]*(:[0-9]+)?(/[a-z0-9][a-z0-9._-]*)*")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
# Whoever calls has no account inside: caches of compilers ask for a name and a home.
_ACCOUNT = {"HOME": "/tmp", "USER": "gangway"}


class Container(NamedTuple):
    """What starts the image.

    Attributes:
        program: docker or podman, with its path.
        image: name and digest: registry/gangway-trainer@sha256:...
        digest: of the image, as the record has it.
    """

    program: Path
    image: str
    digest: str


def find_container(name: str, record: RunRecord) -> Container:
    """The record's image under a name that a person gave, and what can start it here.

    Args:
        name: of the image, without a tag: the record knows the digest, and not where it is kept.
        record: of the run.

    Raises:
        InputError: the record names no image, the name is none or has another digest, or nothing here runs containers.
    """
    digest = record.image_digest
    if not _DIGEST.fullmatch(digest):
        raise InputError(
            f"run {record.id}", "its record names no image by a digest", value=digest, allowed="sha256: and 64 digits",
            fix="leave --container out: this Python environment then runs it",
        )  # fmt: skip
    bare, at, given = name.partition("@")
    if not _NAME.fullmatch(bare):
        allowed = "an image's name without a tag, such as registry.example.com/gangway-trainer"
        raise InputError("--container", "no name of an image", value=name, allowed=allowed, fix="leave the tag out")
    if at and given != digest:
        raise InputError(
            "--container", "another image than the record's", value=name, allowed=f"{bare}@{digest}",
            fix="leave the digest out: the record has it",
        )  # fmt: skip
    program = _program()
    if program is None:
        raise InputError(
            "--container", "nothing here runs containers", value=name, allowed="docker or podman on PATH",
            fix="install one, or leave --container out: this Python environment then runs it",
        )  # fmt: skip
    return Container(program, f"{bare}@{digest}", digest)


def _program() -> Path | None:
    """Docker before podman; but podman where the command called docker is podman by another name."""
    docker, podman = shutil.which("docker"), shutil.which("podman")
    if docker and podman:
        said = subprocess.run([docker, "--version"], capture_output=True, text=True, check=False)
        docker = None if "podman" in said.stdout.lower() else docker
    found = docker or podman
    return Path(found) if found else None


def container_job(job: JobSpec, container: Container, folder: Path, data: Path | None) -> JobSpec:
    """The job as the image runs it: with the folders that it needs, each at its own path.

    Args:
        job: as it runs without a container.
        container: to run it in.
        folder: of the run, absolute.
        data: shards elsewhere, absolute; None where the trainer prepares them inside the run's folder.

    Raises:
        InputError: a folder that no mount can say.
    """
    folders = [(folder, False), *([] if data is None or data.is_relative_to(folder) else [(data, True)])]
    for each, _ in folders:
        for sign, called in _UNSAYABLE.items():
            if sign in str(each):
                raise InputError(f"{each}", f"has {called}, which no mount can say", fix="name another folder")
    volumes = tuple(Volume(source=str(each), target=str(each), read_only=only) for each, only in folders)
    return job.model_copy(update={"image": container.image, "volumes": volumes, "env": {**_ACCOUNT, **job.env}})


def start_argv(container: Container, job: JobSpec, name: str, *, on_gpus: bool) -> list[str]:
    """The whole command that runs a job in its image, files in its folders being the caller's own.

    Args:
        container: to run it in.
        job: of `container_job`.
        name: of the container.
        on_gpus: whether the workers have a GPU each.
    """
    podman = container.program.name == "podman"
    gpus = ["--device", "nvidia.com/gpu=all"] if podman else ["--gpus", "all"]
    # Without root, podman's users are others inside; and where SELinux rules, a mount would be closed to them.
    as_outside = ["--userns", "keep-id", "--security-opt", "label=disable"] if podman else []
    extra = [*as_outside, "--user", f"{os.getuid()}:{os.getgid()}", *(gpus if on_gpus else [])]
    # Nor may a user without root raise a limit, and podman's containers are processes of that user.
    argv = container_argv(job, extra, None, {}, name=name, locks_memory=not podman or os.getuid() == 0)
    return [str(container.program), *argv, container.image, *job.torchrun_argv()]
