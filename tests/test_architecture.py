"""Rules of the code base that import-linter does not check: imports of other packages, lengths, docstrings, locks."""

import ast
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

REPO = Path(__file__).resolve().parent.parent
PACKAGES = ("components", "gangway", "images", "stacks", "tools", "trainer")
MODULES = sorted(path for package in PACKAGES for path in (REPO / package).rglob("*.py"))
TESTS = sorted(path for path in (REPO / "tests").rglob("*.py") if "golden" not in path.parts)

MAX_FUNCTION_LINES = 60
# One readable loop, whose phases carry one comment line each, beats the same loop cut into pieces.
MAX_LOOP_LINES = 200
FOR_STACKS = tuple(
    f"gangway.trainer.{name}"
    for name in (
        *("config.", "records.", "core.errors.EXIT_", "core.errors.as_keys", "core.errors.REFUSED", "core.validation."),
        *("core.regular_files.", "core.console."),
        *("core.host.BUSY_VARIABLE", "core.host.COMMANDS", "core.host.MODULE", "core.host.program"),
        "launch.failures.lines_of_nodes",  # `gangway job`
        *(
            "__main__.run",
            "__main__.main",
            "__main__.data_mistake",
        ),  # `gangway train` and its like load torch themselves
    )
)
"""What stacks and gangway may import of the trainer; it must not load torch."""


def name_of(path: Path) -> str:
    """The file from the repository's root, as offenders are named."""
    return path.relative_to(REPO).as_posix()


@cache
def find_nodes(path: Path) -> tuple[ast.AST, ...]:
    """All nodes of a file, the module first: read and parsed once for all rules."""
    return tuple(ast.walk(ast.parse(path.read_text("utf-8"), str(path))))


@cache
def imports(path: Path) -> tuple[str, ...]:
    """Every module that `path` imports anywhere, as `package.module` or `package.module.name`."""
    return tuple(_imports(path))


def _imports(path: Path) -> Iterator[str]:
    here = list(path.relative_to(REPO).with_suffix("").parts)
    for node in find_nodes(path):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            package = ".".join(here[: len(here) - node.level]) if node.level else ""
            base = ".".join(part for part in (package, node.module) if part)
            yield from (f"{base}.{alias.name}" for alias in node.names)


def offenders(paths: list[Path], wrong: Callable[[str], bool]) -> dict[str, list[str]]:
    """The files of `paths` with imports that are wrong, and which those are."""
    assert paths, "a rule over no files would hold for ever"
    found = {name_of(path): [name for name in imports(path) if wrong(name)] for path in paths}
    return {path: names for path, names in found.items() if names}


def of(*packages: str) -> Callable[[str], bool]:
    """Whether an imported name lies in one of the packages."""
    return lambda name: f"{name}.".startswith(tuple(f"{package}." for package in packages))


def under(prefixes: tuple[str, ...]) -> Callable[[str], bool]:
    """Whether an imported name begins with one of them."""
    return lambda name: name.startswith(prefixes)


def below(package: str) -> list[Path]:
    return [path for path in MODULES if path.is_relative_to(REPO / package)]


_RUNS = "__name__ == '__main__'"


def test_the_walk_sees_the_packages() -> None:
    """A rule over no files would hold for ever."""
    assert all(len(below(package)) >= 4 for package in PACKAGES)
    assert len(TESTS) > 100
    assert "gangway.components.core.findings.InputError" in set(imports(REPO / "stacks" / "loading" / "loader.py"))
    assert "gangway.stacks.plan.plan.make_plan" in set(imports(REPO / "gangway" / "cli" / "main.py")), (
        "inside functions too"
    )


def test_an_offender_is_found() -> None:
    """Were nothing ever wrong in the eyes of the rules, they would hold for ever too."""
    path = REPO / "gangway" / "cli" / "main.py"
    found = offenders([path], of("gangway.stacks"))
    assert "gangway.stacks.plan.plan.make_plan" in found["gangway/cli/main.py"]


def test_every_import_begins_with_gangway() -> None:
    """In a checkout, `components` could be imported as well, and would be a second module beside the first."""
    assert offenders([*MODULES, *TESTS], of("components", "images", "stacks", "trainer")) == {}


def test_images_import_templates_the_job_alerts_words_of_queries_and_nothing_else() -> None:
    allowed = of("jinja2", "zopfli", "gangway.images", *sys.stdlib_module_names)
    core = ("hardware_alerts", "job", "safe_text")
    words = under(tuple(f"gangway.components.core.{name}." for name in core))
    # Of the distribution that the controller of a Slurm runs on.
    scaler, aws = REPO / "images/node/aws/slurm_scaler.py", of("boto3", "botocore")
    others = [path for path in below("images") if path != scaler]
    assert offenders(others, lambda name: not (allowed(name) or words(name))) == {}
    assert offenders([scaler], lambda name: not (allowed(name) or aws(name))) == {}


def test_other_packages_use_the_trainers_config_and_record_only() -> None:
    of_the_trainer, users = of("gangway.trainer"), [*below("stacks"), *below("gangway")]
    assert offenders(users, lambda name: of_the_trainer(name) and not name.startswith(FOR_STACKS)) == {}
    assert offenders(users, of("torch", "torchvision")) == {}


