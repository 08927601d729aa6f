"""The trainer's Dockerfile, and the scripts, units and files of which cloud-init is made. Pure."""

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

from gangway.components.core.job import OPEN_FILES, JobSpec
from gangway.images import shell
from gangway.images.specs import (
    HELD_OBJECT,
    TRAINER_UID,
    DockerfileSpec,
    HeadSpec,
    MachineSpec,
    WorkerSpec,
    pinned_image,
)

TEMPLATES = Path(__file__).parent / "templates"
BIN_DIR = "/opt/gangway/bin"
ETC_DIR = "/etc/gangway"
LIB_DIR = "/opt/gangway/lib"
METADATA_UNIT = "gangway-metadata.service"
WORKER_SCRIPTS = ("close-metadata.sh", "run-trainer.sh", "upload-record.sh", "leave-node.sh", "watch-node.sh")
_NODE = Path(__file__).parent / "node"
_COMMAND_RESULTS = "run_folder.py"
# Comment lines, except `#!`.
_COMMENT = re.compile(r"^[ \t]*#(?!!).*\n", re.MULTILINE)
# Left over from empty words; units are not indented.
_SPACES = re.compile(r" +$|(?<= ) +", re.MULTILINE)
_INDENT = re.compile(r"^(?: {4})+", re.MULTILINE)
_PACKED = (".py", ".service", ".timer", ".env", ".json", ".yaml", ".sh")
"""The order that compresses best: gzip looks back 32 KiB."""
_PLAIN_WORD = re.compile(r"[A-Za-z0-9_./:@=,+-]+")
# torchrun kills its workers after the job's shutdown timeout; systemd must wait longer.
STOP_MARGIN_SEC = 15


class NodeFile(NamedTuple):
    """A file that cloud-init writes."""

    path: str
    mode: str
    text: str


def etc_file(name: str, mode: str, text: str) -> NodeFile:
    """A file in `/etc/gangway`."""
    return NodeFile(f"{ETC_DIR}/{name}", mode, text)


PACKAGE_FILE = NodeFile(
    f"{LIB_DIR}/gangway/images/__init__.py", "0644", "# The part of the package that this machine runs.\n"
)
# A driver's new libraries do not fit the loaded kernel module, and a new docker stops its containers.
NO_UPGRADES = NodeFile("/etc/apt/apt.conf.d/99gangway", "0644", 'APT::Periodic::Unattended-Upgrade "0";\n')


def render_dockerfile(spec: DockerfileSpec) -> str:
    """The trainer's Dockerfile; its build context is the repository root."""
    return (
        template_environment()
        .get_template("Dockerfile.j2")
        .render(spec=spec, base=pinned_image(spec.base_image), uid=TRAINER_UID)
    )


def base64gzip(text: str) -> str:
    """The text for cloud-init; deterministic for one build of zlib."""
    return base64.b64encode(gzip.compress(text.encode(), compresslevel=9, mtime=0)).decode()


def short_stop_margin_sec(job: JobSpec) -> int:
    """For a reclaimed machine: 30 s in total (Compute Engine, "Spot VMs"; Azure, "Scheduled Events")."""
    return min(STOP_MARGIN_SEC, max(1, 30 - job.shutdown_timeout_sec))


def python_file(name: str) -> NodeFile:
    """A module of `gangway.images.node` on a machine."""
    return NodeFile(f"{LIB_DIR}/gangway/images/node/{name}", "0644", (_NODE / name).read_text("utf-8"))


def module_files(env_text: str, modules: Sequence[str]) -> list[NodeFile]:
    """The machine's settings, and the modules that run on it."""
    return [
        etc_file("node.env", "0600", env_text),
        PACKAGE_FILE,
        *(python_file(name) for name in ("__init__.py", "web.py", *modules)),
    ]


@cache
def bare_python_file(name: str, used_by: str = "") -> NodeFile:
    """The same in fewer bytes, for EC2's limit. `used_by`: keep only what this module imports."""
    path, mode, text = python_file(name)
    tree = ast.parse(text)
    for part in ast.walk(tree):
        if isinstance(part, ast.Module | ast.FunctionDef | ast.ClassDef):
            part.body = [line for line in part.body if not _is_docstring(line)]
        if isinstance(part, ast.Module | ast.FunctionDef):
            part.body = [_drop_type(line) for line in part.body]
        if isinstance(part, ast.FunctionDef):
            part.returns = None
        if isinstance(part, ast.arg):
            part.annotation = None
    if used_by:
        module = f"gangway.images.node.{name.removesuffix('.py')}"
        imports = (line for line in ast.parse(python_file(used_by).text).body if isinstance(line, ast.ImportFrom))
        tree.body = _select_definitions(
            tree.body, {one.name for line in imports if line.module == module for one in line.names}
        )
    tree.body = _drop_unused_imports(tree.body)
    return NodeFile(path, mode, ast.unparse(tree) + "\n")


