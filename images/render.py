"""The trainer's Dockerfile, and what the cloud-init of every cloud's machines is made of: scripts, units, files.

Pure functions: no clock, network or file. Those of a cloud run inside `Output.all(...).apply(...)`.
"""

import ast
import base64
import gzip
import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined

from components.core.job import OPEN_FILES, JobSpec, Training
from images.pins import pinned_image
from images.shell import CONTAINED, CONTAINER_NAME, NOTICES_DIR, OUTPUTS_SCRIPT, OWN_SCRIPTS, get_outputs
from images.specs import TRAINER_UID, DockerfileSpec
from images.unit_words import unit_text

TEMPLATES = Path(__file__).parent / "templates"
BIN_DIR = "/opt/gangway/bin"
ETC_DIR = "/etc/gangway"
LIB_DIR = "/opt/gangway/lib"
_NODE = Path(__file__).parent / "node"
_CALLED = MappingProxyType({"upload-record.sh": ("outbox.py",)})
_OWN_RESULTS = "run_folder.py"
# Whole lines of comment, but not the first line's `#!`.
_COMMENT = re.compile(r"^[ \t]*#(?!!).*\n", re.MULTILINE)
# Of words that are not there; no unit of ours is indented.
_SPACES = re.compile(r" +$|(?<= ) +", re.MULTILINE)
_INDENT = re.compile(r"^(?: {4})+", re.MULTILINE)
_PACKED = (".py", ".service", ".timer", ".env", ".json", ".yaml", ".sh")
"""The order of suffixes that compresses best: gzip looks back 32 KiB."""
# torchrun kills its workers after the job's shutdown timeout; systemd must not be faster than that.
STOP_MARGIN_SEC = 15


class NodeFile(NamedTuple):
    """One file that cloud-init writes."""

    path: str
    mode: str
    text: str


def render_dockerfile(spec: DockerfileSpec) -> str:
    """The trainer's Dockerfile; its build context is the repository root."""
    return (
        template_environment()
        .get_template("Dockerfile.j2")
        .render(spec=spec, base=pinned_image(spec.base_image), uid=TRAINER_UID)
    )


def base64gzip(text: str) -> str:
    """The text as cloud-init reads it on any cloud; the same text gives the same bytes (under one build of zlib)."""
    return base64.b64encode(gzip.compress(text.encode(), compresslevel=9, mtime=0)).decode()


def short_stop_margin_sec(job: JobSpec) -> int:
    """Between the trainer's end and systemd's, where a reclaimed machine has 30 s in all and no more waiting is allowed
    (Compute Engine, "Spot VMs"; Azure, "Scheduled Events for Linux VMs").
    """
    return min(STOP_MARGIN_SEC, max(1, 30 - job.shutdown_timeout_sec))


def python_file(name: str) -> NodeFile:
    """A module of `images.node`, as a machine imports it."""
    return NodeFile(f"{LIB_DIR}/images/node/{name}", "0644", (_NODE / name).read_text("utf-8"))


def bare_python_file(name: str, used_by: str = "") -> NodeFile:
    """The same without prose and types, which pack worst, and EC2's limit leaves no room. `used_by`: another module;
    then nothing is left but what that imports, with what it takes.
    """
    path, mode, text = python_file(name)
    tree = ast.parse(text)
    for part in ast.walk(tree):
        if isinstance(part, ast.Module | ast.FunctionDef | ast.ClassDef):
            part.body = [line for line in part.body if not _is_prose(line)]
        if isinstance(part, ast.Module | ast.FunctionDef):
            part.body = [_untyped(line) for line in part.body]
        if isinstance(part, ast.FunctionDef):
            part.returns = None
        if isinstance(part, ast.arg):
            part.annotation = None
    if used_by:
        own = f"images.node.{name.removesuffix('.py')}"
        imports = (line for line in ast.parse(python_file(used_by).text).body if isinstance(line, ast.ImportFrom))
        tree.body = _needed(tree.body, {one.name for line in imports if line.module == own for one in line.names})
    tree.body = _without_imports_of_types(tree.body)
    return NodeFile(path, mode, ast.unparse(tree) + "\n")


def _untyped(line: ast.stmt) -> ast.stmt:
    """An assignment without its type. Fields of classes keep theirs, which dataclasses read."""
    if not isinstance(line, ast.AnnAssign) or line.value is None:
        return line
    return ast.copy_location(ast.Assign(targets=[line.target], value=line.value), line)


def _without_imports_of_types(body: Sequence[ast.stmt]) -> list[ast.stmt]:
    """Without the names that nothing reads any more."""
    used = {part.id for line in body for part in ast.walk(line) if isinstance(part, ast.Name)}
    kept = []
    for line in body:
        if isinstance(line, ast.Import | ast.ImportFrom):
            line.names = [one for one in line.names if (one.asname or one.name).partition(".")[0] in used]
            if not line.names:
                continue
        kept.append(line)
    return kept


def _needed(body: Sequence[ast.stmt], wanted: set[str]) -> list[ast.stmt]:
    """The statements of a module that define these names, and the names that those use in turn."""
    kept: set[ast.stmt] = set()
    while more := [line for line in body if line not in kept and _defined(line) & wanted]:
        kept.update(more)
        wanted = wanted | {part.id for line in more for part in ast.walk(line) if isinstance(part, ast.Name)}
    for line in kept:
        if isinstance(line, ast.Import | ast.ImportFrom):
            line.names = [one for one in line.names if one.name in wanted]
    return [line for line in body if line in kept]


def _defined(line: ast.stmt) -> set[str]:
    if isinstance(line, ast.FunctionDef | ast.ClassDef):
        return {line.name}
    if isinstance(line, ast.Import | ast.ImportFrom):
        return {one.name for one in line.names}
    return {part.id for part in ast.walk(line) if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)}


