"""The command and variables of one node of a job, the same on every engine."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from gangway.components.core.job import Training
from gangway.images.render import TEMPLATES
from gangway.stacks.config.job_file import JobFile
from gangway.stacks.config.job_settings import effective_config
from gangway.stacks.config.own_command import command_variables

TRAIN_FILE = "train.json"
"""Name of the trainer's configuration in an engine's folder for the job's files."""
DATA_DIR = "GANGWAY_DATA_DIR"
"""Variable of a command: the folder of its data set, if the job file names a source."""


@dataclass(frozen=True)
class Meeting:
    """Where the nodes of a job meet: the first of them serves the store.

    Attributes:
        member_key: file with the job's key on every node; presets only.
        rank: of this node, from 0; empty if its environment has it as PET_NODE_RANK.
    """

    host: str
    port: int
    id: str
    nodes: int
    member_key: str
    rank: str = ""


@dataclass(frozen=True)
class Place:
    """What a node has for a job.

    Attributes:
        train_file: path of the trainer's configuration; presets only.
        own_job: path of images/templates/job/own-job.sh.
        python: of the trainer's environment; presets only.
    """

    run_dir: str
    train_file: str
    own_job: str
    python: str


def node_argv(job: JobFile, place: Place, meeting: Meeting | None = None) -> list[str]:
    """The node's argv; `meeting` is None for one node. It exits with the codes of `gangway.jobs.base`."""
    if job.preset is None:
        torchrun = [] if job.processes_per_node is None else _torchrun(job, meeting, "static")
        return ["/bin/sh", place.own_job, *torchrun, "--", *job.command]
    return [
        *(place.python, "-m", "gangway.trainer.launch"),
        *([] if meeting is None else [f"--member-key={meeting.member_key}", "--store=first"]),
        *_torchrun(job, meeting, "gangway"),
        f"--shutdown-timeout={job.grace_sec}",
        *("-m", "gangway.trainer"),
        *_training(job, place).argv,
    ]


def train_document(job: JobFile, place: Place) -> str | None:
    """The text of `place.train_file`; None for a command."""
    return None if job.preset is None else _training(job, place).document


def _training(job: JobFile, place: Place) -> Training:
    assert job.preset is not None, "a command has no configuration of the trainer's"
    return Training(
        config=effective_config(job.preset, job.settings, job.overrides()).document(),
        config_file=place.train_file,
        run_dir=place.run_dir,
        data_dir=job.data_dir or "",
    )


def node_variables(job: JobFile, place: Place, notices: str) -> Mapping[str, str]:
    """Variables of a command besides its `env`. `notices`: a file on the node, which may be missing."""
    if job.preset is not None:
        return {}
    # Else torchrun kills its processes 30 s after SIGTERM, as versions that ignore this variable do.
    grace = {} if job.processes_per_node is None else {"TORCH_ELASTIC_SHUTDOWN_TIMEOUT": str(job.grace_sec)}
    data = {} if job.data_dir is None else {DATA_DIR: job.data_dir}
    return {**grace, **data, **command_variables(job, place.run_dir, notices)}


def own_job_script() -> Path:
    """Its path on this machine."""
    return TEMPLATES / "job" / "own-job.sh"


def needs_member_key(job: JobFile) -> bool:
    """Whether its nodes authenticate with a key, which torchrun does not use."""
    return job.preset is not None and job.nodes.max > 1


def _torchrun(job: JobFile, meeting: Meeting | None, backend: str) -> list[str]:
    """The engine counts restarts for all nodes, so the set of nodes is fixed and a command can do without c10d, whose
    nodes unpickle whatever anyone writes into the store; `static` unpickles nothing.
    """
    where = ["--standalone", "--nnodes=1"]
    if meeting is not None:
        where = [
            f"--nnodes={meeting.nodes}",
            f"--rdzv-backend={backend}",
            f"--rdzv-endpoint={meeting.host}:{meeting.port}",
            f"--rdzv-id={meeting.id}",
            *([f"--node-rank={meeting.rank}"] if meeting.rank else []),
        ]
    return [*where, f"--nproc-per-node={job.processes_per_node or 1}", "--max-restarts=0"]
