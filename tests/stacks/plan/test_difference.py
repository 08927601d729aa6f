"""Two plans compared: resources, figures, findings; and files that are no plan."""

import gzip
import io
import json
from base64 import b64encode
from collections.abc import Callable
from copy import deepcopy
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
import yaml
from rich.console import Console
from typer.testing import CliRunner

from gangway.cli import main
from gangway.components.catalog.replaces import load
from gangway.components.core.findings import InputError, Severity
from gangway.report.plans.show import show_difference
from gangway.stacks.base.registry import get_provider
from gangway.stacks.base.rule import kind
from gangway.stacks.config.stack_config import StackConfig
from gangway.stacks.loading.loader import from_file
from gangway.stacks.plan.difference import Basis, Effect, Update, compare, read_plan
from gangway.stacks.plan.plan import Plan
from gangway.stacks.recording import PlannedResource, Recording
from tests.settings_table import COLUMNS, SettingsTable


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
    "no cost": (lambda d: d.pop("cost"), ": cost: not a plan: missing", "gangway plan --json"),
    "text for a price": (
        lambda d: d["cost"].update(hourly="dear"),
        ": cost.hourly: not a plan: not an accepted value",
        "'dear'",
    ),
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


STACKS = sorted(Path(__file__).parents[3].glob("stacks/Pulumi.*.yaml"))
FSX, VPC, SUBNET = "aws:fsx/lustreFileSystem:LustreFileSystem", "aws:ec2/vpc:Vpc", "aws:ec2/subnet:Subnet"
TEMPLATE, GROUP = "aws:ec2/launchTemplate:LaunchTemplate", "aws:autoscaling/group:Group"
INSTANCE, BUCKET = "aws:ec2/instance:Instance", "aws:s3/bucket:Bucket"

Resources = dict[str, dict[str, Any]]


def one(type_: str, name: str, /, **inputs: Any) -> Resources:
    urn = f"urn:pulumi:s::gangway::gangway:aws:Parent${type_}::{name}"
    return {urn: {"urn": urn, "type": type_, "name": name, "inputs": inputs}}


def effects(before: Resources, now: Resources, provider: str = "aws", **options: Any) -> dict[str, Effect]:
    """By resource and path."""
    update = Update(get_provider(provider), before, now, **options)
    return {f"{now[urn]['name']} {p.path}": p.effect for urn in update.changed() for p in update.properties(urn)}


def test_what_names_a_replaced_resource_is_replaced_in_turn() -> None:
    def stack(cidr: str) -> Resources:
        return {
            **one(VPC, "net", cidrBlock=cidr),
            **one(SUBNET, "inner", vpcId="${Vpc.net.id}", cidrBlock="10.0.0.0/20"),
            **one(FSX, "fs", subnetIds="${Subnet.inner.id}", tags={"team": "a"}),
            **one(BUCKET, "runs", bucket="runs"),
        }

    assert effects(stack("10.0.0.0/16"), stack("10.0.0.0/8")) == {
        "net cidrBlock": Effect.REPLACED,
        "inner vpcId": Effect.REPLACED,
        "fs subnetIds": Effect.DATA_LOST,
    }


def test_user_data_names_what_it_mounts() -> None:
    def stack(deployment: str) -> Resources:
        text = b64encode(gzip.compress(b"mount ${LustreFileSystem.fs.dnsName}")).decode()
        return {**one(FSX, "fs", deploymentType=deployment), **one(TEMPLATE, "nodes", userData=text)}

    assert effects(stack("SCRATCH_2"), stack("PERSISTENT_2")) == {
        "fs deploymentType": Effect.DATA_LOST,
        "nodes userData": Effect.NEW_NODES,
    }


def test_a_new_version_of_a_template_reaches_who_follows_its_latest() -> None:
    def stack(data: str) -> Resources:
        follow = {"version": "${LaunchTemplate.nodes.latestVersion}"}
        return {
            **one(TEMPLATE, "nodes", userData=data),
            **one(GROUP, "group", launchTemplate=follow),
            **one("aws:eks/nodeGroup:NodeGroup", "pool", launchTemplate=follow),
        }

    assert effects(stack("a"), stack("b")) == {
        "nodes userData": Effect.NEW_NODES,
        "group launchTemplate.version": Effect.IN_PLACE,
        "pool launchTemplate.version": Effect.NODES_RESTARTED,
    }


