"""Stacks that one version of Gangway has brought up, under the program of another, by the real Pulumi engine.

`states/` has stacks as released versions left them; at a release this adds its own:

    GANGWAY_EXPORT_STATES=0.1.0 pytest -m "engine and slow" tests/engine/test_upgrade.py -k export
"""

import json
import lzma
import os
import re
import shutil
import subprocess
import time
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from gangway.cli.common import load_stack
from gangway.components.core.retention import Retention
from gangway.stacks.base.kept import settings_digest
from gangway.stacks.base.registry import get_provider
from gangway.stacks.base.rule import kind

pytestmark = [pytest.mark.engine, pytest.mark.timeout(900)]

REPOSITORY = Path(__file__).resolve().parents[2]
STATES = Path(__file__).with_name("states")
PRODUCT = ("components", "gangway", "images", "stacks", "trainer")
STACKS = ("aws-p5-slurm", "aws-p5-spot", "azure-ndv5-spot", "gcp-a3-spot", "gcp-v5e-pod", "openstack-gpu")
"""One for each way in which a version's scripts reach machines."""
of_each_way = pytest.mark.parametrize("engine", STACKS, indirect=True)
RELEASE = os.environ.get("GANGWAY_EXPORT_STATES", "")
EXPORTED = sorted(file.relative_to(STATES).as_posix() for file in STATES.glob("*/*.json.xz"))
ON_MACHINES = re.compile(
    r"(aws:ec2|gcp:compute|openstack:compute):Instance|.*:(QueuedTpuRequest|VirtualMachine|VirtualMachineScaleSet|Group|"
    r"LaunchTemplate|InstanceTemplate|InstanceGroupManager|TpuReconciler)"
)
"""Machines, and what new ones are made from: a job must not get nodes of two versions."""


@pytest.fixture
def other_version(tmp_path: Path) -> Path:
    """A copy of the product in which scripts, the trainer and the default of a setting have changed."""
    copy = tmp_path / "other-version"
    words = ["git", "ls-files", "-zco", "--exclude-standard", *PRODUCT]
    listed = subprocess.run(words, cwd=REPOSITORY, capture_output=True, text=True, check=True)
    for name in listed.stdout.split("\0")[:-1]:
        target = copy / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(REPOSITORY / name, target, follow_symlinks=False)
    scripts = [*(copy / "images/templates").rglob("*.sh*"), copy / "images/templates/cloud-init.yaml.j2"]
    for changed in (*scripts, copy / "trainer/__main__.py"):
        changed.write_text(f"{changed.read_text('utf-8')}# of another version\n", "utf-8")
    sections = copy / "stacks/config/sections.py"
    text, default = sections.read_text("utf-8"), "minutes: Whole = Field(default=180"
    assert text.count(default) == 1
    sections.write_text(text.replace(default, default.replace("180", "190")), "utf-8")
    return copy


def steps(outcome: Any) -> list[dict[str, Any]]:
    """What an outcome changes."""
    assert outcome.status == 0, outcome.text
    found = [event["resourcePreEvent"]["metadata"] for event in outcome.events if "resourcePreEvent" in event]
    return [step for step in found if step["op"] != "same"]


def reached(outcome: Any) -> list[str]:
    """The machines, and templates of machines, that an outcome changes, but for tags."""
    found = [step for step in steps(outcome) if ON_MACHINES.fullmatch(kind(step["type"]))]
    return [f"{step['op']} {step['urn']}" for step in found if (step["op"], step.get("diffs")) != ("update", ["tags"])]


@of_each_way
def test_another_version_restarts_nothing_until_it_is_asked_to(
    engine: Any, other_version: Path, set_value: Any
) -> None:
    engine.applied("up")
    engine.env["PYTHONPATH"] = str(other_version)
    outcome = engine.run("preview")
    assert reached(outcome) == []
    assert "stays as an earlier version of Gangway made it" in outcome.text
    engine.change(set_value("budget.monthly_usd", 77_777))
    engine.change(lambda config: config["gangway:tags"].update(owner="somebody"))
    assert not [step for step in reached(engine.applied("up")) if "Stash" in step or step.startswith("replace ")]
    engine.change(set_value("cluster.software_refresh", 1))
    assert reached(engine.run("preview"))
    assert reached(engine.applied("up"))
    assert "stays as an earlier version" not in engine.run("preview").text


@of_each_way
def test_one_version_asked_to_refresh_changes_nothing(engine: Any, set_value: Any) -> None:
    engine.applied("up")
    engine.change(set_value("cluster.software_refresh", 1))
    assert reached(engine.run("preview")) == []


def load(engine: Any, exported: dict[str, Any], folder: Path) -> Retention:
    """Gives the engine a stack as a version left it; what of it must not be lost."""
    urls = _read_api_urls(engine.file.read_text("utf-8"))
    engine.file.write_text(exported["stack_file"], "utf-8")
    text, before = json.dumps(exported), settings_digest(load_stack(str(engine.file)))
    for section, url in urls:
        text = text.replace(dict(_read_api_urls(exported["stack_file"]))[section], url)
    exported = json.loads(text)
    engine.file.write_text(exported["stack_file"], "utf-8")
    exported = json.loads(text.replace(before, settings_digest(load_stack(str(engine.file)))))
    state = folder / "state.json"
    state.write_text(json.dumps(exported["state"]), "utf-8")
    engine.plain("stack", "import", "--file", str(state))
    known = yaml.safe_load(exported["stack_file"])
    retention: Retention = get_provider(known["config"]["gangway:provider"]).retention
    return retention


def _read_api_urls(stack_file: str) -> list[tuple[str, str]]:
    """The stand-in of the TPU API: each test's has another port."""
    config = yaml.safe_load(stack_file)["config"]
    return [(name, value["tpu_api_url"]) for name, value in config.items() if "tpu_api_url" in str(value)]


@pytest.mark.parametrize(
    ("engine", "file"), [(Path(name).name.partition(".")[0], name) for name in EXPORTED], indirect=["engine"]
)
def test_a_stack_of_an_earlier_version_keeps_data_and_machines(engine: Any, file: str, tmp_path: Path) -> None:
    exported = json.loads(lzma.decompress((STATES / file).read_bytes()))
    # URLs that machines get are signed anew every few hours, which is no matter of versions.
    exported_at = datetime.fromisoformat(exported["state"]["deployment"]["manifest"]["time"])
    engine.set_clock(exported_at.timestamp() - time.time())
    retention = load(engine, exported, tmp_path)
    outcome = engine.run("preview")
    assert reached(outcome) == []
    gone = [step for step in steps(outcome) if step["op"] in ("replace", "delete")]
    assert [step["urn"] for step in gone if kind(step["type"]) in retention.guarded] == []


@of_each_way
@pytest.mark.skipif(not RELEASE, reason="writes the states of a release")
def test_export(engine: Any) -> None:
    engine.applied("up")
    state = json.loads(engine.plain("stack", "export"))
    for resource in state["deployment"]["resources"]:
        for of_this_machine in ("sourcePosition", "stackTrace"):
            resource.pop(of_this_machine, None)
    text = json.dumps({"stack_file": engine.file.read_text("utf-8"), "state": state}, sort_keys=True)
    folder = STATES / RELEASE
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{engine.stack}.json.xz").write_bytes(lzma.compress(text.encode(), preset=9 | lzma.PRESET_EXTREME))
