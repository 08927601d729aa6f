"""The inputs of the renderers, shared by all clouds, and the pinned image versions, with digests from images.lock."""

import hashlib
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Literal

from gangway.components.core.hardware_alerts import GPU_JOB, NODE_JOB
from gangway.components.core.job import JobSpec

Flavour = Literal["cpu", "cuda", "cuda-efa", "xla"]

# Above the ids of base images (ubuntu:24.04 has a user 1000). The node makes this user the owner of the run directory,
# so Dockerfile and node must use the same number.
TRAINER_UID = 10001
# Above SSSD's users (sssd-ldap(5), ldap_idmap_range_max) and systemd's container users, below its foreign users
# (systemd.io, "Users, Groups, UIDs and GIDs").
_STACK_UIDS = range(2_001_000_000, 2_135_000_000)


def stack_uid(stack: str) -> int:
    """No job can write another stack's runs; two of a hundred stacks share one with a chance below 1 in 10,000."""
    return _STACK_UIDS[int.from_bytes(hashlib.sha256(stack.encode()).digest()[:8]) % len(_STACK_UIDS)]


PROMETHEUS_IMAGE = "docker.io/prom/prometheus:v3.5.0"  # the default of stack files
EXPORTER_IMAGES: Mapping[str, str] = MappingProxyType(
    {
        GPU_JOB: "nvcr.io/nvidia/k8s/dcgm-exporter:4.5.3-4.8.2-distroless",
        NODE_JOB: "quay.io/prometheus/node-exporter:v1.11.1",
    }
)
"""By scrape job. Not from Docker Hub, which limits the pulls of all nodes behind one NAT address."""
EXPORTER_PORTS: Mapping[str, int] = MappingProxyType({GPU_JOB: 9401, NODE_JOB: 9402})  # after the trainer's 9400


def exporter_ports(*, gpus: bool) -> Mapping[str, int]:
    """Ports of a machine's exporters, by scrape job. `gpus`: whether it has NVIDIA GPUs."""
    return {job: port for job, port in EXPORTER_PORTS.items() if gpus or job != GPU_JOB}


@dataclass(frozen=True)
class JobLimit:
    """What a job may spend on its nodes, at the price of one node."""

    max_usd: float
    usd_per_node_hour: float

    def hours(self, num_nodes: int) -> float:
        """After how many hours this many nodes have cost it."""
        return self.max_usd / self.usd_per_node_hour / num_nodes


def job_key(job: JobSpec) -> str:
    """Identifies a job among those of its stack. More nodes or more `max_hours` do not change it."""
    return hashlib.sha256(json.dumps(_job_identity(job)).encode()).hexdigest()[:12]


def _job_identity(job: JobSpec) -> list[object]:
    command = [] if job.command is None else [job.command.model_dump(mode="json")]
    training = None if job.training is None else job.training.model_dump(mode="json")
    return [job.image, training, *command]


def ended_object(job: JobSpec, max_hours: float | None, limit: JobLimit | None = None) -> str:
    """Key of an object that exists once the job has ended, for any number of nodes: a resized pool keeps its head."""
    identity = json.dumps([*_job_identity(job), max_hours, *([limit.max_usd] if limit else [])])
    return f"{job.name}/ended-{hashlib.sha256(identity.encode()).hexdigest()[:12]}"


HELD_OBJECT = "breaker/held.json"  # beside a run's record while launches are held (`gangway.images.node.breaker`)


@dataclass(frozen=True)
class Breaker:
    """Launches are held once `given_up` nodes gave up within `minutes`."""

    given_up: int
    minutes: int

    @property
    def settings(self) -> dict[str, str]:
        """Variables of common.sh."""
        return {"BREAKER_LIMIT": str(self.given_up), "BREAKER_SEC": str(self.minutes * 60)}


@dataclass(frozen=True)
class IdleStop:
    """The job ends, and its nodes leave, once all GPUs were used less than `below_percent` for `minutes`."""

    minutes: int
    below_percent: int

    def settings(self, num_nodes: int) -> dict[str, str]:
        """Variables of watch-idle.sh."""
        return {
            "IDLE_NODES": str(num_nodes),
            "IDLE_PERCENT": str(self.below_percent),
            "IDLE_SEC": str(self.minutes * 60),
        }


def check_pinned(place: str, image: str) -> None:
    """Raises ValueError for an image without a fixed tag."""
    tag = image.rpartition("/")[2].partition(":")[2]
    if not tag or tag == "latest":
        raise ValueError(
            f"{place}: {image!r} has no fixed version; "
            "allowed: a tag other than 'latest', or @sha256:<digest>; fix: pin the tag"
        )