@pytest.mark.parametrize(
    ("type_", "name", "inputs", "effect"),
    [
        (INSTANCE, "s-head", ("ami", "a", "b"), Effect.HEAD_REPLACED),
        (INSTANCE, "s-node", ("ami", "a", "b"), Effect.NODES_RESTARTED),
        (INSTANCE, "s-node", ("instanceType", "a", "b"), Effect.NODES_RESTARTED),
        (INSTANCE, "s-node", ("monitoring", True, False), Effect.IN_PLACE),
        (GROUP, "group", ("maxSize", 1, 2), Effect.IN_PLACE),
        (GROUP, "group", ("name", "a", "b"), Effect.NODES_RESTARTED),
        ("aws:sqs/queue:Queue", "queue", ("name", "a", "b"), Effect.UNKNOWN),
    ],
)
def test_what_a_resource_is_decides(type_: str, name: str, inputs: tuple[str, Any, Any], effect: Effect) -> None:
    path, before, now = inputs
    assert effects(one(type_, name, **{path: before}), one(type_, name, **{path: now})) == {f"{name} {path}": effect}


def test_another_region_replaces_everything_in_the_cloud() -> None:
    stack = {**one(FSX, "fs"), **one(VPC, "net"), **one("gangway:aws:Parent", "component")}
    assert effects(stack, stack, moves=True) == {"fs region": Effect.DATA_LOST, "net region": Effect.REPLACED}
    assert effects(stack, stack) == {}


def test_removed_machines_and_data() -> None:
    before = {**one(FSX, "fs"), **one(INSTANCE, "s-head"), **one(VPC, "net"), **one(BUCKET, "b", forceDestroy=True)}
    update = Update(get_provider("aws"), before, {})
    found = {before[urn]["name"]: update.effect_of_removal(urn) for urn in before}
    kept = {"net": Effect.IN_PLACE, "b": Effect.IN_PLACE}
    assert found == {"fs": Effect.DATA_LOST, "s-head": Effect.NODES_RESTARTED, **kept}


def test_options_of_the_resource_count() -> None:
    before, now = (
        one(VPC, "net", enableDnsSupport=True, tags={}),
        one(VPC, "net", enableDnsSupport=False, tags={"a": "b"}),
    )
    [urn] = now
    planned = PlannedResource(
        urn, VPC, "net", "", True, {}, "", replace_on_changes=("enableDnsSupport",), ignore_changes=("tags",)
    )
    assert effects(before, now, planned=[planned]) == {"net enableDnsSupport": Effect.REPLACED}


def test_tags_with_another_input_are_no_tags_only() -> None:
    before = {**one(VPC, "net", tags={"a": "1"}), **one(FSX, "fs", tags={"a": "1"}, storageCapacity=2)}
    now = {**one(VPC, "net", tags={"a": "2"}), **one(FSX, "fs", tags={"a": "2"}, storageCapacity=4)}
    update = Update(get_provider("aws"), before, now)
    assert {now[urn]["name"]: update.is_tags_only(urn) for urn in update.changed()} == {"net": True, "fs": False}


def test_a_secret_that_is_kept_under_another_name_is_another_one() -> None:
    stash, command = "pulumi:index:Stash", "command:remote:Command"
    before = {**one(stash, "key-0", input="[secret]"), **one(command, "node", stdin="[secret]", create="run")}
    now = {**one(stash, "key-1", input="[secret]"), **one(command, "node", stdin="[secret]", create="run")}
    [kept, node] = now
    planned = PlannedResource(node, command, "node", "", True, {}, "", dependencies=frozenset({kept}))
    assert effects(before, now, "hosts", planned=[planned]) == {"node stdin": Effect.NODES_RESTARTED}
    assert effects(before, before, "hosts", planned=[planned]) == {}


