"""What `up` would change in a stack that is up. The stacks are states that Pulumi's engine left."""

import json
import lzma
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from gangway.cli.main import app
from gangway.stacks.base.kept import settings_digest
from gangway.stacks.loading.loader import from_file
from gangway.stacks.plan.difference import Difference, Effect, add_comparison
from gangway.stacks.plan.live import _as_planned, earlier_plan, read_live
from gangway.stacks.plan.plan import make_plan

STATES = Path(__file__).resolve().parents[2] / "engine/states/0.1.0"
STACKS = sorted(file.name.partition(".")[0] for file in STATES.glob("*.xz"))
Edit = Callable[[dict[str, Any]], Any]


@pytest.fixture
def exported() -> Callable[[str], dict[str, Any]]:
    """Reads a stack as the engine left it: its stack file and `pulumi stack export`."""

    def read(stack: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(lzma.decompress((STATES / f"{stack}.json.xz").read_bytes()))
        return found

    return read


def difference(known: dict[str, Any], stack: str, folder: Path, edit: Edit) -> Difference:
    content = yaml.safe_load(known["stack_file"])
    edit(content["config"])
    (file := folder / f"Pulumi.{stack}.yaml").write_text(yaml.safe_dump(content), "utf-8")
    plan = make_plan(from_file(file))
    live = read_live(known["state"]["deployment"]["resources"])
    return add_comparison(plan, earlier_plan(plan, live))[1]


def gravest(found: Difference) -> Effect:
    changes = (*found.changed, *found.tags_only, *found.removed)
    return max((one.effect for one in changes if one.effect is not None), default=Effect.IN_PLACE)


def test_there_are_states() -> None:
    assert len(STACKS) == 6


@pytest.mark.parametrize("stack", STACKS)
def test_an_unchanged_stack_is_unchanged(stack: str, exported: Any, tmp_path: Path) -> None:
    """Whatever scripts this version has. A later version may change resources around the machines in place."""
    found = difference(exported(stack), stack, tmp_path, lambda config: None)
    assert gravest(found) is Effect.IN_PLACE
    assert found.removed == ()
    hourly = found.figures[0]
    assert hourly.before
    assert hourly.change == 0


@pytest.mark.parametrize("stack", STACKS)
def test_the_engine_and_a_plan_decide_by_the_same_settings(stack: str, exported: Any, tmp_path: Path) -> None:
    """Under the engine, Pulumi.yaml adds its defaults to what the stack file sets."""
    known = exported(stack)
    (file := tmp_path / f"Pulumi.{stack}.yaml").write_text(known["stack_file"], "utf-8")
    digest = settings_digest(from_file(file))
    kept = [one for one in read_live(known["state"]["deployment"]["resources"]).values() if one.trigger is not None]
    assert kept
    assert all(one.kept(digest) for one in kept)


def job(**values: Any) -> Edit:
    return lambda config: config["gangway:job"].update(values)


def section(name: str, **values: Any) -> Edit:
    return lambda config: config.setdefault(f"gangway:{name}", {}).update(values)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("stack", "edit", "effect"),
    [
        ("aws-p5-spot", job(kimg=24_001), Effect.HEAD_REPLACED),
        ("azure-ndv5-spot", job(kimg=24_001), Effect.HEAD_REPLACED),
        ("gcp-a3-spot", job(kimg=24_001), Effect.HEAD_REPLACED),
        ("gcp-v5e-pod", job(kimg=24_001), Effect.NODES_RESTARTED),
        ("openstack-gpu", job(kimg=24_001), Effect.NODES_RESTARTED),
        # What reaches no machine by itself brings another version's texts to all.
        ("aws-p5-spot", section("storage", capacity_gib=38_400), Effect.HEAD_REPLACED),
        ("azure-ndv5-spot", section("storage", capacity_gib=16_384), Effect.DATA_LOST),
        ("gcp-a3-spot", section("network", cidr="10.44.0.0/16"), Effect.HEAD_REPLACED),
        ("aws-p5-spot", section("budget", monthly_usd=77_777), Effect.IN_PLACE),
        ("gcp-a3-spot", section("estimate", restart_sec=500), Effect.HEAD_REPLACED),
        ("gcp-a3-spot", section("observe", log_days=60), Effect.IN_PLACE),
        ("aws-p5-slurm", section("head", machine_type="t3.large"), Effect.HEAD_REPLACED),
    ],
)
def test_a_change_has_the_effect_that_the_engine_shows(
    stack: str, edit: Edit, effect: Effect, exported: Any, tmp_path: Path
) -> None:
    """As docs/reference/changing-settings.md has it, which the engine has measured."""
    assert gravest(difference(exported(stack), stack, tmp_path, edit)) is effect


def test_data_that_is_lost_is_an_error_and_money_is_counted(exported: Any, tmp_path: Path) -> None:
    found = difference(
        exported("azure-ndv5-spot"), "azure-ndv5-spot", tmp_path, section("storage", capacity_gib=16_384)
    )
    (lost,) = found.data_losses(())
    assert "azure-ndv5-spot-lustre" in lost.message
    assert found.figures[0].change != 0


@pytest.mark.parametrize(
    ("real", "live", "changed"),
    [
        ({"a": 1}, {"a": 1.0}, False),
        ({"a": 1}, {"a": 2}, True),
        ({"a": 1}, {"a": 1, "b": 2, "__defaults": ["b"]}, False),  # the provider's own
        ({"a": 1}, {"a": 1, "b": 2, "__defaults": []}, True),  # the program set it before
        ({"a": 1}, {"a": 1, "name": "demo-vpc-1234567"}, False),  # a name that the engine made
        ({"a": "${getImage.selfLink}"}, {"a": "projects/x"}, False),  # an answer of the cloud
        ({"a": "[secret]"}, {"a": "[secret]"}, False),
        ({"a": [1, 2]}, {"a": [1, 3]}, True),
        ({"a": [1, 2]}, {"a": [1]}, True),
        ({"a": None}, {}, False),
    ],
)
def test_what_counts_as_a_change(real: Any, live: Any, changed: bool) -> None:
    assert (_as_planned(real, real, live, "demo-vpc") != {key: real[key] for key in real if real[key] is not None}) is (
        changed
    )


def test_the_command_reads_the_backend(exported: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known = exported("openstack-gpu")
    project, backend = tmp_path / "project", tmp_path / "backend"
    (state := backend / ".pulumi/stacks/gangway/openstack-gpu.json").parent.mkdir(parents=True)
    state.write_text(json.dumps({"version": 3, "checkpoint": {"latest": known["state"]["deployment"]}}), "utf-8")
    project.mkdir()
    (project / "Pulumi.yaml").write_text("name: gangway\nruntime: python\n", "utf-8")
    file = project / "Pulumi.openstack-gpu.yaml"
    file.write_text(known["stack_file"].replace("kimg: 25000", "kimg: 24000"), "utf-8")
    monkeypatch.setenv("PULUMI_BACKEND_URL", backend.as_uri())
    monkeypatch.setenv("PATH", str(tmp_path))  # no CLI
    monkeypatch.chdir(project)
    result = CliRunner().invoke(app, ["plan", str(file), "--against", "live", "--json"])
    assert result.exit_code == 0, result.output
    shown = json.loads(result.stdout)["difference"]
    assert {one["effect"] for one in shown["changed"]} >= {"restarts nodes", "replaces the head"}
    state.unlink()
    missing = CliRunner().invoke(app, ["plan", str(file), "--against", "live"])
    assert missing.exit_code != 0
    assert "has no stack openstack-gpu" in str(missing.exception)
