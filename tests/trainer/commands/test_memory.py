"""`trainer memory`: a step's memory by parts, without torch unless a trace is asked for."""

import json
import subprocess
import sys

import pytest

from gangway.trainer.__main__ import main
from gangway.trainer.config.presets import PRESETS
from gangway.trainer.config.step_memory import StepMemory, estimate


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