def test_a_template_that_gets_other_tags_rolls_over_managed_nodes_alone() -> None:
    def stack(team: str) -> Resources:
        follow = {"version": "${LaunchTemplate.nodes.latestVersion}"}
        return {
            **one(TEMPLATE, "nodes", tagSpecifications=[{"tags": {"team": team}}]),
            **one(GROUP, "group", launchTemplate=follow),
            **one("aws:eks/nodeGroup:NodeGroup", "pool", launchTemplate=follow),
        }

    now = stack("b")
    update = Update(get_provider("aws"), stack("a"), now)
    tags_only = {now[urn]["name"]: update.is_tags_only(urn) for urn in update.changed()}
    assert tags_only == {"nodes": True, "group": True, "pool": False}


@pytest.mark.slow
@pytest.mark.parametrize("file", STACKS, ids=lambda file: file.name.split(".")[1])
def test_every_type_of_a_shipped_stack_is_known(file: Path, recorded: Callable[[StackConfig], Recording]) -> None:
    types = {one.type for one in recorded(from_file(file)).resources if one.custom}
    assert types
    assert [type_ for type_ in types if not type_.startswith("pulumi:") and not load().knows(kind(type_))] == []


REPOSITORY = Path(__file__).parents[3]
GRAVITY = {
    "in place": Effect.IN_PLACE,
    "new nodes": Effect.NEW_NODES,
    "**replaces the head**": Effect.HEAD_REPLACED,
    "**restarts nodes**": Effect.NODES_RESTARTED,
    "**refused, loses data**": Effect.DATA_LOST,
}


UNSEEN = {
    ("Kubernetes", "engine.version"),
    ("AWS", "engine.kind"),
    ("AWS", "job.processes_per_node"),
    ("OpenStack", "head.machine_type"),
    ("OpenStack", "head.prometheus_image"),
    ("OpenStack", "network.egress"),
}
"""What two plans do not show. EKS: the image of nodes is looked up, by the version, when the stack is up. The others:
the engine counts nodes beside the head, which are the same in both plans.
"""


def gravity(cell: str) -> Effect:
    """The gravest word of a cell. A change that the program itself refuses is none of these."""
    return max(effect for word, effect in GRAVITY.items() if word in cell)


def plain(resources: tuple[PlannedResource, ...], module: Any) -> dict[str, dict[str, Any]]:
    return {
        one.urn: {"urn": one.urn, "type": one.type, "name": one.name, "inputs": module._comparable(one.inputs)}
        for one in resources
    }


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("column", COLUMNS)
def test_no_verdict_is_milder_than_the_engine(column: str, load_module: Callable[[Path], Any], tmp_path: Path) -> None:
    module = load_module(REPOSITORY / "tests/engine/setting_changes.py")
    values = yaml.safe_load((REPOSITORY / f"stacks/Pulumi.{COLUMNS[column]}.yaml").read_text("utf-8"))["config"]
    changes, settings = module.Changes(COLUMNS[column], values, tmp_path), module.every_setting()
    cells = [(name, cell) for name, cell in SettingsTable().measured(column, settings) if cell != "refused"]
    milder, compared = {}, 0
    for cell, rows in groupby(sorted(cells, key=lambda row: row[1]), key=lambda row: row[1]):
        for name, _ in rows:
            change = changes.of(settings[name])
            assert change is not None, name
            # Refused, or the same resources: the stack that the engine has up differs from the shipped one.
            if change.refusal or change.signature == "[]" or (column, name) in UNSEEN:
                continue
            compared += 1
            found = gravest(changes, change, module)
            if found < gravity(cell):
                milder[name] = f"measured {cell}, offline {found}"
    assert milder == {}
    assert compared > 10


def gravest(changes: Any, change: Any, module: Any) -> Effect:
    config = changes._read(change.settings)
    now = changes._record(config)
    before = plain(changes._declared, module)
    moves = config.region != changes._config.region
    update = Update(get_provider(config.provider), before, plain(now, module), now, moves=moves)
    found = {one.effect for urn in update.changed() for one in update.properties(urn)}
    found |= {update.effect_of_removal(urn) for urn in before.keys() - {one.urn for one in now}}
    return max(found, default=Effect.IN_PLACE)