def _is_prose(line: ast.stmt) -> bool:
    return isinstance(line, ast.Expr) and isinstance(line.value, ast.Constant) and isinstance(line.value.value, str)


def scripts(cloud: str, names: Sequence[str], job: JobSpec | None = None) -> list[NodeFile]:
    """Shell scripts of the cloud, or of all, with the Python that they call, without comments: prose packs worst, and
    EC2's limit leaves no room. `job`: of a worker, which also gets the files of its workload.
    """
    own = job is not None and job.command is not None
    called = [bare_python_file(file, _OWN_RESULTS if own else "") for name in names for file in _CALLED.get(name, ())]
    called += [bare_python_file(_OWN_RESULTS)] if own and called else []
    if job is not None and own:
        names = [*names, *OWN_SCRIPTS, *([OUTPUTS_SCRIPT] if get_outputs(job) else [])]
    texts = {name: own_script_text(cloud, name) if own else script_text(cloud, name) for name in names}
    shell = [NodeFile(f"{BIN_DIR}/{name}", "0755", _COMMENT.sub("", text)) for name, text in texts.items()]
    return shell + called + ([] if job is None or job.training is None else [_train_file(job.training)])


def _train_file(training: Training) -> NodeFile:
    return NodeFile(training.config_file, "0644", training.document)


METADATA_UNIT = "gangway-metadata.service"


def unit(cloud: str, name: str, values: Mapping[str, object]) -> NodeFile:
    """A systemd unit, rendered from the template of its name; without comments, as `scripts`."""
    template = _unit_environment().get_template(_get_template(cloud, f"{name}.j2"))
    names = {
        "bin_dir": BIN_DIR,
        "cloud": cloud,
        "contained": CONTAINED,
        "container": CONTAINER_NAME,
        "etc_dir": ETC_DIR,
        "lib_dir": LIB_DIR,
        "notices_dir": NOTICES_DIR,
        "open_files": OPEN_FILES,
    }
    text = _SPACES.sub("", _COMMENT.sub("", template.render(values, **names)))
    return NodeFile(f"/etc/systemd/system/{name}", "0644", text)


def metadata_files(cloud: str) -> list[NodeFile]:
    """The files that keep all users but root from a machine's metadata service, from boot on."""
    return [*scripts(cloud, ["close-metadata.sh"]), unit(cloud, METADATA_UNIT, {})]


def cloud_config(
    cloud: str,
    files: Sequence[NodeFile],
    what: str,
    *,
    packages: Sequence[str] = (),
    units: Sequence[str] = (),
    narrow: bool = False,
) -> str:
    """The whole `#cloud-config`: packages, files, then `units`, enabled and started without waiting after the unit that
    closes the metadata service. `narrow`: less indentation and files of one kind together, which saves 700 bytes
    after gzip, to stay below EC2's limit.
    """
    files, units = (
        list({file.path: file for file in (*files, *metadata_files(cloud))}.values()),
        [METADATA_UNIT, *units],
    )
    if narrow:
        what, files = "", sorted(map(_narrow, files), key=_packing_order)
    _check_lines(files)
    template = template_environment().get_template("cloud-init.yaml.j2")
    return template.render(files=files, what=what, packages=packages, units=units, margin=5 if narrow else 6)


def _packing_order(file: NodeFile) -> int:
    suffix = PurePosixPath(file.path).suffix
    return _PACKED.index(suffix) if suffix in _PACKED else len(_PACKED)


def _narrow(file: NodeFile) -> NodeFile:
    """With one space of indentation for four, or none in bash, unless it contains Python."""
    bash_alone = file.path.endswith(".sh") and "-c '\n" not in file.text
    return file._replace(text=_INDENT.sub(lambda found: "" if bash_alone else found[0][::4], file.text))


def check_heredoc(files: Sequence[NodeFile], mark: str) -> None:
    """No text ends the block of bash it stands in: values of a stack file are words of one line there (bash_quote)."""
    for file in files:
        assert mark not in file.text.splitlines(), file.path


def _check_lines(files: Sequence[NodeFile]) -> None:
    """A literal block of YAML holds printable ASCII in lines, whatever it says."""
    for file in files:
        assert file.text.isascii(), file.path
        assert file.text.replace("\n", "").replace("\t", "").isprintable(), file.path


@cache
def template_environment() -> Environment:
    """Jinja2 as every template of this package is rendered: a name that it does not know is an error."""
    # Autoescape writes HTML entities, and nothing here is HTML: bash values go through bash_quote, YAML holds them
    # in literal blocks.
    return Environment(
        loader=PackageLoader("images"),
        autoescape=False,
        keep_trailing_newline=True,
        lstrip_blocks=True,
        trim_blocks=True,
        undefined=StrictUndefined,
    )


@cache
def _unit_environment() -> Environment:
    """The same for units: what an expression gives is quoted for systemd, whichever template it stands in."""
    return template_environment().overlay(finalize=unit_text)


def script_text(cloud: str, name: str) -> str:
    """A script as it is on disk: bash's `${#array[@]}` would open a comment in Jinja."""
    return (TEMPLATES / _get_template(cloud, name)).read_text("utf-8")


def own_script_text(cloud: str, name: str) -> str:
    """The same where the job is a command of the user's own."""
    own = TEMPLATES / "job" / name
    return own.read_text("utf-8") if own.is_file() else script_text(cloud, name)


def _get_template(cloud: str, name: str) -> str:
    """The cloud's own template of that name, or what nodes of all clouds share."""
    return f"{cloud}/{name}" if (TEMPLATES / cloud / name).is_file() else f"node/{name}"
