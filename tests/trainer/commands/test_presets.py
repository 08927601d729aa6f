"""Presets on the command line: a line for each, one with its values and departures, or all as JSON."""

import json

import pytest

from trainer.__main__ import main
from trainer.commands.presets import preset_text, presets_json, presets_table
from trainer.config.presets import CATALOGUE, PRESETS
from trainer.config.train_config import TrainConfig


def test_the_table_has_a_line_for_each_and_says_where_departures_are_told() -> None:
    *lines, empty, more = presets_table().splitlines()
    assert [line.split()[0] for line in lines] == ["PRESET", *PRESETS]
    assert all(entry.source in line for entry, line in zip(CATALOGUE.values(), lines[1:], strict=True))
    assert empty == ""
    assert "presets NAME" in more
    assert "departs" in more


@pytest.mark.parametrize("name", PRESETS)
def test_one_preset_is_told_with_every_departure_and_every_value(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["presets", name]) == 0
    text = capsys.readouterr().out
    assert text == preset_text(name)
    assert CATALOGUE[name].source in text
    words = " ".join(text.split())
    assert all(f"- {' '.join(departure.split())}" in words for departure in CATALOGUE[name].departures)
    values = PRESETS[name].model_dump(mode="json", exclude={"preset"})
    assert all(f"{field} {value}" in words for field, value in values.items())
    assert all(known.source in text for known in CATALOGUE[name].published.values())
    told = [line for line in text.splitlines() if "arXiv:" not in line and "github.com" not in line]
    assert max(map(len, told)) <= 100


def test_json_has_all_values_of_all_or_of_one(capsys: pytest.CaptureFixture[str]) -> None:
    entries = json.loads(presets_json())
    assert [TrainConfig.model_validate(entry["config"]) for entry in entries] == list(PRESETS.values())
    assert all(set(entry) == {"config", "summary", "source", "departures", "published"} for entry in entries)
    assert main(["presets", "r3gan-cifar10", "--json"]) == 0
    (one,) = json.loads(capsys.readouterr().out)
    assert one["departures"] == list(CATALOGUE["r3gan-cifar10"].departures)


def test_a_name_that_is_none_is_refused_with_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["presets", "r3gan-cifar"]) == 2
    told = capsys.readouterr().err
    assert "no such preset" in told
    assert "r3gan-cifar10" in told
