"""`gangway permissions`: the least-privilege policy of a stack's commands."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gangway.cli.common import OVERWRITE, check_new_file, choose, load_stack, print_json
from gangway.components.core.findings import InputError

if TYPE_CHECKING:
    from gangway.live.permissions.needs import Document, Need


def permissions(
    stack: Annotated[str, typer.Argument(metavar="STACK_OR_FILE", help="A stack's name, or the path of a stack file.")],
    commands: Annotated[
        list[str] | None,
        typer.Option(
            "--for", metavar="COMMAND", help="up, preflight, destroy or bench; up and destroy if omitted. Repeatable."
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="File for the policy; several get numbers.")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help=OVERWRITE)] = False,
    as_table: Annotated[bool, typer.Option("--explain", help="Print each action with its limits and reasons.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="The same as JSON.")] = False,
) -> None:
    """Print the least privileges that a stack's commands need, as an IAM policy or custom role. Offline.

    Exit code 2: invalid input, or a provider without policies.
    """
    from gangway.live.permissions.needs import DEFAULT, Command, make_needs
    from gangway.stacks.plan.plan import make_plan

    if as_table and as_json:
        raise InputError("--explain", "cannot be combined with --json", allowed="one of them", fix="remove one")
    if out is not None and (as_table or as_json):
        flag = "--explain" if as_table else "--json"
        problem = f"writes the policy, which {flag} does not print"
        raise InputError("--out", problem, value=str(out), allowed="the policy alone", fix=f"remove {flag}")
    words = [str(command) for command in Command]
    chosen = [Command(choose("--for", "no such command", word, words)) for word in commands or DEFAULT]
    config = load_stack(stack)
    found = make_needs(config.provider, lambda: make_plan(config), chosen)
    if as_json:
        print_json([need.to_json() for need in found.needs])
    elif as_table:
        _print_table(found.needs)
    else:
        _write(found.documents, out, overwrite=overwrite)
    for note in found.notes:
        typer.echo(f"note: {note}", err=True)


def _print_table(needs: "Sequence[Need]") -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table(show_edge=False, padding=(0, 1, 0, 0))
    for heading in ("action", "resource", "reason"):
        table.add_column(heading, overflow="fold", ratio={"action": 3, "resource": 3, "reason": 4}[heading])
    for need in needs:
        condition = [json.dumps(need.condition)] if need.condition else []
        scope = "\n".join([*need.scope, *condition])
        table.add_row(escape(need.action), escape(scope), escape("\n".join([*need.reasons, f"limit: {need.limit}"])))
    Console().print(table)


def _write(documents: "Sequence[Document]", out: Path | None, *, overwrite: bool) -> None:
    from gangway.components.core.whole_files import write_whole

    if out is None:
        contents = [document.content for document in documents]
        print_json(contents[0] if len(contents) == 1 else contents)
        return
    paths = _paths(out, len(documents))
    check_new_file(out, overwrite=overwrite, outputs=lambda free: _paths(free, len(documents)))
    for document, path in zip(documents, paths, strict=True):
        write_whole(path, (json.dumps(document.content, indent=2) + "\n").encode())
        typer.echo(f"wrote {path}; to use it: {document.use.replace('FILE', str(path))}", err=True)


def _paths(out: Path, count: int) -> list[Path]:
    return [out] if count == 1 else [out.with_stem(f"{out.stem}-{number}") for number in range(1, count + 1)]