EFA_KEY_FINGERPRINT = "4E9091BCBB97A96B26B15E59A05480B1DD2D3CCC"
"""EC2 user guide, "Get started with EFA and MPI", on the authenticity of the installer."""


@dataclass(frozen=True)
class DockerfileSpec:
    """One flavour of the trainer's image. `flavour`: `cpu` (gloo), `cuda` (NCCL over TCP or a node's plug-in),
    `cuda-efa` or `xla` (for TPUs); `base_image`: with a fixed tag or a digest; `lock`: of the virtual environment, in
    images/locks; `apt_packages`: with a C++ compiler for torch.compile; `shared_libraries`: the build fails unless the
    image can load them; `efa_installer_version`: libfabric and aws-ofi-nccl; `efa_installer_sha256`: None trusts its
    signature alone.
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
    entrypoint: tuple[str, ...] = ("python", "-m", "gangway.trainer.launch")
    version: str = "0.1.0"

    def __post_init__(self) -> None:
        check_pinned("DockerfileSpec.base_image", self.base_image)


# CUDA: images/locks/trainer.lock has torch with nvidia-cuda-runtime 13.2 and NCCL 2.30.7 as wheels, so the smallest
# 13.2 base is enough. The driver is the AMI's: 595, CUDA 13.2's, in the Deep Learning AMIs since 2026-04 (their release
# notes). CUDA 13 needs 580 or later (CUDA Toolkit release notes, minor version compatibility), also in a pinned AMI.
# EFA: aws-ofi-nccl supports the network interface of NCCL 2.30 (v12) since 1.20.0 (github.com/aws/aws-ofi-nccl, notes
# of 1.20.0). Installer 1.50.0 has 1.21.1, which supports NCCL since 2.17.1 (its notes), and is in the Deep Learning
# AMIs since 2026-09-16. Its checksum is from public Dockerfiles (seven files on GitHub, all the same, 2026-11); AWS's
# list (EC2 user guide, "Verify the EFA installer using a checksum") could not be read. A wrong one fails the build.
# RDMA: on Google Cloud the node mounts NCCL's plug-in for RoCE, which loads the verbs libraries of the image; the base
# has none (github.com/NVIDIA/nvidia-container-toolkit, issue 1877).
# XLA: images/locks/xla.lock has the libtpu that torch_xla's metadata names. PyPI's torch does not load without CUDA's
# libraries, which are unused.
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
    """The file system that every machine mounts. `source`: `HOST@tcp:/NAME`, `IP:/SHARE` (NFS),
    `IP:6789,IP:6789:/SHARE` (CephFS), or `BUCKET/FOLDER` (TPU slices without either).
    """

    kind: Literal["lustre", "nfs", "ceph", "bucket"]
    source: str
    mount_point: str

    @property
    def script(self) -> str:
        """The script that mounts it."""
        return f"mount-{self.kind}.sh"


@dataclass(frozen=True)
class RdmaSetup:
    """Adapters that must be up before a machine is ready. `link_layer`: as in sysfs; `num_devices`: with their link up
    at `gbps_each`; `hcas`: their names; empty for any; `devices`: passed to the job's container.
    """

    link_layer: Literal["InfiniBand", "Ethernet"]
    num_devices: int
    gbps_each: float
    hcas: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()

    @property
    def settings(self) -> dict[str, str]:
        """Variables of check-rdma.sh."""
        return {
            "RDMA_DEVICES": str(self.num_devices),
            "RDMA_GBPS": str(math.floor(self.gbps_each)),
            "RDMA_HCAS": " ".join(self.hcas),
            "RDMA_LINK_LAYER": self.link_layer,
        }


@dataclass(frozen=True, kw_only=True)
class MachineSpec:
    """Settings of all machines of a stack. `job`: its image must be named by digest; `bucket_uri`: `s3://...`,
    `gs://...`, `https://ACCOUNT.blob...` or `swift://CONTAINER` prefix of `<job>/run.json`; `member_key`,
    `signing_key`: the secrets with the keys; `max_hours`: counted over all starts while at least one node is up; None
    for no limit; `limit`: of what the job may spend on its nodes; `hardware_metrics`: workers run exporters, which the
    head scrapes.
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
    limit: JobLimit | None = None
    hardware_metrics: bool = False

    def __post_init__(self) -> None:
        place = type(self).__name__
        # In a plan, a reference replaces the digest that only a build knows.
        if "@" not in self.job.image:
            raise ValueError(
                f"{place}.job.image: {self.job.image!r} can change between two nodes; "
                "allowed: <registry>/<repository>@sha256:<digest>; fix: use the pushed image's digest"
            )
        if self.max_hours is not None and self.max_hours <= 0:
            raise ValueError(f"{place}.max_hours: {self.max_hours!r}; allowed: above 0, or None; fix: raise it")
        for name, value in self.job.env.items():
            if not name or "=" in name or "\0" in name + value:
                raise ValueError(
                    f"{place}.job.env: {name!r}={value!r} is not a valid environment variable; "
                    "allowed: a name without '=', no NUL in either; fix: rename it or encode the value"
                )

    @property
    def exporters(self) -> Mapping[str, int]:
        """Ports of the exporters on a worker, by scrape job. A TPU has none."""
        if not self.hardware_metrics or self.job.backend == "xla":
            return {}
        return exporter_ports(gpus=self.job.backend == "nccl")

    @property
    def key_steps(self) -> tuple[str, ...]:
        """The script that fetches the member key."""
        return ("fetch-key.sh",) if self.member_key else ()

    @property
    def ended_object(self) -> str:
        """Key below `bucket_uri`; see `ended_object`."""
        return ended_object(self.job, self.max_hours, self.limit)


