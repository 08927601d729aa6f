"""Reads the input of `gangway simulate`: a scenario in YAML, or jobs in CSV."""

import csv
import io
import math
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from gangway.components.core.findings import InputError
from gangway.components.core.foreign_files import foreign_file, foreign_path
from gangway.sim.forecast.public_formats import JobLog, csv_rows, is_job_log, parse_job_log
from gangway.sim.schedule.scenario import (
    MOST_JOBS,
    ClusterConfig,
    GenerateConfig,
    JobConfig,
    RungConfig,
    Scenario,
    ScenarioConfig,
    TraceConfig,
    build,
)
from gangway.stacks.config.explain_errors import explain
from gangway.stacks.config.yaml_file import odd_texts, read_model
from gangway.trainer.core.regular_files import read_text_file

_MAX_BYTES = 50_000_000
_BEYOND = "beyond the columns"


def read_scenario(path: Path, gpus: int | None) -> Scenario:
    """Read a scenario from YAML, or from a CSV of jobs on `gpus` GPUs. InputError, or an ExceptionGroup of them."""
    if not path.is_file():
        raise InputError(
            str(path), "not a regular file" if path.exists() else "no such file",
            allowed="a scenario in YAML, as in gangway/suites/scheduling, or jobs in CSV",
            fix="check the path, or write --generate philly-like in its place",
        )  # fmt: skip
    if path.suffix.lower() == ".csv":
        if gpus is None:
            raise InputError(
                "--gpus",
                "missing: a CSV file says nothing of the cluster",
                allowed="a number of GPUs, or a scenario in YAML whose trace is this file",
                fix="add --gpus 64",
            )
        trace = _read_trace(path)
        return _build(_owned_cluster(gpus, trace=str(path)), trace, path)
    if gpus is not None:
        if foreign := foreign_path(path, "simulate"):
            raise foreign
        raise InputError(
            "--gpus", "not beside a scenario, which has its own", value=gpus, allowed="with a CSV file, or --generate",
            fix="leave it out, or change cluster.capacity in the file",
        )  # fmt: skip
    config = read_model(
        path, ScenarioConfig, named="scenario", keys="cluster and jobs", folder="gangway/suites/scheduling"
    )
    return _build(config, None if config.trace is None else _read_trace(path.parent / config.trace), path)


def generated(jobs: int, gpus: int, load: float) -> Scenario:
    """Philly-like jobs on so many permanent GPUs."""
    return build(_owned_cluster(gpus, generate=GenerateConfig(jobs=jobs, load=load)))


def _owned_cluster(gpus: int, *, trace: str | None = None, generate: GenerateConfig | None = None) -> ScenarioConfig:
    rung = RungConfig(kind="reserved", nodes=gpus)
    return ScenarioConfig(cluster=ClusterConfig(capacity=(rung,)), trace=trace, generate=generate)


def _build(config: ScenarioConfig, trace: TraceConfig | None, path: Path) -> Scenario:
    try:
        return build(config, trace)
    except InputError as mistake:
        raise mistake.within(str(path)) from None


def _read_trace(path: Path) -> TraceConfig:
    """A CSV whose columns are the fields of `JobConfig`, empty cells unset; or a published cluster log."""
    text = _text(path)
    if foreign := foreign_file(str(path), text, "simulate"):
        raise foreign
    if is_job_log(text):
        return _as_trace(parse_job_log(text, str(path)), path)
    rows = [row for _, row in csv_rows(csv.DictReader(io.StringIO(text), restkey=_BEYOND), str(path))]
    columns = set(rows[0]) if rows else set()
    if not rows or "name" not in columns:
        found = text.split("\n", maxsplit=1)[0].strip()
        raise InputError(
            str(path), "no jobs", value=found or "an empty file",
            allowed=f"a first line of columns, of {', '.join(JobConfig.model_fields)}, and a line for each job",
            fix="add a line for each job" if "name" in found.split(",")
            else "begin with the line name,submit_hours,gpus,hours",
        )  # fmt: skip
    if (wide := next((index for index, row in enumerate(rows) if _BEYOND in row), None)) is not None:
        cells = ", ".join(rows[wide][_BEYOND])
        allowed = f"a cell for each of the {len(rows[wide]) - 1} columns of the first line"
        raise InputError(f"{path}: jobs[{wide}]", "more cells than there are columns", value=cells, allowed=allowed,
                         fix="leave these cells out, or name their columns")  # fmt: skip
    jobs: list[dict[str, Any]] = [
        {str(key): value.strip() if isinstance(value, str) else value for key, value in row.items() if value}
        for row in rows
    ]
    if odd := list(odd_texts({"jobs": jobs}, f"{path}: ")):
        raise ExceptionGroup(f"{path} is not valid", odd)
    try:
        return TraceConfig.model_validate({"jobs": jobs})
    except ValidationError as error:
        raise ExceptionGroup(f"{path} is not valid", explain(error, TraceConfig, str(path), namespace="")) from None


def _as_trace(log: JobLog, path: Path) -> TraceConfig:
    """Jobs with the GPUs they had, the only width in a log; hours count from the first submission."""
    start = log.jobs[0].submitted
    if len(log.jobs) > MOST_JOBS:
        raise InputError(str(path), "too many jobs", value=len(log.jobs), allowed=f"{MOST_JOBS:,}",
                         fix="give those of some weeks, or of one part of the cluster")  # fmt: skip
    jobs = [
        {
            "name": job.name,
            "submit_hours": (job.submitted - start).total_seconds() / 3600,
            "gpus": math.ceil(job.gpus),
            "hours": job.run_sec / 3600,
            "group": job.group,
        }
        for job in log.jobs
    ]
    notes = (
        f"real: when jobs came, their GPUs and how long they ran: {path.name}, {log.note}",
        "assumed: each needs the GPUs that it had, all at once and whole ones, and asks for just as long as it ran",
    )
    return TraceConfig.model_validate({"jobs": jobs, "notes": notes})


def _text(path: Path) -> str:
    try:
        return read_text_file(path, _MAX_BYTES)
    except UnicodeDecodeError:
        raise InputError(str(path), "no UTF-8 text", allowed="a CSV file in UTF-8", fix="save it as UTF-8") from None
    except OSError as error:
        raise InputError(
            str(path), f"cannot be read: {error.strerror}", allowed="jobs in CSV that this user may read",
            fix="check the path; trace: is one from the scenario's own folder",
        ) from None  # fmt: skip
