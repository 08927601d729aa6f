"""`gangway demo`: plan, sandbox, training with an interruption, record and report; only the cloud is simulated."""

import json
import shutil
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from gangway.components.core.findings import InputError
from gangway.components.core.job import JobSpec
from gangway.jobs.local.run import LocalRun, StatsTail, local_job, run_module
from gangway.report.page import write_report
from gangway.report.plans.show import sandbox_notes, sandbox_table, show_plan
from gangway.sandbox.cloud import MotoCloud
from gangway.sandbox.rows import SandboxRow
from gangway.stacks.base.extras import require
from gangway.stacks.config.job_settings import effective_config
from gangway.stacks.config.paths import ROOT
from gangway.stacks.estimates.run_context import local_context
from gangway.stacks.loading.loader import find_stack_file, from_file
from gangway.stacks.plan.gc_pause import without_gc
from gangway.stacks.plan.plan import Plan, make_plan, run_program
from gangway.trainer.core.errors import EXIT_INTERRUPTED
from gangway.trainer.core.regular_files import check_reachable, file_problem
from gangway.trainer.records.run_record import RunRecord

STACK = "aws-demo"
NUM_PROCESSES = 2
NEEDED_DISK_MIB = 300


@dataclass(frozen=True)
class DemoSize:
    """How much the demo trains and measures."""

    kimg: float
    metrics_samples: int


FULL = DemoSize(kimg=150, metrics_samples=1797)
QUICK = DemoSize(kimg=4, metrics_samples=200)


def run_demo(out: Path, *, quick: bool) -> int:
    """Run the demo in a new directory below `out`. InputError: no space or permission, or a missing extra."""
    require("pulumi_aws", "moto", "torch", "matplotlib")
    console = Console()
    run_dir = _new_run_dir(out)
    try:
        _run_steps(out, run_dir, QUICK if quick else FULL, console)
    except OSError as error:
        if file_problem(error) is not None:  # not about space, and maybe about another folder
            raise
        raise InputError(
            str(run_dir), f"cannot be written: {error}", fix="free some space; `latest` is unchanged"
        ) from None
    return 0


def _run_steps(out: Path, run_dir: Path, size: DemoSize, console: Console) -> None:
    started = time.monotonic()
    _headline(console, "1/5 plan", f"what `pulumi up --stack {STACK}` would create; no account, no network")
    plan = make_plan(from_file(find_stack_file(STACK, ROOT / "stacks")))
    (run_dir / "plan.json").write_text(json.dumps(plan.to_json(), indent=2))
    show_plan(plan, console)
    _headline(console, "2/5 sandbox", "SIMULATED: the plan applied to moto, an AWS inside this process")
    rows = _sandbox(plan, console)
    _headline(console, "3/5 train", f"REAL: a node's job, with {NUM_PROCESSES} gloo processes on this CPU")
    job = _local_job(plan, run_dir, size)
    (run_dir / "job.json").write_text(job.model_dump_json(indent=2))
    _train(job, run_dir, size, console)
    _headline(console, "4/5 evaluate", "REAL: Fréchet distance on EfficientNet-Lite0 features (FD-ENL0, not FID)")
    _evaluate(run_dir, size, console)
    record = RunRecord.model_validate_json((run_dir / "run.json").read_text())
    _show_record(record, console)
    _headline(console, "5/5 report", "one page, works offline")
    stats = StatsTail(run_dir / "stats.jsonl").new_lines()
    report = write_report(
        run_dir,
        plan=plan.to_json(),
        sandbox=rows,
        record=record,
        stats=stats,
        samples_png=run_dir / "samples.png",
        reals_png=run_dir / "reals.png",
    )
    latest = _link_latest(out, run_dir)
    for what, path in (("report", report), ("record", run_dir / "run.json"), ("samples", run_dir / "samples.png")):
        console.print(f"  {what:<8}[bold]{escape(str(latest / path.name))}[/]", soft_wrap=True)
    console.print(f"done in {time.monotonic() - started:.0f} s")