@dataclass(frozen=True, kw_only=True)
class WorkerSpec(MachineSpec):
    """A worker in a group. `data_dir`: the job reads and may fill it; `scratch_mount_point`: the machine's disks, on
    the node and in the container (TMPDIR); `terminate_when_done`: at the job's end the node leaves its group, else
    stays with the trainer stopped; `breaker`: None replaces every node that gives up; `idle_stop`: None never ends an
    idle job.
    """

    data_dir: str | None = None
    scratch_mount_point: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    terminate_when_done: bool = False
    breaker: Breaker | None = None
    idle_stop: IdleStop | None = None

    @property
    def idle_settings(self) -> dict[str, str]:
        """Variables of watch-idle.sh; none without it."""
        return self.idle_stop.settings(self.job.num_nodes_max) if self.idle_stop else {}


@dataclass(frozen=True, kw_only=True)
class HeadSpec(MachineSpec):
    """A head node. `metrics_port`: of the workers; `prometheus_image`: pinned, None for no Prometheus."""

    port: int = 29400
    metrics_port: int = 9400
    prometheus_image: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.prometheus_image is not None:
            check_pinned(f"{type(self).__name__}.prometheus_image", self.prometheus_image)


LOCK = Path(__file__).parent / "images.lock"
_LINE = re.compile(
    r"(?P<image>[a-zA-Z0-9][a-zA-Z0-9._/:\[\]-]*:[a-zA-Z0-9_][a-zA-Z0-9._-]*) (?P<digest>sha256:[0-9a-f]{64})"
)
_HOST = re.compile(r"[^/]*[.:\]][^/]*|localhost")  # Docker's rule for a registry's host


def full_name(image: str) -> str:
    """An image's name with its registry, Docker Hub by default.

    >>> full_name("python:3.12.12-slim-bookworm")
    'docker.io/library/python:3.12.12-slim-bookworm'
    >>> full_name("nvcr.io/nvidia/cuda:13.2.1-base-ubuntu24.04")
    'nvcr.io/nvidia/cuda:13.2.1-base-ubuntu24.04'
    """
    first, slash, _ = image.partition("/")
    if slash and _HOST.fullmatch(first):
        return image
    return f"docker.io/{image}" if slash else f"docker.io/library/{image}"


@cache
def locked_digests(lock: Path = LOCK) -> Mapping[str, str]:
    """Digests by full image name. Raises ValueError for a malformed line."""
    found = {}
    for number, line in enumerate(lock.read_text("utf-8").splitlines(), start=1):
        if not line or line.startswith("#"):
            continue
        pin = _LINE.fullmatch(line)
        if pin is None:
            raise ValueError(
                f"{lock}:{number}: {line!r}; allowed: <registry>/<repository>:<tag> sha256:<digest>; "
                "fix: make lock-images"
            )
        found[pin["image"]] = pin["digest"]
    return MappingProxyType(found)


def pinned_image(image: str) -> str:
    """The image with its locked digest; unchanged if it has a digest or is not in the lock."""
    digest = "" if "@" in image else locked_digests().get(full_name(image), "")
    return f"{image}@{digest}" if digest else image
