"""`gangway audit`: list cloud resources with a stack's tag that are not in its Pulumi state, and their cost. Read-only.

$ gangway audit aws-p5-spot
$ gangway audit aws-p5-spot --state state.json --regions all --json
"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gangway.cli.common import load_stack, print_json
from gangway.components.core.findings import InputError

if TYPE_CHECKING:
    from gangway.finops.audit.classify_orphans import Audit, Judged, Listing
    from gangway.finops.audit.state import State

EXIT_ORPHANS = 1


def audit(
    stack_or_file: Annotated[str, typer.Argument(help="A stack's name, or the path of a stack file.")],
    state: Annotated[
        Path | None, typer.Option(help="Output of `pulumi stack export`; read with Pulumi's CLI if omitted.")
    ] = None,
    no_state: Annotated[
        bool,
        typer.Option(
            "--no-state", help="The stack was removed or its state is lost: report every resource with its tag."
        ),
    ] = False,
    regions: Annotated[
        str | None, typer.Option(help="AWS regions: a list, or all; the stack's and us-east-1 if omitted.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the outcome as JSON.")] = False,
) -> None:
    """List a stack's resources in the cloud that are not in its state, with their cost per hour.

    Exit code 0: none found. 1: some found.
    2: the cloud or the state could not be read.
    """
    from rich.console import Console

    from gangway.finops.audit.classify_orphans import audit_json, show_audit
    from gangway.stacks.base.registry import load_adapter, providers_with_adapter

    if state is not None and no_state:
        raise InputError("--no-state", "cannot be combined with --state", fix="remove one")
    config = load_stack(stack_or_file)
    if config.provider not in providers_with_adapter("audit"):
        raise InputError(
            "gangway:provider",
            "this provider has no audit",
            value=config.provider,
            allowed=", ".join(providers_with_adapter("audit")),
            fix="list resources by tag with the provider's own tool",
        )
    cloud = load_adapter(config.provider, "audit")
    if regions is not None and not cloud.BY_REGION:
        typer.echo(f"warning: --regions is ignored: {config.provider} lists all regions at once", err=True)
    with Console(stderr=True).status("") as status:
        status.update("reading the state")
        known = _read_state(config.stack_name, state, no_state)
        status.update(f"listing resources on {config.provider} with the tag of {config.stack}")
        listing = cloud.list_resources(config, regions)
    outcome = run_audit(config.stack, config.provider, known, listing)
    if as_json:
        print_json(audit_json(outcome))
    else:
        show_audit(outcome, Console())
    raise typer.Exit(EXIT_ORPHANS if outcome.orphans else 0)


def run_audit(stack: str, provider: str, state: "State", listing: "Listing") -> "Audit":
    """Classify the provider's resources with the stack's tag, and price orphaned and retained ones; pure."""
    from gangway.finops.audit.classify_orphans import Audit, Row, classify_orphans, price
    from gangway.stacks.base.registry import load_adapter

    cloud = load_adapter(provider, "audit")
    known = {key for resource in state.resources for key in cloud.state_keys(resource)}
    judged = classify_orphans(listing.resources, known)

    def get_row(each: "Judged") -> Row:
        return Row(each, tuple(price(each.resource, provider, cloud.price_region(each.resource.region))))

    rows = {verdict: [get_row(each) for each in judged if each.verdict == verdict] for verdict in ("orphan", "kept")}
    for each in rows.values():
        each.sort(key=lambda row: (-(row.hourly_usd or 0.0), row.judged.resource.id))
    return Audit(
        stack=stack,
        provider=provider,
        asked=listing.asked,
        state=state.source,
        judged=tuple(judged),
        orphans=tuple(rows["orphan"]),
        kept=tuple(rows["kept"]),
        notes=listing.notes,
    )


def _read_state(stack: str, path: Path | None, removed: bool) -> "State":
    from gangway.finops.audit.state import State, export_state, read_state
    from gangway.stacks.config.paths import project_folder

    if removed:
        return State((), "--no-state: the stack was removed")
    if path is not None:
        return read_state(path)
    return export_state(stack, project_folder())
