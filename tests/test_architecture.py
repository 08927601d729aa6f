"""The rules of the house, read from the source: who may import whom, how long a piece may be, what must be said."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parent.parent
PACKAGES = ("components", "images", "stacks", "trainer")
MODULES = sorted(path for package in PACKAGES for path in (REPO / package).rglob("*.py"))
TESTS = sorted((REPO / "tests").rglob("*.py"))

MAX_MODULE_LINES = 320
MAX_FUNCTION_LINES = 60
# One readable loop, whose phases carry one comment line each, beats the same loop cut into pieces.
MAX_LOOP_LINES = 200
FOR_STACKS = ("trainer.config.", "trainer.presets.", "trainer.record.", "trainer.refusals.")
"""What stacks may import of the trainer; it must not load torch."""


def name_of(path: Path) -> str:
    """The file from the repository's root, as tests are named after it."""
    return path.relative_to(REPO).as_posix()


every_module = pytest.mark.parametrize("path", MODULES, ids=name_of)


def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text("utf-8"), str(path))


def imports(path: Path) -> Iterator[str]:
    """Every module that `path` imports anywhere, as `package.module` or `package.module.name`."""
    here = list(path.relative_to(REPO).with_suffix("").parts)
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            package = ".".join(here[: len(here) - node.level]) if node.level else ""
            base = ".".join(part for part in (package, node.module) if part)
            yield from (f"{base}.{alias.name}" for alias in node.names)


def offences(path: Path, forbidden: tuple[str, ...]) -> list[str]:
    """The imports of `path` that lie in a forbidden package."""
    return [name for name in imports(path) if name.split(".")[0] in forbidden]


def below(package: str) -> list[Path]:
    return [path for path in MODULES if path.is_relative_to(REPO / package)]


def test_the_walk_sees_the_packages() -> None:
    """A rule over no files would hold for ever."""
    assert all(len(below(package)) >= 4 for package in PACKAGES)
    assert "components.findings.InputError" in set(imports(REPO / "stacks" / "settings" / "loader.py"))
    assert "stacks.planning.plan.make_plan" in set(imports(REPO / "stacks" / "cli.py")), (
        "imports inside functions count"
    )


@pytest.mark.parametrize("path", below("trainer"), ids=name_of)
def test_the_trainer_knows_nothing_of_clouds(path: Path) -> None:
    forbidden = ("pulumi", "pulumi_aws", "components", "stacks", "images", "boto3", "moto")
    assert offences(path, forbidden) == []


@pytest.mark.parametrize("path", below("components"), ids=name_of)
def test_components_can_be_used_without_the_rest(path: Path) -> None:
    assert offences(path, ("torch", "torchvision", "trainer", "stacks", "images")) == []


@pytest.mark.parametrize("path", below("images"), ids=name_of)
def test_images_import_templates_the_job_and_nothing_else(path: Path) -> None:
    for name in imports(path):
        top = name.split(".")[0]
        assert top in {"jinja2", "images"} | sys.stdlib_module_names or name.startswith("components.job."), name


PROVIDERS = sorted(p.name for p in (REPO / "components").iterdir() if (p / "node_pool.py").is_file())


def test_these_are_the_providers() -> None:
    """Found by a file's name: were it another, the rule below would hold for none of them."""
    assert PROVIDERS == ["aws", "azure", "gcp", "hosts", "openstack"]
    assert all(below(f"components/{provider}") for provider in PROVIDERS)


@pytest.mark.parametrize("provider", PROVIDERS)
def test_providers_do_not_know_each_other(provider: str) -> None:
    others = tuple(f"components.{other}." for other in PROVIDERS if other != provider)
    shared = [path for path in below("components") if path.parent.name not in PROVIDERS]
    for path in below(f"components/{provider}"):
        assert [name for name in imports(path) if name.startswith(others)] == [], path
    for path in shared:
        assert [name for name in imports(path) if name.startswith(f"components.{provider}.")] == [], path


@pytest.mark.parametrize("path", below("stacks"), ids=name_of)
def test_stacks_use_the_trainers_config_and_record_only(path: Path) -> None:
    of_the_trainer = [name for name in imports(path) if name.split(".")[0] == "trainer"]
    assert [n for n in of_the_trainer if not n.startswith(FOR_STACKS)] == []
    assert offences(path, ("torch", "torchvision")) == []


def test_what_stacks_use_of_the_trainer_loads_no_torch() -> None:
    modules = "trainer.config, trainer.presets, trainer.record, trainer.refusals"
    program = f"import sys, {modules}; print('torch' in sys.modules, 'numpy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], cwd=REPO, capture_output=True, text=True, check=True)
    assert done.stdout == "False False\n"


def test_nothing_in_stacks_shadows_the_standard_library() -> None:
    """Under the engine this folder is sys.path[0]: `stacks/calendar.py` would break every import of `calendar`."""
    names = {entry.name.partition(".")[0] for entry in (REPO / "stacks").iterdir()}
    assert len(names) > 5
    assert names & sys.stdlib_module_names <= {"__main__"} & names, "__main__ is the program itself"


@pytest.mark.parametrize("path", [*MODULES, *TESTS], ids=name_of)
def test_every_module_says_what_it_is(path: Path) -> None:
    docstring = ast.get_docstring(tree_of(path))
    assert docstring
    assert len(docstring.splitlines()[0]) > 20, "one line that says something"


@every_module
def test_no_module_is_too_long_to_read(path: Path) -> None:
    assert len(path.read_text("utf-8").splitlines()) <= MAX_MODULE_LINES


@every_module
def test_no_function_is_too_long_to_read(path: Path) -> None:
    limit = MAX_LOOP_LINES if name_of(path) == "trainer/loop.py" else MAX_FUNCTION_LINES
    for node in ast.walk(tree_of(path)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            assert node.end_lineno is not None
            lines = node.end_lineno - node.lineno + 1
            assert lines <= limit, f"{node.name}: {lines} lines"


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
