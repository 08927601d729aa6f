"""An experiment's suite file: what it means, the order of its arms, and mistakes with place, value, allowed and fix."""

import itertools
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml

from gangway.bench.experiment.suite import ExperimentConfig, get_arms, get_items, is_experiment, load_experiment
from gangway.bench.suite import find_suite
from gangway.cli.main import main
from gangway.components.core.findings import InputError
from gangway.components.estimate.statistics import FEWEST_PAIRS

REPO = Path(__file__).resolve().parents[4]
SHIPPED = sorted((REPO / "gangway/suites/experiments").glob("*.yaml"))


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_shipped_experiments_are_found_and_read(path: Path) -> None:
    assert find_suite(path.stem, REPO / "stacks") == path
    assert is_experiment(path)
    suite = load_experiment(path)
    assert suite.name == path.stem
    small, full = get_items(suite, small=True), get_items(suite)
    assert sum(item.kimg for item in small) < sum(item.kimg for item in full)
    assert len({item.name for item in full}) == len(full)
    for items in (small, full):
        runs = Counter((item.scenario.name, item.arm.name) for item in items)
        assert set(runs) == {(one.name, arm.name) for one in suite.scenarios for arm in get_arms(suite, "")}
        assert min(runs.values()) >= FEWEST_PAIRS, "or nothing can be claimed"


def test_no_other_suite_is_an_experiment() -> None:
    others = list((REPO / "gangway/suites").glob("*.yaml"))
    assert others
    assert not any(is_experiment(path) for path in others)


@pytest.mark.parametrize("order_seed", range(6))
def test_arms_take_turns_in_pairs_of_one_seed(order_seed: int, values: dict[str, Any]) -> None:
    values["scenarios"][0]["seeds"] = list(range(6))
    suite = ExperimentConfig.model_validate({**values, "order_seed": order_seed})
    items = get_items(suite)
    assert items == get_items(suite), "the same draw"
    names = [item.arm.name for item in items]
    pairs = [tuple(names[place : place + 2]) for place in range(0, 12, 2)]
    assert all(set(pair) == {"control", "treatment"} for pair in pairs)
    assert pairs[::2] == [pairs[0]] * 3
    assert pairs[1::2] == [pairs[0][::-1]] * 3
    assert [item.seed for item in items] == [seed for seed in range(6) for _ in "ab"]
    assert [item.position for item in items] == list(range(12))


@pytest.mark.parametrize("order_seed", range(3))
def test_three_arms_meet_every_order_once_in_six_seeds(order_seed: int, values: dict[str, Any]) -> None:
    values["scenarios"][0]["seeds"] = list(range(6))
    suite = ExperimentConfig.model_validate({**values, "order_seed": order_seed, "static": {"name": "static"}})
    names = [item.arm.name for item in get_items(suite)]
    assert {tuple(names[place : place + 3]) for place in range(0, 18, 3)} == {
        *itertools.permutations(("control", "static", "treatment"))
    }


def test_who_comes_first_is_drawn(values: dict[str, Any]) -> None:
    suites = [ExperimentConfig.model_validate({**values, "order_seed": seed}) for seed in range(40)]
    assert set(Counter(get_items(suite)[0].arm.name for suite in suites)) == {"control", "treatment"}


def test_the_treatment_can_be_chosen(values: dict[str, Any]) -> None:
    suite = ExperimentConfig.model_validate({**values, "arms": [*values["arms"], {"name": "other"}]})
    assert [arm.name for arm in get_arms(suite, "")] == ["control", "treatment"]
    assert [arm.name for arm in get_arms(suite, "other")] == ["control", "other"]
    for wrong in ("control", "othr"):
        with pytest.raises(InputError) as told:
            get_arms(suite, wrong)
        assert (told.value.place, told.value.value, told.value.allowed) == ("--treatment", wrong, "treatment, other")


def test_what_a_scenario_gives_to_the_treatment_is_not_the_controls(values: dict[str, Any]) -> None:
    changes = {"args": ["--loader-threads", "1"], "treatment_args": ["--mirror", "false"]}
    items = get_items(ExperimentConfig.model_validate(_with(values, **changes)))
    told = {item.arm.name: item.args for item in items}
    both = ("--loader-threads", "1")
    assert told == {"control": both, "treatment": (*both, "--mirror", "true", "--mirror", "false")}


def test_fixed_settings_are_the_static_arms_alone(values: dict[str, Any]) -> None:
    changes = {"threads": 2, "static_threads": 1, "static_args": ["--loader-threads", "2"]}
    static = {"name": "fixed", "args": ["--controller", "off"]}
    items = get_items(ExperimentConfig.model_validate({**_with(values, **changes), "static": static}))
    assert {item.arm.name: (item.threads, "--loader-threads" in item.args) for item in items} == {
        "control": (2, False),
        "fixed": (1, True),
        "treatment": (2, False),
    }


def _with(values: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return {**values, "scenarios": [{**values["scenarios"][0], **changes}]}


@pytest.mark.parametrize(
    ("changes", "place"),
    [
        ({"data": "nowhere"}, "scenarios[0].data"),
        ({"preset": "dcgan-digit"}, "scenarios[0].preset"),
        ({"seeds": [1, 1]}, "scenarios[0].seeds"),
        ({"settings": {"kimg": 3}}, "scenarios[0].settings.kimg"),
        ({"settings": {"batch": 3}}, "scenarios[0].settings.batch"),
        ({"neighbour": {"between": [0.6, 0.3]}}, "between"),
        ({"neighbour": {"cores": 0}}, "neighbour.cores"),
        ({"stop": {"metric": "FD-ENL0", "at_most": -1}}, "stop.at_most"),
        ({"most_slower": 2}, "most_slower"),
        ({"static_args": ["--mirror", "true"]}, "scenarios[0].static_args"),
        ({"static_threads": 1}, "scenarios[0].static_threads"),
        ({"colour": 1}, "colour"),
    ],
)
def test_mistakes_name_their_place(changes: dict[str, Any], place: str, values: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "suite.yaml"
    path.write_text(yaml.safe_dump(_with(values, **changes)))
    with pytest.raises(ExceptionGroup) as told:
        load_experiment(path)
    mistakes = [one for one in told.value.exceptions if isinstance(one, InputError)]
    assert any(place in one.place and str(path) in one.place for one in mistakes), [one.place for one in mistakes]
    assert all(one.fix or one.allowed for one in mistakes)


def test_the_example_of_the_documentation_is_an_experiment(tmp_path: Path) -> None:
    text = (REPO / "docs/experiment.md").read_text("utf-8")
    path = tmp_path / "example.yaml"
    path.write_text(text.partition("```yaml\n")[2].partition("```")[0], "utf-8")
    assert is_experiment(path)
    assert len(get_items(load_experiment(path))) == 18


@pytest.mark.parametrize(
    ("argv", "place"),
    [
        (["resource-aware", "--treatment", "rulez"], "--treatment"),
        (["resource-aware", "--data", "shards"], "--data"),
        (["resource-aware", "--backend-url", "file://x"], "--backend-url"),
        (["local-smoke", "--local", "--small"], "--small"),
        (["local-smoke", "--local", "--treatment", "rules"], "--treatment"),
    ],
)
def test_options_that_nothing_would_heed_are_refused(
    argv: list[str],
    place: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sys.argv", ["gangway", "bench", "run", *argv, "--out", str(tmp_path / "runs")])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert f"{place}: " in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()
