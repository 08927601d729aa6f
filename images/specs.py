"""The inputs of the renderers, and the one place where image versions are pinned; what machines of every cloud are
told, in the same words.
"""

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from components.core.job import JobSpec

Flavour = Literal["cpu", "cuda", "cuda-efa", "xla"]

# Above the ids that base images hand out (ubuntu:24.04 already has a user 1000). The node gives this user the run
# directory, so the Dockerfile and the node must agree on the number.
TRAINER_UID = 10001
# Above the users that SSSD makes of a directory's (sssd-ldap(5), ldap_idmap_range_max) and those that systemd gives to
# containers, below its foreign ones (systemd.io, "Users, Groups, UIDs and GIDs").
_OWN_UIDS = range(2_001_000_000, 2_135_000_000)


def own_uid(stack: str) -> int:
    """A user for the job of this stack alone, where a file system holds the runs of other stacks as well: no job may
    then write another's. The same on each machine; two of a hundred stacks share one with a chance below 1 in 10,000.
    """
    return _OWN_UIDS[int.from_bytes(hashlib.sha256(stack.encode()).digest()[:8]) % len(_OWN_UIDS)]


PROMETHEUS_IMAGE = "docker.io/prom/prometheus:v3.5.0"
"""What heads run where a stack file names no other."""


def job_key(job: JobSpec) -> str:
    """Tells this job from a stack's next one, on any number of nodes. `max_hours` does not count: more let it go on."""
    return hashlib.sha256(json.dumps(_what_runs(job)).encode()).hexdigest()[:12]


def _what_runs(job: JobSpec) -> list[object]:
    own = [] if job.command is None else [job.command.model_dump(mode="json")]
    training = None if job.training is None else job.training.model_dump(mode="json")
    return [job.image, training, *own]


def ended_object(job: JobSpec, max_hours: float | None) -> str:
    """Below a stack's place in its bucket: exists once this very job has ended (on any number of nodes: a pool of
    another size has the same head), so that nobody fills groups for it.
    """
    what = json.dumps([*_what_runs(job), max_hours])
    return f"{job.name}/ended-{hashlib.sha256(what.encode()).hexdigest()[:12]}"


HELD_OBJECT = "breaker/held.json"
"""Beside a run's record: there while nothing of its stack is launched, and why (`images.node.breaker`)."""


@dataclass(frozen=True)
class Breaker:
    """When nothing of a stack is launched any more: once `given_up` nodes gave themselves up within `minutes`."""

    given_up: int
    minutes: int

    @property
    def settings(self) -> dict[str, str]:
        """What common.sh wants to know."""
        return {"BREAKER_LIMIT": str(self.given_up), "BREAKER_SEC": str(self.minutes * 60)}


def check_digest(place: str, image: str) -> None:
    """Refuses an image that is not named by its digest. Raises ValueError."""
    # A plan has a reference in place of the digest that only a build knows.
    if "@" not in image:
        raise ValueError(
            f"{place}: {image!r} can change between two nodes; "
            "allowed: <registry>/<repository>@sha256:<digest>; fix: use the pushed image's digest"
        )


def check_pinned(place: str, image: str) -> None:
    """Refuses an image whose tag moves. Raises ValueError."""
    tag = image.rpartition("/")[2].partition(":")[2]
    if not tag or tag == "latest":
        raise ValueError(
            f"{place}: {image!r} does not name one version; "
            "allowed: a tag other than 'latest', or @sha256:<digest>; fix: pin the tag"
        )


def check_hours(place: str, max_hours: float | None) -> None:
    """Refuses a job without any time. Raises ValueError."""
    if max_hours is not None and max_hours <= 0:
        raise ValueError(f"{place}.max_hours: {max_hours!r}; allowed: above 0, or None; fix: give the job some time")


def check_env(place: str, env: Mapping[str, str]) -> None:
    """Refuses what no process can have in its environment. Raises ValueError."""
    for name, value in env.items():
        if not name or "=" in name or "\0" in name + value:
            raise ValueError(
                f"{place}.job.env: {name!r}={value!r} cannot be an environment variable; "
                "allowed: a name without '=', no NUL in either; fix: rename it or encode the value"
            )


