"""The cpu Dockerfile without Docker: its own commands, in clean virtual environments, then the job it is there for.

Only paths are replaced. What needs a container stays untried: the base image, apt, the user, and EFA's installer.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from gangway.images.render import render_dockerfile
from gangway.images.specs import DOCKERFILE_FLAVOURS

REPO = Path(__file__).resolve().parent.parent.parent
SPEC = DOCKERFILE_FLAVOURS["cpu"]
INSTRUCTION = re.compile(r"^(COPY|RUN|ENV|ENTRYPOINT) (.*?)(?<!\\)$", re.MULTILINE | re.DOTALL)

# torch and CUDA's libraries are some gigabytes: a download of minutes, unless pip still has them.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@dataclass(frozen=True)
class Image:
    """What the Dockerfile has made under a folder of the test.

    Attributes:
        root: stands for the image's `/`.
        env: what its ENV says, and nothing of this process.
        entrypoint: the program and its first arguments.
    """

    root: Path
    env: dict[str, str]
    entrypoint: list[str]

    def run(self, *argv: str) -> str:
        """What a command prints that runs in the image's environment, in its working directory."""
        program = shutil.which(argv[0], path=self.env["PATH"])
        assert program is not None, argv[0]
        done = subprocess.run(
            [program, *argv[1:]],
            cwd=self.root / "opt/gangway",
            env=self.env,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


def below(root: Path, text: str) -> str:
    """`text` with the image's folders under `root`, and this Python for the image's."""
    moved = re.sub(r"(?<![\w/.])/(opt|tmp)/", lambda found: f"{root}/{found[1]}/", text)
    # Built by pip's own cache: the flag keeps layers small, and would have each test download torch again.
    return moved.replace(f"python{SPEC.python_version} ", f"{sys.executable} ").replace(" --no-cache-dir", "")


def copy(root: Path, sources: str) -> None:
    """COPY from the build context; the one from another stage copies a folder to where it is already."""
    if sources.startswith("--from="):
        return
    source, target = sources.split()
    shutil.copytree(REPO / source, below(root, target), ignore=shutil.ignore_patterns("__pycache__"))


def shell(command: str) -> None:
    """RUN, with this machine's settings for pip: a mirror, a proxy, certificates."""
    env = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "COV"))}
    done = subprocess.run(["sh", "-c", command], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}\n{done.stdout[-2000:]}{done.stderr[-2000:]}"


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Image]:
    """Carries the instructions out in their order, but for those that need apt or root."""
    root = tmp_path_factory.mktemp("image")
    env = {"HOME": str(root), "OMP_NUM_THREADS": "1"}
    entrypoint: list[str] = []
    for name, rest in INSTRUCTION.findall(render_dockerfile(SPEC)):
        text = below(root, rest)
        if name == "COPY":
            copy(root, rest)
        elif name == "RUN" and not re.search(r"\b(apt-get|useradd)\b", text):
            shell(text)
        elif name == "ENV":
            env |= dict(pair.split("=", 1) for pair in text.replace("\\\n", " ").split())
        elif name == "ENTRYPOINT":
            entrypoint = json.loads(rest)
    env["PATH"] = env["PATH"].replace("$PATH", os.defpath)
    yield Image(root, env, entrypoint)
    # pytest keeps the folders of three runs, and this one is of six gigabytes.
    shutil.rmtree(root)


def locked_torch() -> str:
    """The version of torch that the image's lock pins."""
    locked = re.search(r"^torch==(\S+)", (REPO / "images/locks/trainer.lock").read_text("utf-8"), re.MULTILINE)
    assert locked is not None
    return locked[1]


def test_the_trainer_runs_from_the_image_alone(image: Image, tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    job = ("train", "--preset", "dcgan-digits", "--kimg", "0.1", "--run-dir", str(run_dir))
    image.run(*image.entrypoint, "--standalone", "--nproc-per-node", "1", "-m", "gangway.trainer", *job)
    record = json.loads((run_dir / "run.json").read_text("utf-8"))
    assert record["status"] == "done"
    assert record["versions"]["torch"] == locked_torch()
    assert list((run_dir / "checkpoints").glob("*.pt"))
    program = "import torch, gangway.trainer as own; print(torch.__file__, own.__file__)"
    where = image.run("python", "-c", program).split()
    assert all(Path(file).is_relative_to(image.root) for file in where)
    assert not list((image.root / "opt/gangway").rglob("__pycache__")), "the image's user may not write there"


def test_the_bill_of_materials_is_valid_and_names_what_is_installed(image: Image) -> None:
    path = image.root / "opt/venv/sbom.cdx.json"
    bill = json.loads(path.read_text("utf-8"))
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
    found = {(part["name"].lower().replace("_", "-"), part["version"]) for part in bill["components"]}
    listed = json.loads(image.run("python", "-m", "pip", "list", "--format", "json", "--disable-pip-version-check"))
    assert found == {(part["name"].lower().replace("_", "-"), part["version"]) for part in listed}
    assert ("torch", locked_torch()) in found
    assert "cyclonedx-bom" not in {name for name, _ in found}, "what writes it is not in the image"
    check = (
        "import sys; from cyclonedx.schema import SchemaVersion; from cyclonedx.validation.json import "
        "JsonStrictValidator as V; print(V(SchemaVersion.V1_6).validate_str(sys.stdin.read()))"
    )
    writer = [str(image.root / "opt/sbom/bin/python"), "-c", check]
    done = subprocess.run(writer, input=path.read_text("utf-8"), capture_output=True, text=True, check=True)
    assert done.stdout == "None\n", "no complaint of the schema"
