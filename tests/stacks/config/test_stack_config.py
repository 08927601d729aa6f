"""Stack files at the door: what is accepted, and for each mistake one message that mends it."""

import re
from collections.abc import Callable
from copy import deepcopy
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gangway.components.core.capacity import OnDemand, Spot
from gangway.components.core.findings import InputError
from gangway.stacks.config.stack_config import StackConfig
from gangway.stacks.loading.loader import from_file, stack_model

StackFile = Callable[[Callable[[dict[str, Any]], object]], Path]


def mistakes_in(path: Path) -> list[InputError]:
    """Every mistake `from_file` finds."""
    try:
        from_file(path)
    except InputError as error:
        return [error]
    except ExceptionGroup as group:
        mistakes = [error for error in group.exceptions if isinstance(error, InputError)]
        if len(mistakes) != len(group.exceptions):
            raise
        return mistakes
    return []


def cluster(**changes: Any) -> Callable[[dict[str, Any]], object]:
    return lambda values: values["gangway:cluster"].update(changes)


def section(name: str, **changes: Any) -> Callable[[dict[str, Any]], object]:
    return lambda values: values[f"gangway:{name}"].update(changes)


def test_the_demo_reads_as_it_is_written(demo_config: StackConfig) -> None:
    assert demo_config.stack == "aws-demo"
    assert demo_config.region == "us-east-2"
    assert demo_config.cluster.accelerator == "H100x8"
    assert demo_config.cluster.capacity == (Spot(kind="spot", max_usd_per_hour=25), OnDemand(kind="on-demand"))
    assert (demo_config.cluster.nodes.min, demo_config.cluster.nodes.max) == (2, 2)
    assert demo_config.image.prebuilt is None, "built by `up`"
    assert demo_config.network.cidr == "10.42.0.0/16"
    assert demo_config.tags == {"team": "ml-platform", "cost_center": "4711"}


PYDANTICS_WORDS = re.compile(
    r"Input should|Value error|validation|instance of|dictionary|match pattern|such a value|\^"
)

