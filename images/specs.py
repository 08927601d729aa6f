"""The inputs of the two renderers, and the one place where image versions are pinned.

Frozen dataclasses of plain values: `NodeInitSpec` is made inside `Output.apply`, where every value is a str. Not a
reader of files: what a person writes is `stacks.config`, and has been checked there.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal

from components.job import JobSpec

__all__ = ["DOCKERFILE_FLAVOURS", "TRAINER_UID", "DockerfileSpec", "Flavour", "NodeInitSpec"]

Flavour = Literal["cpu", "cuda-efa"]

# Above the ids that base images hand out (ubuntu:24.04 already has a user 1000). The node gives this user the run
# directory, so the Dockerfile and the node must agree on the number.
TRAINER_UID = 10001


@dataclass(frozen=True)
class DockerfileSpec:
    """One flavour of the trainer's image.

    Attributes:
        flavour: `cpu` (gloo) or `cuda-efa` (NCCL over AWS's fabric).
        base_image: image with a fixed tag or a digest, never `latest`.
        python_version: major.minor; the interpreter is `python<version>`.
        apt_packages: what the final image installs; a C++ compiler among them, for torch.compile.
        build_apt_packages: what only the stage that builds the virtual environment installs.
        efa_installer_version: AWS's installer of libfabric and aws-ofi-nccl; None leaves EFA out.
        efa_installer_sha256: checksum of that archive; None trusts TLS alone.
        entrypoint: what `docker run IMAGE <torchrun arguments>` starts.
        version: the image's version label.
    """

    flavour: Flavour
    base_image: str
    python_version: str
    apt_packages: tuple[str, ...] = ()
    build_apt_packages: tuple[str, ...] = ()
    efa_installer_version: str | None = None
    efa_installer_sha256: str | None = None
    entrypoint: tuple[str, ...] = ("python", "-m", "trainer.launch")
    version: str = "0.1.0"

    def __post_init__(self) -> None:
        """Refuse a base image that would change under the same Dockerfile."""
        tag = self.base_image.rpartition("/")[2].partition(":")[2]
        if not tag or tag == "latest":
            raise ValueError(
                f"DockerfileSpec.base_image: {self.base_image!r} does not name one version; "
                "allowed: a tag other than 'latest', or @sha256:<digest>; fix: pin the tag"
            )


# CUDA: images/locks/trainer.lock holds nvidia-cuda-runtime 13.2 and NCCL 2.30 as wheels, so the smallest 13.2 base is enough.
# EFA: installer 1.47.0 brings libfabric 2.x and aws-ofi-nccl 1.18, as the Deep Learning AMI's release notes list it;
# p5 needs installer >= 1.29 and plugin >= 1.7.2.
DOCKERFILE_FLAVOURS: Mapping[Flavour, DockerfileSpec] = MappingProxyType(
    {
        "cpu": DockerfileSpec(
            flavour="cpu",
            base_image="python:3.12.12-slim-bookworm",
            python_version="3.12",
            apt_packages=("g++",),
        ),
        "cuda-efa": DockerfileSpec(
            flavour="cuda-efa",
            base_image="nvidia/cuda:13.2.1-base-ubuntu24.04",
            python_version="3.12",
            apt_packages=("ca-certificates", "curl", "g++", "python3.12", "python3.12-dev"),
            build_apt_packages=("ca-certificates", "python3.12", "python3.12-venv"),
            efa_installer_version="1.47.0",
        ),
    }
)


@dataclass(frozen=True)
class NodeInitSpec:
    """What one worker node does at boot, all values known.

    Attributes:
        job: what the node runs; its image must be named by digest.
        cloud: only `aws` so far.
        region: of the node, its registry and its Auto Scaling group.
        image_registry: host to log in to, such as `123456789012.dkr.ecr.us-east-2.amazonaws.com`.
        bucket_uri: `s3://...` prefix under which `<job>/run.json` is put when the trainer stops.
        run_dir: the run directory as the node sees it, on the parallel file system when there is one.
        efa_interfaces_planned: EFA interfaces of the launch template; 0 asks for none and checks none.
        lustre_dns_name: FSx file system's DNS name; None when the stack has no file system.
        lustre_mount_name: FSx mount name, such as `fsx` or `abcdefgh`.
        lustre_mount_point: where the node mounts it.
        scratch_mount_point: where instance-store NVMe goes; None leaves it alone.
        tags: the stack's tags, put on the container as labels.
    """

    job: JobSpec
    region: str
    image_registry: str
    bucket_uri: str
    run_dir: str
    cloud: Literal["aws"] = "aws"
    efa_interfaces_planned: int = 0
    lustre_dns_name: str | None = None
    lustre_mount_name: str | None = None
    lustre_mount_point: str = "/fsx"
    scratch_mount_point: str | None = None
    tags: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse what a node could only find out after it has begun to cost money."""
        if "@sha256:" not in self.job.image:
            raise ValueError(
                f"NodeInitSpec.job.image: {self.job.image!r} can change between two nodes; "
                "allowed: <registry>/<repository>@sha256:<digest>; fix: use the pushed image's digest"
            )
        if (self.lustre_dns_name is None) != (self.lustre_mount_name is None):
            raise ValueError(
                f"NodeInitSpec.lustre_dns_name: {self.lustre_dns_name!r} with "
                f"lustre_mount_name {self.lustre_mount_name!r}; allowed: both or neither; "
                "fix: pass dns_name and mount_name of the same file system"
            )
        for name, value in self.job.env.items():
            if not name or "=" in name or "\0" in name + value:
                raise ValueError(
                    f"NodeInitSpec.job.env: {name!r}={value!r} cannot be an environment variable; "
                    "allowed: a name without '=', no NUL in either; fix: rename it or encode the value"
                )
