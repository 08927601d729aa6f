"""`gangway bench scaling`: one real measurement, rounds by hand, projection apart, and what is refused."""

import itertools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from gangway.bench import local
from gangway.bench import scaling as scaling_runs
from gangway.bench.local import Placement
from gangway.bench.scaling import (
    LINES,
    MAX_WORKERS,
    Mode,
    Sample,
    Study,
    draw_scaling,
    find_target,
    fit_curve,
    job,
    measure,
    read_sample,
    short,
    study,
)
from gangway.cli.main import app
from gangway.components.catalog.loader import load_tpus
from gangway.components.core.findings import InputError
from gangway.components.estimate.scaling import Links, Torus
from gangway.trainer.config.presets import PRESETS
from gangway.trainer.config.train_config import TrainConfig

PRESET = PRESETS["dcgan-digits"]
CPU = "cpu, 1 thread(s) a worker"
ON_CPU = Placement("cpu", 1, "no GPU here")
ON_GPUS = Placement("cuda", 8, "2 GPU(s) here, one for each of 2 process(es)")
RATE = ["--images-per-sec", "4000"]


def sample(step_sec: float, workers: int) -> Sample:
    """All-reduces of 1 MB take 1 ms and of 4 MB 2.5 ms; the gradients are 3 MB."""
    return Sample(step_sec, {} if workers == 1 else {1_000_000: 1e-3, 4_000_000: 2.5e-3}, 3_000_000, CPU)


def a_round(one: float, weak: float, strong: float) -> dict[tuple[Mode, int], Sample]:
    return {
        ("weak", 1): sample(one, 1),
        ("strong", 1): sample(one, 1),
        ("weak", 2): sample(weak, 2),
        ("strong", 2): sample(strong, 2),
    }


@pytest.fixture
def made() -> Study:
    rounds = [a_round(0.1, 0.125, 0.062), a_round(0.2, 0.25, 0.2), a_round(0.1, 0.1, 0.062)]
    return study(rounds, 64, 4000.0, (0.0, 0.1), [find_target("p5.48xlarge")], ON_CPU)


def test_an_all_reduce_of_the_gradients_lies_on_the_line() -> None:
    assert sample(1, 2).all_reduce_sec() == pytest.approx(2e-3)
    assert sample(1, 1).all_reduce_sec() == 0
    falling = Sample(1, {1000: 2e-3, 2000: 1e-3}, 5000, CPU)
    assert falling.all_reduce_sec() == 2e-3, "noise does not make a large message free"


def test_rounds_by_hand(made: Study) -> None:
    by_key = {(one.mode, one.workers): one for one in made.measured}
    weak, strong = by_key["weak", 2].efficiency, by_key["strong", 2].efficiency
    assert [weak.median, weak.low, weak.high] == pytest.approx([0.8, 0.8, 1.0])
    assert [strong.median, strong.low, strong.high] == pytest.approx([0.1 / 0.124, 0.5, 0.1 / 0.124])
    assert made.fit is not None
    # 62 ms less 2 ms of waiting: 100 (s + (1 - s) / 2) = 60.
    assert made.fit.serial_share == pytest.approx(0.2)
    assert by_key["strong", 2].model_sec == pytest.approx(0.062)
    assert by_key["weak", 2].model_sec == pytest.approx(0.102)
    assert all(by_key[mode, 1].efficiency.median == 1 for mode in ("weak", "strong"))


def test_the_projection_is_of_what_was_given(made: Study) -> None:
    assert made.step is not None
    assert made.step.compute_sec == pytest.approx(64 / 4000)
    assert made.step.serial_share == 0.1, "not the fitted share of this machine"
    assert made.step_source == "assumed: --images-per-sec 4000"
    weak, strong = made.projections
    assert [workers for workers, *_ in weak.points] == [2**power for power in range(10)]
    assert strong.points[-1][0] == 64, "no more workers than images"
    assert weak.points[0][2] == strong.points[0][2] == 1
    data = made.to_json()
    assert (data["measured"]["provenance"], data["projected"]["provenance"]) == ("measured", "estimated")
    assert data["projected"]["machines"][0]["points"][0] == {"workers": 1, "step_sec": 0.016, "efficiency": 1.0}


def only_weak(two_sec: float) -> dict[tuple[Mode, int], Sample]:
    return {key: value for key, value in a_round(0.1, two_sec, 0.1).items() if key[0] == "weak"}


