"""Slurm on existing machines: plan, findings and refused settings."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from gangway.components.core.findings import InputError
from gangway.stacks.loading.loader import from_file
from gangway.stacks.plan.plan import Plan, make_plan

FILE = Path(__file__).resolve().parents[4] / "stacks" / "Pulumi.hosts-slurm.yaml"
Edit = Callable[[dict[str, Any]], object]


@pytest.fixture(scope="module")
def plan() -> Plan:
    return make_plan(from_file(FILE))


def mistakes(tmp_path: Path, edit: Edit) -> dict[str, InputError]:
    values = yaml.safe_load(FILE.read_text("utf-8"))["config"]
    edit(values)
    path = tmp_path / "Pulumi.edited.yaml"
    path.write_text(yaml.safe_dump({"config": values}), "utf-8")
    with pytest.raises(ExceptionGroup) as told:
        from_file(path)
    errors = [error for error in told.value.exceptions if isinstance(error, InputError)]
    return {error.place.partition(": ")[2]: error for error in errors}


def test_each_machine_gets_its_script_and_the_key(plan: Plan) -> None:
    commands = {resource.name: resource.inputs for resource in plan.resources if resource.type.endswith(":Command")}
    assert {name for name in commands if name.endswith("-munge-key")} == {
        "hosts-slurm-dgx-1-munge-key", "hosts-slurm-dgx-2-munge-key",
    }  # fmt: skip
    scripts = {
        resource.name: resource.inputs["source"].text
        for resource in plan.resources
        if resource.type.endswith("CopyToRemote")
    }
    assert scripts.keys() == {"hosts-slurm-dgx-1-files", "hosts-slurm-dgx-2-files"}
    assert "ExecStart=/usr/sbin/slurmctld" in scripts["hosts-slurm-dgx-1-files"]
    assert "ExecStart=/usr/sbin/slurmctld" not in scripts["hosts-slurm-dgx-2-files"]


def test_it_is_priced_as_machines_that_are_up_always(plan: Plan) -> None:
    assert plan.cost.hourly == pytest.approx(29)
    assert plan.idle_hourly == pytest.approx(29)
    assert not plan.has_errors
    codes = {finding.code for finding in plan.findings}
    assert {"cluster.standing", "hosts.slurm", "hosts.ports", "budget.not-enforced"} <= codes


MISTAKES: dict[str, tuple[Edit, str, str]] = {
    "machines that would come and go": (
        lambda v: v["gangway:cluster"].update(nodes={"min": 0, "max": 2}),
        "gangway:cluster.nodes.min", "min: 2, max: 2",
    ),
    "nodes given back": (
        lambda v: v["gangway:engine"].update(idle_minutes=5), "gangway:engine.idle_minutes", "leave idle_minutes out",
    ),
    "accounts": (
        lambda v: v["gangway:engine"].update(accounting=True), "gangway:engine.accounting", "leave accounting out",
    ),
    "teams": (
        lambda v: v["gangway:engine"].update(teams=[{"name": "vision", "nodes": 1}]),
        "gangway:engine.teams", "leave teams out",
    ),
    "teams with accounts": (
        lambda v: v["gangway:engine"].update(accounting=True, teams=[{"name": "vision", "nodes": 1}]),
        "gangway:engine.teams", "leave teams out",
    ),
    "the trainer's image": (
        lambda v: v.update({"gangway:image": {"prebuilt": f"registry.example.com/gan@sha256:{'ab' * 32}"}}),
        "gangway:image.prebuilt", "leave image out",
    ),
    "a Kubernetes": (
        lambda v: v["gangway:engine"].update(kind="kubernetes"), "gangway:engine.kind", "leave gangway:engine out",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", MISTAKES)
def test_unsupported_settings_are_refused(tmp_path: Path, case: str) -> None:
    edit, place, fix = MISTAKES[case]
    found = mistakes(tmp_path, edit)
    assert place in found, found
    assert fix in found[place].fix


def test_several_machines_need_a_folder_that_all_see(tmp_path: Path) -> None:
    values = yaml.safe_load(FILE.read_text("utf-8"))["config"]
    del values["gangway:hosts"]["shared_dir"]
    path = tmp_path / "Pulumi.edited.yaml"
    path.write_text(yaml.safe_dump({"config": values}), "utf-8")
    assert "storage.not-shared" in {finding.code for finding in make_plan(from_file(path)).errors}
