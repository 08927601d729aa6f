"""The job a node runs: image, processes, volumes, environment and the torchrun command line. One JobSpec is made by
`stacks.program` and used three ways: rendered into cloud-init, put into the plan's JSON, and run on this machine by
`gangway demo`. It says what to run and never where the machines come from.
"""

from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from components.core.image_signature import ImageSignature

__all__ = ["OPEN_FILES", "Backend", "JobSpec", "OwnCommand", "Rendezvous", "Volume"]

Backend = Literal["gloo", "nccl", "xla"]
OPEN_FILES = 131_072
"""How many files a job's process may have open, on every engine, as in Slurm's own unit of slurmd. The default of
systemd, and of Docker 29, is 1,024.
"""


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)


class Volume(_Frozen):
    """A host path as the container sees it."""

    source: str
    target: str
    read_only: bool = False


class Rendezvous(_Frozen):
    """Where the workers meet: a TCPStore held by the head node, or `standalone` on a single machine."""

    host: str = "localhost"
    port: int = Field(default=0, ge=0, le=65535)
    standalone: bool = False


class OwnCommand(_Frozen):
    """A command of the user's own, run in the job's image in place of the trainer.

    Attributes:
        words: the program and its arguments.
        workdir: folder in which it begins; empty for the image's own.
        torchrun_processes: on a node, by torchrun; 0 runs the command once, as it is. Its nodes meet without the job's
            key, which that torchrun does not know: who reaches their ports is let in.
        outputs: folders that outlive the node beside the run folder, as the command sees them.
    """

    words: tuple[str, ...] = Field(min_length=1)
    workdir: str = ""
    torchrun_processes: int = Field(default=0, ge=0)
    outputs: tuple[str, ...] = Field(default=(), exclude_if=lambda folders: not folders)


class JobSpec(_Frozen):
    """A distributed job, independent of the cloud it runs in.

    Attributes:
        image: container image by digest; empty when the job runs in the current Python environment.
        image_signature: that machines ask of the image before they run it; None asks for none.
        num_nodes_min: the fewest nodes with which the job goes on.
        num_nodes_max: the most nodes that may join.
        processes_per_node: one per accelerator; on a CPU-only node the number of gloo processes.
        module: the Python module each process runs.
        argv: its arguments.
        command: what runs in place of module and argv; None for the trainer.
        run_id: the run record's id; empty where the trainer makes one up.
        max_restarts: restarts after a failure; a change of membership does not count.
        shutdown_timeout_sec: time workers get between SIGTERM and SIGKILL, for the checkpoint (GCP and Azure
            give about 30 s of notice, AWS 120 s).
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
    module: str = "trainer"
    argv: tuple[str, ...] = ()
    command: OwnCommand | None = Field(default=None, exclude_if=lambda own: own is None)
    run_id: str = ""
    max_restarts: int = Field(default=3, ge=0)
    shutdown_timeout_sec: int = Field(default=25, ge=1)

    @model_validator(mode="after")
    def _min_is_not_above_max(self) -> Self:
        assert self.num_nodes_min <= self.num_nodes_max, "StackConfig has checked nodes.min <= nodes.max"
        return self

    @property
    def command_meets(self) -> bool:
        """Whether the nodes of a command of the user's own are one job of torchrun's."""
        return self.command is not None and self.command.torchrun_processes > 0 and self.num_nodes_max > 1

    @property
    def world_size_max(self) -> int:
        """Processes when every node has joined."""
        return self.num_nodes_max * self.processes_per_node

    def torchrun_argv(self) -> list[str]:
        """The arguments of torchrun itself, as the trainer's launcher knows it. The `gangway` rendezvous is c10d's,
        which the launcher registers under a name of its own: a node leaves it at once, and never closes it for the
        others. A missed node is given up after 3 heartbeats of 3 s.
        """
        if self.rendezvous.standalone:
            where = ["--standalone", "--nnodes=1"]
        else:
            where = [
                f"--nnodes={self.num_nodes_min}:{self.num_nodes_max}",
                "--rdzv-backend=gangway",
                f"--rdzv-endpoint={self.rendezvous.host}:{self.rendezvous.port}",
                f"--rdzv-id={self.name}",
                # The store lives on the head node, so a worker never hosts it, and losing any worker is survivable.
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
