"""What a stack keeps of the version that brought it up. tests/engine/test_upgrade.py tries it under the engine."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from gangway.components.core.lookup import STASH
from gangway.stacks.base.kept import REACH_NO_MACHINE, settings_digest
from gangway.stacks.config.stack_config import StackConfig
from gangway.stacks.loading.loader import from_file
from gangway.stacks.plan.plan import run_program
from gangway.stacks.recording import PlaceholderCloud

STACKS = ("aws-p5-slurm", "aws-p5-spot", "azure-ndv5-spot", "gcp-a3-spot", "gcp-v5e-pod", "hosts-lab", "openstack-gpu")
OTHERWISE: dict[str, Any] = {
    "allow_replace": ["nothing-of-this-name"],
    "budget": {"monthly_usd": 77_777, "emails": ["else@example.com"], "alert_percent": [10]},
    "observe": {"log_days": 90},
    "regions": {"residency": ["EU", "US"]},
    "tags": {"team": "another", "cost_center": "1", "owner": "somebody"},
}


def changed(repo: Path, folder: Path, stack: str, settings: dict[str, Any]) -> StackConfig:
    """The shipped stack with other sections."""
    file = folder / f"Pulumi.{stack}.yaml"
    content = yaml.safe_load((repo / "stacks" / file.name).read_text("utf-8"))
    content["config"].update({f"gangway:{name}": value for name, value in settings.items()})
    file.write_text(yaml.safe_dump(content), "utf-8")
    return from_file(file)


def texts(config: StackConfig) -> dict[str, Any]:
    """The texts that the stack keeps, by their resource."""
    found = run_program(config, PlaceholderCloud()).resources
    return {each.name: each.inputs["input"] for each in found if each.type == STASH and not each.name.endswith("-0")}


@pytest.mark.parametrize("stack", STACKS)
def test_sections_without_effect_on_machines_change_no_text(stack: str, repo: Path, tmp_path: Path) -> None:
    assert OTHERWISE.keys() == REACH_NO_MACHINE
    own: dict[str, Any] = {"observe": {}} if stack in ("hosts-lab", "openstack-gpu") else {}
    before, after = changed(repo, tmp_path, stack, {}), changed(repo, tmp_path, stack, OTHERWISE | own)
    assert settings_digest(before) == settings_digest(after)
    kept = texts(before)
    assert kept
    assert kept == texts(after)


@pytest.mark.parametrize(
    ("section", "setting", "value"),
    [
        ("cluster", "software_refresh", 1),
        ("cluster", "software_refresh", 0),  # written, although it is the default
        ("job", "max_hours", 7),
        ("network", "cidr", "10.77.0.0/16"),
        ("observe", "hardware", True),
        ("budget", "limits", {"job_usd": 99_999, "usd_per_node_hour": 55.04}),
        ("budget", "limits", {"usd_per_node_hour": 77}),
    ],
)
def test_every_other_setting_decides(section: str, setting: str, value: Any, repo: Path, tmp_path: Path) -> None:
    before = changed(repo, tmp_path, "aws-p5-spot", {})
    content = yaml.safe_load((tmp_path / "Pulumi.aws-p5-spot.yaml").read_text("utf-8"))["config"]
    other = {**content.get(f"gangway:{section}", {}), setting: value}
    assert settings_digest(before) != settings_digest(changed(repo, tmp_path, "aws-p5-spot", {section: other}))
