"""The Environment that is this machine: a launcher of its own, followed, stopped, and gone on with after a crash."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangway.bench.local import Hardware, Local, Placement, _Gpu, _visible, describe, hardware, placement
from gangway.bench.processes import end_leftover, process_facts
from gangway.bench.suite import Item, SuiteConfig, get_items, get_run_id
from gangway.components.core.findings import InputError
from gangway.components.core.job import JobSpec, Rendezvous, Training
from gangway.runs.run_store import RunFailedError
from gangway.trainer.config.presets import PRESETS
from gangway.trainer.records.run_record import RunContext, RunRecord

STAMP = "20260101-000000-abcd"
MACHINE = Hardware(cpu="Model 1", cores=4, memory_gib=15.6, gpus=[], system="Linux x86_64")


def no_note(**facts: Any) -> None:
    """Facts that the test does not look at."""


@pytest.fixture
def suite(make_suite: Callable[..., SuiteConfig]) -> SuiteConfig:
    return make_suite(settings={"batch_size": 32, "tf32": False}, checkpoint_kimg=1, local_processes=3)


@pytest.fixture
def item(suite: SuiteConfig) -> Item:
    return get_items(suite, local=True)[1]


@pytest.fixture
def local(tmp_path: Path, suite: SuiteConfig) -> Local:
    return Local(tmp_path, STAMP, suite, "dcgan-digits", tmp_path / "data", MACHINE)


@pytest.fixture
def launcher(local: Local, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Has a little program stand for the trainer's launcher; it finds the run's folder in sys.argv[-1]."""

    def use(program: str) -> None:
        package = tmp_path / "fakejob"
        package.mkdir()
        (package / "__init__.py").touch()
        (package / "launch.py").write_text(f"# gangway.trainer.launch\n{program}", "utf-8")

    def job(item: Item) -> JobSpec:
        return JobSpec(
            name="x",
            backend="gloo",
            num_nodes_min=1,
            num_nodes_max=1,
            processes_per_node=1,
            rendezvous=Rendezvous(standalone=True),
            module="fakejob",
            training=Training(
                config={},
                config_file=str(tmp_path / "gangway.trainer.launch"),
                run_dir=str(tmp_path / get_run_id(item, STAMP)),
            ),
            env={"PYTHONPATH": str(tmp_path)},
            shutdown_timeout_sec=5,
        )

    monkeypatch.setattr(local, "_job", job)
    return use


