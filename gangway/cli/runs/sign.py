"""`gangway sign`: sign the records of your runs, as a stack's machines sign theirs.

$ gangway sign runs/a --key lab.pem --make-key
$ gangway report runs/a --key lab.pem.pub
"""

import os
from pathlib import Path
from typing import Annotated

import typer

from gangway.components.core.findings import InputError


def sign(
    runs: Annotated[list[Path], typer.Argument(help="Run directories, or folders of them.")],
    key: Annotated[Path, typer.Option(help="PEM file of your private key (Ed25519).")],
    make_key: Annotated[
        bool, typer.Option("--make-key", help="Create the key first: FILE, and FILE.pub to verify signatures.")
    ] = False,
) -> None:
    """Sign run records as run.json.sig next to run.json. FILE.pub verifies that nothing has changed.

    Exit code 0: signed. 2: invalid options or files.
    """
    from gangway.runs.run_folders import RECORD, find_runs
    from gangway.runs.signatures import SUFFIX, read_private_key
    from gangway.runs.signatures import sign as sign_record

    if make_key:
        _make_key_pair(key)
    private_key = read_private_key(key, "--key")
    # Records changed since their last signature may be signed again.
    for run in find_runs(runs, "RUNS", checked=False):
        public = sign_record(run.path / RECORD, private_key)
        typer.echo(f"wrote {run.path / (RECORD + SUFFIX)}: signed by {public}", err=True)


def _make_key_pair(path: Path) -> None:
    """Write both halves to new files."""
    from gangway.components.core.signing_key import new_signing_key, public_half

    pem = new_signing_key()
    halves = {path: pem, path.with_name(f"{path.name}.pub"): public_half(pem)}
    for half, text in halves.items():
        try:
            descriptor = os.open(half, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600 if text == pem else 0o644)
        except OSError as error:
            problem = f"cannot be created: {error.strerror or error}"
            raise InputError("--make-key", problem, value=str(half), fix="name a new file with --key") from None
        with os.fdopen(descriptor, "w") as file:
            file.write(text)
        typer.echo(f"wrote {half}", err=True)
