"""The record of a job, asked of its engine and its run folder; and as a table."""

from datetime import datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gangway.jobs.records.job_record import JobRecord
    from gangway.jobs.sites import Site


def ask(site: "Site", job_id: str, now: datetime) -> "JobRecord":
    """As it is now. InputError: the engine knows no such job."""
    from gangway.jobs.job_folders import FolderEngine
    from gangway.jobs.records.figures import Absent
    from gangway.jobs.records.job_record import Begun, job_record
    from gangway.jobs.records.run_reports import nothing_reported, read_reported

    engine = site.engine
    status = engine.status(job_id)
    if not isinstance(engine, FolderEngine):
        place = f"{engine.kind}, {engine.where}"
        away = nothing_reported(f"the run folder is on {place}, out of reach from here")
        return job_record(site, status, Absent(f"{place} does not say which starts failed"), away, now)
    kept = engine.kept(job_id)
    begun = Begun(kept.failures, kept.job.max_restarts - status.used_before.failures)
    return job_record(site, status, begun, read_reported(kept.job, kept.folder.by_descriptor), now)


def ask_stack(stack: str, now: datetime) -> "JobRecord":
    """Of the command that a stack has up. InputError: it has a preset, whose run has a record of its own; or it is not
    up.
    """
    from components.core.findings import InputError
    from components.core.job import JobSpec
    from gangway.cli.common import stacks_dir
    from gangway.finops.audit.state import stack_outputs
    from gangway.jobs.systemd.command_record import command_record
    from gangway.runs.run_store import RunStore, bucket_region, runs_url
    from stacks.config.paths import project_folder
    from stacks.loading.loader import find_stack_file, from_file
    from stacks.providers.openstack.settings import storage_cloud

    config = from_file(find_stack_file(stack, stacks_dir()))
    if config.own_command is None:
        raise InputError(
            "gangway:job", "no command: what a preset's run has used stands in its own record",
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
    """Prints it: what there is, then what there is not."""
    from rich.console import Console
    from rich.table import Table

    from components.core.visible import visible
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
