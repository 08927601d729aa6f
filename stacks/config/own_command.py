"""A custom command: its keys in job files and stack files, with the same rules and errors, and its environment."""

import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import permutations, product
from pathlib import PurePosixPath
from typing import Annotated, Self

from pydantic import Field, field_validator, model_validator

from gangway.components.core.fields import PositiveWhole, Whole
from gangway.components.core.image_reference import BY_DIGEST
from gangway.stacks.config.section import Section

RUN_DIR, NOTICES = "GANGWAY_RUN_DIR", "GANGWAY_NOTICES"
"""Variables of a command: the folder that outlives a node, and the file with notices of the node's end."""

RENDEZVOUS_RISK = (
    "its processes connect through plain torchrun, without a key or authentication. Anyone who reaches their ports can "
    "end the job, change its gradients, and run code in it if it exchanges Python objects (broadcast_object_list, "
    "torch.distributed.checkpoint). These are"
)
"""The exposure of a command with several processes in a queue. The list of who has access follows."""

_SHELL_VARIABLES = (
    *("BASH", "BASHOPTS", "BASHPID", "BASH_ALIASES", "BASH_ARGC", "BASH_ARGV", "BASH_ARGV0", "BASH_CMDS"),
    *("BASH_COMMAND", "BASH_LINENO", "BASH_MONOSECONDS", "BASH_SOURCE", "BASH_SUBSHELL", "BASH_TRAPSIG"),
    *("BASH_VERSINFO", "BASH_VERSION", "COMP_WORDBREAKS", "DIRSTACK", "EPOCHREALTIME", "EPOCHSECONDS", "EUID"),
    *("FUNCNAME", "FUNCNEST", "GROUPS", "HISTCMD", "IFS", "LINENO", "OLDPWD", "OPTERR", "OPTIND", "PIPESTATUS"),
    *("PPID", "PS1", "PS2", "PS4", "PWD", "RANDOM", "SECONDS", "SHELLOPTS", "SHLVL", "SRANDOM", "UID", "_"),
)
"""Variables that bash or another sh sets itself or makes read-only, so that a job's values would get lost."""
_Word = Annotated[str, Field(max_length=4096)]
_Folder = Annotated[str, Field(pattern=r"^(/[A-Za-z0-9_][A-Za-z0-9_.-]*)+$", max_length=200)]
SYSTEM_FOLDERS = (
    *("bin", "boot", "dev", "etc", "lib", "lib64", "opt", "proc", "run", "sbin", "sys", "tmp", "usr", "var"),
    *("fsx", "scratch", "shared"),
)
"""Top-level folders of a container that cannot hold outputs; nodes mount file systems and disks at the last ones."""


class ExitCodes(Section):
    """Meaning of the command's exit codes; 0 is success, and any other code a failure.

    Attributes:
        interrupted: the state is saved; the command is restarted and continues.
        bad_input: the command is not retried.
        unfit: the node is given up; the job continues without it.
    """

    interrupted: tuple[Whole, ...] = (75,)
    bad_input: tuple[Whole, ...] = (2,)
    unfit: tuple[Whole, ...] = (4,)

    @model_validator(mode="after")
    def _check_codes(self) -> Self:
        codes = [*self.interrupted, *self.bad_input, *self.unfit]
        if odd := [code for code in codes if not 1 <= code <= 255]:
            raise ValueError(f"codes from 1 to 255, since 0 means success; remove {odd[0]}")
        if twice := sorted({code for code in codes if codes.count(code) > 1}):
            raise ValueError(f"each code once; {twice[0]} has two meanings, remove one of them")
        return self


