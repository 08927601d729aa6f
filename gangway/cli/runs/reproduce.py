"""`gangway reproduce`: a recorded run again, and whether it is the same.

    $ gangway reproduce runs/dcgan-digits
    $ gangway reproduce dcgan-digits-20260101T120000Z --runs runs --kimg 2 --json
    $ gangway reproduce runs/aws-a --container 123456789012.dkr.ecr.us-east-2.amazonaws.com/gangway-trainer

Reads arguments and tells the outcome. Heavy imports stand inside the command: `gangway --help` imports this module.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from components.core.findings import InputError, nearest_hint
from gangway.cli.common import TRUSTED_KEY

if TYPE_CHECKING:
    from rich.console import Console

    from gangway.bench.reproduce.compare import Comparison
    from gangway.runs.run_folders import Run

EXIT_DIFFERS = 1
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
    2: a changed, forged or, with --key, unsigned record; no data; invalid options.
    """
    from datetime import UTC, datetime

    from rich.console import Console

    from gangway.bench.local import hardware
    from gangway.bench.reproduce.compare import check_comparable, compare
    from gangway.bench.reproduce.rerun import execute, find_container, name_of_rerun, plan_rerun
    from gangway.bench.results import Screen
    from gangway.runs.run_folders import find_runs

    then = _find(run, runs, key, allow_unsigned=allow_unsigned)
    _say_whose(then)
    check_comparable(then)
    image, machine = None if container is None else find_container(container, then.record), hardware()
    rerun = plan_rerun(then, machine, kimg, data)
    run_id = name_of_rerun(then.record.id, datetime.now(UTC))
    total = rerun.config.total_images
    with Screen(Console(stderr=True)) as screen:
        made = execute(
            rerun,
            out / run_id,
            run_id,
            machine,
            lambda images: screen.show(run_id, f"{images:,} of {total:,} images"),
            image,
        )
    (now,) = find_runs([made / "run.json"])
    comparison = compare(then, now, rerun.changes)
    if as_json:
        typer.echo(_json(then, now, made, comparison))
    else:
        _show(then, now, comparison, Console())
    raise typer.Exit(0 if comparison.bit_equal else EXIT_DIFFERS)


def _say_whose(then: "Run") -> None:
    from gangway.runs.run_folders import not_covered, not_sealed

    said = f"{then.record.id}: {then.signature.sentence}"
    for sentence in (*not_sealed([then.record]), said, *not_covered([then])):
        typer.echo(sentence, err=True)


def _find(word: str, runs: Path, key: Path | None, *, allow_unsigned: bool) -> "Run":
    """The run of a path, or else of an id; with a key one that it has signed, or is allowed to be unsigned."""
    from gangway.runs.signatures import read_public_key

    if key is None:
        return _of_path_or_id(word, runs, None)
    found = _of_path_or_id(word, runs, read_public_key(key, "--key"))
    if not allow_unsigned:
        found.signature.require(found.path / "run.json", UNSIGNED_FLAG)
    return found


def _of_path_or_id(word: str, runs: Path, trusted: str | None) -> "Run":
    from gangway.runs.run_folders import find_runs, is_there

    if is_there(Path(word)):
        found = find_runs([Path(word)], "RUN", trusted)
        if len(found) == 1:
            return found[0]
        ids = ", ".join(one.record.id for one in found)
        raise InputError("RUN", "holds several runs", value=word, allowed=ids, fix="name one run's directory")
    if not is_there(runs):
        raise InputError("RUN", f"no such folder, and no {runs} to look for it as an id", value=word, fix="name --runs")
    known = {one.record.id: one for one in find_runs([runs], trusted=trusted)}
    if word not in known:
        raise InputError(
            "RUN", f"no such folder, and no run of that id in {runs}", value=word, fix=nearest_hint(word, known)
        )
    return known[word]


def _json(then: "Run", now: "Run", made: Path, comparison: "Comparison") -> str:
    import json

    recorded, here = then.record.image_digest, now.record.image_digest
    facts = {
        "run": then.record.id,
        "again": now.record.id,
        "path": str(made),
        "sealed": bool(then.record.digest),
        "signature": then.signature.to_json(),
        "image": {"recorded": recorded, "here": here, "started": bool(here)},
        "compared_to_images": now.record.images,
    }
    return json.dumps({**facts, **comparison.to_json()}, indent=2)


def _image(then: "Run", now: "Run") -> str:
    """Whether the record's image was started, and what ran in its place."""
    recorded, here = then.record.image_digest, now.record.image_digest
    if here:
        return f"{here}, started"
    code = now.record.code_sha256[:12]
    return (
        f"{recorded} was not started: here ran this Python environment, of no image, with trainer's code {code}; "
        "--container NAME starts it"
    )


def _show(then: "Run", now: "Run", comparison: "Comparison", console: "Console") -> None:
    from rich.markup import escape

    verdict = {
        True: "[bold green]bit-equal[/]",
        False: "[bold red]differs[/]",
        None: "[bold yellow]no state to compare[/], and no loss differs",
    }[comparison.bit_equal]
    console.print(f"{escape(then.record.id)}: {verdict}, {now.record.images:,} images", soft_wrap=True)
    for name, same in comparison.parts.items():
        console.print(
            f"  {name:8} {'[green]same bits[/]' if same else '[red]other bits[/]'} at {comparison.images:,} images"
        )
    if comparison.states:
        console.print(f"  states   {comparison.states_equal} of {comparison.states} checkpoints and ends the same")
    else:
        console.print("  states   no checkpoint or end that both runs have")
    if then.record.image_digest:
        console.print(f"  image    {escape(_image(then, now))}", soft_wrap=True)
    for name, most in comparison.max_relative_difference.items():
        outcome = "not compared" if most is None else f"greatest relative difference {most:.3g}"
        console.print(f"  {name:12} {outcome} over {comparison.windows} lines")
    if comparison.worst_images is not None:
        console.print(f"  greatest of all at {comparison.worst_images:,} images")
    if comparison.left_out:
        console.print(f"  {comparison.left_out} lines of the record have no counterpart: it was interrupted there")
    for one in comparison.quality:
        outcome = f"{one.again:.6g} here, {one.recorded:.6g} then"
        console.print(f"  {escape(one.name)} at {one.kimg:g} kimg: {outcome}")
    title = "what was otherwise:" if comparison.reasons else "nothing that records tell was otherwise"
    console.print(title)
    for reason in comparison.reasons:
        console.print(f"  {escape(reason)}", soft_wrap=True)
    console.print(f"new run: {escape(str(now.path))}", soft_wrap=True)
