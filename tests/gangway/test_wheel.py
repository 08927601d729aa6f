"""The wheel, installed into a fresh environment: what it brings, and that it works beside other packages."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import REPO

PACKAGES = "components", "images", "stacks", "trainer"
"""Top-level folders of the checkout, and names that other distributions may have, too."""
PROGRAM = """
import pulumi
from gangway.components.aws import RunBucket, TrainingNetwork
from gangway.components.core.fields import Egress

runs = RunBucket("dev", {"tags": {"team": "ml"}})
pulumi.export("bucket", runs.bucket_name)
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the wheel in it; its dependencies are those of the environment the tests run in."""
    folder = tmp_path_factory.mktemp("installed")
    build = "import sys; from hatchling.build import build_wheel; build_wheel(sys.argv[1])"
    _run([sys.executable, "-c", build, str(folder)], REPO)
    (wheel,) = folder.glob("gangway_iac-*.whl")
    _run([sys.executable, "-m", "venv", str(folder / "venv")], folder)
    python = folder / "venv" / "bin" / "python"
    _run([str(python), "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", str(wheel)], folder)
    packages = _packages(python)
    before = {path.name for path in packages.iterdir() if not path.name.endswith(".dist-info")}
    assert before - {"pip", "setuptools", "_distutils_hack", "pkg_resources", "distutils-precedence.pth"} == {"gangway"}
    # Without what .pth files there add, which would be this checkout.
    seen = [path for path in sys.path if path.endswith("site-packages")]
    (packages / "zz_dependencies.pth").write_text("\n".join(seen), "utf-8")
    return folder / "venv" / "bin"


def _packages(python: Path) -> Path:
    where = "import sysconfig; print(sysconfig.get_path('purelib'))"
    return Path(_run([str(python), "-c", where], python.parent).strip())


def _run(command: list[str], cwd: Path) -> str:
    env = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "COV"))}
    done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
def test_an_installed_wheel_needs_no_checkout(installed: Path, tmp_path: Path) -> None:
    _run([str(installed / "gangway"), "init", "p", "--email", "me@example.org"], tmp_path)
    plan = json.loads(_run([str(installed / "gangway"), "plan", "p", "--json"], tmp_path / "p"))
    (image,) = [r["inputs"] for r in plan["resources"] if r["type"] == "docker-build:index:Image"]
    context = (tmp_path / "p" / image["context"]["location"]).resolve()
    assert context.name == "gangway"
    assert (context / "images" / "locks").is_dir()
    for name in ("static/htmx.min.js", "static/dashboard.css", "templates/base.html.j2"):
        assert (context / "live" / "dashboard" / name).is_file()
    assert "A10G" in _run([str(installed / "gangway"), "catalog", "list"], tmp_path)
    assert "aws-demo" in _run([str(installed / "gangway"), "plan", "aws-demo"], tmp_path)
    assert "dcgan-digits" in _run([str(installed / "python"), "-m", "gangway.trainer", "presets"], tmp_path)


@pytest.mark.slow
def test_an_installed_wheel_leaves_other_programs_names_alone(installed: Path, tmp_path: Path) -> None:
    found = f"from importlib.util import find_spec as f; print([n for n in {PACKAGES} if f(n)])"
    assert _run([str(installed / "python"), "-c", found], tmp_path).strip() == "[]"


@pytest.mark.slow
def test_it_works_beside_packages_with_the_names_of_its_folders(installed: Path, tmp_path: Path) -> None:
    others = [_packages(installed / "python") / name for name in PACKAGES]
    try:
        for other in others:
            other.mkdir()
            (other / "__init__.py").write_text("raise SystemExit('of another distribution')\n", "utf-8")
        assert "aws-demo" in _run([str(installed / "gangway"), "plan", "aws-demo"], tmp_path)
        assert "dcgan-digits" in _run([str(installed / "gangway"), "presets"], tmp_path)
        assert "dcgan-digits" in _run([str(installed / "python"), "-m", "gangway.trainer", "presets"], tmp_path)
        assert _run([str(installed / "python"), "-c", "from gangway.components.aws import Budget"], tmp_path) == ""
    finally:
        for other in others:
            (other / "__init__.py").unlink()
            other.rmdir()


@pytest.mark.slow
def test_a_program_against_the_wheel_is_typed(installed: Path, tmp_path: Path) -> None:
    right, wrong = tmp_path / "right.py", tmp_path / "wrong.py"
    right.write_text(PROGRAM, "utf-8")
    wrong.write_text(PROGRAM + 'TrainingNetwork("dev", {"cidr": 10, "egress": Egress.NAT})\nruns.nothing\n', "utf-8")
    command = [sys.executable, "-m", "mypy", "--strict", f"--python-executable={installed / 'python'}"]
    done = subprocess.run([*command, str(right), str(wrong)], cwd=tmp_path, capture_output=True, text=True, check=False)
    mistakes = [line for line in done.stdout.splitlines() if ": error: " in line]
    assert any("Missing keys" in line for line in mistakes), done.stdout
    assert all(line.startswith("wrong.py:") for line in mistakes), done.stdout
    assert any('"RunBucket" has no attribute "nothing"' in line for line in mistakes), done.stdout


@pytest.mark.slow
def test_an_installed_dynamic_provider_is_found_by_another_process(installed: Path, tmp_path: Path) -> None:
    """Pulumi pickles it in the program, and loads it in a process of its own."""
    pickled = _run(
        [
            str(installed / "python"),
            "-W", "ignore", "-c",
            "from gangway.components.gcp.tpu.queued_tpu import QueuedTpuProvider\n"
            "from pulumi.dynamic.dynamic import serialize_provider\n"
            "print(serialize_provider(QueuedTpuProvider()))",
        ],
        tmp_path,
    )  # fmt: skip
    load = (
        "import base64, dill, sys; print(type(dill.loads(base64.b64decode(sys.argv[1]))).__module__)"  # as Pulumi does
    )
    loaded = _run([str(installed / "python"), "-W", "ignore", "-c", load, pickled.strip()], tmp_path)
    assert loaded.strip() == "gangway.components.gcp.tpu.queued_tpu"


@pytest.mark.slow
def test_the_projects_program_is_the_engines_to_start(installed: Path, tmp_path: Path) -> None:
    _run([str(installed / "gangway"), "init", "p", "--email", "me@example.org", "--policy"], tmp_path)
    for program, told in (("p", "stacks is Pulumi's program"), ("p/policy", "stacks/policy is a policy pack")):
        command = [str(installed / "python"), program]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout) == (2, ""), done.stderr
        assert told in done.stderr
