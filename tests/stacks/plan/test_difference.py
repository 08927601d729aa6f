"""Two plans compared: resources, figures, findings; and files that are no plan."""

import io
import json
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner

from gangway.cli import main
from gangway.components.core.findings import InputError, Severity
from gangway.report.plans.show import show_difference
from gangway.stacks.plan.difference import Basis, compare, read_plan
from gangway.stacks.plan.plan import Plan
from gangway.stacks.plan.replacement import Effect


@pytest.fixture(scope="module")
def now(demo_plan: Plan) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(json.dumps(demo_plan.to_json()))
    return data


@pytest.fixture(scope="module")
def before(now: dict[str, Any]) -> dict[str, Any]:
    """The demo's plan before a bucket was dropped, a NAT gateway added, and its nodes and price changed."""
    data = deepcopy(now)
    data["resources"] = [r for r in data["resources"] if r["type"] != "aws:ec2/natGateway:NatGateway"]
    group = next(r for r in data["resources"] if r["name"] == "aws-demo-0-spot" and r["type"].endswith(":Group"))
    group["inputs"]["maxSize"] = 4
    del group["inputs"]["minSize"]
    data["resources"].append({"urn": "urn:old", "type": "aws:s3/bucket:Bucket", "name": "old", "inputs": {}})
    data["cost"]["hourly"] += 10
    data["energy"]["kwh"] = None
    data["findings"] = [{"code": "x.gone", "path": "gangway:x", "severity": "info", "message": "m", "fix": ""}]
    return data


def test_a_plan_equals_itself(now: dict[str, Any]) -> None:
    found = compare(now, deepcopy(now))
    assert not any((found.added, found.removed, found.changed, found.tags_only, found.findings_new))
    assert not found.findings_gone
    assert [figure.change for figure in found.figures] == [0] * 8


def test_resources_figures_and_findings_that_changed(before: dict[str, Any], now: dict[str, Any]) -> None:
    found = compare(before, now)
    assert [change.name for change in found.added] == ["aws-demo-nat"]
    assert [change.name for change in found.removed] == ["old"]
    [group] = found.changed
    assert (group.name, [one.path for one in group.properties]) == ("aws-demo-0-spot", ["maxSize", "minSize"])
    assert group.effect is Effect.IN_PLACE
    # Where a price is another region's, `what` says so after a comma.
    changes = {(each.what.partition(",")[0], each.basis, each.unit): each.change for each in found.figures}
    assert changes["an hour", Basis.RATE, "USD"] == pytest.approx(-10)
    assert changes["energy of a run", Basis.EXPECTED, "kWh"] is None
    assert found.findings_gone == ("x.gone at gangway:x",)
    assert "fabric.efa at gangway:cluster" in found.findings_new
    assert json.loads(json.dumps(found.to_json()))["figures"][0]["change"] == pytest.approx(-10)


def test_each_figure_says_what_it_counts_on_and_is_the_plans_own(now: dict[str, Any], demo_plan: Plan) -> None:
    old = deepcopy(now)
    for section, key in (("cost", "run_most"), ("energy", "kwh_most"), ("carbon", "gco2e_most")):
        del old[section][key]
    found = compare(old, now)
    # Where a price is another region's, the figure says so after a comma.
    figures = {f"{figure['what'].partition(',')[0]} {figure['basis']}": figure for figure in found.to_json()["figures"]}
    assert figures["a run at most"]["now"] == demo_plan.most_usd
    assert demo_plan.expected.usd is not None
    assert figures["a run expected"]["now"] == demo_plan.expected.usd.mid
    assert figures["energy of a run at most"]["now"] == demo_plan.energy.kwh_most
    assert figures["emissions of a run expected"]["now"] == demo_plan.carbon.gco2e
    unknown = {name for name, figure in figures.items() if figure["change"] is None}
    assert unknown == {name for name in figures if name.endswith("at most")}, "an earlier Gangway's plan has none"


def test_turned_round_what_was_added_is_removed(before: dict[str, Any], now: dict[str, Any]) -> None:
    there, back = compare(before, now), compare(now, before)
    assert [one.urn for one in there.added] == [one.urn for one in back.removed]
    assert [one.urn for one in there.removed] == [one.urn for one in back.added]
    assert [c.properties for c in there.changed] == [c.properties for c in back.changed]


def test_a_person_reads_it(before: dict[str, Any], now: dict[str, Any]) -> None:
    out = io.StringIO()
    show_difference(compare(before, now), Console(file=out, width=120))
    text = out.getvalue()
    assert "against the earlier plan: 1 added, 1 removed, 1 changed" in text
    assert "+ ec2.NatGateway aws-demo-nat" in text
    assert "- s3.Bucket old" in text
    assert "~ autoscaling.Group aws-demo-0-spot in place: maxSize, minSize" in text
    assert "-10.00" in text
    assert "unknown" in text
    assert "- finding x.gone at gangway:x" in text


