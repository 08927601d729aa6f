"""The job of a node: image, processes, volumes, environment and torchrun command line, independent of the machines."""

import json
from collections.abc import Mapping
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, JsonValue, model_validator

from gangway.components.core.image_reference import ImageSignature

Backend = Literal["gloo", "nccl", "xla"]
OPEN_FILES = 131_072
"""Open files per process, on every engine, as in Slurm's own unit of slurmd. The default of systemd and Docker 29 is
1,024.
"""


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)


class Volume(_Frozen):
    """A host path mounted into the container."""

    source: str
    target: str
    read_only: bool = False


class Rendezvous(_Frozen):
    """Where workers meet: a TCPStore on the head node, or `standalone` on a single machine."""

    host: str = "localhost"
    port: int = Field(default=0, ge=0, le=65535)
    standalone: bool = False


class OwnCommand(_Frozen):
    """A custom command, run in the job's image instead of the trainer.

    Attributes:
        workdir: empty for the image's own.
        torchrun_processes: per node; 0 runs the command once without torchrun. This torchrun does not know the job's
            key: anyone who reaches the nodes' ports can join.
        outputs: folders that outlive the node besides the run folder, as the command sees them.
    """

    words: tuple[str, ...] = Field(min_length=1)
    workdir: str = ""
    torchrun_processes: int = Field(default=0, ge=0)
    outputs: tuple[str, ...] = Field(default=(), exclude_if=lambda folders: not folders)


class Training(_Frozen):
    """What the bundled trainer does: a configuration as a document, and the options of one session.

    Attributes:
        config: fields of a TrainConfig, without those that have its defaults.
        config_file: where the job finds the document, which the engine writes.
        data_dir: prepared shards; empty for a folder in `run_dir`, prepared by the trainer.
        fabric_min_gbps: all-reduce bus bandwidth below which the job does not start; None for no test.
        options: further words of `train`.
    """

    config: dict[str, JsonValue]
    config_file: str = "/etc/gangway/train.json"
    run_dir: str
    data_dir: str = ""
    metrics_port: int | None = None
    log_format: Literal["text", "json"] = "text"
    fabric_min_gbps: float | None = None
    controller: dict[str, JsonValue] | None = None
    options: tuple[str, ...] = ()

    @property
    def document(self) -> str:
        """The text of `config_file`."""
        return json.dumps(self.config, indent=1) + "\n"

    @property
    def argv(self) -> list[str]:
        """The trainer's arguments."""
        control = self.controller
        compact = json.dumps(control, separators=(",", ":"))
        return [
            *("train", "--config", self.config_file, "--run-dir", self.run_dir),
            *(("--data", self.data_dir) if self.data_dir else ()),
            *(() if self.metrics_port is None else ("--metrics-port", str(self.metrics_port))),
            *(() if self.log_format == "text" else ("--log-format", self.log_format)),
            *(("--fabric-min-gbps", f"{self.fabric_min_gbps:g}") if self.fabric_min_gbps else ()),
            *(() if control is None else ("--controller", str(control["mode"]), "--control", compact)),
            *self.options,
        ]


class JobSpec(_Frozen):
    """A distributed job, independent of its cloud.

    Attributes:
        image: by digest; empty for the current Python environment.
        image_signature: verified before the image runs; None for no check.
        processes_per_node: one per accelerator; on a CPU-only node, gloo processes.
        max_restarts: restarts after failures; changes of membership do not count.
        shutdown_timeout_sec: between SIGTERM and SIGKILL, for the checkpoint (notice is about 30 s on GCP and Azure,
            120 s on AWS).
    """

    name: str
    image: str = ""
    image_signature: ImageSignature | None = Field(default=None, exclude_if=lambda signed: signed is None)
    backend: Backend
    num_nodes_min: int = Field(ge=1)
    num_nodes_max: int = Field(ge=1)
    processes_per_node: int = Field(ge=1)
    rendezvous: Rendezvous = Rendezvous()
    volumes: tuple[Volume, ...] = ()
    env: dict[str, str] = Field(default_factory=dict)
    module: str = "gangway.trainer"
    training: Training | None = None
    command: OwnCommand | None = Field(default=None, exclude_if=lambda own: own is None)
    run_id: str = ""
    max_restarts: int = Field(default=3, ge=0)
    shutdown_timeout_sec: int = Field(default=25, ge=1)

    @model_validator(mode="after")
    def _min_is_not_above_max(self) -> Self:
        assert self.num_nodes_min <= self.num_nodes_max, "StackConfig has checked nodes.min <= nodes.max"
        return self

    @property
    def argv(self) -> list[str]:
        """Arguments of `module`."""
        return [] if self.training is None else self.training.argv

    @property
    def data_dir(self) -> str | None:
        """The folder that the trainer reads; None if it prepares one or there is no trainer."""
        return None if self.training is None else self.training.data_dir or None

    @property
    def command_meets(self) -> bool:
        """Whether the nodes of a custom command form one torchrun job."""
        return self.command is not None and self.command.torchrun_processes > 0 and self.num_nodes_max > 1

    def torchrun_argv(self) -> list[str]:
        """The arguments of torchrun. The launcher registers `gangway`, its c10d rendezvous: a node leaves at once
        without closing it for the others. A lost node is dropped after 3 heartbeats of 3 s.
        """
        if self.rendezvous.standalone:
            where = ["--standalone", "--nnodes=1"]
        else:
            where = [
                f"--nnodes={self.num_nodes_min}:{self.num_nodes_max}",
                "--rdzv-backend=gangway",
                f"--rdzv-endpoint={self.rendezvous.host}:{self.rendezvous.port}",
                f"--rdzv-id={self.name}",
                # The store is on the head node, so losing any worker is survivable.
                "--rdzv-conf=is_host=0,last_call_timeout=3,keep_alive_interval=3",
            ]
        return [
            *where,
            f"--nproc-per-node={self.processes_per_node}",
            f"--max-restarts={self.max_restarts}",
            f"--shutdown-timeout={self.shutdown_timeout_sec}",
            "-m",
            self.module,
            *self.argv,
        ]


FABRIC_MIN_GBPS = "GANGWAY_FABRIC_MIN_GBPS"
"""The trainer's --fabric-min-gbps if its command line has none (`gangway.trainer.__main__`)."""

AWS_NCCL_NET = "AWS Libfabric"
"""The name of aws-ofi-nccl; later than 1.11 it calls itself Libfabric and accepts this one too (aws-ofi-nccl#530)."""


def fabric_variables(nccl: Mapping[str, str], min_gbps: float | None) -> dict[str, str]:
    """Variables of the job; the job's own win. `min_gbps`: bus bandwidth below which a preset's job does not start.
    With NCCL_NET, NCCL fails if the network does not work instead of falling back to TCP.
    """
    if "NCCL_NET" not in nccl:
        return {}
    return {**nccl, **({} if min_gbps is None else {FABRIC_MIN_GBPS: f"{min_gbps:g}"})}
