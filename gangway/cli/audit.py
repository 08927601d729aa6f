"""`gangway audit`: cloud resources that carry a stack's tag and are not in its Pulumi state, with what they cost.

    $ gangway audit aws-p5-spot
    $ gangway audit aws-p5-spot --state state.json --regions all --json

Asks the provider and changes nothing. Heavy imports stand inside the command: `gangway --help` imports this module.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from components.core.findings import InputError

if TYPE_CHECKING:
    from gangway.finops.audit.classify_orphans import Judged, Listing
    from gangway.finops.audit.state import State
    from gangway.finops.audit.tables import Audit

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

    from gangway.cli.common import stacks_dir
    from gangway.finops.audit.tables import audit_json, show_audit
    from stacks.base.registry import load_adapter, providers_with_adapter
    from stacks.loading.loader import find_stack_file, from_file

    if state is not None and no_state:
        raise InputError("--no-state", "not beside --state", fix="leave one of them out")
    config = from_file(find_stack_file(stack_or_file, stacks_dir()))
    if config.provider not in providers_with_adapter("audit"):
        raise InputError(
            "gangway:provider",
            "no audit of this provider",
            value=config.provider,
            allowed=", ".join(providers_with_adapter("audit")),
            fix="list by tag with the provider's own tool",
        )
    cloud = load_adapter(config.provider, "audit")
    if regions is not None and not cloud.BY_REGION:
        typer.echo(f"warning: --regions is ignored: {config.provider} is asked about all regions at once", err=True)
    # What takes long says so, beside what is printed for other programs.
    with Console(stderr=True).status("") as status:
        status.update("reading the state")
        known = _state(config.stack_name, state, no_state)
        status.update(f"asking {config.provider} for what carries the tag of {config.stack}")
        listing = cloud.list_resources(config, regions)
    outcome = audited(config.stack, config.provider, known, listing)
    if as_json:
        import json

        typer.echo(json.dumps(audit_json(outcome), indent=2))
    else:
        show_audit(outcome, Console())
    raise typer.Exit(EXIT_ORPHANS if outcome.orphans else 0)


def audited(stack: str, provider: str, state: "State", listing: "Listing") -> "Audit":
    """Tells the listing's resources apart and prices what nobody looks after and what is kept; pure. `listing`: what
    the provider says carries the stack's tag.
    """
    from gangway.finops.audit.classify_orphans import classify_orphans, price
    from gangway.finops.audit.tables import Audit, Row
    from stacks.base.registry import load_adapter

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


def _state(stack: str, path: Path | None, removed: bool) -> "State":
    from gangway.finops.audit.state import State, export_state, read_state
    from stacks.config.paths import project_folder

    if removed:
        return State((), "--no-state: the stack was removed")
    if path is not None:
        return read_state(path)
    return export_state(stack, project_folder())