def _headline(console: Console, title: str, subtitle: str) -> None:
    console.rule(f"[bold]{title}[/]", align="left")
    console.print(f"[dim]{escape(subtitle)}[/]")


def _new_run_dir(out: Path) -> Path:
    check_reachable(out)
    try:
        out.mkdir(parents=True, exist_ok=True)
        free_mib = shutil.disk_usage(out).free // 2**20
        if free_mib < NEEDED_DISK_MIB:
            raise InputError(
                str(out),
                "not enough disk space",
                value=f"{free_mib} MiB free",
                allowed=f"{NEEDED_DISK_MIB} MiB",
                fix="free some space, or choose another folder with --out",
            )
        stamp = datetime.now(UTC).strftime("%Y%m%d-%H%M%S-")
        return Path(tempfile.mkdtemp(prefix=stamp, dir=out))
    except OSError as error:
        raise InputError(
            str(out), f"cannot be written: {error.strerror}", fix="choose another folder with --out"
        ) from None


def _link_latest(out: Path, run_dir: Path) -> Path:
    """Replace the link atomically: it never points to an incomplete run."""
    link, fresh = out / "latest", out / f".latest-{run_dir.name}"
    fresh.symlink_to(run_dir.name)
    fresh.replace(link)
    return link


def _sandbox(plan: Plan, console: Console) -> tuple[SandboxRow, ...]:
    with MotoCloud(plan.config.region) as cloud:
        _apply(plan, cloud, console)
        rows = cloud.read_back()
    console.print(sandbox_table(rows))
    for note in sandbox_notes(rows):
        console.print(f"  [dim]{escape(note)}[/]")
    counts = Counter(str(row.status) for row in rows)
    console.print(f"{len(rows)} declared: " + ", ".join(f"{count} {status}" for status, count in counts.most_common()))
    return rows


def _apply(plan: Plan, cloud: MotoCloud, console: Console) -> None:
    from gangway.bench.pulumi_cli import find_cli
    from gangway.sandbox.engine import up

    try:
        command = find_cli(install=False)
    except InputError as error:
        console.print(f"[dim]without Pulumi's engine ({escape(error.problem)}): using the SDK's mocks[/]")
        with console.status("applying with boto3; botocore checks every request"), without_gc():
            run_program(plan.config, cloud)
        return
    with console.status("pulumi up") as status:
        changes = up(command, plan.config, cloud, lambda number: status.update(f"pulumi up: {number} resources"))
    counts = ", ".join(f"{number} {operation}" for operation, number in sorted(changes.items()))
    console.print(f"REAL: `pulumi up` by the engine on PATH ({counts})")


def _local_job(plan: Plan, run_dir: Path, size: DemoSize) -> JobSpec:
    return local_job(
        f"{plan.config.stack}-local",
        effective_config(plan.config.training.preset, {}, {"kimg": size.kimg}).document(),
        run_dir,
        NUM_PROCESSES,
        on_gpus=False,
        threads=1,
        context=local_context(plan.config.stack, run_dir.name),
    )


def _train(job: JobSpec, run_dir: Path, size: DemoSize, console: Console) -> None:
    """Train, interrupt with SIGTERM at half time like a spot node, and resume from the checkpoint."""
    tail, log = StatsTail(run_dir / "stats.jsonl"), run_dir / "train.log"
    with _progress(console) as progress:
        task = progress.add_task("training", total=size.kimg * 1000, detail="starting torchrun")
        code = _follow(job, log, tail, progress, task, interrupt_at=size.kimg * 1000 / 2)
        if code != EXIT_INTERRUPTED:
            raise _log_error("training did not stop correctly after SIGTERM", code, log)
        progress.console.print("[yellow]SIGTERM at half time[/], as on spot: checkpoint written, exit 75")
        code = _follow(job, log, tail, progress, task, interrupt_at=None)
        if code != 0:
            raise _log_error("training failed", code, log)