# edit, config path, value as it was written, a piece of what is allowed, the fix
MISTAKES = {
    "unknown key at the top": (
        lambda v: v.update({"gangway:netwrok": {}}), "gangway:netwrok", "netwrok", "network", "did you mean 'network'?",
    ),
    "unknown key below": (
        cluster(node=1), "gangway:cluster.node", "node", "nodes", "did you mean 'nodes'?",
    ),
    "unknown key in a rung": (
        cluster(capacity=[{"kind": "spot", "max_usd_per_hours": 3}]), "gangway:cluster.capacity[0].max_usd_per_hours",
        "max_usd_per_hours", "max_usd_per_hour", "did you mean 'max_usd_per_hour'?",
    ),
    "unknown kind of capacity": (
        cluster(capacity=[{"kind": "on-demnd"}]), "gangway:cluster.capacity[0].kind", "on-demnd", "spot, on-demand",
        "did you mean 'on-demand'?",
    ),
    "missing key": (
        lambda v: v["gangway:job"].pop("kimg"), "gangway:job.kimg", None, "required: a number from 0.001",
        "add kimg: 150",
    ),
    "missing section": (
        lambda v: v.pop("gangway:budget"), "gangway:budget", None, "a mapping with monthly_usd and emails",
        "add budget: {monthly_usd: 50000, emails: [ml-platform@example.com], alert_percent: [50, 80, 100]}",
    ),
    "min above max": (
        cluster(nodes={"min": 3, "max": 2}), "gangway:cluster.nodes", {"min": 3, "max": 2}, "min of at most max",
        "set max: 3 or min: 2",
    ),
    "no nodes": (
        cluster(nodes={"min": 0, "max": 2}), "gangway:cluster.nodes.min", 0,
        "1 to 512; 0 only with a queue in gangway:engine", "write min: 1",
    ),
    "no capacity": (
        cluster(capacity=[]), "gangway:cluster.capacity", [], "rungs, tried in this order: a list of 1 to 9 entries",
        "write capacity: [{kind: spot, max_usd_per_hour: 25}, {kind: on-demand}]",
    ),
    "two names for one machine": (
        cluster(machine_type="p5.48xlarge"), "gangway:cluster", ..., "exactly one of accelerator and machine_type",
        "leave one of them out",
    ),
    "an image that is none": (
        cluster(image_id="ubuntu"), "gangway:cluster.image_id", "ubuntu", "like ami-0123456789abcdef0",
        "write image_id: ami-0123456789abcdef0",
    ),
    "a root device that is none": (
        cluster(image_id="ami-0123456789abcdef0", root_device_name="xvda"), "gangway:cluster.root_device_name", "xvda",
        "like /dev/xvda", "write root_device_name: /dev/xvda",
    ),
    "a root device without its image": (
        cluster(root_device_name="/dev/xvda"), "gangway:cluster", ..., "root_device_name only with image_id",
        "remove root_device_name",
    ),
    "an e-mail that is none": (
        section("budget", emails=["ml-platform"]), "gangway:budget.emails[0]", "ml-platform", "an e-mail address",
        "write it like ml-platform@example.com",
    ),
    "nobody to tell": (
        section("budget", emails=[]), "gangway:budget.emails", [], "a list of 1 to 10 entries",
        "write emails: [ml-platform@example.com]",
    ),
    "a budget of nothing": (
        section("budget", monthly_usd=0), "gangway:budget.monthly_usd", 0, "a number above 0",
        "write monthly_usd: 50000",
    ),
    "an endless budget": (
        section("budget", monthly_usd=float("inf")), "gangway:budget.monthly_usd", float("inf"), "a number above 0",
        "write monthly_usd: 50000",
    ),
    "an alarm at nothing": (
        section("budget", alert_percent=[0]), "gangway:budget.alert_percent[0]", 0,
        "a number above 0 and at most 1000", "write 50",
    ),
    "more alarms than AWS takes": (
        section("budget", alert_percent=[1, 2, 3, 4, 5]), "gangway:budget.alert_percent", [1, 2, 3, 4, 5],
        "a list of at most 4 entries", "keep at most 4",
    ),
    "a preset that is none": (
        section("job", preset="dcgan-digit"), "gangway:job.preset", "dcgan-digit", "one of ",
        "did you mean 'dcgan-digits'?",
    ),
    "a run of more than four weeks": (
        section("job", max_hours=24 * 29), "gangway:job.max_hours", 24 * 29,
        "a number from 0.01 to 672", "write max_hours: 672",
    ),
    "a run of no time": (
        section("job", max_hours=5e-324), "gangway:job.max_hours", 5e-324, "from 0.01 to 672", "write max_hours: 0.01",
    ),
    "a run of less than an image": (
        section("job", kimg=1e-320), "gangway:job.kimg", 1e-320, "from 0.001 to", "write kimg: 0.001",
    ),
    "a word for a number": (
        section("job", kimg="many"), "gangway:job.kimg", "many", "a number from 0.001 to 1000000000", "write kimg: 150",
    ),
    "a source that is no bucket": (
        section("storage", source="/data"), "gangway:storage.source", "/data", "like s3://my-bucket/celeba",
        "write source: s3://my-bucket/celeba",
    ),
    "a source without its scheme": (
        section("storage", source="my-bucket/digits"), "gangway:storage.source", "my-bucket/digits",
        "without * ? and blanks: like s3://my-bucket/celeba", "write source: s3://my-bucket/digits",
    ),
    "a source with a pattern": (
        section("storage", source="s3://my-bucket/a/di gits*"), "gangway:storage.source", "s3://my-bucket/a/di gits*",
        "without * ? and blanks", "write source: s3://my-bucket/a/",
    ),
    "a price cap on a block": (
        cluster(capacity=[{"kind": "capacity-block", "id": "cr-0123456789abcdef0", "max_usd_per_hour": 9}]),
        "gangway:cluster.capacity[0].max_usd_per_hour", "max_usd_per_hour", "ends_at",
        "leave it out: only kind: spot has it",
    ),
    "a file system of another kind": (
        section("storage", kind="luster"), "gangway:storage.kind", "luster", "lustre, filestore or manila",
        "did you mean 'lustre'?",
    ),
    "a way out that is none": (
        lambda v: v.update({"gangway:network": {"egress": "natt"}}), "gangway:network.egress", "natt",
        "endpoints or nat", "did you mean 'nat'?",
    ),
    "another cloud": (
        lambda v: v.update({"gangway:provider": "asw"}), "gangway:provider", "asw", "aws, gcp, azure",
        "did you mean 'aws'?",
    ),
    "nobody who pays": (
        lambda v: v.update({"gangway:tags": {"team": "ml"}}), "gangway:tags", {"team": "ml"}, "team and cost_center",
        "add cost_center",
    ),
    "a section that is no mapping": (
        lambda v: v.update({"gangway:job": "train"}), "gangway:job", "train",
        "a mapping with max_hours and preset and kimg, such as {preset: dcgan-digits, ",
        "write job: {preset: dcgan-digits, kimg: 150, max_hours: 1}",
    ),
    "one number of nodes": (
        cluster(nodes=3), "gangway:cluster.nodes", 3, "a mapping with min and max, such as {min: 2, max: 4}",
        "write nodes: {min: 3, max: 3}",
    ),
    "half a node": (
        cluster(nodes={"min": 1.5, "max": 2}), "gangway:cluster.nodes.min", 1.5, "a whole number from 0 to 512",
        "write min: 2",
    ),
    "more nodes than there are": (
        cluster(nodes={"min": 1, "max": 9999}), "gangway:cluster.nodes.max", 9999, "a whole number from 1 to 512",
        "write max: 512",
    ),
    "true for a number": (
        cluster(nodes={"min": True, "max": 2}), "gangway:cluster.nodes.min", True, "a whole number from 0 to 512",
        "write min: 2",
    ),
    "true among numbers": (
        section("budget", alert_percent=[True]), "gangway:budget.alert_percent[0]", True, "a number above 0",
        "write 50",
    ),
    "a word for a rung": (
        cluster(capacity=["spto"]), "gangway:cluster.capacity[0]", "spto",
        "a mapping with kind: capacity-block, reservation, flex-start, spot, on-demand", "write {kind: spot}",
    ),
    "a rung without a kind": (
        cluster(capacity=[{"max_usd_per_hour": 3}]), "gangway:cluster.capacity[0].kind", None, "one of capacity-block",
        "add kind: spot",
    ),
    "a spot cap in words": (
        cluster(capacity=[{"kind": "spot", "max_usd_per_hour": "cheap"}]),
        "gangway:cluster.capacity[0].max_usd_per_hour", "cheap", "a number above 0", "write max_usd_per_hour: 25",
    ),
    "a number for text": (
        section("tags", cost_center=4711), "gangway:tags.cost_center", 4711, "text, such as '4711'",
        "put it in quotes: cost_center: '4711'",
    ),
    "true for text": (
        section("tags", cost_center=True), "gangway:tags.cost_center", True, "text, such as '4711'",
        "put it in quotes: cost_center: 'true'",
    ),
    "a time for text": (
        section("tags", cost_center=datetime(2026, 7, 1, 11, 30, tzinfo=UTC)), "gangway:tags.cost_center",
        "2026-07-01T11:30:00+00:00", "text, such as '4711'", "write cost_center: '2026-07-01T11:30:00+00:00'",
    ),
    "no value": (
        lambda v: v.update({"gangway:region": None}), "gangway:region", None, "text, such as us-east-2",
        "write region: us-east-2",
    ),
    "another region for the provider": (
        lambda v: v.update({"aws:region": "eu-north-1"}), "aws:region", "eu-north-1", "us-east-2",
        "leave it out, or set gangway:region: eu-north-1",
    ),
    "an account for the provider": (
        lambda v: v.update({"aws:profile": "prod"}), "aws:profile", None, "aws:region",
        "leave it out; choose the account by the environment, such as AWS_PROFILE",
    ),
    "a setting of another provider": (
        lambda v: v.update({"kubernetes:context": "x"}), "kubernetes:context", None, "begin with gangway:",
        "leave it out",
    ),
    "a setting without its namespace": (
        lambda v: v.update({"storage": {}}), "storage", None, "begin with gangway:", "write gangway:storage",
    ),
    "a misspelled namespace": (
        lambda v: v.update({"gangwya:storage": {}}), "gangwya:storage", None, "begin with gangway:",
        "write gangway:storage",
    ),
    "a name for the stack": (
        lambda v: v.update({"gangway:stack": "x"}), "gangway:stack", "x", "", "leave it out, or rename the file",
    ),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_one_message_with_file_path_value_rule_and_fix(stack_file: StackFile, name: str) -> None:
    edit, config_path, value, allowed, fix = MISTAKES[name]
    path = stack_file(edit)
    (mistake,) = mistakes_in(path)
    assert mistake.place == f"{path}: {config_path}"
    assert value is ... or mistake.value == value
    assert allowed in mistake.allowed
    assert mistake.fix == fix if fix else mistake.fix, "every message ends with something to do"
    assert not PYDANTICS_WORDS.search(str(mistake))


def test_every_mistake_is_told_at_once(stack_file: StackFile) -> None:
    def several(values: dict[str, Any]) -> None:
        values["gangway:cluster"]["nodes"] = {"min": 3, "max": 2}
        values["gangway:budget"]["emails"] = ["nobody"]
        values["gangway:regio"] = values.pop("gangway:region")

    places = {mistake.place.partition(": ")[2] for mistake in mistakes_in(stack_file(several))}
    assert places == {"gangway:cluster.nodes", "gangway:budget.emails[0]", "gangway:regio"}, "told where it is misspelt"


def test_the_same_region_and_the_engines_settings_are_left_alone(stack_file: StackFile) -> None:
    path = stack_file(lambda values: values.update({"aws:region": "us-east-2", "pulumi:tags": {}}))
    path.write_text("encryptionsalt: v1:abc\n" + path.read_text())
    assert from_file(path).region == "us-east-2"


def test_an_empty_storage_section_means_no_file_system(edited: Callable[..., StackConfig]) -> None:
    assert edited(lambda values: values.update({"gangway:storage": {}})).storage is None
    assert edited(lambda values: values.pop("gangway:storage")).storage is None


SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.datetimes()
ANYTHING = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=5), inner)
)


