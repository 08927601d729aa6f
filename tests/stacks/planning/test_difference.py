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

from components.core.findings import InputError
from stacks.cli import main
from stacks.planning.difference import compare, read_plan
from stacks.planning.plan import Plan
from stacks.planning.show import show_difference


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
    assert (found.added, found.removed, found.changed, found.findings_new, found.findings_gone) == ((), (), (), (), ())
    assert [figure.change for figure in found.figures] == [0, 0, 0, 0, 0]


def test_resources_figures_and_findings_that_changed(before: dict[str, Any], now: dict[str, Any]) -> None:
    found = compare(before, now)
    assert [change.name for change in found.added] == ["aws-demo-nat"]
    assert [change.name for change in found.removed] == ["old"]
    assert [(change.name, change.inputs) for change in found.changed] == [("aws-demo-0-spot", ("maxSize", "minSize"))]
    changes = {figure.what: figure.change for figure in found.figures}
    assert changes["an hour"] == pytest.approx(-10)
    assert changes["energy of a run"] is None
    assert found.findings_gone == ("x.gone at gangway:x",)
    assert "fabric.efa at gangway:cluster" in found.findings_new
    assert json.loads(json.dumps(found.to_json()))["figures"][0]["change"] == pytest.approx(-10)


def test_turned_round_what_was_added_is_removed(before: dict[str, Any], now: dict[str, Any]) -> None:
    there, back = compare(before, now), compare(now, before)
    assert there.added == back.removed
    assert there.removed == back.added
    assert [c.inputs for c in there.changed] == [c.inputs for c in back.changed]


def test_a_person_reads_it(before: dict[str, Any], now: dict[str, Any]) -> None:
    out = io.StringIO()
    show_difference(compare(before, now), Console(file=out, width=120))
    text = out.getvalue()
    assert "against the earlier plan: 1 added, 1 removed, 1 changed" in text
    assert "+ ec2.NatGateway aws-demo-nat" in text
    assert "- s3.Bucket old" in text
    assert "~ autoscaling.Group aws-demo-0-spot maxSize, minSize" in text
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
    from stacks.planning import plan as plan_module

    monkeypatch.setattr(plan_module, "make_plan", lambda config: demo_plan)
    path = tmp_path / "previous.json"
    path.write_text(json.dumps(before), "utf-8")
    run = ["plan", "aws-demo", "--against", str(path)]
    text = CliRunner().invoke(main.app, run)
    assert text.exit_code == 0, text.output
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