def until(ready: Callable[[], Any]) -> Any:
    """What `ready` gives as soon as it is something."""
    deadline = time.monotonic() + 30
    while not (found := ready()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return found


WRITES = "import pathlib, shutil, sys; shutil.copy('{record}', pathlib.Path(sys.argv[-1], 'run.json')); "


@pytest.fixture
def record_file(tmp_path: Path, item: Item, make_record: Callable[..., RunRecord]) -> Path:
    file = tmp_path / "made.json"
    file.write_text(make_record(get_run_id(item, STAMP), item.seed).model_dump_json(), "utf-8")
    return file


def test_the_job_is_the_suites_training(local: Local, item: Item, tmp_path: Path) -> None:
    job = local._job(item)
    folder = tmp_path / get_run_id(item, STAMP)
    changes = {"kimg": 2, "seed": 1, "checkpoint_kimg": 1, "batch_size": 32, "tf32": False}
    assert job.training == Training(
        config=PRESETS["dcgan-digits"].replace(changes).document(),
        config_file=str(folder / "train.json"),
        run_dir=str(folder),
        data_dir=str(tmp_path / "data"),
    )
    assert (job.backend, job.processes_per_node) == ("gloo", 3)


def test_gpus_are_a_process_each(suite: SuiteConfig, item: Item, tmp_path: Path) -> None:
    machine = Hardware({**MACHINE, "gpus": ["H200", "H200"]})
    job = Local(tmp_path, STAMP, suite, "dcgan-digits", tmp_path, machine)._job(item)
    assert (job.backend, job.processes_per_node, set(job.env)) == ("nccl", 2, {"GANGWAY_CONTEXT"})


def test_a_run_ends_with_its_record(
    local: Local, launcher: Callable[[str], None], item: Item, record_file: Path, tmp_path: Path
) -> None:
    launcher(WRITES.format(record=record_file))
    facts = local.up(item, no_note, str)
    assert facts["process"]["word"] == "gangway.trainer.launch"
    record = until(lambda: local.record(item, facts))
    assert record.seed == 1
    assert local.destroy(item, facts, no_note) == []


def test_its_record_names_this_machine(local: Local, item: Item) -> None:
    context = RunContext.model_validate_json(local._job(item).env["GANGWAY_CONTEXT"])
    assert (context.provider, context.machine_type) == ("local", "4 cores of Model 1, 15.6 GiB")
    assert context.run_id == get_run_id(item, STAMP)


def test_what_it_does_is_told(local: Local, launcher: Callable[[str], None], item: Item, tmp_path: Path) -> None:
    launcher("import time; time.sleep(60)")
    assert local.doing(item) == "starting"
    facts = local.up(item, no_note, str)
    line = '{"images": 1024, "images_per_sec": 90.4, "loss_g": 1.0}\n'
    (tmp_path / get_run_id(item, STAMP) / "stats.jsonl").write_text(line, "utf-8")
    assert local.record(item, facts) is None
    assert local.doing(item) == "1,024 images, 90 per second"
    local.destroy(item, facts, no_note)
    assert not psutil.pid_exists(facts["process"]["pid"]), "its processes go with it"


@pytest.mark.parametrize(
    ("code", "words"), [(2, r"ended with 2 \(bad input\): no such data"), (1, r"ended with 1 \(failed\)")]
)
def test_a_trainer_that_fails_says_why(
    local: Local, launcher: Callable[[str], None], item: Item, code: int, words: str
) -> None:
    launcher(f"import sys; print('no such data'); sys.exit({code})")
    facts = local.up(item, no_note, str)
    with pytest.raises(RunFailedError, match=words):
        until(lambda: local.record(item, facts))
    local.destroy(item, facts, no_note)


def test_a_trainer_that_ends_well_without_a_record(local: Local, launcher: Callable[[str], None], item: Item) -> None:
    launcher("")
    facts = local.up(item, no_note, str)
    with pytest.raises(RunFailedError, match="no record, although"):
        until(lambda: local.record(item, facts))


def test_a_crash_after_the_record_is_remarked(
    local: Local, launcher: Callable[[str], None], item: Item, record_file: Path
) -> None:
    launcher(WRITES.format(record=record_file) + "sys.exit(134)")
    remarks: dict[str, Any] = {}
    facts = local.up(item, lambda **new: remarks.update(new), str)
    assert until(lambda: local.record(item, facts)) is not None
    assert "after its record was complete, the trainer ended with 134" in remarks["remark"]


def test_a_launcher_of_a_process_that_is_gone_is_ended_before_another_begins(
    local: Local, launcher: Callable[[str], None], item: Item, record_file: Path
) -> None:
    sleeps = "import signal, sys, time; signal.signal(signal.SIGTERM, lambda *_: sys.exit(75)); time.sleep(60)"
    orphan = subprocess.Popen([sys.executable, "-c", sleeps, "gangway.trainer.launch"], start_new_session=True)
    launcher(WRITES.format(record=record_file))
    time.sleep(0.5)
    facts = local.attach(item, process_facts(orphan.pid, "gangway.trainer.launch"), no_note)
    assert orphan.wait(5) in (75, -signal.SIGTERM)
    assert until(lambda: local.record(item, facts)) is not None
    local.collect(item, facts)
    local.destroy(item, facts, no_note)


def test_destroying_what_another_process_has_left(local: Local, item: Item) -> None:
    orphan = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)", "gangway.trainer.launch"],
                              start_new_session=True)  # fmt: skip
    local.destroy(item, process_facts(orphan.pid, "gangway.trainer.launch"), no_note)
    assert orphan.wait(5) == -signal.SIGTERM


def test_a_stubborn_process_is_killed_with_its_session() -> None:
    ignores = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(1, flush=True); time.sleep(60)"
    orphan = subprocess.Popen([sys.executable, "-c", ignores, "gangway-word"], start_new_session=True,
                              stdout=subprocess.PIPE)  # fmt: skip
    with orphan:
        assert orphan.stdout is not None
        orphan.stdout.readline()
        assert end_leftover(process_facts(orphan.pid, "gangway-word"), signal.SIGTERM, grace_sec=0.5)
        assert orphan.wait(5) == -signal.SIGKILL


