"""Extras: planning a cloud's stack needs that cloud's alone, and what is missing is one line with the command."""

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from gangway.stacks.base.extras import extras, require

REPO = Path(__file__).resolve().parents[3]
TRAINING = "torch torchvision torch_fidelity numpy scipy PIL av fsspec sklearn tensorboard onnx onnxscript pynvml"
NOT_FOR_PLANS = (*TRAINING.split(), "moto", "boto3", "botocore", "obstore", "requests", "matplotlib", "pulumi_policy")
SDKS = {
    "aws": "pulumi_aws",
    "gcp": "pulumi_gcp",
    "azure": "pulumi_azure_native",
    "openstack": "pulumi_openstack",
    "hosts": "pulumi_command",
}
STACKS = {
    "aws": "aws-demo",
    "gcp": "gcp-v5e-pod",
    "azure": "azure-nc-dev",
    "openstack": "openstack-gpu",
    "hosts": "hosts-lab",
}
# Runs `gangway` where some packages cannot be imported, as where they are not installed.
GANGWAY_WITHOUT = """
import sys

packages = sys.argv[1].split(",")

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in packages:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Blocker())
from gangway.cli.main import main
sys.argv = ["gangway", *sys.argv[2:]]
main()
"""

FROM = "in Gangway's checkout, pip install "


def without(packages: tuple[str, ...], *arguments: str, cwd: Path = REPO) -> subprocess.CompletedProcess[str]:
    """Runs the command without some packages."""
    command = [sys.executable, "-c", GANGWAY_WITHOUT, ",".join(packages), *arguments]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)


@pytest.mark.slow
@pytest.mark.parametrize("provider", STACKS)
def test_a_plan_needs_its_own_clouds_sdk_alone(provider: str) -> None:
    others = tuple(package for cloud, package in SDKS.items() if cloud != provider)
    done = without((*NOT_FOR_PLANS, *others), "plan", STACKS[provider], "--json")
    assert (done.returncode, done.stderr) == (0, "")
    assert f'"provider": "{provider}"' in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("provider", STACKS)
def test_a_missing_sdk_is_one_line_with_the_command(provider: str) -> None:
    done = without((SDKS[provider],), "plan", STACKS[provider])
    assert (done.returncode, done.stdout) == (2, "")
    place = f"error: stacks/Pulumi.{STACKS[provider]}.yaml: extra '{provider}': "
    assert done.stderr == f"{place}{SDKS[provider]} is not installed: {FROM}'.[{provider}]'\n"


MODULE_WITHOUT = (
    GANGWAY_WITHOUT.partition("from gangway.cli.main")[0]
    + """
import runpy
module, sys.argv = sys.argv[2], sys.argv[2:]
runpy.run_module(module, run_name="__main__")
"""
)


@pytest.mark.parametrize(
    ("module", "package", "extra", "arguments"),
    [
        ("gangway.trainer", "torch", "train", ("train", "--preset", "dcgan-digits")),
        ("gangway.stacks.policy", "pulumi_policy", "policy", ()),
    ],
)
def test_other_programs_say_it_in_a_line_too(
    module: str, package: str, extra: str, arguments: tuple[str, ...], tmp_path: Path
) -> None:
    command = [sys.executable, "-c", MODULE_WITHOUT, package, module, *arguments]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": str(REPO)}
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"error: extra '{extra}': {package} is not installed: {FROM}'.[{extra}]'\n"
    assert list(tmp_path.iterdir()) == []


MISSING = {
    "torch on this machine": ("torch", "train", ["bench", "run", "local-smoke", "--local"]),
    "torch for a study": ("torch", "train", ["bench", "scaling"]),
    "moto": ("moto", "demo", ["demo", "--quick"]),
    "torch for the demo": ("torch", "train", ["demo", "--quick"]),
    "matplotlib": ("matplotlib", "report", ["bench", "scaling"]),
    "scipy for intervals": ("scipy", "report", ["simulate", "--generate", "philly-like", "--repeats", "6"]),
    "matplotlib for jobs": ("matplotlib", "report", ["simulate", "--generate", "philly-like", "--plot", "use.png"]),
}


@pytest.mark.slow
@pytest.mark.parametrize("what", MISSING)
def test_a_command_that_needs_more_says_so_and_begins_nothing(what: str, tmp_path: Path) -> None:
    package, extra, arguments = MISSING[what]
    done = without((package,), *arguments, cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    assert done.stderr == f"error: extra {extra!r}: {package} is not installed: {FROM}'.[{extra}]'\n"
    assert list(tmp_path.iterdir()) == []


def test_quotes_need_no_cloud_and_no_torch() -> None:
    done = without((*NOT_FOR_PLANS, *SDKS.values()), "quote", "--help")
    assert (done.returncode, done.stderr) == (0, "")


def test_simulations_need_no_cloud_and_no_numpy() -> None:
    done = without((*NOT_FOR_PLANS, *SDKS.values()), "simulate", "--generate", "philly-like", "--jobs", "9")
    assert (done.returncode, done.stderr) == (0, "")


def test_what_is_no_extras_stays_an_error_of_ours() -> None:
    done = without(("yaml",), "plan", "aws-demo")
    assert done.returncode == 1
    assert "ModuleNotFoundError" in done.stderr


def test_what_is_there_is_not_asked_for() -> None:
    require("torch", "moto", "matplotlib")


def test_each_extra_named_brings_what_it_is_named_for() -> None:
    declared = tomllib.loads((REPO / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    brought = {
        "google": "google-auth",
        "openstack": "openstacksdk",
        "PIL": "matplotlib",
        "sklearn": "scikit-learn",
        "numpy": "matplotlib",
        "botocore": "boto3",
    }
    for package, extra in extras().items():
        names = {Requirement(line).name for line in declared[extra]}
        assert brought.get(package, package.replace("_", "-")) in names, package


def test_the_images_packages_are_the_extra_train() -> None:
    project = tomllib.loads((REPO / "pyproject.toml").read_text("utf-8"))
    core, train = project["project"]["dependencies"], project["project"]["optional-dependencies"]["train"]
    group = project["dependency-groups"]["trainer"]
    assert set(train) < set(group) <= {*core, *train}


def test_the_tools_are_pinned_with_hashes_and_bring_no_training() -> None:
    lines = (REPO / "stacks" / "locks" / "tools.lock").read_text("utf-8").splitlines()
    pins = {line.partition("==")[0] for line in lines if "==" in line and not line.lstrip().startswith(("#", "--"))}
    assert {"pulumi-aws", "pulumi-gcp", "pulumi-azure-native", "pulumi-openstack", "pulumi-command", "pulumi"} <= pins
    assert not pins & {"torch", "torchvision", "moto", "onnx", "tensorboard", "pulumi-policy", "pyarrow"}
    assert sum(line.lstrip().startswith("--hash=sha256:") for line in lines) >= len(pins)
    assert [line for line in lines if "://" in line or line.lstrip().startswith(("-i ", "--index"))] == []
