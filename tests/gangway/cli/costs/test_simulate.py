"""`gangway simulate`: a trace in, figures out; every mistake with its place and its fix, before anything is done."""

import json
import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from gangway.cli import main
from gangway.components.core.findings import InputError
from gangway.sim.reading import read_scenario

REPO = Path(__file__).resolve().parents[4]
SHIPPED = sorted((REPO / "gangway/suites/scheduling").glob("*.yaml"))
TRACE = "name,submit_hours,gpus,hours,group,deadline_hours\na,0,3,10,x,\nb,0.5,4,1,,2\nc,1,1-2,5,y,\n"
SCENARIO = """\
title: Small
assumptions: ["assumed: nothing goes wrong"]
cluster:
  capacity: [{kind: reserved, nodes: 4, usd_per_gpu_hour: 2}]
  start_sec: 0
trace: jobs.csv
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "jobs.csv").write_text(TRACE, "utf-8")
    (tmp_path / "small.yaml").write_text(SCENARIO, "utf-8")
    return tmp_path


def simulated(*arguments: str | Path) -> dict[str, dict[str, float]]:
    result = CliRunner().invoke(main.app, ["simulate", *map(str, arguments), "--json"])
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert found["kind"] == "simulated"
    return {one["policy"]: one["mean"] for one in found["policies"]}


def test_a_trace_by_hand(folder: Path) -> None:
    """The second needs all four GPUs: under FIFO c waits behind it for a's ten hours, backfilled it does not."""
    found = simulated(folder / "small.yaml", "--policy", "fifo", "--policy", "backfill")
    assert list(found) == ["fifo", "backfill"]
    assert found["fifo"]["makespan_hours"] == pytest.approx(11 + 2.5)
    assert found["backfill"]["makespan_hours"] == pytest.approx(11)
    assert found["fifo"]["usd"] == pytest.approx(13.5 * 4 * 2)
    assert found["fifo"]["late"] == 1


def test_the_csv_alone_on_gpus_of_ones_own(folder: Path) -> None:
    found = simulated(folder / "jobs.csv", "--gpus", "4", "--policy", "fifo")
    assert found["fifo"]["usd"] is None, "nobody has said what they cost"
    assert found["fifo"]["makespan_hours"] > 13.5, "starts take their time here"


LOG = """timestamp,duration,num_gpus,gpu_time,cluster
2017-10-09 09:00:00,36000,3,0,x
2017-10-09 08:00:00,3600,4,0,y
2017-10-09 09:30:00,1800,1,0,y
"""


def test_a_clusters_log_is_a_trace(folder: Path) -> None:
    """The first runs for an hour on all four GPUs, then the wide one and the short one side by side."""
    (folder / "log.csv").write_text(LOG, "utf-8")
    (folder / "small.yaml").write_text(SCENARIO.replace("jobs.csv", "log.csv"), "utf-8")
    found = simulated(folder / "small.yaml", "--policy", "fifo")["fifo"]
    assert found["makespan_hours"] == pytest.approx(11)
    assert found["job_hours_mean"] == pytest.approx((1 + 10 + 0.5) / 3)
    assert found["usd"] == pytest.approx(11 * 4 * 2)
    said = CliRunner().invoke(main.app, ["simulate", str(folder / "log.csv"), "--gpus", "4", "--policy", "fifo"]).stdout
    assert "- real: when jobs came" in said
    assert "- assumed: each needs the GPUs that it had" in said
    with pytest.raises(InputError, match="more GPUs than the cluster has"):
        read_scenario(folder / "log.csv", 3)


def test_all_policies_without_a_choice_and_the_same_by_seed() -> None:
    arguments = ("--generate", "philly-like", "--jobs", "30", "--gpus", "16", "--seed", "1", "--repeats", "2")
    assert list(simulated(*arguments)) == ["fifo", "backfill", "shortest", "goodput", "learned"]
    assert simulated(*arguments) == simulated(*arguments)


def test_what_is_printed_names_what_is_assumed(folder: Path) -> None:
    result = CliRunner().invoke(
        main.app, ["simulate", str(folder / "small.yaml"), "--policy", "fifo", "--policy", "learned", "--repeats", "2"]
    )
    assert result.exit_code == 0, result.output
    assert "- assumed: nothing goes wrong" in result.stdout
    assert "too few seeds for a claim: 2 of 6" in result.stdout


@pytest.mark.parametrize("kind", ["png", "svg"])
def test_a_picture_is_drawn_and_never_over_another(folder: Path, kind: str) -> None:
    picture = folder / f"use.{kind}"
    arguments = ["simulate", str(folder / "small.yaml"), "--policy", "fifo", "--plot", str(picture)]
    assert CliRunner().invoke(main.app, arguments).exit_code == 0
    first = picture.read_bytes()
    assert first.startswith(b"\x89PNG" if kind == "png" else b"<?xml")
    assert CliRunner().invoke(main.app, [*arguments, "--overwrite"]).exit_code == 0
    assert picture.read_bytes() == first


