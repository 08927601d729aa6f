"""Finds the engine that the command line names: `local`, `local:FOLDER`, `slurm:FOLDER@PARTITION`,
`kubernetes:CONTEXT@NAMESPACE/QUEUE`, each optionally followed by its region, `#aws:eu-central-1`; or a name from the
engines' file.
"""

import os
import re
from pathlib import Path

from gangway.components.core.findings import InputError
from gangway.components.estimate.regions import Place, read_place
from gangway.jobs.base import Engine
from gangway.jobs.job_folders import FolderEngine
from gangway.jobs.sites import Site, find_nodes
from gangway.stacks.config.engines_file import KINDS, named_engines
from gangway.trainer.core.regular_files import check_reachable

VARIABLE = "GANGWAY_ENGINE"
_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
_DEFAULT_FOLDER = Path("~/.gangway/jobs")


def get_sites(asked: str | None) -> list[Site]:
    """The engines in a comma-separated list, each once. Raises as `get_site`."""
    text = asked if asked is not None else os.environ.get(VARIABLE) or "local"
    if "" in (words := text.split(",")):
        raise InputError("--on", "a name is empty", value=text, allowed="names separated by commas", fix="leave it out")
    sites = dict[tuple[str, str], Site]()
    for site in (get_site(word) for word in words):
        same = sites.setdefault((site.engine.kind, site.engine.where), site)
        if same.engine.region != site.engine.region:
            raise InputError(
                "--on", "the same engine in two regions", value=text, allowed="one region per engine",
                fix="name it once",
            )  # fmt: skip
    return list(sites.values())


def movable(engine: Engine, option: str) -> FolderEngine:
    """InputError: its run folders cannot be reached from here."""
    if not isinstance(engine, FolderEngine):
        resubmit = "submit the job file there again: it starts from the beginning"
        raise InputError(
            option, "its run folders cannot be reached from here, so jobs cannot move with their results",
            value=f"{engine.kind}:{engine.where}", allowed="local and slurm engines whose folder is on this machine",
            fix=resubmit if option == "--to" else f"copy what you need from the run folder yourself; or {resubmit}",
        )  # fmt: skip
    return engine


def get_engine(asked: str | None) -> Engine:
    """`asked` None: GANGWAY_ENGINE, else this machine. InputError: no such engine."""
    return get_site(asked).engine


def get_site(asked: str | None) -> Site:
    """Like `get_engine`, with its nodes if the engines' file has them."""
    text, option = asked or os.environ.get(VARIABLE) or "local", "--on" if asked else VARIABLE
    named, is_said, place_name = text.partition("#")
    kind = named.partition(":")[0]
    if kind in KINDS:
        return Site(_engine(named, option, read_place(place_name, option) if is_said else None), text)
    known = named_engines()
    if named not in known:
        raise InputError.not_among(option, "no engine", text, (*KINDS, *known))
    if is_said:
        raise InputError(
            option, "the engines' file defines the region of a named engine", value=text,
            allowed=named, fix=f"write region: {place_name} in the file",
        )  # fmt: skip
    own = known[named]
    region = None if own.region is None else read_place(own.region, f"engines.{named}.region")
    engine: Engine
    if own.via is not None:
        from gangway.jobs.remote import RemoteEngine

        engine = RemoteEngine(own.via, own.engine, own.program, region)
    else:
        engine = _engine(own.engine, f"engines.{named}.engine", region)
    return Site(engine, named, find_nodes(named, own))


def _engine(text: str, option: str, region: Place | None) -> Engine:
    kind, _, place = text.partition(":")
    if kind == "slurm":
        from gangway.jobs.slurm.engine import SlurmEngine

        folder, _, partition = place.partition("@")
        if not folder:
            raise InputError(
                option, "the folder shared by Slurm's nodes is missing", value=text,
                allowed="slurm:FOLDER or slurm:FOLDER@PARTITION", fix="slurm:/shared/jobs",
            )  # fmt: skip
        return SlurmEngine(_folder(Path(folder)), partition, region=region)
    if kind == "kubernetes":
        return _kubernetes(text, place, option, region)
    from gangway.jobs.local.engine import LocalQueue

    queue = _folder(Path(place) if place else _DEFAULT_FOLDER)
    return LocalQueue(queue, region=region, is_named=bool(place))


def _folder(folder: Path) -> Path:
    found = folder.expanduser().resolve()
    check_reachable(found)
    return found


def _kubernetes(text: str, place: str, option: str, region: Place | None) -> Engine:
    from gangway.jobs.kubernetes.engine import KubernetesEngine

    # A context's name may contain @ and /.
    context, _, rest = place.rpartition("@")
    namespace, _, queue = rest.partition("/")
    if not _NAME.fullmatch(namespace) or not _NAME.fullmatch(queue):
        raise InputError(
            option, "the namespace or its queue is missing", value=text,
            allowed="kubernetes:CONTEXT@NAMESPACE/QUEUE; leave CONTEXT empty for the current one",
            fix="kubernetes:@team-a/gpu",
        )  # fmt: skip
    return KubernetesEngine(context, namespace, queue, region=region)
