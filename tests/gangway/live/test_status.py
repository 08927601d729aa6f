"""`gangway status`: what is known of each stack, job and run, with its source; an unreadable one hides no other."""

import json
import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from gangway.cli.main import app
from gangway.components.core.findings import InputError
from gangway.live.model import Overview
from gangway.stacks.config.paths import module_environment
from tests.gangway.live.conftest import GROUP, STACK, put_lines, run_lines, tick, write_lines


def ask(*words: str) -> Result:
    return CliRunner().invoke(app, ["status", *words])


def rows(*words: str, code: int = 0) -> dict[str, dict[str, Any]]:
    """The JSON's rows by name, after a check against the model."""
    found = ask("--json", *words)
    assert found.exit_code == code, (found.output, found.exception)
    Overview.model_validate_json(found.stdout)
    return {row["name"]: row for row in json.loads(found.stdout)["rows"]}


@pytest.fixture
def up(make_stack: Callable[..., Any], aws: Any) -> Any:
    return make_stack(log_group="/gangway/demo")


def test_a_running_stack_is_shown_with_all_its_figures(up: Any) -> None:
    row = rows("demo")["demo"]
    assert row["problem"] == ""
    assert (row["state"]["text"], row["breaker"]["text"]) == ("running", "closed")
    (head, rung) = row["nodes"]
    assert head == {"name": "head", "wanted": None, "by_state": {"running": 1}}
    assert rung == {"name": GROUP, "wanted": 2, "by_state": {"running": 2}}
    assert (row["images"]["value"], row["images_wanted"]["value"]) == (1_200_000, 20_000_000)
    assert row["images_per_sec"]["value"] == pytest.approx(1000)
    left = row["sec_left"]
    assert left["low"] <= left["value"] <= left["high"]
    assert left["value"] == pytest.approx(18_800, rel=0.01)
    assert "bootstrap" in left["note"]
    assert row["usd"]["value"] == pytest.approx(80 / 3)
    assert row["usd_estimate"]["low"] < row["usd_estimate"]["value"]
    assert row["budget_usd"]["value"] == 90_000
    assert row["idle_devices"]["value"] == 0
    assert row["checkpoint"]["text"] == "at 120,000 images"
    assert row["notice"]["text"] == "spot-interruption, at 60,000 images"
    assert all(figure["source"] for figure in row.values() if isinstance(figure, dict))


def test_lines_of_the_cloud_s_log_are_newer_than_the_bucket_s(up: Any, aws: Any) -> None:
    now = time.time()
    write_lines(up.folder, run_lines(now - 1200))
    newer = [(now - 30, json.dumps(tick(now - 30, 2_400_000, session=1))), (now - 20, "Traceback: \x1b[31m{")]
    put_lines(aws, "i-0123/job", newer)
    row = rows("demo")["demo"]
    assert row["images"]["value"] == 2_400_000
    assert "/gangway/demo" in row["images"]["source"]


def test_the_text_has_what_is_known_and_why_the_rest_is_not(up: Any, tmp_path: Path) -> None:
    (up.folder / "stats.jsonl").unlink()
    found = ask("demo")
    assert found.exit_code == 0, found.output
    text = " ".join(found.stdout.split())
    assert "state waiting" in text
    assert f"{GROUP}: 2 running (target 2)" in text
    assert "nothing is recorded yet" in text
    sources = " ".join(ask("demo", "--sources").stdout.split())
    assert "budget.monthly_usd of the stack file" in sources