def _follow(
    job: JobSpec, log: Path, tail: StatsTail, progress: Progress, task: TaskID, interrupt_at: float | None
) -> int:
    with LocalRun.start(job, log) as run:
        is_interrupted = False
        while True:
            code = run.exit_code  # read before the lines, so that none of the last ones is missed
            for line in tail.new_lines():
                _advance(line, progress, task)
                reached = line.get("images", 0)
                if interrupt_at is not None and not is_interrupted and reached >= interrupt_at:
                    run.interrupt()
                    is_interrupted = True
            if code is not None:
                return code
            time.sleep(0.1)


def _advance(line: dict[str, Any], progress: Progress, task: TaskID) -> None:
    if line.get("event") == "resume":
        progress.console.print(f"[green]resumed[/] from the checkpoint at {line['images']:,} images")
    if "loss_g" in line:
        detail = f"{line['images_per_sec']:.0f} img/s  G {line['loss_g']:.2f}  D {line['loss_d']:.2f}"
        progress.update(task, completed=line["images"], detail=detail)
        if not progress.console.is_terminal:
            _print_progress(line["images"], detail, progress, task)


def _print_progress(images: int, detail: str, progress: Progress, task: TaskID) -> None:
    """Print a line every tenth of the run: log files show no progress bar."""
    row = progress.tasks[task]
    tenths = int(10 * images / (row.total or images))
    if tenths > row.fields.get("tenths", 0):
        progress.update(task, tenths=tenths)
        progress.console.print(f"{10 * tenths:>4} %  {images:>7,} images  {detail}")


def _log_error(problem: str, code: int, log: Path) -> InputError:
    last = "\n".join(log.read_text("utf-8", "replace").splitlines()[-15:])
    return InputError(str(log), f"{problem} (exit code {code}); end of the log:\n{last}", fix="read the whole log")


def _evaluate(run_dir: Path, size: DemoSize, console: Console) -> None:
    with _progress(console) as progress:
        task = progress.add_task("features", total=None, detail="untrained, trained, real against real")
        argv = ["evaluate", "--run-dir", str(run_dir), "--samples", str(size.metrics_samples)]
        log = run_dir / "evaluate.log"
        try:
            for _ in run_module("gangway.trainer", argv, log, {}):
                progress.refresh()
        except subprocess.CalledProcessError as failed:
            raise _log_error("evaluation failed", failed.returncode, log) from None
        progress.update(task, total=1, completed=1, detail="done")


def _show_record(record: RunRecord, console: Console) -> None:
    table = Table(title=f"run {escape(record.id)}", title_justify="left")
    for column in ("figure", "value", "provenance", "source"):
        table.add_column(column, overflow="fold")
    quality = [
        (f"{q.name}, {label}", quantity)
        for q in record.quality
        for label, quantity in (("untrained", q.untrained), ("trained", q.trained), ("real vs real", q.real_vs_real))
    ]
    figures = [
        *quality,
        ("images/s", record.images_per_sec),
        ("wall time", record.wall_sec),
        ("IT energy", record.energy.it_joules),
        ("carbon", record.carbon.gco2e),
        ("cost", record.cost.total_usd),
        ("peak memory", record.peak_memory_gib),
        *((f"lost to {i.cause}", i.lost_sec) for i in record.interruptions),
    ]
    for name, quantity in figures:
        value = "-" if quantity.value is None else f"{quantity.value:,.3g} {quantity.unit}"
        table.add_row(escape(name), value, quantity.provenance, escape(quantity.source))
    console.print(table)


@contextmanager
def _progress(console: Console) -> Iterator[Progress]:
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f} %"),
        TimeElapsedColumn(),
        TextColumn("{task.fields[detail]}"),
    )
    with Progress(*columns, console=console) as progress:
        yield progress