class CommandKeys(Section):
    """A custom command and its container.

    Attributes:
        command: program and arguments, started once per node, or processes_per_node times by torchrun.
        image: container image of the command, by digest.
        env: environment variables of the command.
        workdir: working directory of the command.
        exit_codes: meaning of the command's exit codes.
        processes_per_node: processes per node, started by torchrun; one without torchrun if omitted.
        outputs: folders in the container to keep beside the run folder; they hide what the image has there.
    """

    command: tuple[_Word, ...] = Field(default=(), examples=[["python", "train.py", "--epochs", "3"]])
    image: str | None = Field(
        default=None,
        pattern=f"^{BY_DIGEST}$",
        examples=[f"registry.example.com/mine@sha256:{'0123456789abcdef' * 4}"],
    )
    env: dict[str, str] = Field(default={}, examples=[{"NCCL_DEBUG": "WARN"}])
    workdir: str | None = Field(default=None, pattern=r"^/", examples=["/work"])
    exit_codes: ExitCodes = ExitCodes()
    processes_per_node: PositiveWhole | None = Field(default=None, examples=[8])
    outputs: tuple[_Folder, ...] = Field(default=(), max_length=8, examples=[["/work/results"]])

    @field_validator("outputs")
    @classmethod
    def _check_outputs(cls, outputs: tuple[str, ...]) -> tuple[str, ...]:
        for folder in outputs:
            if folder.split("/")[1] in SYSTEM_FOLDERS:
                raise ValueError(f"folders outside the system's, such as /work/results; remove {folder}")
        for one, other in permutations(map(PurePosixPath, outputs), 2):
            if one.is_relative_to(other):
                raise ValueError(f"folders that do not contain each other; remove {one}, which is in {other}")
        return outputs

    @field_validator("env")
    @classmethod
    def _check_names(cls, env: dict[str, str]) -> dict[str, str]:
        for name in env:
            if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
                raise ValueError(f"names of letters, digits and _, not starting with a digit; rename {name!r}")
            if name.startswith("GANGWAY_"):
                raise ValueError(f"names without GANGWAY_, which Gangway sets itself; leave {name} out")
            if name in _SHELL_VARIABLES:
                raise ValueError(f"names that shells do not set, unlike RANDOM, UID and PWD; leave {name} out")
        return env


MULTILINE = (("command",), ("env",))
"""Places below which texts may have line breaks and tabs: they may be scripts."""
COMMAND_KEYS = ("image", "env", "workdir", "exit_codes", "outputs")
"""Keys that a preset does not have."""


def check_one_workload(
    given: Iterable[str],
    *,
    has_preset: bool,
    has_command: bool,
    of_a_preset: Iterable[str],
    of_a_command: Iterable[str] = COMMAND_KEYS,
) -> None:
    """ValueError: both or neither of preset and command, or a key of the other one. `given`: all keys in the file."""
    if has_preset == has_command:
        fix = "leave one of them out" if has_command else "write preset: dcgan-digits, or command: [python, train.py]"
        raise ValueError(f"exactly one of preset and command; {fix}")
    kind, other = ("command", of_a_command) if has_preset else ("preset", of_a_preset)
    written = set(given)
    if odd := [name for name in other if name in written]:
        raise ValueError(f"{odd[0]} only with {kind}; leave {odd[0]} out")


def output_folder(run_dir: str, output: str) -> str:
    """Where one of `outputs` is stored: outside the run folder, where a command could replace it by a link."""
    return f"{run_dir}.outputs{output}"


def outputs_in_mounts(outputs: Iterable[str], mounts: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Each of `outputs` that is in a mounted folder or contains one, with that folder."""
    for output, mount in product(map(PurePosixPath, outputs), map(PurePosixPath, mounts)):
        if output.is_relative_to(mount) or mount.is_relative_to(output):
            yield str(output), str(mount)


def command_variables(job: CommandKeys, run_dir: str, notices: str) -> Mapping[str, str]:
    """A command's environment, with its `env`. `notices`: a file of the node that may not exist yet."""
    codes = {f"GANGWAY_CODES_{name.upper()}": " ".join(map(str, numbers)) for name, numbers in job.exit_codes}
    return {RUN_DIR: run_dir, NOTICES: notices, **codes, **job.env}