def test_missing_permissions_hide_only_what_they_read(up: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    up.outputs["log_group"] = "/gangway/nonesuch"
    up.save()
    row = rows("demo")["demo"]
    assert "log /gangway/nonesuch unreadable" in row["images"]["source"]
    assert row["images"]["value"] == 1_200_000
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    row = rows("demo")["demo"]
    assert row["nodes"] == []
    assert "credentials" in row["nodes_source"]
    assert row["images"]["value"] == 1_200_000


def test_everything_is_shown_and_what_cannot_be_read_is_a_row(
    up: Any, make_stack: Callable[..., Any], project: Path
) -> None:
    half = make_stack("half")
    make_stack("gone")
    half.outputs = {}
    half.add("aws:ec2/vpc:Vpc", "half")
    half.save()
    (project / "Pulumi.gone.yaml").unlink()
    write_lines(project / "runs/mine", run_lines(time.time() - 7200))
    (project / "runs/broken").mkdir()
    (project / "runs/broken/run.json").write_text("{")
    found = rows(code=1)
    assert set(found) == {"demo", "half", "gone", "mine", "broken"}
    assert "half up: 1 resources" in found["half"]["problem"]
    assert "Pulumi.gone.yaml" in found["gone"]["problem"]
    assert found["gone"]["images"]["value"] is None, "unknown is no zero"
    assert "not a record" in found["broken"]["problem"]
    assert found["mine"]["state"]["text"] == "silent"
    assert found["demo"]["problem"] == ""
    text = ask()
    assert text.exit_code == 1
    assert "cannot be read" in text.stdout


def test_without_a_backend_the_rest_is_shown_with_a_note(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PULUMI_BACKEND_URL")
    write_lines(project / "runs/mine", run_lines(time.time()))
    found = ask()
    assert found.exit_code == 0, found.output
    assert "note: stacks are not shown" in found.stdout
    assert "mine" in found.stdout


def test_a_name_that_is_nothing_is_refused(project: Path) -> None:
    for words in (["nonesuch"], ["--json", "--watch"], ["nonesuch", "--on", f"local:{project}"]):
        found = ask(*words)
        assert isinstance(found.exception, InputError), words


def test_a_queue_s_jobs_are_rows_and_its_hostile_names_stay_in_theirs(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = project / "queue"
    (project / "job.yaml").write_text("command: [sh, -c, 'exit 0']\nmax_hours: 0.1\nname: small\n")
    submitted = CliRunner().invoke(app, ["job", "submit", str(project / "job.yaml"), "--on", f"local:{queue}"])
    assert submitted.exit_code == 0, (submitted.output, submitted.exception)
    job = submitted.stdout.splitlines()[0]
    CliRunner().invoke(app, ["job", "wait", job, "--on", f"local:{queue}"])
    (project / "engines.yaml").write_text(f"engines: {{lab: {{engine: 'local:{queue}', usd_per_node_hour: 2}}}}\n")
    monkeypatch.setenv("GANGWAY_ENGINES", str(project / "engines.yaml"))
    row = rows()[job]
    assert (row["kind"], row["state"]["text"]) == ("job", "done")
    assert row["usd"]["value"] is not None
    assert row["usd_estimate"]["value"] == pytest.approx(0.2)
    assert row["images"]["value"] is None
    assert "counts no images" in row["images"]["source"]
    assert rows(job, "--on", "lab")[job]["where"].startswith("lab: local")
    (queue / "away\x1b[31m").mkdir()
    assert "\x1b" not in ask().stdout


def test_an_engine_that_is_away_is_a_row(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (project / "engines.yaml").write_text("engines: {far: {engine: 'local:/nowhere/at/all'}}\n")
    monkeypatch.setenv("GANGWAY_ENGINES", str(project / "engines.yaml"))
    row = rows(code=1)["all jobs"]
    assert "there is no such folder" in row["problem"]


def test_a_cluster_with_a_queue_has_nodes_and_no_figures_of_a_job(make_stack: Callable[..., Any], aws: Any) -> None:
    config = {name: value for name, value in STACK.items() if name != "gangway:job"}
    config["gangway:engine"] = {"kind": "slurm"}
    make_stack(config=config)
    row = rows("demo")["demo"]
    assert row["state"]["text"] == "queue"
    assert "in its queue" in row["images"]["source"]


def test_watching_without_a_terminal_prints_once(up: Any) -> None:
    found = ask("demo", "--watch")
    assert found.exit_code == 0
    assert found.stdout.count("stack, aws") == 1


@pytest.mark.slow
def test_watching_ends_with_ctrl_c(project: Path) -> None:
    write_lines(project / "runs/mine", run_lines(time.time()))
    ours, theirs = pty.openpty()
    argv = [sys.executable, "-m", "gangway.cli", "status", "runs/mine", "--watch", "--every", "1"]
    env = module_environment({**os.environ, "TERM": "xterm", "COLUMNS": "100"})
    with subprocess.Popen(argv, env=env, cwd=project, stdin=theirs, stdout=theirs, stderr=theirs) as process:
        os.close(theirs)
        text = b""
        while b"time left" not in text:
            text += os.read(ours, 4096)
        process.send_signal(signal.SIGINT)
        with suppress(OSError):  # the terminal is closed
            while part := os.read(ours, 4096):
                text += part
        assert process.wait(60) == 0
    os.close(ours)
    assert b"Traceback" not in text


@pytest.mark.parametrize(
    ("energy", "utilisation", "idle"),
    [(600.0, 0.9, 0), (80.0, 0.5, 1), (600.0, 0.01, 16), (None, 0.9, 0), (-600.0, 0.9, 0)],  # a counter that fell
)
def test_idle_gpus_are_those_that_draw_less_than_half_of_the_busiest_one(
    energy: float | None, utilisation: float, idle: int
) -> None:
    from gangway.live.progress import idle_devices

    def line(at: float) -> dict[str, Any]:
        watts = {f"node0/gpu{index}": 600.0 for index in range(3)}
        gpus = {name: [each * at, "measured", "NVML"] for name, each in watts.items()}
        gpus["node0/gpu3"] = [None if energy is None else energy * at, "measured", "NVML"]
        return tick(at, int(at), energy=gpus, gpu_utilisation=utilisation)

    assert idle_devices([line(1000), line(1060)], "x").value == idle


def test_hostile_lines_are_skipped() -> None:
    from gangway.live.progress import parse_lines

    good = tick(1000.0, 5)
    texts: list[str | bytes] = ["{", "[]", '{"images": 1}', "[" * 100_000, b"\xff", json.dumps(good)]
    texts += [json.dumps({**good, "time": 1e300}), json.dumps({**good, "session": "\x1b"})]
    texts += [json.dumps({**good, "time": True})]
    assert [line["images"] for line in parse_lines(texts)] == [5]