def _drop_type(line: ast.stmt) -> ast.stmt:
    """An assignment without its type; dataclass fields keep theirs."""
    if not isinstance(line, ast.AnnAssign) or line.value is None:
        return line
    return ast.copy_location(ast.Assign(targets=[line.target], value=line.value), line)


def _drop_unused_imports(body: Sequence[ast.stmt]) -> list[ast.stmt]:
    used = {part.id for line in body for part in ast.walk(line) if isinstance(part, ast.Name)}
    kept = []
    for line in body:
        if isinstance(line, ast.Import | ast.ImportFrom):
            line.names = [one for one in line.names if (one.asname or one.name).partition(".")[0] in used]
            if not line.names:
                continue
        kept.append(line)
    return kept


def _select_definitions(body: Sequence[ast.stmt], wanted: set[str]) -> list[ast.stmt]:
    kept: set[ast.stmt] = set()
    while more := [line for line in body if line not in kept and _defined_names(line) & wanted]:
        kept.update(more)
        wanted = wanted | {part.id for line in more for part in ast.walk(line) if isinstance(part, ast.Name)}
    for line in kept:
        if isinstance(line, ast.Import | ast.ImportFrom):
            line.names = [one for one in line.names if one.name in wanted]
    return [line for line in body if line in kept]


def _defined_names(line: ast.stmt) -> set[str]:
    if isinstance(line, ast.FunctionDef | ast.ClassDef):
        return {line.name}
    if isinstance(line, ast.Import | ast.ImportFrom):
        return {one.name for one in line.names}
    return {part.id for part in ast.walk(line) if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)}


def _is_docstring(line: ast.stmt) -> bool:
    return isinstance(line, ast.Expr) and isinstance(line.value, ast.Constant) and isinstance(line.value.value, str)


def scripts(cloud: str, names: Sequence[str], job: JobSpec | None = None) -> list[NodeFile]:
    """Shell scripts without comments, and their Python. `job`: a worker's, whose workload's files are added."""
    is_custom = job is not None and job.command is not None
    called = [
        bare_python_file(file, _COMMAND_RESULTS if is_custom else "")
        for name in names
        for file in MappingProxyType({"upload-record.sh": ("outbox.py",)}).get(name, ())
    ]
    called += [bare_python_file(_COMMAND_RESULTS)] if is_custom and called else []
    if job is not None and is_custom:
        names = [*names, *shell.OWN_SCRIPTS, *([shell.OUTPUTS_SCRIPT] if shell.get_outputs(job) else [])]
    texts = {name: _custom_script_text(cloud, name) if is_custom else script_text(cloud, name) for name in names}
    programs = [NodeFile(f"{BIN_DIR}/{name}", "0755", without_comments(text)) for name, text in texts.items()]
    training = None if job is None else job.training
    return programs + called + ([NodeFile(training.config_file, "0644", training.document)] if training else [])


def without_comments(script: str) -> str:
    """A script without lines that are comments."""
    return _COMMENT.sub("", script)


def select_enabled(names: Mapping[str, bool]) -> list[str]:
    """The names whose value is true, in order."""
    return [name for name, is_enabled in names.items() if is_enabled]


def worker_scripts(spec: MachineSpec) -> list[str]:
    """Scripts of every worker, and of one that may be stopped as idle."""
    return [*WORKER_SCRIPTS, *(["watch-idle.sh"] if _has_idle_stop(spec) else [])]


def _has_idle_stop(spec: MachineSpec) -> bool:
    return isinstance(spec, WorkerSpec) and spec.idle_stop is not None


def head_units(
    spec: HeadSpec, *, meets: bool = True, more: Sequence[str] = (), timers: Sequence[str] = ()
) -> tuple[list[str], list[str]]:
    """The units that a head enables, and all its units. `meets`: whether it runs the rendezvous store."""
    started = ["gangway-rendezvous.service"] if meets else []
    started += ["gangway-prometheus.service"] if spec.prometheus_image else []
    started += [*more, *(f"{name}.timer" for name in timers)]
    prepares = ["gangway-prepare.service"] if meets else []
    return started, [*prepares, *started, *(f"{name}.service" for name in timers)]


def unit_values(spec: MachineSpec, steps: Sequence[str], role: str, **more: object) -> dict[str, object]:
    """Template values of the units of a machine whose image has no Docker."""
    bucket = spec.bucket_uri.rstrip("/")
    return {
        "bucket_uri": bucket,
        "held_uri": f"{bucket}/{spec.job.name}/{HELD_OBJECT}",
        "image_has_docker": False,
        "mount": spec.file_system.script if spec.file_system else None,
        "role": role,
        "steps": steps,
        **more,
    }


