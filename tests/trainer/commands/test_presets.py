"""Presets on the command line: a line for each, one with its values and departures, or all as JSON."""

import json
import subprocess
import sys

import pytest

from gangway.trainer.__main__ import main
from gangway.trainer.commands.presets import preset_text, presets_json, presets_table
from gangway.trainer.config.presets import CATALOGUE, PRESETS
from gangway.trainer.config.step_memory import StepMemory, estimate
from gangway.trainer.config.train_config import TrainConfig


def test_the_table_has_a_line_for_each_and_says_where_departures_are_told() -> None:
    *lines, empty, more = presets_table().splitlines()
    assert [line.split()[0] for line in lines] == ["PRESET", *PRESETS]
    assert all(entry.source in line for entry, line in zip(CATALOGUE.values(), lines[1:], strict=True))
    assert empty == ""
    assert "presets NAME" in more
    assert "departs" in more


@pytest.mark.parametrize("columns", [80, 100, 120, 300])
@pytest.mark.parametrize("name", PRESETS)
def test_one_preset_is_told_with_every_departure_and_every_value(
    name: str, columns: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    assert main(["presets", name]) == 0
    text = capsys.readouterr().out
    assert text == preset_text(name, min(columns, 120))
    assert max(map(len, text.splitlines())) <= min(columns, 120)
    words = " ".join(text.split())
    assert CATALOGUE[name].source in words
    assert all(f"- {' '.join(departure.split())}" in words for departure in CATALOGUE[name].departures)
    values = PRESETS[name].model_dump(mode="json", exclude={"preset"})
    assert all(f"{field} {value}" in words for field, value in values.items())
    assert all(known.source.split(": ")[0] in words for known in CATALOGUE[name].published.values())


def test_values_stand_below_the_place_that_they_are_from() -> None:
    lines = preset_text("r3gan-cifar10", 120).splitlines()
    place = lines.index("github.com/brownvc/R3GAN, train.py, preset CIFAR10")
    rows = [line.split(maxsplit=1) for line in lines[place + 1 :] if line.startswith("  ")]
    found = {field: " ".join(rest.split()) for field, rest in rows}
    assert found["lr_g"] == "0.0002 base_value of lr_scheduler"
    assert found["schedules.beta2"] == "0.9 to 0.99, cosine, 20000 kimg beta2_scheduler"
    assert found["kimg"].startswith("100000, there 10000000")


def test_long_values_go_on_below_themselves() -> None:
    lines = preset_text("progan-celebahq512", 80).splitlines()
    first = next(number for number, line in enumerate(lines) if line.startswith("  segments"))
    cells = [line[19:55].strip() for line in lines[first : first + 3]]
    assert " ".join(cells).strip() == (
        "batch_size 512, 256 from 600 kimg, 128 from 1800 kimg, 64 from 3000 kimg, 32 from 4200 kimg"
    )


@pytest.mark.parametrize(("started", "told"), [("__main__.py", True), ("gangway", False)])
def test_the_module_says_what_gangway_adds(started: str, told: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", [started])
    assert ("`gangway presets r3gan-cifar10` adds memory, hours and cost" in preset_text("r3gan-cifar10")) == told


def test_json_has_all_values_of_all_or_of_one(capsys: pytest.CaptureFixture[str]) -> None:
    entries = json.loads(presets_json())
    assert [TrainConfig.model_validate(entry["config"]) for entry in entries] == list(PRESETS.values())
    assert all(set(entry) == {"config", "summary", "source", "departures", "published"} for entry in entries)
    assert main(["presets", "r3gan-cifar10", "--json"]) == 0
    (one,) = json.loads(capsys.readouterr().out)
    assert one["departures"] == list(CATALOGUE["r3gan-cifar10"].departures)
    assert one["published"]["schedules.lr_g"]["value"] == one["config"]["schedules"]["lr_g"]


def test_a_name_that_is_none_is_refused_with_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["presets", "r3gan-cifar"]) == 2
    told = capsys.readouterr().err
    assert "no such preset" in told
    assert "r3gan-cifar10" in told


def test_each_part_is_told_and_all_add_up(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["memory", "--preset", "r3gan-imagenet64", "--workers", "8", "--nodes", "2", "--shard", "fsdp2"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("r3gan-imagenet64, 16 workers, 32 images at once, GiB on each:\n")
    rows = dict(line.split() for line in shown.splitlines()[2:8])
    expected = estimate(PRESETS["r3gan-imagenet64"].replace({"shard": "fsdp2"}), 8, 2)
    assert {name: float(rows[name]) for name in StepMemory._fields} == pytest.approx(expected._asdict(), abs=1e-3)
    assert float(rows["total"]) == pytest.approx(expected.total, abs=1e-3)
    assert "not counted" in shown


def test_a_trace_stands_beside_the_estimate(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["memory", "--preset", "dcgan-digits", "--batch-size", "32", "--trace", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["images_at_once"] == 32
    assert found["traced"]["total"] == pytest.approx(found["estimated"]["total"], rel=0.15)
    assert found["least"] < found["estimated"]["total"]
    assert found["traced"]["total"] == pytest.approx(sum(found["traced"][name] for name in StepMemory._fields))


@pytest.mark.parametrize(
    ("arguments", "place"),
    [
        (["--workers", "128"], "batch_size"),
        (["--workers", "2", "--shard", "fsdp2", "--trace"], "--trace"),
        (["--workers", "2", "--pipeline-stages", "2", "--architecture", "resnet", "--trace"], "--trace"),
        (["--batch-gpu", "48"], "--batch-gpu"),
    ],
)
def test_what_cannot_be_is_a_mistake(arguments: list[str], place: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["memory", "--preset", "dcgan-digits", *arguments]) == 2
    said = capsys.readouterr().err
    assert place in said
    assert "fix:" in said


def test_an_estimate_loads_no_torch() -> None:
    code = (
        "import sys; from gangway.trainer.__main__ import main; code = main(['memory', '--preset', 'dcgan-digits']);"
        "sys.exit(code or 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