def test_what_other_packages_use_of_the_trainer_loads_no_torch() -> None:
    users = (*below("stacks"), *below("gangway"))
    names = (name for path in users for name in imports(path) if name.startswith("gangway.trainer."))
    used = {name.rpartition(".")[0] for name in names}
    assert "gangway.trainer.config.train_config" in used
    program = f"import sys, {', '.join(sorted(used))}; print('torch' in sys.modules, 'numpy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], cwd=REPO, capture_output=True, text=True, check=True)
    assert done.stdout == "False False\n"


def test_the_linter_of_layers_finds_a_wrong_import(tmp_path: Path) -> None:
    """Its contracts are in pyproject.toml; were nothing ever wrong in its eyes, they would hold for ever."""
    config = tmp_path / "upside-down.toml"
    config.write_text(
        '[tool.importlinter]\nroot_packages = ["gangway"]\n[[tool.importlinter.contracts]]\n'
        'name = "upside down"\ntype = "layers"\nlayers = ["gangway.components", "gangway.stacks"]\n'
    )
    lint = [str(Path(sys.executable).with_name("lint-imports")), "--no-cache", "--config", str(config)]
    done = subprocess.run(lint, cwd=REPO, capture_output=True, text=True, check=False)
    assert (done.returncode, "upside down BROKEN" in done.stdout) == (1, True)


def test_what_stands_alone_at_the_roots() -> None:
    """Everything else has a folder that says what it is for."""
    roots = {
        package: {path.stem for path in (REPO / package).glob("*.py")}
        for package in ("components", "gangway", "trainer")
    }
    assert roots == {
        "components": {"__init__"},
        "gangway": {"__init__", "__main__", "entry"},
        "trainer": {"__init__", "__main__"},
    }


def test_nothing_in_stacks_shadows_the_standard_library() -> None:
    """Under the engine this folder is sys.path[0]: `stacks/calendar.py` would break every import of `calendar`."""
    names = {entry.name.partition(".")[0] for entry in (REPO / "stacks").iterdir()}
    assert len(names) > 5
    assert names & sys.stdlib_module_names <= {"__main__"} & names, "__main__ is the program itself"


def test_every_module_says_what_it_is() -> None:
    """In one line that says something."""
    silent = []
    for path in [*MODULES, *TESTS]:
        module = find_nodes(path)[0]
        assert isinstance(module, ast.Module)
        if len((ast.get_docstring(module) or "").partition("\n")[0]) <= 20:
            silent.append(name_of(path))
    assert silent == []


def test_a_module_runs_when_all_of_it_is_defined() -> None:
    """What follows `if __name__ == "__main__"` exists for importers only: the program itself would not find it."""
    early = []
    for path in MODULES:
        module = find_nodes(path)[0]
        assert isinstance(module, ast.Module)
        guards = [one for one in module.body if isinstance(one, ast.If) and ast.unparse(one.test) == _RUNS]
        early += [name_of(path) for guard in guards if guard is not module.body[-1]]
    assert early == []


def test_no_function_is_too_long_to_read() -> None:
    long = []
    for path in MODULES:
        limit = MAX_LOOP_LINES if name_of(path) == "trainer/run/loop.py" else MAX_FUNCTION_LINES
        for node in find_nodes(path):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                assert node.end_lineno is not None
                lines = node.end_lineno - node.lineno + 1
                if lines > limit:
                    long.append(f"{name_of(path)}: {node.name}: {lines} lines")
    assert long == []


def test_exceptions_outside_the_trainer_have_one_root() -> None:
    """But for those of images, which import words of components alone, and what no `except Exception` may catch."""
    bases = {
        node.name: [ast.unparse(base) for base in node.bases]
        for path in MODULES
        if name_of(path).partition("/")[0] not in ("images", "tools", "trainer")
        for node in find_nodes(path)
        if isinstance(node, ast.ClassDef) and node.name.endswith("Error")
    }
    known = {"GangwayError", "BaseException"}
    assert bases["InputError"] == ["GangwayError", "ValueError"]
    while derived := {name for name, own in bases.items() if name not in known and known & {*own}}:
        known |= derived
    assert bases.keys() - known == set()


def test_nothing_is_raised_in_an_except_star_block() -> None:
    """Python 3.11.2, as in Debian 12, wraps what is raised there in a group: an exit code would become a traceback."""
    blocks = [
        (path, handler)
        for path in MODULES
        for node in find_nodes(path)
        if isinstance(node, ast.TryStar)
        for handler in node.handlers
    ]
    assert blocks
    raising = ("raise ", "sys.exit(")
    assert not [
        f"{name_of(path)}:{one.lineno}" for path, one in blocks if any(word in ast.unparse(one) for word in raising)
    ]


def test_the_lock_pins_with_hashes_and_names_no_registry() -> None:
    lines = (REPO / "requirements.lock").read_text("utf-8").splitlines()
    code = [line.partition("#")[0].strip() for line in lines]
    pins = [line for line in code if "==" in line and not line.startswith("--")]
    assert len(pins) > 50
    assert sum(line.startswith("--hash=sha256:") for line in code) >= len(pins)
    assert [
        line for line in lines if "://" in line or line.lstrip().startswith(("-i ", "--index", "--extra-index"))
    ] == []
    assert [line for line in code if " @ " in line or line.startswith(("--find-links", "--trusted-host", "-f "))] == []