@pytest.mark.parametrize("has_proc", [True, False])
def test_a_process_is_found_with_proc_and_with_ps(has_proc: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Slim images have no ps; other systems no /proc."""
    monkeypatch.setenv("PATH", "/nowhere" if has_proc else os.environ["PATH"])
    if not has_proc:
        monkeypatch.setattr("gangway.bench.processes._PROC", Path("/no/such/folder"))
    command = [sys.executable, "-c", "import time; time.sleep(60)", "gangway-word"]
    with subprocess.Popen(command, start_new_session=True) as process:
        facts = process_facts(process.pid, "gangway-word")
        assert end_leftover(facts, signal.SIGTERM), "which also sees that it has ended before somebody waits for it"
        assert process.wait(5) == -signal.SIGTERM
    assert not end_leftover(facts, signal.SIGTERM)


def test_a_process_of_somebody_elses_is_left_alone() -> None:
    other = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], start_new_session=True)
    try:
        assert not end_leftover(process_facts(other.pid, "gangway.trainer.launch"), signal.SIGTERM)
        elsewhere = process_facts(other.pid, "sleep")
        elsewhere["process"]["host"] = "another-machine"
        assert not end_leftover(elsewhere, signal.SIGTERM)
        assert not end_leftover({}, signal.SIGTERM)
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()


def test_this_machine_is_described(tmp_path: Path) -> None:
    found = hardware()
    assert found["cores"] >= 1
    assert found["memory_gib"] > 0.5
    assert f"{found['cores']} cores of" in describe(found)
    (tmp_path / "cpuinfo").write_text("processor\t: 0\nmodel name\t: EPYC 1\n", "utf-8")
    assert hardware(tmp_path / "cpuinfo")["cpu"] == "EPYC 1"
    (tmp_path / "arm").write_text("processor\t: 0\n", "utf-8")
    assert hardware(tmp_path / "arm")["cpu"]
    assert describe(Hardware({**MACHINE, "gpus": ["L4", "L4"]})) == "2 x L4, 4 cores of Model 1, 15.6 GiB"


def test_gpus_are_counted_by_nvidias_library(monkeypatch: pytest.MonkeyPatch) -> None:
    import pynvml

    monkeypatch.setattr(pynvml, "nvmlInit", lambda: None)
    monkeypatch.setattr(pynvml, "nvmlShutdown", lambda: None)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetCount", lambda: 2)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetHandleByIndex", lambda index: index)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetName", lambda handle: f"L4 {handle}")
    monkeypatch.setattr(pynvml, "nvmlDeviceGetUUID", lambda handle: f"GPU-{handle}")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert hardware()["gpus"] == ["L4 0", "L4 1"]


def machine(gpus: int, cores: int = 16) -> Hardware:
    return Hardware(cpu="some", cores=cores, memory_gib=64.0, gpus=["NVIDIA T4"] * gpus, system="Linux x86_64")


@pytest.mark.parametrize(
    ("asked", "largest", "gpus", "visible", "expected"),
    [
        ("auto", 2, 0, None, Placement("cpu", 1, "no GPU here")),
        ("auto", 2, 4, None, Placement("cuda", 8, "4 GPU(s) here, one for each of 2 process(es)")),
        ("auto", 4, 4, None, Placement("cuda", 4, "4 GPU(s) here, one for each of 4 process(es)")),
        (
            "auto", 5, 4, None,
            Placement("cpu", 1, "4 GPU(s) here, fewer than 5 processes: GPUs are used up to --processes 4"),
        ),
        ("cpu", 2, 4, None, Placement("cpu", 1, "requested: --device cpu")),
        ("cuda", 2, 2, None, Placement("cuda", 8, "2 GPU(s) here, one for each of 2 process(es)")),
        ("auto", 1, 0, "", Placement("cpu", 1, "no GPU here (CUDA_VISIBLE_DEVICES=)")),
        (
            "auto", 2, 2, "3,1",
            Placement("cuda", 8, "2 GPU(s) here (CUDA_VISIBLE_DEVICES=3,1), one for each of 2 process(es)"),
        ),
        (
            "auto", 1, 1, "0,-1,2",
            Placement("cuda", 16, "1 GPU(s) here (CUDA_VISIBLE_DEVICES=0,-1,2), one for each of 1 process(es)"),
        ),
        ("auto", 1, 0, "0", Placement("cpu", 1, "no GPU here (CUDA_VISIBLE_DEVICES=0)")),
    ],
)  # fmt: skip
def test_where_they_run_and_why(asked: str, largest: int, gpus: int, visible: str | None, expected: Placement) -> None:
    assert placement(asked, largest, machine(gpus), visible) == expected


@pytest.mark.parametrize(
    ("visible", "expected"),
    [
        (None, ["A", "B", "C"]), ("", []), ("2,0", ["C", "A"]), ("1,-1,0", ["B"]), ("7", []), ("0,7,1", ["A"]),
        ("GPU-b2", ["B"]), ("GPU-b2,GPU-a1", ["B", "A"]), ("GPU-", []), (" 1 ", ["B"]),
    ],
)  # fmt: skip
def test_a_hidden_gpu_is_not_counted(visible: str | None, expected: list[str]) -> None:
    gpus = [_Gpu("A", "GPU-a1"), _Gpu("B", "GPU-b2"), _Gpu("C", "GPU-b3")]
    assert _visible(gpus, visible) == expected


def test_the_collectives_go_with_the_device() -> None:
    assert placement("auto", 2, machine(2), None).backend == "nccl"
    assert placement("auto", 2, machine(0), None).backend == "gloo"


def test_more_processes_than_cores_have_a_thread_each() -> None:
    assert placement("cuda", 8, machine(8, cores=4), None).threads == 1


@pytest.mark.parametrize(
    ("asked", "gpus", "message"),
    [
        ("cuda", 0, r"--device: no GPU here\n[^$]*auto or cpu here"),
        ("cuda", 2, r"--processes: 2 GPU\(s\) here, and each process needs one\n[^$]*1 to 2 with --device cuda"),
        ("cdua", 2, r"--device: no such device\n[^$]*did you mean 'cuda'\?"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused(asked: str, gpus: int, message: str) -> None:
    with pytest.raises(InputError, match=message):
        placement(asked, 4, machine(gpus), None)


@given(st.integers(1, 64), st.integers(0, 16), st.integers(1, 256))
def test_auto_never_fails_and_never_shares_a_gpu(largest: int, gpus: int, cores: int) -> None:
    found = placement("auto", largest, machine(gpus, cores), None)
    assert (found.device == "cuda") == (gpus >= largest)
    assert found.threads * largest <= max(cores, largest)
