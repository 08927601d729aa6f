"""Gets the record of a job from its engine and run folder, and prints it."""

from datetime import datetime
from typing import TYPE_CHECKING

from gangway.cli.common import load_stack

if TYPE_CHECKING:
    from gangway.jobs.records.job_record import JobRecord
    from gangway.jobs.sites import Site


def get_record(site: "Site", job_id: str, now: datetime) -> "JobRecord":
    """Get the record of an engine's job. InputError: no such job."""
    from gangway.jobs.job_folders import FolderEngine
    from gangway.jobs.records.figures import Absent
    from gangway.jobs.records.job_record import StartCounts, job_record
    from gangway.jobs.records.run_reports import no_report, read_reported

    engine = site.engine
    status = engine.status(job_id)
    if not isinstance(engine, FolderEngine):
        place = f"{engine.kind}, {engine.where}"
        unread = no_report(f"the run folder is on {place}, not reachable from here")
        return job_record(site, status, Absent(f"{place} does not report which starts failed"), unread, now)
    job = engine.get_stored_job(job_id)
    begun = StartCounts(job.failures, job.job.max_restarts - status.earlier_usage.failures)
    return job_record(site, status, begun, read_reported(job.job, job.folder.by_descriptor), now)


def get_stack_record(stack: str, now: datetime) -> "JobRecord":
    """Get the record of a stack's job.command. InputError: the stack has a preset instead, or is not up."""
    from gangway.components.core.findings import InputError
    from gangway.components.core.job import JobSpec
    from gangway.finops.audit.state import stack_outputs
    from gangway.jobs.systemd.command_record import command_record
    from gangway.runs.run_store import RunStore, bucket_region, runs_url
    from gangway.stacks.config.paths import project_folder
    from gangway.stacks.providers.openstack.settings import storage_cloud

    config = load_stack(stack)
    if config.own_command is None:
        raise InputError(
            "gangway:job", "no command: a preset's run writes its own record",
            allowed="a stack with job.command", fix=f"gangway job {config.stack_name}",
        )  # fmt: skip
    outputs = stack_outputs(config.stack_name, project_folder())
    if not outputs.get("job") or not (outputs.get("run_bucket") or outputs.get("run_bucket_url")):
        raise InputError(
            f"pulumi stack output --stack {config.stack_name}",
            "no job and no run_bucket: the stack is not up",
            fix="pulumi up",
        )
    url = runs_url(config.provider, outputs, config.stack)
    store = RunStore(url, bucket_region(config.provider, config.region), storage_cloud(config))
    return command_record(config, JobSpec.model_validate(outputs["job"]), store, now)


def show(record: "JobRecord") -> None:
    """Print the figures, then the missing ones with their reasons."""
    from rich.console import Console
    from rich.table import Table

    from gangway.components.core.visible import visible
    from gangway.render.rendering import number, unit_text

    table = Table()
    table.add_column("figure", no_wrap=True)
    table.add_column("value", justify="right", no_wrap=True)
    table.add_column("source", no_wrap=True)
    table.add_column("note", overflow="fold")
    for name, figure in (*record.figures.items(), *record.metrics.items()):
        value = f"{number(figure.value, figure.unit)} {unit_text(figure.unit)}".rstrip()
        table.add_row(name, value, str(figure.source), visible(figure.note))
    for name, why in record.absent.items():
        table.add_row(name, "", "absent", visible(why))
    Console(markup=False, highlight=False).print(table)