def places_in(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Where every value below `value` is: what is drawn from must not be what is changed."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [place for key, inner in items for place in ((*path, key), *places_in(inner, (*path, key)))]


@pytest.mark.slow
@settings(suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_a_mutated_configuration_is_read_or_told_in_our_words(
    demo_values: dict[str, Any], tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    values = deepcopy(demo_values)
    for _ in range(data.draw(st.integers(1, 3))):
        *path_to, key = data.draw(st.sampled_from(places_in(values)))
        container: Any = values
        for step in path_to:
            container = container[step]
        container[key] = data.draw(ANYTHING)
    path = tmp_path_factory.getbasetemp() / "Pulumi.mutated.yaml"
    path.write_text(yaml.safe_dump({"config": values}), "utf-8")
    for mistake in mistakes_in(path):
        assert mistake.place.startswith(str(path))
        assert mistake.problem
        assert mistake.fix
        assert not PYDANTICS_WORDS.search(f"{mistake.problem} {mistake.allowed} {mistake.fix}")


@given(st.data())
def test_a_damaged_text_is_read_or_told(
    demo_file: Path, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    text = demo_file.read_text("utf-8")
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, min(len(text), start + 20)))
    path = tmp_path_factory.getbasetemp() / "Pulumi.damaged.yaml"
    path.write_text(
        text[:start] + data.draw(st.text("&*!:?-[]{}\t\n '\"<#|>%@`0:~=y", max_size=4)) + text[end:], "utf-8"
    )
    assert all(mistake.place and mistake.fix for mistake in mistakes_in(path))


def test_editors_get_the_examples_and_every_example_is_valid(demo_values: dict[str, Any]) -> None:
    schema = stack_model().model_json_schema()
    sections = {name: field["examples"] for name, field in schema["properties"].items() if "examples" in field}
    assert set(sections) >= {"region", "cluster", "storage", "budget", "job", "network", "tags"}
    plain = {key.removeprefix("gangway:"): value for key, value in demo_values.items()}
    for name, examples in sections.items():
        for example in examples:
            stack_model().model_validate({**plain, "stack": "x", name: example})
    for name in ("image_id", "zone", "capacity", "nodes", "root_volume_gib"):
        for example in schema["$defs"]["ClusterConfig"]["properties"][name]["examples"]:
            stack_model().model_validate({**plain, "stack": "x", "cluster": {**plain["cluster"], name: example}})


@pytest.mark.parametrize(
    ("name", "fits"),
    [("a", True), ("eu-prod2", True), ("x" * 40, True), ("x" * 41, False), ("Prod", False), ("1a", False),
     ("sg-prod", False), ("a_b", False)],
)  # fmt: skip
def test_a_stacks_name_has_to_fit_every_resource(tmp_path: Path, demo_file: Path, name: str, fits: bool) -> None:
    path = tmp_path / f"Pulumi.{name}.yaml"
    path.write_text(demo_file.read_text())
    mistakes = mistakes_in(path)
    assert [mistake.place for mistake in mistakes] == ([] if fits else [f"{path}: gangway:stack"])
    assert all(mistake.fix == "rename the stack" for mistake in mistakes)


def test_pulumi_yaml_declares_exactly_our_settings_and_our_defaults(repo: Path) -> None:
    declared = yaml.safe_load((repo / "Pulumi.yaml").read_text("utf-8"))["config"]
    fields = {name: field for name, field in stack_model().model_fields.items() if name not in ("stack", "stack_name")}
    assert set(declared) == set(fields)
    for name, field in fields.items():
        entry = declared[name]
        assert len(entry["description"]) > 15, name
        words = name in ("provider", "region", "encryption", "identity")
        names = name == "allow_replace"
        assert entry["type"] == ("string" if words else "array" if names else "object"), name
        assert ("default" in entry) == (not field.is_required()), name
        if "default" not in entry:
            continue
        # What the engine hands over where the file is silent means what silence means to us.
        default = field.default
        assert entry["default"] == (default if words else [] if names else {}), name
        if names:
            continue
        assert default == (default if words else type(default).model_validate({}) if default is not None else None)


def test_the_descriptions_name_every_key(repo: Path) -> None:
    declared = yaml.safe_load((repo / "Pulumi.yaml").read_text("utf-8"))["config"]
    for name, field in stack_model().model_fields.items():
        models = [
            a for a in (field.annotation, *getattr(field.annotation, "__args__", ())) if hasattr(a, "model_fields")
        ]
        for key in (key for model in models for key in model.model_fields):
            assert key in declared[name]["description"], f"{name}.{key}"
