"""A provider from its own folder and one entry in the registry: it plans, prices and finds as the others do."""

import json
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from gangway.cli import main as cli
from gangway.components.catalog.machine_facts import load_power
from gangway.components.core.findings import InputError, Severity
from gangway.stacks.base import registry
from gangway.stacks.loading.loader import from_file, stack_model
from gangway.stacks.plan.plan import Plan, make_plan

HERE = Path(__file__).parent
FILE = HERE / "toy" / "Pulumi.toy-lab.yaml"
Edit = Callable[[dict[str, Any]], object]


@pytest.fixture(autouse=True)
def _toys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(HERE)
    monkeypatch.setattr(registry, "PROVIDERS", {**registry.PROVIDERS, "toy": "toy.provider"})


@pytest.fixture
def written(tmp_path: Path) -> Callable[[Edit], Path]:
    """The toys' stack file with a change."""
    values = yaml.safe_load(FILE.read_text("utf-8"))["config"]

    def write(edit: Edit) -> Path:
        changed = deepcopy(values)
        edit(changed)
        path = tmp_path / "Pulumi.toy-lab.yaml"
        path.write_text(yaml.safe_dump({"config": changed}), "utf-8")
        return path

    return write


def codes(plan: Plan) -> dict[str, Severity]:
    return {finding.code: finding.severity for finding in plan.findings}


def test_its_resources_are_planned_and_priced() -> None:
    plan = make_plan(from_file(FILE))
    types = {resource.type for resource in plan.resources}
    assert types == {"gangway:toy:ToyBox", "toy:billing:Budget", "toy:compute:Machine"}
    # Ten an hour for the machine, 7.30 a month of 730 hours for the budget; then the machine leaves.
    assert plan.cost.hourly == pytest.approx(10.01)
    assert plan.idle_hourly == pytest.approx(0.01)
    (rung,) = plan.rungs
    assert rung.nodes_hourly == 10.0
    # Two hours at most, and far less at the projected speed.
    assert rung.run_hours is not None
    assert 0 < rung.run_hours < 2
    assert rung.run == pytest.approx(10.01 * rung.run_hours)
    utilisation = load_power().busy_share.value
    at_rating = (8 * 700 * utilisation + 1000) / utilisation
    assert plan.energy.kwh_most == pytest.approx(at_rating * 2 / 1000 * 1.5)
    assert plan.carbon.gco2e == pytest.approx((plan.energy.kwh or 0) * 100)
    assert codes(plan)["toy.owner"] is Severity.WARNING
    assert not plan.has_errors


def test_the_command_prints_it() -> None:
    result = CliRunner().invoke(cli.app, ["plan", str(FILE), "--json"])
    assert result.exit_code == 0, result.output
    printed = json.loads(result.stdout)
    assert printed == json.loads(json.dumps(make_plan(from_file(FILE)).to_json()))
    assert (printed["provider"], printed["job"]["processes_per_node"]) == ("toy", 8)
    assert set(printed["versions"]) == {"gangway", "pulumi"}


