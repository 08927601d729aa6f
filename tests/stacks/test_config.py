"""Stack files at the door: what is accepted, and for each mistake one message that mends it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from components.capacity import OnDemand, Spot
from components.findings import InputError
from stacks.config import PLACEHOLDER_DIGEST, StackConfig, find_stack_file, from_file

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
    assert demo_config.job.image_digest == PLACEHOLDER_DIGEST
    assert demo_config.network.cidr == "10.42.0.0/16"
    assert demo_config.tags == {"team": "ml-platform", "cost_center": "4711"}


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
        cluster(capacity=[{"kind": "on-demnd"}]), "gangway:cluster.capacity[0]", "on-demnd", "'on-demand'",
        "did you mean 'on-demand'?",
    ),
    "missing key": (
        lambda v: v["gangway:job"].pop("kimg"), "gangway:job.kimg", None, "required", "add kimg",
    ),
    "missing section": (
        lambda v: v.pop("gangway:budget"), "gangway:budget", None, "required", "add budget",
    ),
    "min above max": (
        cluster(nodes={"min": 3, "max": 2}), "gangway:cluster.nodes", {"min": 3, "max": 2}, "min not above max",
        "set max: 3 or min: 2",
    ),
    "no nodes": (
        cluster(nodes={"min": 0, "max": 2}), "gangway:cluster.nodes.min", 0, "greater than or equal to 1", "",
    ),
    "no capacity": (
        cluster(capacity=[]), "gangway:cluster.capacity", [], "at least 1 item", "",
    ),
    "two names for one machine": (
        cluster(machine_type="p5.48xlarge"), "gangway:cluster", ..., "exactly one of accelerator and machine_type",
        "write accelerator: H100x8 or machine_type: p5.48xlarge",
    ),
    "an image that is none": (
        cluster(image_id="ubuntu"), "gangway:cluster.image_id", "ubuntu", "ami-", "",
    ),
    "an e-mail that is none": (
        section("budget", emails=["ml-platform"]), "gangway:budget.emails[0]", "ml-platform", "an e-mail address",
        "write it like ml-platform@example.com",
    ),
    "nobody to tell": (
        section("budget", emails=[]), "gangway:budget.emails", [], "at least 1 item", "",
    ),
    "a budget of nothing": (
        section("budget", monthly_usd=0), "gangway:budget.monthly_usd", 0, "greater than 0", "",
    ),
    "an endless budget": (
        section("budget", monthly_usd=float("inf")), "gangway:budget.monthly_usd", float("inf"), "finite number", "",
    ),
    "an alarm at nothing": (
        section("budget", alert_percent=[0]), "gangway:budget.alert_percent[0]", 0, "greater than 0", "",
    ),
    "more alarms than AWS takes": (
        section("budget", alert_percent=[1, 2, 3, 4, 5]), "gangway:budget.alert_percent", [1, 2, 3, 4, 5],
        "at most 4", "",
    ),
    "a preset that is none": (
        section("job", preset="dcgan-digit"), "gangway:job.preset", "dcgan-digit", "one of ",
        "did you mean 'dcgan-digits'?",
    ),
    "a digest that is none": (
        section("job", image_digest="latest"), "gangway:job.image_digest", "latest", "sha256:", "",
    ),
    "a run of more than four weeks": (
        section("job", max_hours=24 * 29), "gangway:job.max_hours", 24 * 29, "less than or equal to 672", "",
    ),
    "a word for a number": (
        section("job", kimg="many"), "gangway:job.kimg", "many", "valid number", "",
    ),
    "a source that is no bucket": (
        section("storage", source="/data"), "gangway:storage.source", "/data", "s3://", "",
    ),
    "a file system of another kind": (
        section("storage", kind="luster"), "gangway:storage.kind", "luster", "'lustre'", "did you mean 'lustre'?",
    ),
    "a way out that is none": (
        lambda v: v.update({"gangway:network": {"egress": "natt"}}), "gangway:network.egress", "natt",
        "'endpoints' or 'nat'", "did you mean 'nat'?",
    ),
    "another cloud": (
        lambda v: v.update({"gangway:provider": "asw"}), "gangway:provider", "asw", "'aws'", "did you mean 'aws'?",
    ),
    "nobody who pays": (
        lambda v: v.update({"gangway:tags": {"team": "ml"}}), "gangway:tags", {"team": "ml"}, "team and cost_center",
        "add cost_center",
    ),
    "a section that is no mapping": (
        lambda v: v.update({"gangway:job": "train"}), "gangway:job", "train", "valid dictionary", "",
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


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_one_message_with_file_path_value_rule_and_fix(stack_file: StackFile, name: str) -> None:
    edit, config_path, value, allowed, fix = MISTAKES[name]
    path = stack_file(edit)
    (mistake,) = mistakes_in(path)
    assert mistake.place == f"{path}: {config_path}"
    assert value is ... or mistake.value == value
    assert allowed in mistake.allowed
    assert mistake.fix == fix if fix else mistake.fix, "every message ends with something to do"
    assert "Value error" not in str(mistake)


def test_every_mistake_is_told_at_once(stack_file: StackFile) -> None:
    def several(values: dict[str, Any]) -> None:
        values["gangway:cluster"]["nodes"] = {"min": 3, "max": 2}
        values["gangway:budget"]["emails"] = ["nobody"]
        values["gangway:regio"] = values.pop("gangway:region")

    places = {mistake.place.partition(": ")[2] for mistake in mistakes_in(stack_file(several))}
    assert places == {"gangway:cluster.nodes", "gangway:budget.emails[0]", "gangway:regio", "gangway:region"}


def test_settings_of_providers_and_of_the_engine_are_left_alone(stack_file: StackFile) -> None:
    path = stack_file(lambda values: values.update({"aws:region": "eu-north-1", "pulumi:tags": {}}))
    path.write_text("encryptionsalt: v1:abc\n" + path.read_text())
    assert from_file(path).region == "us-east-2"


def test_an_empty_storage_section_means_no_file_system(edited: Callable[..., StackConfig]) -> None:
    assert edited(lambda values: values.update({"gangway:storage": {}})).storage is None
    assert edited(lambda values: values.pop("gangway:storage")).storage is None


@pytest.mark.parametrize(
    ("text", "problem", "place"),
    [
        ("config: [", "not readable as YAML", ", line 2"),
        ("config:\n  a: b: c\n", "not readable as YAML", ", line 2"),
        ("config: \0", "not readable as YAML", ""),
        ("runtime: python\n", "holds no `config:` mapping", ""),
        ("config:\n", "holds no `config:` mapping", ""),
        ("- config\n", "holds no `config:` mapping", ""),
        ("", "holds no `config:` mapping", ""),
        ("config: {gangway:region: 2026-13-41}\n", "cannot be read: month must be in 1..12", ""),
    ],
)
def test_a_file_that_is_no_stack_file(tmp_path: Path, text: str, problem: str, place: str) -> None:
    path = tmp_path / "Pulumi.bad.yaml"
    path.write_text(text)
    (mistake,) = mistakes_in(path)
    assert mistake.place == f"{path}{place}"
    assert mistake.problem.startswith(problem)
    assert mistake.fix


def test_a_file_that_is_no_text(tmp_path: Path) -> None:
    path = tmp_path / "Pulumi.bad.yaml"
    path.write_bytes(b"config: \xff\xfe")
    (mistake,) = mistakes_in(path)
    assert mistake.problem.startswith("cannot be read: 'utf-8' codec")
    (mistake,) = mistakes_in(tmp_path / "Pulumi.none.yaml")
    assert "No such file" in mistake.problem


@given(st.text(max_size=60))
def test_no_text_is_too_strange_for_a_message(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    path = tmp_path_factory.getbasetemp() / "Pulumi.any.yaml"
    path.write_text(text, "utf-8", errors="surrogatepass")
    assert mistakes_in(path), "nothing that short is a whole stack file"


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


def test_a_stack_is_found_by_name_or_by_path(tmp_path: Path, demo_file: Path) -> None:
    assert find_stack_file("aws-demo", demo_file.parent) == demo_file
    other = tmp_path / "mine.yml"
    other.write_text(demo_file.read_text())
    assert find_stack_file(str(other), demo_file.parent) == other
    assert from_file(other).stack == "mine"


def test_an_unknown_stack_names_those_there_are(demo_file: Path) -> None:
    with pytest.raises(InputError) as caught:
        find_stack_file("aws-dmo", demo_file.parent)
    assert caught.value.place == "stack 'aws-dmo'"
    assert "aws-demo" in caught.value.allowed.split(", ")
    assert caught.value.fix == "did you mean 'aws-demo'?"


@pytest.mark.parametrize("name", ["none.yaml", "some/where/Pulumi.x.yml"])
def test_a_missing_file_is_named(demo_file: Path, name: str) -> None:
    with pytest.raises(InputError, match="no such stack file") as caught:
        find_stack_file(name, demo_file.parent)
    assert caught.value.place == name


@pytest.mark.parametrize("name", ["x" * 5000, "a\0b", "", "."])
def test_a_name_no_file_can_have_is_an_unknown_stack(demo_file: Path, name: str) -> None:
    with pytest.raises(InputError, match="no file Pulumi"):
        find_stack_file(name, demo_file.parent)


def test_pulumi_yaml_declares_exactly_our_settings_and_our_defaults(repo: Path) -> None:
    declared = yaml.safe_load((repo / "Pulumi.yaml").read_text("utf-8"))["config"]
    fields = {name: field for name, field in StackConfig.model_fields.items() if name != "stack"}
    assert set(declared) == set(fields)
    for name, field in fields.items():
        entry = declared[name]
        assert len(entry["description"]) > 15, name
        assert entry["type"] == ("string" if name in ("provider", "region") else "object"), name
        assert ("default" in entry) == (not field.is_required()), name
    assert declared["provider"]["default"] == fields["provider"].default
    assert declared["network"]["default"] == fields["network"].default.model_dump(mode="json")
    assert not declared["storage"]["default"]
    assert fields["storage"].default is None


def test_the_descriptions_name_every_key(repo: Path) -> None:
    declared = yaml.safe_load((repo / "Pulumi.yaml").read_text("utf-8"))["config"]
    for name, field in StackConfig.model_fields.items():
        models = [
            a for a in (field.annotation, *getattr(field.annotation, "__args__", ())) if hasattr(a, "model_fields")
        ]
        for key in (key for model in models for key in model.model_fields):
            assert key in declared[name]["description"], f"{name}.{key}"