EFA_KEY_FINGERPRINT = "4E9091BCBB97A96B26B15E59A05480B1DD2D3CCC"
"""As AWS prints it (EC2 user guide, "Get started with EFA and MPI", on the authenticity of the installer)."""


@dataclass(frozen=True)
class DockerfileSpec:
    """One flavour of the trainer's image.

    Attributes:
        flavour: `cpu` (gloo), `cuda` (NCCL over TCP, or over what a node mounts into it), `cuda-efa` (NCCL over AWS's
            fabric) or `xla` (PyTorch/XLA, for TPUs).
        base_image: with a fixed tag or a digest, never `latest`.
        python_version: major.minor; the interpreter is `python<version>`.
        lock: under images/locks, of the virtual environment.
        apt_packages: of the final image; a C++ compiler among them, for torch.compile.
        build_apt_packages: only of the stage that builds the virtual environment.
        shared_libraries: that the final image must be able to load, or its build fails.
        efa_installer_version: AWS's installer of libfabric and aws-ofi-nccl; None leaves EFA out.
        efa_installer_sha256: checksum of that archive; None trusts its signature alone.
        efa_key_fingerprint: of the key by which AWS signs that archive.
        entrypoint: what `docker run IMAGE <torchrun arguments>` starts.
    """

    flavour: Flavour
    base_image: str
    python_version: str
    lock: str = "trainer.lock"
    apt_packages: tuple[str, ...] = ()
    build_apt_packages: tuple[str, ...] = ()
    shared_libraries: tuple[str, ...] = ()
    efa_installer_version: str | None = None
    efa_installer_sha256: str | None = None
    efa_key_fingerprint: str = EFA_KEY_FINGERPRINT
    entrypoint: tuple[str, ...] = ("python", "-m", "trainer.launch")
    version: str = "0.1.0"

    def __post_init__(self) -> None:
        """Refuse a base image that would change under the same Dockerfile."""
        check_pinned("DockerfileSpec.base_image", self.base_image)


# CUDA: images/locks/trainer.lock holds torch with nvidia-cuda-runtime 13.2 and NCCL 2.30.7 as wheels, so the smallest
# 13.2 base is enough. The driver is the AMI's: 595 in the Deep Learning AMIs since 2026-04 (their release notes), which
# is CUDA 13.2's own. CUDA 13 runs with 580 and later (CUDA Toolkit release notes, minor version compatibility), so a
# pinned AMI must not hold an older one.
# EFA: aws-ofi-nccl speaks the network interface of NCCL 2.30 (v12) from 1.20.0 on, the first that was tested with it
# (github.com/aws/aws-ofi-nccl, notes of 1.20.0); 1.18, of installer 1.47.0, was made for older ones. Installer 1.50.0
# brings 1.21.1, which keeps all NCCLs from 2.17.1 (its notes), and is the Deep Learning AMIs' since 2026-09-16. Its
# checksum is what public Dockerfiles hold (seven files on GitHub, all the same, 2026-11): AWS's own list (EC2 user
# guide, "Verify the EFA installer using a checksum") could not be seen. A wrong one stops the build.
# RDMA: on Google Cloud NCCL's plug-in for RoCE comes from the node, and looks for the verbs' libraries here; the base
# has none of them (github.com/NVIDIA/nvidia-container-toolkit, issue 1877).
# XLA: images/locks/xla.lock holds libtpu, the version that torch_xla's metadata names for TPUs; it drives the chips, so
# the base needs nothing of Google's. CUDA's libraries come with it unused: PyPI's torch does not load without them.
DOCKERFILE_FLAVOURS: Mapping[Flavour, DockerfileSpec] = MappingProxyType(
    {
        "cpu": DockerfileSpec(
            flavour="cpu",
            base_image="python:3.12.12-slim-bookworm",
            python_version="3.12",
            apt_packages=("g++",),
        ),
        "cuda": DockerfileSpec(
            flavour="cuda",
            base_image="nvidia/cuda:13.2.1-base-ubuntu24.04",
            python_version="3.12",
            apt_packages=("g++", "ibverbs-providers", "libibverbs1", "librdmacm1", "python3.12", "python3.12-dev"),
            build_apt_packages=("ca-certificates", "python3.12", "python3.12-venv"),
            shared_libraries=("libibverbs.so.1", "libmlx5.so.1", "librdmacm.so.1"),
        ),
        "cuda-efa": DockerfileSpec(
            flavour="cuda-efa",
            base_image="nvidia/cuda:13.2.1-base-ubuntu24.04",
            python_version="3.12",
            apt_packages=("ca-certificates", "curl", "g++", "python3.12", "python3.12-dev"),
            build_apt_packages=("ca-certificates", "python3.12", "python3.12-venv"),
            efa_installer_version="1.50.0",
            efa_installer_sha256="fa6dff8593d866866c13cb4640d9059835cd4efa427971f100ab40c97bef2841",
        ),
        "xla": DockerfileSpec(
            flavour="xla",
            base_image="python:3.12.12-slim-bookworm",
            python_version="3.12",
            lock="xla.lock",
            apt_packages=("g++",),
        ),
    }
)