@pytest.fixture
def overlays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder of overlays."""
    folder = tmp_path / "overlays"
    monkeypatch.setenv("GANGWAY_PRICES", str(folder))
    return folder


def run(*words: str) -> str:
    result = CliRunner().invoke(cli.app, list(words))
    assert result.exit_code == 0, result.output
    return result.stdout


def test_its_machines_are_offered() -> None:
    answer = json.loads(run("quote", "--accelerator", "H100x8", "--providers", "toy", "--hours", "10", "--json"))
    offers = {(offer["region"], offer["machine_type"], offer["kind"]) for offer in answer["ranked"]}
    assert {("attic", "toy.8", "on-demand"), ("attic", "toy.8", "spot")} <= offers


def test_its_machines_are_in_the_list_of_the_catalogue() -> None:
    (row,) = json.loads(run("catalog", "list", "--provider", "toy", "--json"))
    assert (row["name"], row["price"]["on_demand"]["value"]) == ("toy.8", 10.0)
    table = run("catalog", "list", "--provider", "toy")
    assert "list prices of attic" in table
    assert "toy.8" in table


def test_its_prices_are_shown_refreshed_and_compared(overlays: Path) -> None:
    shown = json.loads(run("prices", "show", "toy.8", "--json"))
    assert {price["value"] for price in shown if price["region"] == "attic" and price["kind"] == "on_demand"} == {10}
    run("prices", "refresh", "--provider", "toy", "--region", "attic")
    (file,) = overlays.iterdir()
    assert file.name.startswith("toy-")
    assert json.loads(run("prices", "diff", "--json")) == [
        {"item": "toy.8", "region": "attic", "field": "on_demand", "before": 10.0, "now": 9.0}
    ]
    assert make_plan(from_file(FILE)).rungs[0].nodes_hourly == 9.0, "a plan takes the newer price"


def test_a_project_begins_with_it(tmp_path: Path) -> None:
    folder = tmp_path / "lab"
    run("init", str(folder), "--provider", "toy", "--email", "ann@example.com", "--from", "https://example.com/g.git")
    config = from_file(folder / "Pulumi.lab.yaml")
    assert (config.provider, config.region, config.cluster.machine_type) == ("toy", "attic", "toy.8")
    assert not make_plan(config).has_errors


def test_what_a_run_downloads_is_priced_from_its_catalogue(written: Callable[[Edit], Path]) -> None:
    plan = make_plan(from_file(written(lambda v: v.update({"gangway:estimate": {"download_gib": 4}}))))
    assert {line.name: line.once for line in plan.cost.components if line.once} == {
        "results that leave the cloud, a run": 2.0
    }


def test_its_spot_is_taken_as_often_as_it_says(written: Callable[[Edit], Path]) -> None:
    plan = make_plan(from_file(written(lambda v: v["gangway:cluster"].update(capacity=[{"kind": "spot"}]))))
    assert plan.rungs[0].taken is not None
    assert (plan.rungs[0].taken.value, plan.rungs[0].nodes_hourly) == (0.5, 4.0)


def test_the_rules_know_its_tags_its_budget_and_its_regions(written: Callable[[Edit], Path]) -> None:
    def edit(values: dict[str, Any]) -> None:
        values["gangway:toy"]["labelled"] = False
        values["gangway:region"] = "cellar"

    path = written(edit)
    plan = make_plan(from_file(path))
    found = {finding.code: finding for finding in plan.findings}
    assert found["tags.missing"].message == (
        "toy-lab-0-on-demand:0 (toy:compute:Machine): no team and no cost_center tag"
    )
    assert "cleanest regions of toy are attic (100), cellar (900)" in found["region.carbon-intensity"].message
    assert "budget.missing" not in found, "its budget is one"
    assert CliRunner().invoke(cli.app, ["plan", str(path)]).exit_code == 1


# What is changed -> where the mistake is, and what stands in it.
MISTAKES: dict[str, tuple[Edit, str, str]] = {
    "no section": (lambda v: v.pop("gangway:toy"), "gangway:toy", "add gangway:toy: {owner: ann}"),
    "a key nobody knows": (lambda v: v["gangway:toy"].update(ownr="x"), "gangway:toy.ownr", "did you mean 'owner'?"),
    "no name": (lambda v: v["gangway:toy"].update(owner="A1"), "gangway:toy.owner", "write owner: ann"),
    "a check of its own": (lambda v: v["gangway:toy"].update(owner="nobody"), "gangway:toy.owner", "have an owner"),
    "its example": (lambda v: v.pop("gangway:region"), "gangway:region", "add region: attic"),
    "an unsupported section": (
        lambda v: v.update({"gangway:network": {"egress": "nat"}}), "gangway:network",
        "of no effect with provider: toy: toys have no network",
    ),
    "an unsupported key": (
        lambda v: v.update({"gangway:head": {"machine_type": "m"}}), "gangway:head.machine_type",
        "of no effect with provider: toy: toys do not meet",
    ),
    "another's peculiarity": (
        lambda v: v["gangway:budget"].update(activate_tag=True), "gangway:budget.activate_tag",
        "only with provider: aws",
    ),
    "another's section": (
        lambda v: v.update({"gangway:gcp": {"project": "my-project", "billing_account": "012345-6789AB-CDEF01"}}),
        "gangway:gcp", "only with provider: gcp",
    ),
    "several nodes": (
        lambda v: v["gangway:cluster"].update(nodes={"min": 1, "max": 2}), "gangway:cluster.nodes.max",
        "set nodes: {min: 1, max: 1}",
    ),
    "no such region": (lambda v: v.update({"gangway:region": "atic"}), "gangway:region", "did you mean 'attic'?"),
}  # fmt: skip


@pytest.mark.parametrize("what", MISTAKES)
def test_a_mistake_ends_with_its_place_and_exit_code_2(
    written: Callable[[Edit], Path], what: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    edit, place, words = MISTAKES[what]
    path = written(edit)
    monkeypatch.setattr("sys.argv", ["gangway", "plan", str(path)])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 2
    printed = capsys.readouterr().err
    assert f"error: {path}: {place}: " in printed
    assert words in printed


def test_other_providers_refuse_its_section(demo_values: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "Pulumi.demo.yaml"
    path.write_text(yaml.safe_dump({"config": {**demo_values, "gangway:toy": {"owner": "ann"}}}), "utf-8")
    with pytest.raises(ExceptionGroup) as caught:
        from_file(path)
    (mistake,) = caught.value.exceptions
    assert isinstance(mistake, InputError)
    assert (mistake.allowed, mistake.fix) == ("only with provider: toy", "leave it out, or set provider: toy")


def test_without_its_entry_it_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    assert "toy" not in stack_model().model_fields
    with pytest.raises(ExceptionGroup) as caught:
        from_file(FILE)
    assert {str(mistake).partition(": ")[2].partition(": ")[0] for mistake in caught.value.exceptions} == {
        "gangway:provider", "gangway:toy",
    }  # fmt: skip
