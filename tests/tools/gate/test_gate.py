"""The gate on machines that do not exist: what each may try, what fails it; and once for real, on this CPU."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from gangway.trainer.config.network_size import generator_size
from gangway.trainer.config.presets import PRESETS
from tools.gate.__main__ import main
from tools.gate.checks import CHECKS, Check
from tools.gate.runs import (
    DCGAN,
    FAMILIES,
    STEPS,
    Gate,
    Machine,
    Outcome,
    Report,
    Speed,
    Trained,
    plain_config,
    worst_difference,
)

CPU = Machine("cpu", (), (0, 0), "a CPU", 2, "2.15.0", "", "", "no NVML here")
BARE = Machine("cuda", (), (0, 0), "a CPU", 2, "2.15.0", "", "", "no NVML here")
V100 = Machine("cuda", ("V100",), (7, 0), "a CPU", 8, "2.15.0", "12.8", "2.27", "")
H100S = Machine("cuda", ("H100",) * 8, (9, 0), "a CPU", 192, "2.15.0", "12.8", "2.27", "")
ON = {"compile": "on: asked for, averages between workers included", "step_graph": "on: asked for"}
OTHERS = [family for family in FAMILIES if family != DCGAN]
RIGHT = Trained(tuple((0.7 + step / 100, 1.3 - step / 100) for step in range(STEPS)), {"g": "a", "d": "b"}, ON)


@dataclass
class Played(Gate):
    """A gate whose runs are given: those that `wrong` names are off by a tenth and end in other bits."""

    wrong: tuple[str, ...] = ()
    together: float = 4000.0
    made: list[tuple[str, int]] = field(default_factory=list)

    def train(
        self,
        what: str,
        changes: Mapping[str, object],
        *,
        family: str = DCGAN,
        processes: int = 1,
        on_cpu: bool = False,
    ) -> Trained:
        self.made.append((what, processes))
        if what not in self.wrong:
            return RIGHT
        return Trained(tuple((loss_g + 0.1, loss_d) for loss_g, loss_d in RIGHT.losses), {"g": "a", "d": "c"}, ON)

    def speed(
        self,
        what: str,
        changes: Mapping[str, object],
        *,
        family: str = DCGAN,
        batch: int = 1024,
        processes: int = 1,
        flags: tuple[str, ...] = (),
    ) -> Speed:
        return Speed(1000.0 if processes == 1 else self.together, 0.4, 300.0)


def played(machine: Machine, *wrong: str) -> Played:
    return Played(machine, Path(), 1.0, lambda _: None, wrong=wrong)


def tried(machine: Machine) -> set[str]:
    return {name for name, check in CHECKS.items() if not check.lacking(machine)}


def test_a_machine_tries_what_it_can() -> None:
    assert tried(BARE) == set()
    assert tried(H100S) == set(CHECKS)
    low = {name for name in CHECKS if "bf16" in name}
    assert set(CHECKS) - tried(V100) == {"tf32", "workers", "step-graph-workers", "compile-workers", "fsdp2"} | low
    assert set(CHECKS) - tried(CPU) == {"tf32", "graphs", "step-graph", "step-graph-workers", "power"}


@pytest.mark.parametrize(
    ("name", "run"),
    [
        ("fp32", "fp32"),
        ("tf32", "tf32 True"),
        ("bf16", "precision bf16"),
        ("fp16", "precision fp16"),
        ("micro-batches", "micro-batches of 16"),
        ("compile", "compile on"),
        ("graphs", "compile on, cuda_graphs True"),
        ("step-graph", "step_graph on"),
        ("determinism", "deterministic, again"),
        ("determinism", "deterministic, from a graph"),
        ("workers", "8 workers"),
        ("step-graph-workers", "step_graph on, 8 workers"),
        ("compile-workers", "compile, 2 workers"),
        ("fsdp2", "FSDP2, 2 workers"),
        ("bf16-compile", "precision bf16, compile on"),
        *((family, f"{family} fp32") for family in OTHERS),
        *((f"{family}-bf16", f"{family} precision bf16") for family in OTHERS),
        *((f"{family}-bf16-compile", f"{family} precision bf16, compile on") for family in OTHERS),
    ],
)
def test_a_wrong_run_fails_its_check_and_a_right_one_passes(name: str, run: str) -> None:
    assert CHECKS[name].run(played(H100S)).state == "passed"
    gate = played(H100S, run)
    assert CHECKS[name].run(gate).state == "failed"
    assert run in [what for what, _ in gate.made]


@pytest.mark.parametrize(
    ("name", "switch"),
    [("compile", "compile"), ("graphs", "compile"), ("step-graph", "step_graph"), ("r3gan-bf16-compile", "compile")],
)
def test_what_a_run_went_on_without_was_not_tried_and_fails(name: str, switch: str) -> None:
    gate = played(H100S)
    given_up = Trained(RIGHT.losses, RIGHT.digests, {**ON, switch: "off: tried, and it does not compile"})
    gate.train = lambda what, *_, **__: RIGHT if "fp32" in what else given_up  # type: ignore[method-assign]
    outcome = CHECKS[name].run(gate)
    assert (outcome.state, outcome.why) == ("failed", f"{switch} is off: tried, and it does not compile")


def test_workers_that_are_slower_than_one_fail() -> None:
    gate = played(H100S)
    gate.together = 900.0
    outcome = CHECKS["step-graph-workers"].run(gate)
    assert (outcome.state, outcome.figures["speed_ratio_to_one"]) == ("failed", 0.9)


def test_workers_are_one_for_each_gpu() -> None:
    gate = played(H100S)
    CHECKS["workers"].run(gate)
    assert ("8 workers", 8) in gate.made


def test_a_difference_is_of_the_worst_step_and_small_losses_count_as_a_tenth() -> None:
    assert worst_difference([(1.0, 2.0), (1.0, 2.2)], [(1.0, 2.0), (1.0, 2.0)]) == pytest.approx(0.1)
    assert worst_difference([(0.02, 1.0)], [(0.01, 1.0)]) == pytest.approx(0.1)


def test_a_loss_that_is_no_number_is_no_match() -> None:
    gate = played(H100S)
    broken = Trained(((float("nan"), 1.0), *RIGHT.losses[1:]), {}, ON)
    gate.train = lambda what, *_, **__: broken if what == "precision bf16" else RIGHT  # type: ignore[method-assign]
    assert CHECKS["bf16"].run(gate).state == "failed"


def test_a_report_names_what_it_says_nothing_of() -> None:
    checks = {"fp32": Outcome("passed", "the same"), "fsdp2": Outcome("not tried", "one GPU, and it takes two")}
    report = Report("2026-01-01", "0" * 64, V100, checks)
    assert report.verdict() == "passed 1, failed 0, not tried 1; says nothing of fsdp2"
    assert json.loads(json.dumps(report.as_json()))["checks"]["fsdp2"]["why"] == "one GPU, and it takes two"


def test_a_machine_without_gpus_fails_nothing_and_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tools.gate.__main__.this_machine", lambda kind: BARE)
    assert main(["--json", str(tmp_path / "gate.json")]) == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith(f"passed 0, failed 0, not tried {len(CHECKS)}")
    written = json.loads((tmp_path / "gate.json").read_text())
    assert {found["state"] for found in written["checks"].values()} == {"not tried"}


def test_every_architecture_has_checks_of_its_own_and_small_networks() -> None:
    architectures = {plain_config(family).architecture for family in FAMILIES}
    assert architectures == {config.architecture for config in PRESETS.values()}
    for family in FAMILIES:
        config = plain_config(family)
        assert config.total_images == STEPS * config.step_images
        assert generator_size(config).parameters < 4e6
    assert plain_config("ada").ada_target > 0
    assert {f"{family}{way}" for family in OTHERS for way in ("", "-bf16", "-bf16-compile")} < set(CHECKS)


def test_a_gate_that_is_ended_leaves_the_checks_that_it_has_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        """Caught by nobody."""

    path, seen = tmp_path / "gate.json", list[tuple[list[str], bool]]()

    def look(_: Gate) -> Outcome:
        written = json.loads(path.read_text())
        seen.append((list(written["checks"]), written["finished"]))
        if len(seen) == 3:
            raise Killed
        return Outcome("passed", "the same")

    monkeypatch.setattr("tools.gate.__main__.this_machine", lambda kind: CPU)
    monkeypatch.setattr("tools.gate.__main__.CHECKS", {name: Check(name, lambda _: "", look, 1) for name in "abc"})
    with pytest.raises(Killed):
        main(["--device", "cpu", "--json", str(path)])
    assert seen == [([], False), (["a"], False), (["a", "b"], False)]
    written = json.loads(path.read_text())
    assert (list(written["checks"]), written["finished"]) == (["a", "b"], False)
    assert main(["--device", "cpu", "--json", str(path)]) == 0
    assert json.loads(path.read_text())["finished"]


@pytest.mark.parametrize(
    ("argv", "told"),
    [
        (["--only", "fp23"], "did you mean 'fp32'?"),
        (["--json", "/dev/null/gate.json"], "/dev/null"),
        (["--minutes", "0"], "--minutes"),
        (["--device", "tpu"], "--device"),
    ],
)
def test_mistakes_are_told_before_anything_runs(argv: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(argv) == 2
    assert told in capsys.readouterr().err


@pytest.mark.slow
def test_a_check_without_time_left_is_not_begun(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--device", "cpu", "--only", "penalty", "--minutes", "0.0001"]) == 0
    assert "no time left" in capsys.readouterr().out


@pytest.mark.slow
def test_the_gate_passes_on_this_cpu(tmp_path: Path) -> None:
    only = "penalty,fp32,bf16,micro-batches,determinism,r3gan,r3gan-bf16"
    assert main(["--device", "cpu", "--only", only, "--seconds", "1", "--json", str(tmp_path / "gate.json")]) == 0
    checks = json.loads((tmp_path / "gate.json").read_text())["checks"]
    assert {found["state"] for found in checks.values()} == {"passed"}
    assert 0 < checks["bf16"]["figures"]["worst_difference"] < checks["bf16"]["figures"]["bound"]
