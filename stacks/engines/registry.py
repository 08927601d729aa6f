"""The engine that a word of the command line names: `local`, `local:FOLDER`, `slurm:FOLDER@PARTITION`,
`kubernetes:CONTEXT@NAMESPACE/QUEUE`, and behind any of them where it stands, `#aws:eu-central-1`.
"""

import os
import re
from pathlib import Path
from typing import cast

from components.core.findings import InputError
from components.estimate.regions import Place, read_place
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
    engines = dict[tuple[str, str], Engine]()
    for engine in (engine_of(word) for word in words):
        same = engines.setdefault((engine.kind, engine.where), engine)
        if same.region != engine.region:
            raise InputError(
                "--on", "one engine in two regions", value=text, allowed="the same behind # each time",
                fix="name it once",
            )  # fmt: skip
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
    text, option = asked or os.environ.get(VARIABLE) or "local", "--on" if asked else VARIABLE
    named, is_said, place_name = text.partition("#")
    kind, _, place = named.partition(":")
    if kind not in _KINDS:
        raise InputError.not_among(option, "no engine", text, _KINDS)
    region = read_place(place_name, option) if is_said else None
    if kind == "slurm":
        from stacks.engines.slurm.engine import SlurmEngine

        folder, _, partition = place.partition("@")
        if not folder:
            raise InputError(
                option, "a folder that Slurm's nodes share has to be named", value=text,
                allowed="slurm:FOLDER or slurm:FOLDER@PARTITION", fix="slurm:/shared/jobs",
            )  # fmt: skip
        return SlurmEngine(Path(folder).expanduser().resolve(), partition, region=region)
    if kind == "kubernetes":
        return _kubernetes(text, place, option, region)
    from stacks.engines.local_queue import LocalQueue

    return LocalQueue((Path(place) if place else _DEFAULT_FOLDER).expanduser().resolve(), region=region)


def _kubernetes(text: str, place: str, option: str, region: Place | None) -> Engine:
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
    return KubernetesEngine(context, namespace, queue, region=region)