WRONG: dict[str, tuple[Callable[[dict[str, Any]], object], str, str]] = {
    "another stack": (lambda d: d.update(stack="other"), ": stack: the plan of another stack", "'other'"),
    "no cost": (lambda d: d.pop("cost"), ": cost: not a plan: Field required", "gangway plan --json"),
    "text for a price": (lambda d: d["cost"].update(hourly="dear"), ": cost.hourly: not a plan: Input", "'dear'"),
    "an endless price": (lambda d: d["cost"]["components"][0].update(price=float("inf")), ": cost.comp", "finite"),
    "no number": (lambda d: d["energy"].update(kwh=float("nan")), ": energy.kwh: not a plan", "finite"),
    "no inputs": (lambda d: d["resources"][0].pop("inputs"), ": resources.0.inputs: not a plan", "previous.json"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_no_plan_of_this_stack_is_refused_with_its_place(
    name: str, now: dict[str, Any], tmp_path: Path
) -> None:
    change, place, words = WRONG[name]
    data = deepcopy(now)
    change(data)
    path = tmp_path / "previous.json"
    path.write_text(json.dumps(data), "utf-8")
    with pytest.raises(InputError) as caught:
        read_plan(path, "aws-demo")
    assert f"previous.json{place}" in str(caught.value)
    assert words in str(caught.value)
    assert caught.value.fix


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "cannot be read: No such file or directory"),
        (b"{\n not json", "previous.json:2: not JSON"),
        (b"\xff\xfe", "not JSON"),
        (b"[]", "not a plan"),
    ],
)
def test_a_file_that_cannot_be_a_plan_is_told(content: bytes | None, words: str, tmp_path: Path) -> None:
    path = tmp_path / "previous.json"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InputError, match=r"previous\.json") as caught:
        read_plan(path, "aws-demo")
    assert words in str(caught.value)


def test_the_command_compares_in_every_format(
    monkeypatch: pytest.MonkeyPatch, demo_plan: Plan, before: dict[str, Any], tmp_path: Path
) -> None:
    from gangway.stacks.plan import plan as plan_module

    monkeypatch.setattr(plan_module, "make_plan", lambda config: demo_plan)
    path = tmp_path / "previous.json"
    path.write_text(json.dumps(before), "utf-8")
    run = ["plan", "aws-demo", "--against", str(path)]
    text = CliRunner().invoke(main.app, run)
    assert text.exit_code == 1, "a bucket is removed"
    assert "old: this change would remove" in " ".join(text.stdout.split())
    assert "1 added, 1 removed, 1 changed" in text.stdout
    data = json.loads(CliRunner().invoke(main.app, [*run, "--json"]).stdout)
    assert [change["name"] for change in data["difference"]["added"]] == ["aws-demo-nat"]
    shape = json.loads(CliRunner().invoke(main.app, [*run, "--format", "infracost"]).stdout)
    assert shape["version"] == "0.2"
    assert shape["pastTotalHourlyCost"] == shape["totalHourlyCost"], (
        "both were priced line by line, and no line changed"
    )


def test_two_formats_at_once_are_a_mistake() -> None:
    result = CliRunner().invoke(main.app, ["plan", "aws-demo", "--json", "--format", "infracost"])
    assert isinstance(result.exception, InputError)
    assert result.exception.place == "--json"


def changed(now: dict[str, Any], name: str, **inputs: Any) -> dict[str, Any]:
    """The plan before inputs of a resource were changed to what they are."""
    data = deepcopy(now)
    next(r for r in data["resources"] if r["name"] == name and "Lustre" in r["type"])["inputs"].update(inputs)
    return data


def test_data_that_an_update_loses_is_an_error_unless_its_name_is_allowed(now: dict[str, Any]) -> None:
    found = compare(changed(now, "aws-demo-lustre", storageCapacity=19200), now)
    [loss] = found.data_losses(())
    assert (loss.severity, loss.code) == (Severity.ERROR, "data.lost")
    assert "aws-demo-lustre: this change would replace" in loss.message
    assert "storageCapacity: cannot shrink" in loss.message
    assert "gangway:allow_replace: [aws-demo-lustre]" in loss.fix
    assert not found.data_losses(["aws-demo-lustre"])
    assert not compare(changed(now, "aws-demo-lustre", storageCapacity=4800), now).data_losses(())


def test_tags_alone_are_one_line(now: dict[str, Any], demo_plan: Plan) -> None:
    before = deepcopy(now)
    for resource in before["resources"]:
        if "team" in resource["inputs"].get("tags", {}):
            resource["inputs"]["tags"]["team"] = "other"
    found = compare(before, now, demo_plan.resources)
    assert len(found.tags_only) > 50
    assert not found.changed
    out = io.StringIO()
    show_difference(found, Console(file=out, width=120))
    assert f"{len(found.tags_only)} resources: tags only" in out.getvalue()
    assert "tags.team" not in out.getvalue()