def refused(*arguments: str) -> str:
    """The mistakes that `main` prints, with exit code 2."""
    result = CliRunner().invoke(main.app, ["simulate", *arguments])
    assert result.stdout == ""
    wrong = result.exception
    mistakes = wrong.exceptions if isinstance(wrong, ExceptionGroup) else (wrong,)
    assert all(isinstance(mistake, InputError) for mistake in mistakes), result.output
    return "\n".join(map(str, mistakes))


MISTAKES = {
    "no policy": (("small.yaml", "--policy", "backfil"), "did you mean 'backfill'?"),
    "both": (("small.yaml", "--generate", "philly-like"), "fix:     remove one"),
    "neither": ((), "fix:     add --generate philly-like"),
    "statistics": (("--generate", "phily-like"), "did you mean 'philly-like'?"),
    "no cluster": (("jobs.csv",), "fix:     add --gpus 64"),
    "two clusters": (("small.yaml", "--gpus", "4"), "fix:     leave it out"),
    "jobs of a file": (("small.yaml", "--jobs", "4"), "fix:     remove --jobs"),
    "too wide": (("jobs.csv", "--gpus", "2"), "jobs.csv: jobs[0].gpus: needs more GPUs"),
    "picture": (("small.yaml", "--plot", "use.pdf"), "fix:     --plot use.png"),
    "picture that is there": (("small.yaml", "--plot", "there.png"), "--plot: already exists"),
    "folder": (("small.yaml", "--plot", "none/use.png"), "fix:     mkdir -p none"),
    "no file": (("none.yaml",), "none.yaml: no such file\n  allowed: a scenario in YAML"),
    "a pipe": (("pipe",), "pipe: not a regular file\n  allowed: a scenario in YAML"),
    "a folder": ((".",), ".: not a regular file\n  allowed: a scenario in YAML"),
    "no CSV": (("none.csv", "--gpus", "4"), "none.csv: no such file\n  allowed: a scenario in YAML"),
    "no file, mended": (("none.yaml",), "fix:     check the path, or write --generate philly-like"),
    "no trace": (("traceless.yaml",), "none.csv: cannot be read: No such file or directory\n  allowed: jobs in CSV"),
    "empty": (("empty.csv", "--gpus", "4"), "empty.csv: no jobs"),
    "cell": (("cell.csv", "--gpus", "4"), "cell.csv: jobs[1].hours"),
    "cells": (("cells.csv", "--gpus", "4"), "cells.csv: jobs[0]: more cells than there are columns"),
    "quote": (("quote.csv", "--gpus", "4"), "quote.csv, line 3: begins a row that is no CSV"),
    "column": (("column.csv", "--gpus", "4"), "did you mean 'submit_hours'?"),
    "key": (("key.yaml",), "did you mean 'nodes'?"),
    "bound": (("bound.yaml",), "bound.yaml: cluster.idle_share"),
    "endless": (("endless.yaml", "--policy", "fifo"), "jobs have not ended"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_told_with_its_place_and_fix(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments, says = MISTAKES[name]
    monkeypatch.chdir(folder)
    (folder / "there.png").touch()
    os.mkfifo(folder / "pipe")
    (folder / "empty.csv").touch()
    (folder / "cell.csv").write_text("name,submit_hours,gpus,hours\na,0,1,1\nb,0,1,long\n", "utf-8")
    (folder / "cells.csv").write_text("name,submit_hours,gpus,hours\na,0,1,1,9,9\n", "utf-8")
    (folder / "quote.csv").write_text(f'name,submit_hours,gpus,hours\na,0,1,1\n"b,0,1,1\n{"x" * 200_000}', "utf-8")
    (folder / "column.csv").write_text("name,submit_hour,gpus,hours\na,0,1,1\n", "utf-8")
    (folder / "traceless.yaml").write_text(SCENARIO.replace("jobs.csv", "none.csv"), "utf-8")
    (folder / "key.yaml").write_text(SCENARIO.replace("nodes", "node"), "utf-8")
    (folder / "bound.yaml").write_text(SCENARIO.replace("start_sec: 0", "idle_share: 3"), "utf-8")
    flaky = "gone_per_hour: 100, back_hours: 0.01"
    endless = SCENARIO.replace("usd_per_gpu_hour: 2", flaky).replace("start_sec: 0", "start_sec: 36000")
    (folder / "endless.yaml").write_text(endless, "utf-8")
    before = sorted(path.name for path in folder.iterdir())
    assert says in refused(*arguments)
    assert sorted(path.name for path in folder.iterdir()) == before, "nothing is written"


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_a_shipped_scenario_can_be_read_and_lists_what_it_assumes(path: Path) -> None:
    scenario = read_scenario(path, None)
    assert scenario.cluster.num_gpus == 256
    assert sum("assumed" in note for note in scenario.notes) >= 3
    assert len(scenario.jobs(0)) > 100
