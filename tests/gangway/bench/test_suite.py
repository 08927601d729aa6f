"""Suite files: what they mean, and each mistake with its place, what is allowed and the fix."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from gangway.bench.suite import SuiteConfig, find_suite, get_items, get_preset, get_run_id, load_suite, stack_name
from gangway.components.core.findings import InputError
from gangway.stacks.loading.loader import from_file
from tests.hostile import HOSTILE, Loc, changed, text_places

GOOD: dict[str, Any] = {
    "name": "mine",
    "preset": "dcgan-digits",
    "kimg": 2,
    "seeds": [0, 1],
    "stacks": ["local", {"stack": "aws-g5-dev", "label": "aws", "set": {"network.egress": "nat"}}],
    "arms": [{"name": "control"}, {"name": "half", "settings": {"precision": "bf16"}}],
    "budget": {"usd": 20},
    "deadline_hours": 2,
}


@pytest.fixture
def written(tmp_path: Path) -> Callable[..., Path]:
    """Writes the good suite with changes; None removes a key."""

    def write(**changes: Any) -> Path:
        values = {key: value for key, value in {**GOOD, **changes}.items() if value is not None}
        path = tmp_path / "mine.yaml"
        path.write_text(yaml.safe_dump(values), "utf-8")
        return path

    return write


def mistake(path: Path) -> str:
    """The one mistake of a file."""
    with pytest.raises(ExceptionGroup) as group:
        load_suite(path)
    (told,) = group.value.exceptions
    assert isinstance(told, InputError)
    assert told.fix
    return str(told)


def test_items_are_stacks_by_arms_by_seeds(written: Callable[..., Path]) -> None:
    suite = load_suite(written())
    names = [item.name for item in get_items(suite, local=False)]
    assert names[:4] == ["local-control-s0", "local-control-s1", "local-half-s0", "local-half-s1"]
    assert names[4:] == ["aws-control-s0", "aws-control-s1", "aws-half-s0", "aws-half-s1"]
    assert [item.name for item in get_items(suite, local=True)] == names[:4]
    half = get_items(suite, local=False)[2]
    assert (half.arm, half.settings, half.is_local) == ("half", {"precision": "bf16"}, True)


def test_an_arm_alone_has_no_name(written: Callable[..., Path]) -> None:
    items = get_items(load_suite(written(arms=None, settings={"batch_size": 32})), local=False)
    assert [item.name for item in items] == ["local-s0", "local-s1", "aws-s0", "aws-s1"]
    assert {item.arm for item in items} == {""}
    assert items[0].settings == {"batch_size": 32}


def test_names_are_nobody_elses(written: Callable[..., Path]) -> None:
    items = get_items(load_suite(written()), local=False)
    ids = {get_run_id(item, stamp) for item in items for stamp in ("a", "b")}
    stacks = {stack_name(item, stamp) for item in items for stamp in ("a", "b")}
    assert len(ids) == len(stacks) == 16
    long = get_items(load_suite(written(stacks=[{"stack": "aws-g5-dev", "label": "x" * 40}])), local=False)[0]
    assert len(stack_name(long, "a")) <= 40


# what is changed, then what stands in the message
MISTAKES: dict[str, tuple[dict[str, Any], list[str]]] = {
    "unknown key": ({"seed": [1]}, ["mine.yaml: seed: unknown key", "did you mean 'seeds'?"]),
    "no seeds": ({"seeds": []}, ["mine.yaml: seeds", "1 to 100"]),
    "a seed below zero": ({"seeds": [-1]}, ["mine.yaml: seeds[0]", "from 0 to", "write 0"]),
    "a seed twice": ({"seeds": [3, 3]}, ["mine.yaml: seeds: ", "each of seeds once", "remove one 3"]),
    "a stack twice": ({"stacks": ["aws-g5-dev", "aws-g5-dev"]}, ["each of stacks once", "another label"]),
    "an arm twice": (
        {"arms": [{"name": "a"}, {"name": "a"}]},
        ["mine.yaml: arms: ", "each of arms once", "remove one a"],
    ),
    "an unknown preset": ({"preset": "dcgan-digit"}, ["mine.yaml: preset", "did you mean 'dcgan-digits'?"]),
    "money without a budget": (
        {"budget": None},
        ["mine.yaml: budget: missing: aws costs money", "add budget: {usd: 50}"],
    ),
    "a budget of nothing": ({"budget": {"usd": 0}}, ["mine.yaml: budget.usd", "above 0"]),
    "another kimg on one stack": (
        {"stacks": [{"stack": "aws-g5-dev", "set": {"job.kimg": 3}}]},
        ["mine.yaml: stacks[0].set.job.kimg: must be the same for all stacks", "write kimg next to stacks"],
    ),
    "all of job on one stack": (
        {"stacks": [{"stack": "aws-g5-dev", "set": {"job": 5}}]},
        ["mine.yaml: stacks[0].set.job: cannot be replaced as a whole", "job.terminate_when_done"],
    ),
    "labels and arms that make one name": (
        {
            "stacks": [{"stack": "aws-g5-dev", "label": "a"}, {"stack": "aws-demo", "label": "a-b"}],
            "arms": [{"name": "b-c"}, {"name": "c"}],
        },
        ["mine.yaml: stacks: ", "a unique name for each run", "'a-b-c-s0'", "another label"],
    ),
    "a price of nothing": (
        {"stacks": [{"stack": "aws-g5-dev", "usd_per_hour": 0}]},
        ["usd_per_hour", "above 0"],
    ),
    "no deadline": ({"deadline_hours": None}, ["mine.yaml: deadline_hours: missing"]),
    "a name that is no folder": ({"name": "../x"}, ["mine.yaml: name"]),
}


@pytest.mark.parametrize("name", list(MISTAKES))
def test_a_mistake_is_told(written: Callable[..., Path], name: str) -> None:
    changes, said = MISTAKES[name]
    text = mistake(written(**changes))
    for words in said:
        assert words in text


def test_a_file_that_is_no_suite(tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_text("- a\n", "utf-8")
    with pytest.raises(InputError, match="not a suite file"):
        load_suite(tmp_path / "x.yaml")


def test_a_key_twice_is_told_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_text("name: a\nname: b\n", "utf-8")
    with pytest.raises(ExceptionGroup) as group:
        load_suite(tmp_path / "x.yaml")
    assert "line 2" in str(group.value.exceptions[0])


def test_an_odd_value_among_a_stacks_own_settings_is_told(written: Callable[..., Path]) -> None:
    """Of `set` the schema says nothing: any setting may stand there."""
    path = written()
    path.write_text(path.read_text("utf-8").replace("network.egress: nat", "network.flow_logs: yes"), "utf-8")
    told = mistake(path)
    assert "stacks[1].set.network.flow_logs" in told
    assert "YAML reads this as true or false" in told


def test_an_unknown_stack_is_told_with_the_nearest(written: Callable[..., Path], repo: Path) -> None:
    path = written(stacks=["local", "aws-g5-deb"])
    with pytest.raises(InputError, match="did you mean 'aws-g5-dev'") as told:
        get_preset(load_suite(path), str(path), repo / "stacks")
    assert told.value.place.startswith(f"{path}: stacks[1]: stack 'aws-g5-deb'")


def test_the_stacks_own_preset_counts_where_the_suite_says_none(written: Callable[..., Path], repo: Path) -> None:
    path = written(preset=None)
    assert get_preset(load_suite(path), str(path), repo / "stacks") == "dcgan-digits"


def test_presets_that_differ_are_refused(written: Callable[..., Path], repo: Path, tmp_path: Path) -> None:
    other = tmp_path / "Pulumi.other.yaml"
    source = (repo / "stacks/Pulumi.aws-g5-dev.yaml").read_text("utf-8")
    other.write_text(source.replace("preset: dcgan-digits", "preset: dcgan-cifar10"), "utf-8")
    path = written(preset=None, stacks=["aws-g5-dev", str(other)])
    with pytest.raises(InputError, match="preset: the stacks have different presets") as told:
        get_preset(load_suite(path), str(path), repo / "stacks")
    assert told.value.value == "aws-g5-dev: dcgan-digits, other: dcgan-cifar10"


def test_no_preset_at_all(written: Callable[..., Path], repo: Path) -> None:
    path = written(preset=None, stacks=["local"])
    with pytest.raises(InputError, match="preset: missing"):
        get_preset(load_suite(path), str(path), repo / "stacks")


@pytest.mark.parametrize(
    ("settings", "key", "said"),
    [
        ({"batch_sise": 3}, "batch_sise", "did you mean 'batch_size'?"),
        ({"batch_size": 0}, "batch_size", "write batch_size: 1"),
        ({"batch_size": "1,024"}, "batch_size", "write batch_size: 1024"),
        ({"kimg": 3}, "kimg", "write kimg next to settings"),
        ({"precision": "bf17"}, "precision", "did you mean 'bf16'?"),
        ({"gp_weight": 1.0, "loss": "wgan-gp", "augment": "color"}, "augment", "color needs channels 3"),
        ({"batch_gpu": 7}, "batch_gpu", "batch_gpu: 8, which divides batch_size: 64"),
    ],
)
def test_settings_that_do_not_fit_are_told_with_their_arm(
    written: Callable[..., Path], repo: Path, settings: dict[str, Any], key: str, said: str
) -> None:
    path = written(arms=[{"name": "control"}, {"name": "bold", "settings": settings}])
    with pytest.raises(
        InputError, match=r"conflicts with|not an accepted|not one of|not a field|key of the job"
    ) as told:
        get_preset(load_suite(path), str(path), repo / "stacks")
    assert told.value.place == f"{path}: arms[1].settings.{key}"
    assert said in str(told.value)
    assert told.value.fix
    assert "--" not in str(told.value)


def test_a_suite_is_found_by_name_or_path(repo: Path, written: Callable[..., Path]) -> None:
    assert find_suite("local-smoke", repo / "stacks") == repo / "gangway/suites/local-smoke.yaml"
    path = written()
    assert find_suite(str(path), repo / "stacks") == path
    with pytest.raises(InputError, match="did you mean 'local-smoke'"):
        find_suite("local-smok", repo / "stacks")


def test_what_is_not_a_file_is_not_said_to_be_absent(repo: Path, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for place in (tmp_path / "pipe", tmp_path):
        with pytest.raises(InputError, match="suite: not a regular file"):
            find_suite(str(place), repo / "stacks")


SHIPPED = sorted((Path(__file__).resolve().parents[3] / "gangway/suites").glob("*.yaml"))


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_a_shipped_suite_names_stacks_there_are(path: Path, repo: Path) -> None:
    suite = load_suite(path)
    assert suite.name == path.stem
    get_preset(suite, str(path), repo / "stacks")
    for entry in suite.stacks:
        if entry.stack != "local":
            from_file(repo / "stacks" / f"Pulumi.{entry.stack}.yaml")


def test_the_papers_suites_are_shipped() -> None:
    papers = {load_suite(path).paper for path in SHIPPED}
    assert papers == {None, "P2", "P3"}


def test_the_example_of_the_documentation_is_a_suite(repo: Path, tmp_path: Path) -> None:
    text = (repo / "docs/benchmark-suites.md").read_text("utf-8")
    example = tmp_path / "example.yaml"
    example.write_text(text.partition("```yaml\n")[2].partition("```")[0], "utf-8")
    suite = load_suite(example)
    assert get_preset(suite, str(example), repo / "stacks") == "dcgan-cifar10"
    assert len(get_items(suite, local=False)) == 12
    for key in ("usd_limit", "usd_per_hour", "deadline_hours"):
        assert getattr(suite.stacks[1], key) is not None


HARMLESS: dict[str, Any] = {
    "name": "mine",
    "title": "a table",
    "preset": "dcgan-digits",
    "kimg": 2,
    "seeds": [0],
    "settings": {"precision": "fp32"},
    "stacks": [{"stack": "aws-g5-dev", "label": "aws", "set": {"network.egress": "nat"}}],
    "arms": [{"name": "half"}],
    "budget": {"usd": 20},
    "deadline_hours": 2,
}


def mistakes(values: dict[str, Any], path: Path, stacks_dir: Path) -> list[InputError]:
    path.write_text(yaml.safe_dump(values, allow_unicode=True), "utf-8", "surrogatepass")
    try:
        get_preset(load_suite(path), str(path), stacks_dir)
    except InputError as mistake:
        return [mistake]
    except ExceptionGroup as group:
        return [mistake for mistake in group.exceptions if isinstance(mistake, InputError)]
    return []


def is_named(found: list[InputError], place: Loc) -> bool:
    """A stack's own settings are a plan's to refuse, all others the suite's."""
    words = [str(part) for part in place if isinstance(part, str)]
    return any(word in mistake.place for mistake in found for word in words)


@pytest.mark.slow
@pytest.mark.attack("a suite's author", "texts of a suite that say more to a path or a terminal")
@pytest.mark.parametrize("name", HOSTILE)
def test_a_suites_texts_stay_texts(name: str, repo: Path, tmp_path: Path) -> None:
    text, path, taken = HOSTILE[name], tmp_path / "mine.yaml", []
    for place in text_places(HARMLESS):
        if found := mistakes(changed(HARMLESS, place, text=text), path, repo / "stacks"):
            assert is_named(found, place), (place, found)
            assert all(str(mistake).replace("\n", "").isprintable() for mistake in found)
        else:
            taken.append(place)
    assert set(taken) <= {("title",), ("stacks", 0, "set", "network.egress")}
    for item in get_items(SuiteConfig.model_validate(changed(HARMLESS, *taken, text=text)), local=False):
        names = get_run_id(item, "20260101"), stack_name(item, "20260101")
        assert all(set(each) <= set("abcdefghijklmnopqrstuvwxyz0123456789-") for each in names)
