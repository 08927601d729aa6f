"""The engine that a word of the command line names: `local`, `local:FOLDER`, `slurm:FOLDER@PARTITION`,
`kubernetes:CONTEXT@NAMESPACE/QUEUE`.
"""

import os
import re
from pathlib import Path
from typing import cast

from components.core.findings import InputError
from stacks.engines.base import Engine, Movable

VARIABLE = "GANGWAY_ENGINE"
_KINDS = ("local", "slurm", "kubernetes")
_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
_DEFAULT_FOLDER = Path("~/.gangway/jobs")


def engines_of(asked: str | None) -> list[Engine]:
    """Of several words with commas between, each once. Raises as `engine_of` does."""
    text = asked if asked is not None else os.environ.get(VARIABLE) or "local"
    if "" in (words := text.split(",")):
        raise InputError("--on", "a name is empty", value=text, allowed="names with commas between", fix="leave it out")
    engines = {(each.kind, each.where): each for each in (engine_of(word) for word in words)}
    return list(engines.values())


def movable(engine: Engine, option: str) -> Movable:
    """InputError: its run folders cannot be reached from here."""
    if not hasattr(engine, "run_url"):
        raise InputError(
            option, "run folders of this engine cannot be reached from here", value=engine.kind, allowed="local, slurm",
            fix="cancel the job there, and submit it anew",
        )  # fmt: skip
    return cast("Movable", engine)


def engine_of(asked: str | None) -> Engine:
    """`asked` None: what GANGWAY_ENGINE says, else this machine. InputError: no such engine."""
    text = asked or os.environ.get(VARIABLE) or "local"
    kind, _, place = text.partition(":")
    if kind not in _KINDS:
        raise InputError.not_among("--on" if asked else VARIABLE, "no engine", text, _KINDS)
    if kind == "slurm":
        from stacks.engines.slurm.engine import SlurmEngine

        folder, _, partition = place.partition("@")
        if not folder:
            raise InputError(
                "--on" if asked else VARIABLE, "a folder that Slurm's nodes share has to be named", value=text,
                allowed="slurm:FOLDER or slurm:FOLDER@PARTITION", fix="slurm:/shared/jobs",
            )  # fmt: skip
        return SlurmEngine(Path(folder).expanduser().resolve(), partition)
    if kind == "kubernetes":
        return _kubernetes(text, place, "--on" if asked else VARIABLE)
    from stacks.engines.local_queue import LocalQueue

    return LocalQueue((Path(place) if place else _DEFAULT_FOLDER).expanduser().resolve())


def _kubernetes(text: str, place: str, option: str) -> Engine:
    from stacks.engines.kubernetes.engine import KubernetesEngine

    # A context's name may have an @ and a / of its own.
    context, _, rest = place.rpartition("@")
    namespace, _, queue = rest.partition("/")
    if not _NAME.fullmatch(namespace) or not _NAME.fullmatch(queue):
        raise InputError(
            option, "a namespace and one of its queues have to be named", value=text,
            allowed="kubernetes:CONTEXT@NAMESPACE/QUEUE, without CONTEXT for the current one",
            fix="kubernetes:@team-a/gpu",
        )  # fmt: skip
    return KubernetesEngine(context, namespace, queue)
