"""The AWS components as a plugin under the real Pulumi engine: the manual's program in YAML, the schema, SDKs."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.engine

REPOSITORY = Path(__file__).resolve().parents[2]
MANUAL = REPOSITORY / "examples" / "README.md"
FILES = {"nodejs": "trainingNetwork.ts", "go": "trainingNetwork.go"}


@pytest.fixture
def program() -> str:
    """The program that the manual shows."""
    (block,) = re.findall(r"^```yaml\n(.*?)^```", MANUAL.read_text("utf-8"), re.DOTALL | re.MULTILINE)
    return str(block)


@pytest.fixture
def plugin(tmp_path: Path) -> str:
    """The plugin as an executable, which the engine starts without installing anything first."""
    executable = tmp_path / "pulumi-resource-gangway-aws"
    executable.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{REPOSITORY / "components" / "aws"}" "$@"\n', "utf-8")
    executable.chmod(0o755)
    return str(executable)


def test_the_manuals_program_lives_and_leaves_nothing_behind(make_yaml_engine: Any, program: str) -> None:
    engine = make_yaml_engine(program)
    up = engine.applied("up")
    components = {token for token in up.types("create") if token.startswith("gangway:aws:")}
    assert components == {f"gangway:aws:{name}" for name in ("TrainingNetwork", "RunBucket", "LustreFileSystem")}
    (lustre,) = [r for r in engine.resources() if r["type"] == "aws:fsx/lustreFileSystem:LustreFileSystem"]
    subnets = {r["id"] for r in engine.resources() if r["type"] == "aws:ec2/subnet:Subnet"}
    assert lustre["inputs"]["subnetIds"] in subnets
    exports = json.loads(engine.plain("stack", "output", "--json", "--stack", engine.stack))
    assert exports["mount"] == lustre["outputs"]["dnsName"]

    again = engine.applied("up", "--expect-no-changes")
    assert set(again.changes) == {"same"}
    engine.applied("destroy")
    assert engine.resources() == []


def test_a_mistake_in_another_language_names_the_input(make_yaml_engine: Any, program: str) -> None:
    engine = make_yaml_engine(program.replace("capacityGib: 2400", "capacityGib: 2500"))
    up = engine.run("up", "--yes", "--skip-preview")
    assert up.status != 0
    assert "2500" in up.text
    assert "2400" in up.text
    assert "Traceback" not in up.text


def test_the_engine_takes_the_schema(make_yaml_engine: Any, program: str, plugin: str) -> None:
    schema = json.loads(make_yaml_engine(program).plain("package", "get-schema", plugin))
    assert schema["name"] == "gangway-aws"
    described = {token.rpartition(":")[2]: entry["description"] for token, entry in schema["resources"].items()}
    assert {"TrainingNetwork", "EfaNodePool", "LustreFileSystem", "TrainerImage"} <= set(described)
    assert all("Inputs of" in text for text in described.values())


@pytest.mark.parametrize("language", sorted(FILES))
def test_an_sdk_names_the_components(
    make_yaml_engine: Any, program: str, plugin: str, tmp_path: Path, language: str
) -> None:
    if shutil.which(f"pulumi-language-{language}") is None:
        pytest.skip(f"pulumi-language-{language} is not on PATH")
    target = tmp_path / "sdk"
    make_yaml_engine(program).plain("package", "gen-sdk", plugin, "--language", language, "--out", str(target))
    (file,) = target.rglob(FILES[language])
    assert "fabricSecurityGroupId" in file.read_text("utf-8")


@pytest.fixture
def node_modules() -> Path:
    """A folder with Pulumi's SDK for Node and TypeScript: `npm install @pulumi/pulumi @types/node typescript`."""
    if shutil.which("pulumi-language-nodejs") is None:
        pytest.skip("pulumi-language-nodejs is not on PATH")
    for folder in os.environ.get("NODE_PATH", "").split(os.pathsep):
        if folder and all((Path(folder) / name).is_dir() for name in ("@pulumi/pulumi", "typescript")):
            return Path(folder)
    pytest.skip("no folder of NODE_PATH has @pulumi/pulumi and typescript")


def test_the_typescript_example_lives(make_yaml_engine: Any, plugin: str, node_modules: Path) -> None:
    example = REPOSITORY / "examples" / "typescript"
    engine = make_yaml_engine((example / "Pulumi.yaml").read_text("utf-8"))
    engine.env["PATH"] = os.pathsep.join([str(Path(plugin).parent), engine.env["PATH"]])
    for name in ("index.ts", "package.json", "tsconfig.json"):
        shutil.copy(example / name, engine.project)
    # As `pulumi package add` leaves it, without asking npm.
    modules = engine.project / "node_modules"
    (modules / "@gangway").mkdir(parents=True)
    for there in node_modules.iterdir():
        (modules / there.name).symlink_to(there)
    engine.plain("package", "gen-sdk", plugin, "--language", "nodejs", "--out", str(engine.project / "sdk"))
    sdk = (engine.project / "sdk" / "nodejs").rename(modules / "@gangway" / "gangway-aws")
    assert json.loads((sdk / "package.json").read_text("utf-8"))["name"] == "@gangway/gangway-aws"
    for project, options in ((sdk, ["--outDir", str(sdk)]), (engine.project, [])):
        command = ["node", str(modules / "typescript" / "bin" / "tsc"), "-p", str(project), *options]
        done = subprocess.run(command, env=engine.env, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout

    up = engine.applied("up")
    components = {token for token in up.types("create") if token.startswith("gangway:aws:")}
    assert components == {f"gangway:aws:{name}" for name in ("TrainingNetwork", "RunBucket", "Budget")}
    engine.applied("destroy")
    assert engine.resources() == []