def test_a_cpus_own_speed_is_not_projected() -> None:
    """Beside an H100's links it would scale too well."""
    made = study([only_weak(0.2)], 64, None, (0.0, 0.0), [], ON_CPU)
    assert made.fit is None
    assert (made.step, made.projections) == (None, ())
    assert made.step_source.startswith("absent: a CPU was measured")
    data = made.to_json()
    assert (data["projected"]["step"], data["projected"]["machines"]) == (None, [])
    assert data["projected"]["step_source"] == made.step_source
    assert data["measured"]["placement"]["reason"] == "no GPU here"
    assert b"projected" not in draw_scaling(made, "svg"), "one panel"


def test_a_gpus_own_speed_is_projected_and_said() -> None:
    rounds = [{key: value._replace(device="NVIDIA T4") for key, value in only_weak(0.2).items()}]
    made = study(rounds, 64, None, (0.0, 0.0), [find_target("p4d.24xlarge")], ON_GPUS)
    assert made.step is not None
    assert made.step.compute_sec == pytest.approx(0.1)
    rate = "640 images/s of one process on this machine's NVIDIA T4"
    assert made.step_source == f"measured: {rate}, taken for every accelerator"
    assert [one.machine_type for one in made.projections] == ["p4d.24xlarge"]
    assert made.to_json()["measured"]["device"] == "NVIDIA T4"


def test_a_line_of_statistics_says_why_nothing_was_timed() -> None:
    sizes = {"g": 1000, "d": 500}
    fabric = {"points": [], "reason": "no RDMA device on any node"}
    start = {"event": "start", "world_size": 2, "fabric": fabric, "gradient_bytes": sizes, "device": "NVIDIA T4"}
    lines: list[dict[str, Any]] = [start, {"images_per_sec": 1.0}, {"images_per_sec": 640.0}]
    found = read_sample(lines, PRESET)
    assert (found.untimed, found.device) == ("no RDMA device on any node", "NVIDIA T4")
    assert read_sample([{**start, "world_size": 1}, *lines[1:]], PRESET).untimed == ""


def test_gpus_are_measured_over_nccl_with_their_share_of_the_cores() -> None:
    asked = job(PRESET, 2, Path("run"), Path("data"), ON_GPUS)
    assert (asked.backend, asked.processes_per_node, asked.env["OMP_NUM_THREADS"]) == ("nccl", 2, "8")
    assert short(PRESET, 2, "weak", 42, ON_GPUS.backend).backend == "nccl"
    on_cpu = job(PRESET, 2, Path("run"), Path("data"), ON_CPU)
    assert (on_cpu.backend, on_cpu.env["OMP_NUM_THREADS"]) == ("gloo", "1")


def test_the_plot_says_which_half_is_projected(made: Study) -> None:
    text = draw_scaling(made, "svg")
    assert text == draw_scaling(made, "svg")
    assert text.count(b"<!-- p5.48xlarge, weak -->") == 1
    assert text.index(b"<!-- projected by the model: not measured -->") > text.index(b"<!-- measured here (cpu")
    assert text.count(b"<!-- strong, fit: serial share 20.0% + all-reduce -->") == 1
    assert text.count(b"<!-- weak, fit: one alone + all-reduce -->") == 1
    assert b"not measured" in text
    assert draw_scaling(made, "png")[:4] == b"\x89PNG"


