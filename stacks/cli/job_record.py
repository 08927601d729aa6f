"""The record of a job, asked of its engine and its run folder; and as a table."""

from datetime import datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stacks.engines.hybrid.sites import Site
    from stacks.engines.records.job_record import JobRecord


def ask(site: "Site", job_id: str, now: datetime) -> "JobRecord":
    """As it is now. InputError: the engine knows no such job."""
    from stacks.engines.job_folders import FolderEngine
    from stacks.engines.records.figures import Absent
    from stacks.engines.records.job_record import Begun, job_record
    from stacks.engines.records.reported import nothing_reported, read_reported

    engine = site.engine
    status = engine.status(job_id)
    if not isinstance(engine, FolderEngine):
        place = f"{engine.kind}, {engine.where}"
        away = nothing_reported(f"the run folder is on {place}, out of reach from here")
        return job_record(site, status, Absent(f"{place} does not say which starts failed"), away, now)
    kept = engine.kept(job_id)
    begun = Begun(kept.failures, kept.job.max_restarts)
    return job_record(site, status, begun, read_reported(kept.job, kept.folder), now)


def show(record: "JobRecord") -> None:
    """Prints it: what there is, then what there is not."""
    from rich.console import Console
    from rich.table import Table

    from components.core.visible import visible
    from stacks.report.rendering import number, unit_text

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
