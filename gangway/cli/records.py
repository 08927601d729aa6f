"""`gangway reproduce` and `gangway sign`: run a record again and compare; sign the records of your runs."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gangway.cli.common import EXIT_FINDINGS, TRUSTED_KEY, print_json
from gangway.components.core.findings import InputError, nearest_hint

if TYPE_CHECKING:
    from rich.console import Console

    from gangway.bench.reproduce import Comparison
    from gangway.runs.run_folders import Run


UNSIGNED_FLAG = "--allow-unsigned"
_Kimg = Annotated[
    float | None, typer.Option(help="Stop after this many thousand images; as many as recorded if omitted.")
]
_AllowUnsigned = Annotated[bool, typer.Option(UNSIGNED_FLAG, help="With --key: also accept an unsigned record.")]


def reproduce(
    run: Annotated[str, typer.Argument(help="A run's directory, its run.json, or its id.")],
    runs: Annotated[Path, typer.Option(help="Folder in which to look for a run's id.")] = Path("runs"),
    kimg: _Kimg = None,
    data: Annotated[
        Path | None, typer.Option(help="The run's shards; those in or next to its directory if omitted.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for the new run's directory.")] = Path("runs/reproduced"),
    container: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Name of the record's image, to start it by its digest with docker or podman; this Python environment "
            "if omitted.",
        ),
    ] = None,
    key: Annotated[Path | None, typer.Option(help=TRUSTED_KEY)] = None,
    allow_unsigned: _AllowUnsigned = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the comparison as JSON.")] = False,
) -> None:
    """Run a record again on this machine and compare: bit-equal, or how it differs and why that may be.

    Exit code 0: bit-equal. 1: it differs, or there is no state to compare.
    2: a changed, forged or (with --key) unsigned record, no data, bad options.
    """
    from datetime import UTC, datetime

    from rich.console import Console

    from gangway.bench.local import hardware
    from gangway.bench.reproduce import check_comparable, compare, execute, find_container, plan_rerun, rerun_name
    from gangway.bench.results import Screen
    from gangway.runs.run_folders import find_runs, not_covered, not_sealed

    then = _find_run(run, runs, key, allow_unsigned=allow_unsigned)
    signature = f"{then.record.id}: {then.signature.sentence}"
    for line in (*not_sealed([then.record]), signature, *not_covered([then])):
        typer.echo(line, err=True)
    check_comparable(then)
    image, machine = None if container is None else find_container(container, then.record), hardware()
    rerun = plan_rerun(then, machine, kimg, data)
    run_id = rerun_name(then.record.id, datetime.now(UTC))
    total = rerun.config.total_images
    with Screen(Console(stderr=True)) as screen:
        folder = execute(
            rerun,
            out / run_id,
            run_id,
            machine,
            lambda images: screen.show(run_id, f"{images:,} of {total:,} images"),
            image,
        )
    (now,) = find_runs([folder / "run.json"])
    comparison = compare(then, now, rerun.changes)
    if as_json:
        print_json(_to_json(then, now, folder, comparison))
    else:
        _show(then, now, comparison, Console())
    raise typer.Exit(0 if comparison.bit_equal else EXIT_FINDINGS)


def _find_run(word: str, runs: Path, key: Path | None, *, allow_unsigned: bool) -> "Run":
    from gangway.runs.signatures import read_public_key

    found = _find_by_path_or_id(word, runs, None if key is None else read_public_key(key, "--key"))
    if key is not None and not allow_unsigned:
        found.signature.require(found.path / "run.json", UNSIGNED_FLAG)
    return found


def _find_by_path_or_id(word: str, runs: Path, trusted: str | None) -> "Run":
    from gangway.runs.run_folders import find_runs, is_there

    if is_there(Path(word)):
        found = find_runs([Path(word)], "RUN", trusted)
        if len(found) == 1:
            return found[0]
        ids = ", ".join(one.record.id for one in found)
        raise InputError("RUN", "contains several runs", value=word, allowed=ids, fix="name one run's directory")
    if not is_there(runs):
        problem = f"no such folder, and no folder {runs} to search for this id"
        raise InputError("RUN", problem, value=word, fix="add --runs FOLDER")
    known = {one.record.id: one for one in find_runs([runs], trusted=trusted)}
    if word not in known:
        raise InputError(
            "RUN", f"no such folder, and no run with this id in {runs}", value=word, fix=nearest_hint(word, known)
        )
    return known[word]


def _to_json(then: "Run", now: "Run", folder: Path, comparison: "Comparison") -> dict[str, Any]:
    recorded, here = then.record.image_digest, now.record.image_digest
    return {
        "run": then.record.id,
        "again": now.record.id,
        "path": str(folder),
        "sealed": bool(then.record.digest),
        "signature": then.signature.to_json(),
        "image": {"recorded": recorded, "here": here, "started": bool(here)},
        "compared_to_images": now.record.images,
        **comparison.to_json(),
    }


def _image_text(then: "Run", now: "Run") -> str:
    if here := now.record.image_digest:
        return f"{here}, started"
    return (
        f"{then.record.image_digest} was not started; this Python environment ran trainer code "
        f"{now.record.code_sha256[:12]} instead; --container NAME starts the image"
    )


def _show(then: "Run", now: "Run", comparison: "Comparison", console: "Console") -> None:
    from rich.markup import escape

    verdict = {
        True: "[bold green]bit-equal[/]",
        False: "[bold red]differs[/]",
        None: "[bold yellow]no state to compare[/], no loss differs",
    }[comparison.bit_equal]
    console.print(f"{escape(then.record.id)}: {verdict}, {now.record.images:,} images", soft_wrap=True)
    for name, same in comparison.parts.items():
        console.print(
            f"  {name:8} {'[green]same bits[/]' if same else '[red]different bits[/]'} at {comparison.images:,} images"
        )
    if comparison.states:
        console.print(f"  states   {comparison.states_equal} of {comparison.states} checkpoints and final states equal")
    else:
        console.print("  states   no common checkpoint or final state")
    if then.record.image_digest:
        console.print(f"  image    {escape(_image_text(then, now))}", soft_wrap=True)
    for name, largest in comparison.max_relative_difference.items():
        outcome = "not compared" if largest is None else f"largest relative difference {largest:.3g}"
        console.print(f"  {name:12} {outcome} over {comparison.windows} lines")
    if comparison.worst_images is not None:
        console.print(f"  largest difference at {comparison.worst_images:,} images")
    if comparison.left_out:
        console.print(f"  {comparison.left_out} lines of the record have no counterpart, because of interruptions")
    for one in comparison.quality:
        outcome = f"{one.again:.6g} here, {one.recorded:.6g} recorded"
        console.print(f"  {escape(one.name)} at {one.kimg:g} kimg: {outcome}")
    console.print("possible reasons:" if comparison.reasons else "the records show no difference in setup")
    for reason in comparison.reasons:
        console.print(f"  {escape(reason)}", soft_wrap=True)
    console.print(f"new run: {escape(str(now.path))}", soft_wrap=True)


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
    from gangway.components.core.keys import new_signing_key, public_half

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