@pytest.mark.parametrize(("mode", "batch"), [("weak", 3 * PRESET.batch_size), ("strong", PRESET.batch_size)])
def test_a_measurement_is_a_short_run(mode: str, batch: int) -> None:
    config = short(PRESET, 3, mode, 42, "gloo")
    assert config.backend == "gloo"
    assert (config.batch_size, config.total_images, config.metrics) == (batch, 42 * batch, "none")
    assert config.stats_kimg * 1000 == pytest.approx(42 // LINES * batch)


@pytest.mark.slow
def test_the_trainer_is_measured(tmp_path: Path) -> None:
    tiny = PRESET.replace({"z_dim": 8, "ngf": 4, "ndf": 4, "batch_size": 4})
    config = short(tiny, 2, "strong", 14, "gloo")
    found = measure(config, 2, tmp_path / "run", tmp_path / "data", lambda: None, ON_CPU)
    assert found.step_sec > 0
    assert len(found.all_reduce) == 2
    assert found.gradient_bytes % 4 == 0
    assert found.gradient_bytes > 1000
    assert found.device == CPU
    with pytest.raises(InputError, match="the trainer ended with 2"):
        measure(tiny.replace({"dataset": "celeba"}), 1, tmp_path / "bad", tmp_path / "data", lambda: None, ON_CPU)


@pytest.fixture
def measured_instantly(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Stands for the trainer; tells each call's processes and batch."""
    calls: list[tuple[int, int]] = []

    def measure(
        config: TrainConfig, workers: int, folder: Path, data_dir: Path, doing: Any, where: Placement
    ) -> Sample:
        doing()
        folder.mkdir(parents=True)
        calls.append((workers, config.batch_size))
        return sample(0.1 / workers, workers)

    monkeypatch.setattr(scaling_runs, "measure", measure)
    monkeypatch.setattr(local, "_gpus", list)
    return calls


def test_the_command_goes_in_rounds(measured_instantly: list[tuple[int, int]], tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["bench", "scaling", "--rounds", "2", "--out", str(tmp_path), "--json", *RATE])
    assert done.exit_code == 0, done.output
    assert measured_instantly == [(1, 64), (2, 128), (2, 64)] * 2, "one process is the same in both modes"
    (folder,) = tmp_path.iterdir()
    data = json.loads((folder / "scaling.json").read_text())
    assert json.loads(done.stdout) == data
    assert {"scaling.png", "scaling.svg"} <= {path.name for path in folder.iterdir()}
    assert len(data["projected"]["machines"]) == 6
    assert "on cpu: no GPU here" in done.stderr


def test_without_a_rate_of_an_accelerator_it_measures_alone(
    measured_instantly: list[tuple[int, int]], tmp_path: Path
) -> None:
    done = CliRunner().invoke(app, ["bench", "scaling", "--rounds", "1", "--mode", "weak", "--out", str(tmp_path)])
    assert done.exit_code == 0, done.output
    assert "nothing projected: absent: a CPU was measured" in done.stdout
    assert "Projected by the model" not in done.stdout
    (folder,) = tmp_path.iterdir()
    assert json.loads((folder / "scaling.json").read_text())["projected"]["machines"] == []


def test_no_machine_is_no_table(measured_instantly: list[tuple[int, int]], tmp_path: Path) -> None:
    words = ["--rounds", "1", "--mode", "weak", "--out", str(tmp_path), "--machines", ""]
    done = CliRunner().invoke(app, ["bench", "scaling", *words, *RATE])
    assert done.exit_code == 0, done.output
    assert "rojected" not in done.stdout


def test_options_tell_their_defaults() -> None:
    """Square brackets would be markup, and gone."""
    words = CliRunner().invoke(app, ["bench", "scaling", "--help"], env={"COLUMNS": "300"}).stdout
    assert "for GPUs p5.48xlarge, p4d.24xlarge, g5.48xlarge" in words
    assert "a measured GPU's if omitted" in words


def test_a_slices_end_is_told(measured_instantly: list[tuple[int, int]], tmp_path: Path) -> None:
    words = ["--rounds", "1", "--mode", "weak", "--out", str(tmp_path), "--machines", "v5e-64"]
    done = CliRunner().invoke(app, ["bench", "scaling", *words, *RATE])
    assert done.exit_code == 0, done.output
    assert "v5litepod-64: one slice: the network between slices" in done.stdout
    (folder,) = tmp_path.iterdir()
    (line,) = json.loads((folder / "scaling.json").read_text())["projected"]["machines"]
    assert [point["workers"] for point in line["points"]] == [1, 4, 8, 16, 32, 64]
    assert line["links"]["slices"][-1] == {"sides": [8, 8], "wraps": False}
    assert line["note"].startswith("one slice")


def test_gpus_are_taken_where_there_are_enough(
    measured_instantly: list[tuple[int, int]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "_gpus", lambda: [local._Gpu("NVIDIA T4", f"GPU-{index}") for index in range(2)])
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    done = CliRunner().invoke(app, ["bench", "scaling", "--rounds", "1", "--out", str(tmp_path), "--json"])
    assert done.exit_code == 0, done.output
    data = json.loads(done.stdout)
    assert data["measured"]["placement"]["device"] == "cuda"
    assert data["projected"]["step_source"].startswith("measured: 640 images/s")
    assert len(data["projected"]["machines"]) == 6, "a GPU's own rate is projected"


def test_the_tables_keep_the_two_apart(
    measured_instantly: list[tuple[int, int]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.getloadavg", lambda: (2.5, 0.0, 0.0))
    words = ["--rounds", "1", "--mode", "strong", "--out", str(tmp_path), *RATE]
    done = CliRunner().invoke(app, ["bench", "scaling", *words])
    assert done.exit_code == 0, done.output
    assert "Measured on this machine" in done.stdout
    assert "Projected by the model, not measured" in done.stdout
    assert "serial share" in done.stdout
    assert "this machine was busy (load 2.5" in done.stdout
    assert "assumed: --images-per-sec 4000" in done.stdout
    assert measured_instantly == [(1, 64), (2, 64)]
    assert "does not describe" not in done.stdout


def test_a_poor_fit_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        scaling_runs,
        "measure",
        lambda config, workers, folder, *_: folder.mkdir(parents=True) or sample(workers, workers),
    )
    done = CliRunner().invoke(app, ["bench", "scaling", "--rounds", "1", "--mode", "strong", "--out", str(tmp_path)])
    assert "the fit does not describe this machine" in done.stdout


def test_untimed_all_reduces_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    untimed = sample(0.1, 2)._replace(all_reduce={}, untimed="no RDMA device")
    found = {1: sample(0.1, 1), 2: untimed}
    monkeypatch.setattr(scaling_runs, "measure", lambda config, n, folder, *_: folder.mkdir(parents=True) or found[n])
    done = CliRunner().invoke(app, ["bench", "scaling", "--rounds", "1", "--mode", "weak", "--out", str(tmp_path)])
    assert "all-reduces were not timed (no RDMA device)" in done.stdout


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", "utf-8")
    done = CliRunner().invoke(app, ["bench", "scaling", "--out", str(tmp_path / "file")])
    assert isinstance(done.exception, InputError)
    assert "--out: cannot be written" in str(done.exception)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--preset", "dcgan-digit"], "--preset: no such preset"),
        (["--processes", "1,x"], "--processes: not numbers of processes"),
        (["--processes", "0"], "--processes"),
        (["--processes", "65"], "--processes"),
        (["--mode", "week"], "did you mean 'weak'?"),
        (["--machines", "p5.48xlarg"], "did you mean 'p5.48xlarge'?"),
        (["--machines", "p5.48xlarge", "--device", "cpu"], "--machines: nothing to project from: a CPU was measured"),
        (["--machines", "dl1.24xlarge", *RATE], "the catalogue knows no bandwidth"),
        (["--device", "gpu"], "--device: no such device"),
    ],
)
def test_mistakes_are_told_before_anything_runs(words: list[str], message: str, tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["bench", "scaling", "--out", str(tmp_path), *words])
    assert isinstance(done.exception, InputError)
    assert message in str(done.exception)
    assert list(tmp_path.iterdir()) == []


WAITS = {1: 0.0, 2: 2e-3, 4: 6e-3}
"""Of an all-reduce by the number of processes, seconds."""
STRONG = {1: 0.1, 2: 0.062, 4: 0.046}
"""Steps of which a fifth is serial, and the all-reduce."""
WEAK = {1: 0.1, 2: 0.125, 4: 0.15}


def studied(steps: Mapping[Mode, Mapping[int, float]], untimed: str = "") -> Study:
    """One round of these steps; the size of a message changes nothing."""
    samples = {}
    for mode, by_workers in steps.items():
        for n, seconds in by_workers.items():
            waits = {} if n == 1 or untimed else {1_000: WAITS[n], 2_000: WAITS[n]}
            samples[mode, n] = Sample(seconds, waits, 3_000_000, "cpu", untimed if n > 1 else "")
    return study([samples], 64, None, (0.0, 0.0), [], Placement("cpu", 1, "no GPU here"))


@pytest.mark.parametrize("mode", ["weak", "strong"])
def test_it_goes_through_the_fitted_steps_and_no_further(mode: Mode) -> None:
    made = studied({"weak": WEAK, "strong": STRONG})
    curve = fit_curve(made, mode, 33)
    by_workers = {one.workers: one for one in made.measured if one.mode == mode}
    assert curve[0] == (1, 1)
    for index, workers in ((16, 2), (32, 4)):
        parts = 1 if mode == "weak" else workers
        assert curve[index] == pytest.approx((workers, 0.1 / (parts * by_workers[workers].model_sec)))
    counts = [n for n, _ in curve]
    assert counts == sorted(counts)
    assert (len(set(counts)), counts[-1]) == (33, 4)
    assert all(before > after for (_, before), (_, after) in itertools.pairwise(curve))


def test_between_measured_numbers_it_is_amdahls() -> None:
    """The all-reduce lies on a line there: 2 ms at 2 processes, 6 at 4."""
    made = studied({"strong": STRONG})
    assert made.fit is not None
    assert made.fit.serial_share == pytest.approx(0.2)
    n, value = fit_curve(made, "strong", 4)[2]
    assert n == pytest.approx(4 ** (2 / 3))
    wait = 0.002 + (n - 2) * 0.002
    assert value == pytest.approx(0.1 / (n * (0.1 * (0.2 + 0.8 / n) + wait)))


def test_one_process_has_no_curve() -> None:
    made = studied({"weak": {1: 0.1}})
    assert fit_curve(made, "weak") == fit_curve(made, "strong") == []
    assert b"fit" not in draw_scaling(made, "svg")


def test_all_reduces_that_nobody_timed_are_none_and_said() -> None:
    made = studied({"weak": {1: 0.1, 2: 0.1}, "strong": {1: 0.1, 2: 0.06}}, untimed="no RDMA device")
    assert made.untimed == "no RDMA device"
    assert {one.workers: one.all_reduce_sec for one in made.measured} == {1: 0.0, 2: None}
    assert made.fit is not None
    assert made.fit.serial_share == pytest.approx(0.2)
    assert fit_curve(made, "weak") == [], "one alone, and nothing to add to it"
    assert fit_curve(made, "strong")[-1][1] == pytest.approx(0.1 / 0.12)
    assert made.to_json()["measured"]["all_reduce_untimed"] == "no RDMA device"
    picture = draw_scaling(made, "svg")
    assert b"strong, fit: serial share 20.0%" in picture
    assert b"+ all-reduce" not in picture


def test_a_machine_type_of_any_provider() -> None:
    for name in ("p5.48xlarge", "a3-megagpu-8g", "Standard_ND96isr_H100_v5"):
        found = find_target(name)
        assert isinstance(found.network, Links)
        assert (found.name, found.note) == (name, "")
        assert found.counts == tuple(2**power for power in range(10))


def test_a_slice_by_its_type_and_as_everybody_writes_it() -> None:
    found = find_target("v5litepod-256")
    assert found == find_target("v5e-256")
    assert isinstance(found.network, Torus)
    assert found.name == "v5litepod-256"
    assert found.counts == (1, 4, 8, 16, 32, 64, 128, 256)
    assert found.note.startswith("one slice: the network between slices (DCN)")


def test_a_slice_of_no_power_of_two_is_its_own_last() -> None:
    """v5p counts TensorCores: 384 of them are 192 chips."""
    found = find_target("v5p-384")
    assert found.counts == (1, 4, 8, 16, 32, 64, 128, 192)
    assert isinstance(found.network, Torus)
    assert [one.chips for one in found.network.slices] == list(found.counts[1:])
    assert found.network.slices[-1].sides == (4, 4, 12), "the default topology"


def test_one_chip_has_nothing_to_reduce() -> None:
    assert find_target("v6e-1").counts == (1,)


@pytest.mark.parametrize("generation", load_tpus().generations)
def test_every_generation_can_be_named(generation: str) -> None:
    found = find_target(generation)
    assert found.name == generation
    assert found.counts[0] == 1
    assert found.counts[-1] == (256 if generation in ("v5e", "v6e") else MAX_WORKERS)
    times = [found.network.all_reduce_sec(n, 1e8) for n in found.counts]
    assert times[0] == 0
    assert all(seconds > 0 for seconds in times[1:])


def test_devices_of_one_chip_are_one_accelerator() -> None:
    assert find_target("tpu7x").note.endswith("an accelerator is a chip, its 2 devices together")
    assert "devices" not in find_target("v5p").note


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("p5.48xlarg", "did you mean 'p5.48xlarge'"),
        ("v5x", "no such machine type, TPU generation or slice"),
        ("v5litepd-256", "did you mean 'v5litepod-256'"),
        ("v5e-255", "no v5e slice has this size"),
        ("v5e-255", "v5litepod-256"),
        ("v5e-", "no such machine type, TPU generation or slice"),
        ("dl1.24xlarge", "the catalogue knows no bandwidth"),
    ],
)
def test_unknown_names_are_told_with_the_nearest(name: str, message: str) -> None:
    with pytest.raises(InputError) as told:
        find_target(name)
    assert message in str(told.value)
