"""`trainer control`: the switch says what it does in the run that is there; a replay says what it cannot know."""

import json
from pathlib import Path
from typing import Any

import pytest

from gangway.trainer.__main__ import main
from gangway.trainer.config.values.control import SWITCH_FILE, ControlSettings
from gangway.trainer.control.guardrails import Machine
from tests.trainer.control.rooms import line

_TOLD = {"settings": ControlSettings().model_dump(mode="json"), "machine": Machine(4)._asdict(), "seed": 0}


def event(name: str, **more: Any) -> dict[str, Any]:
    return {"event": name, "time": 1.8e9, "images": 0, "session": 0, **more}


BEGUN = event(
    "start", run_id="a", world_size=1, num_nodes=1, backend="none", device="cpu", dataset={}, context={},
    code_sha256="", versions={},
)  # fmt: skip
CONTROLLER = event("controller", **_TOLD)


def log(folder: Path, *lines: dict[str, Any] | str) -> Path:
    texts = [each if isinstance(each, str) else json.dumps(each) for each in lines]
    (folder / "stats.jsonl").write_text("".join(f"{text}\n" for text in texts))
    return folder


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ([BEGUN, CONTROLLER, line(0, 0)], "the controller is off from the next line on"),
        ([BEGUN, line(0, 0)], "no controller is at work"),
        ([BEGUN, CONTROLLER, line(0, 0), event("done", state_sha256="")], "is done"),
        ([BEGUN, CONTROLLER, line(0, 0), event("interrupt", cause="SIGTERM")], "was stopped"),
        ([BEGUN, CONTROLLER, line(0, 0), event("failed", why="OSError")], "has failed"),
        (
            [BEGUN, CONTROLLER, event("interrupt", cause="SIGTERM"), {**CONTROLLER, "session": 1}],
            "the controller is off from the next line on",
        ),
        (["x"], "cannot be read"),
    ],
)
def test_the_switch_says_what_it_does_in_the_run_that_is_there(
    lines: list[dict[str, Any] | str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = ["--run-dir", str(log(tmp_path, *lines))]
    assert main(["control", "off", *argv]) == 0
    assert said in capsys.readouterr().out
    assert (tmp_path / SWITCH_FILE).exists()
    assert main(["control", "on", *argv]) == 0
    assert said.replace(" off ", " on ") in capsys.readouterr().out
    assert not (tmp_path / SWITCH_FILE).exists()


LINES = [line(6.0 * place, 600 * place) for place in range(9)]


def test_an_objective_without_a_figure_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["control", "replay", "--run-dir", str(log(tmp_path, BEGUN, CONTROLLER, *LINES)), "--policy", "rules"]
    assert main([*argv, "--objective", "time"]) == 0
    capsys.readouterr()
    assert main([*argv, "--objective", "cost"]) == 2
    told = capsys.readouterr()
    assert "no interval of the run has a figure for cost" in told.err
    assert "time" in told.err
    assert told.out == ""


def test_damaged_lines_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole = log(tmp_path, BEGUN, CONTROLLER, *LINES[:4], {**LINES[4], "knobs": 3}, '{"images": 3', *LINES[5:])
    argv = ["control", "replay", "--run-dir", str(whole), "--policy", "rules"]
    assert main(argv) == 0
    assert "2 unreadable line(s)" in capsys.readouterr().err
    log(tmp_path, "x", "y")
    assert main(argv) == 2
    assert "0 lines, and 2 that cannot be read" in capsys.readouterr().err