def worker_values(spec: MachineSpec, margin_sec: int) -> dict[str, object]:
    """Template values for a worker's end."""
    return {
        "idle_stop": _has_idle_stop(spec),
        "results_sec": shell.results_sec(spec.file_system),
        "results_at_end": spec.file_system is not None,
        "timeout_stop_sec": spec.job.shutdown_timeout_sec + margin_sec,
        "tries_again": False,
    }


def unit(cloud: str, name: str, values: Mapping[str, object], template_name: str = "") -> NodeFile:
    """A systemd unit without comments, rendered from the template of its name or another."""
    template = _unit_environment().get_template(_get_template(cloud, f"{template_name or name}.j2"))
    names = {
        "bin_dir": BIN_DIR,
        "cloud": cloud,
        "contained": shell.CONTAINED,
        "container": shell.CONTAINER_NAME,
        "etc_dir": ETC_DIR,
        "lib_dir": LIB_DIR,
        "notices_dir": shell.NOTICES_DIR,
        "open_files": OPEN_FILES,
    }
    text = _SPACES.sub("", _COMMENT.sub("", template.render(values, **names)))
    return NodeFile(f"/etc/systemd/system/{name}", "0644", text)


def metadata_files(cloud: str) -> list[NodeFile]:
    """The files that close the metadata service to all users but root, from boot on."""
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
    """The `#cloud-config`: packages, files, then `units`, enabled and started without waiting, after the unit that
    closes the metadata service. `narrow`: less indentation and files sorted by kind, which saves 850 bytes after gzip.
    """
    files, units = (
        list({file.path: file for file in (*files, *metadata_files(cloud))}.values()),
        [METADATA_UNIT, *units],
    )
    if narrow:
        what, files = "", sorted(map(_reduce_indentation, files), key=_packing_order)
    for file in files:  # YAML's literal blocks can hold any printable ASCII
        assert file.text.isascii(), file.path
        assert file.text.replace("\n", "").replace("\t", "").isprintable(), file.path
    lead = "" if narrow else "  "
    template = template_environment().get_template("cloud-init.yaml.j2")
    return template.render(files=files, what=what, packages=packages, units=units, margin=3 if narrow else 6, lead=lead)


def _packing_order(file: NodeFile) -> int:
    suffix = PurePosixPath(file.path).suffix
    return _PACKED.index(suffix) if suffix in _PACKED else len(_PACKED)


def _reduce_indentation(file: NodeFile) -> NodeFile:
    """One space for four, or none in bash without inline Python."""
    bash_alone = file.path.endswith(".sh") and "-c '\n" not in file.text
    return file._replace(text=_INDENT.sub(lambda found: "" if bash_alone else found[0][::4], file.text))


def check_heredoc(files: Sequence[NodeFile], mark: str) -> None:
    """Assert that no file ends its here-document early; bash_quote keeps values on one line."""
    for file in files:
        assert mark not in file.text.splitlines(), file.path


@cache
def template_environment() -> Environment:
    """The Jinja2 environment of all templates; unknown names are errors."""
    # No HTML, so no autoescape: bash values go through bash_quote, YAML holds them in literal blocks.
    return Environment(
        loader=PackageLoader("gangway.images"),
        autoescape=False,
        keep_trailing_newline=True,
        lstrip_blocks=True,
        trim_blocks=True,
        undefined=StrictUndefined,
    )


@cache
def _unit_environment() -> Environment:
    return template_environment().overlay(finalize=unit_text)


def script_text(cloud: str, name: str) -> str:
    """A script, not rendered: bash's `${#array[@]}` would open a comment in Jinja."""
    return (TEMPLATES / _get_template(cloud, name)).read_text("utf-8")


def _custom_script_text(cloud: str, name: str) -> str:
    file = TEMPLATES / "job" / name
    return file.read_text("utf-8") if file.is_file() else script_text(cloud, name)


def _get_template(cloud: str, name: str) -> str:
    return f"{cloud}/{name}" if (TEMPLATES / cloud / name).is_file() else f"node/{name}"


def unit_text(value: object) -> object:
    """A value of a unit's template, quoted for systemd: a string is one word, a sequence several. No word is read as a
    specifier or a variable (systemd.syntax(7), "Quoting"; systemd.unit(5), "Specifiers").

    >>> unit_text(["a", "100 %", "$HOME"])
    'a "100 %%" "$$HOME"'
    """
    if isinstance(value, str):
        return value if _PLAIN_WORD.fullmatch(value) else f'"{"".join(_escape(byte) for byte in value.encode())}"'
    if isinstance(value, Sequence):
        return " ".join(str(unit_text(each)) for each in value)
    return value


def _escape(byte: int) -> str:
    character = chr(byte)
    if character in "%$":
        return character * 2
    if character in '"\\':
        return "\\" + character
    return character if 0x20 <= byte < 0x7F else f"\\x{byte:02x}"