@dataclass(frozen=True)
class FileSystem:
    """What every machine of a stack mounts.

    Attributes:
        kind: Lustre (FSx, Managed Lustre); Filestore, or a Manila share over NFS; native CephFS; or a folder of the run
            bucket (for TPU slices without either).
        source: `HOST@tcp:/NAME`, `IP:/SHARE`, `IP:6789,IP:6789:/SHARE`, `BUCKET/FOLDER`.
    """

    kind: Literal["lustre", "nfs", "ceph", "bucket"]
    source: str
    mount_point: str

    @property
    def script(self) -> str:
        """What mounts it."""
        return f"mount-{self.kind}.sh"


@dataclass(frozen=True)
class RdmaSetup:
    """Adapters that a machine must have up before it counts as one; `components.catalog.site` says what each is.

    Attributes:
        link_layer: as sysfs has it.
        num_devices: with their link up, at `gbps_each`.
        hcas: their names; empty for whichever are up.
        devices: of the host, passed to the job's container beside the GPUs.
    """

    link_layer: Literal["InfiniBand", "Ethernet"]
    num_devices: int
    gbps_each: float
    hcas: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()

    @property
    def settings(self) -> dict[str, str]:
        """What check-rdma.sh wants to know."""
        return {
            "RDMA_DEVICES": str(self.num_devices),
            "RDMA_GBPS": str(math.floor(self.gbps_each)),
            "RDMA_HCAS": " ".join(self.hcas),
            "RDMA_LINK_LAYER": self.link_layer,
        }


@dataclass(frozen=True, kw_only=True)
class MachineSpec:
    """What all of a stack's machines are told.

    Attributes:
        job: what workers run; its image must be named by digest.
        image_registry: host to log in to, such as `gangway.azurecr.io`.
        bucket_uri: `s3://...`, `gs://...`, `https://ACCOUNT.blob...` or `swift://CONTAINER` prefix of `<job>/run.json`.
        run_dir: the run directory as the machine sees it.
        file_system: to be mounted; None for none.
        member_key: what the key by which the job's nodes know each other is called in the cloud's store; None for none.
        signing_key: the same of the key by which the run's record is signed.
        max_hours: of the job, counted while at least one of its nodes is up, over all starts; None for no limit.
    """

    stack: str
    job: JobSpec
    image_registry: str
    bucket_uri: str
    run_dir: str
    file_system: FileSystem | None = None
    member_key: str | None = None
    signing_key: str | None = None
    max_hours: float | None = None

    def __post_init__(self) -> None:
        """Refuse what a machine could only find out after it has begun to cost money."""
        place = type(self).__name__
        check_digest(f"{place}.job.image", self.job.image)
        check_hours(place, self.max_hours)
        check_env(place, self.job.env)

    @property
    def key_steps(self) -> tuple[str, ...]:
        """What brings the key, before the machine is ready."""
        return ("fetch-key.sh",) if self.member_key else ()

    @property
    def ended_object(self) -> str:
        """Below `bucket_uri`: there once this very job has ended, so that nobody fills groups for it any more."""
        return ended_object(self.job, self.max_hours)
