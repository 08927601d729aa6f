"""`gangway init`: a Pulumi project outside a checkout, checked as `gangway plan` does before anything is written."""

import re
import shlex
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gangway.cli.common import EXIT_FINDINGS
from gangway.components.core.findings import InputError

if TYPE_CHECKING:
    from gangway.cli.new_project import Answers
    from gangway.components.core.findings import Finding
    from gangway.stacks.config.stack_config import StackConfig
    from gangway.stacks.plan.plan import Plan

_ACCELERATOR = re.compile(r"[A-Za-z0-9-]+x[0-9]+|v[0-9]+[a-z]*-[0-9]+", re.IGNORECASE)
"""H100x8, or a TPU's v5p-64; anything else is a machine type."""


def init(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The project's new folder.")],
    stack: Annotated[str | None, typer.Option(help="Name of the first stack; the folder's if omitted.")] = None,
    provider: Annotated[str | None, typer.Option(help="aws, gcp, azure, openstack or hosts.")] = None,
    region: Annotated[str | None, typer.Option(help="Region of the provider.")] = None,
    accelerator: Annotated[str | None, typer.Option(help="Accelerators of a node, such as H100x8.")] = None,
    machine_type: Annotated[str | None, typer.Option(help="Machine type, instead of --accelerator.")] = None,
    nodes: Annotated[str | None, typer.Option(help="Number of nodes: 2, or 2-4.")] = None,
    preset: Annotated[str | None, typer.Option(help="Preset to train, such as dcgan-digits.")] = None,
    kimg: Annotated[float, typer.Option(help="Thousands of images to train on.")] = 2000,
    max_hours: Annotated[float, typer.Option(help="The nodes stop the job after this many hours.")] = 2,
    email: Annotated[str | None, typer.Option(help="Address for budget alerts; required.")] = None,
    budget: Annotated[float | None, typer.Option(help="USD per month; the cluster's full month if omitted.")] = None,
    team: Annotated[str, typer.Option(help="Tag: the team.")] = "ml-platform",
    cost_center: Annotated[str, typer.Option(help="Tag: the cost center.")] = "4711",
    setting: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Any other key: gcp.project=my-project.")
    ] = None,
    source: Annotated[
        str | None, typer.Option("--from", metavar="URL", help="Where to install Gangway from; as here if omitted.")
    ] = None,
    policy: Annotated[bool, typer.Option("--policy", help="Add the guardrails as a policy pack.")] = False,
    ask: Annotated[
        bool | None, typer.Option("--ask/--no-ask", help="Ask for missing values; by default on a terminal.")
    ] = None,
) -> None:
    """Write a Pulumi project that needs no checkout: Pulumi.yaml, a stack file, a one-line program.

    Exit code 1: written, but the plan has errors, which are printed. 2: an invalid answer, or a folder that is not
    empty; nothing is written.
    """
    from gangway.cli.new_project import project_files, startable_providers
    from gangway.stacks.config.identity import folder_stack

    asks = sys.stdin.isatty() if ask is None else ask
    _check_printable(folder)
    stack = folder_stack(folder.resolve().name) if stack is None else stack
    given = {"region": region, "accelerator": accelerator, "nodes": nodes, "preset": preset, "email": email}
    fixed = {"kimg": kimg, "max_hours": max_hours, "team": team, "cost_center": cost_center}
    provider = _answer(f"Provider: {', '.join(startable_providers())}", provider, startable_providers()[0], asks)
    _check_folder(folder, stack, provider, policy)
    answers = _get_answers(stack, provider, given, machine_type, asks)
    settings = {**answers.settings, **dict(_parse_setting(text) for text in setting or ())}
    answers = replace(answers, **fixed, settings=settings)  # type: ignore[arg-type]  # values have several types
    answers, errors = _add_budget(answers, budget, folder, asks)
    _write(folder, project_files(answers, folder.resolve().name, _get_source(source), policy=policy))
    _print_next_steps(folder, answers, policy, errors)
    raise typer.Exit(EXIT_FINDINGS if errors else 0)


def _answer(question: str, given: str | None, default: str, asks: bool) -> str:
    if given is not None:
        return given
    return str(typer.prompt(question, default=default)) if asks else default


def _get_answers(
    stack: str, provider: str, given: Mapping[str, str | None], machine_type: str | None, asks: bool
) -> "Answers":
    from gangway.cli.new_project import Answers, get_start
    from gangway.trainer.config.presets import PRESETS

    start = get_start(provider)
    node = given["accelerator"] or ""
    if asks and not node and machine_type is None:
        node = _answer("Machine type, or accelerators of a node such as H100x8", None, start.machine_type, asks)
        if not _ACCELERATOR.fullmatch(node):
            node, machine_type = "", node
    settings: dict[str, str] = {}
    for path, question in start.questions.items() if asks else ():
        answer = _answer(question, None, default := start.example(path), asks)
        settings |= {path: answer} if answer != default else {}
    return Answers(
        stack=stack,
        provider=provider,
        region=_answer("Region", given["region"], start.region, asks),
        accelerator=node,
        machine_type=machine_type or "",
        nodes=_answer("Nodes, such as 2 or 2-4", given["nodes"], "1", asks),
        preset=_answer(f"Preset: {', '.join(PRESETS)}", given["preset"], "dcgan-digits", asks),
        email=_get_email(given["email"], asks),
        settings=settings,
    )


def _get_email(given: str | None, asks: bool) -> str:
    """There is no default: alerts must not go to a stranger."""
    if given is not None:
        return given
    if not asks:
        raise InputError("--email", "missing: budget alerts need a recipient", allowed="an e-mail address",
                         fix="add --email NAME@COMPANY")  # fmt: skip
    return str(typer.prompt("E-mail address for budget alerts"))


def _parse_setting(text: str) -> tuple[str, str]:
    path, equals, value = text.partition("=")
    if not equals or not path.strip():
        raise InputError("--set", "not a setting", value=text, allowed="KEY=VALUE, such as gcp.project=my-project",
                         fix="put = between the key and the value")  # fmt: skip
    return path.removeprefix("gangway:"), value


def _check_printable(folder: Path) -> None:
    if not str(folder).isprintable():
        raise InputError("DIR", "contains unprintable characters", value=str(folder),
                         allowed="a path of printable characters", fix="name another folder")  # fmt: skip


def _check_folder(folder: Path, stack: str, provider: str, policy: bool) -> None:
    from gangway.cli.new_project import check_names, file_names
    from gangway.trainer.records.folders import free_name, listed, visible

    check_names(stack, provider)
    if folder.exists() and not folder.is_dir():
        raise InputError("DIR", "is a file", value=str(folder), allowed="a folder", fix="name another folder")
    for name in file_names(stack, policy=policy):
        if (folder / name).exists() or (folder / name).is_symlink():
            raise InputError(
                str(folder / name),
                "already exists and is not overwritten",
                allowed="a folder without this file",
                fix="name another folder, or move the file away",
            )
    if names := list(visible(folder)):
        raise InputError(
            "DIR",
            f"the folder has other files: {listed(names)}; nothing was written",
            value=str(folder),
            allowed="an empty or new folder",
            fix=f"use {shlex.quote(str(free_name(folder)))} as DIR",
        )


def _add_budget(
    answers: "Answers", budget: float | None, folder: Path, asks: bool
) -> tuple["Answers", Sequence["Finding"]]:
    """The answers with a budget, and the plan's errors."""
    from gangway.stacks.estimates.common_findings import check_budget

    place = str(folder / f"Pulumi.{answers.stack}.yaml")
    plan = _plan(_load(replace(answers, monthly_usd=1e9) if budget is None else answers, place), place)
    if budget is None:
        if plan is None and not asks:
            raise InputError("--budget", "missing, and the provider's extra with its prices is not installed",
                             allowed="USD per month", fix="add --budget 1000")  # fmt: skip
        hours_per_month = 730
        highest = 0.0 if plan is None else max(rung.hourly or plan.cost.hourly for rung in plan.rungs)
        usd = 1000 if plan is None else ceil((highest * hours_per_month + plan.cost.upfront) / 100) * 100
        budget = float(typer.prompt("Budget per month, USD", default=usd, type=float)) if asks else usd
    answers = replace(answers, monthly_usd=budget)
    config = _load(answers, place)
    if plan is not None:
        try:
            check_budget(config, plan.cost)
        except InputError as mistake:
            raise mistake.within(place) from None
    return answers, [] if plan is None else plan.errors


def _load(answers: "Answers", place: str) -> "StackConfig":
    """Load the stack from a temporary file; errors name the future file `place`."""
    from gangway.cli.new_project import stack_file
    from gangway.stacks.loading.loader import from_file

    with tempfile.TemporaryDirectory() as empty:
        path = Path(empty) / Path(place).name
        path.write_text(stack_file(answers), "utf-8")
        errors: list[InputError] = []
        try:
            return from_file(path)
        except* InputError as mistakes:
            errors = [
                InputError(m.place.replace(str(path), place, 1), m.problem, value=m.value, allowed=m.allowed, fix=m.fix)
                for m in mistakes.exceptions if isinstance(m, InputError)
            ]  # fmt: skip
        raise ExceptionGroup(f"{place} is not valid", errors)


def _plan(config: "StackConfig", place: str) -> "Plan | None":
    """The plan; None if the provider's extra is missing here: the project's environment will have it."""
    from gangway.stacks.plan.plan import make_plan

    try:
        return make_plan(config)
    except InputError as mistake:
        if mistake.place.startswith("extra "):
            return None
        raise mistake.within(place) from None


def _get_source(given: str | None) -> str:
    from gangway.stacks.config.paths import installed_from

    allowed, fix = "a URL: file:///..., git+https://...@COMMIT", "--from file:///path/of/a/checkout"
    url = given or installed_from()
    if url is None:
        problem = "missing: Gangway has no release, and the source of this installation is unknown"
        raise InputError("--from", problem, allowed=allowed, fix=fix)
    if not re.fullmatch(r"(file|https|git\+https|git\+ssh|git\+file)://\S+", url):
        raise InputError("--from", "pip cannot install from this URL", value=url, allowed=allowed, fix=fix)
    return url


def _write(folder: Path, files: Mapping[str, str]) -> None:
    from gangway.components.core.whole_files import FULL, without_empty_folders

    try:
        with ExitStack() as made:
            for parent in dict.fromkeys((folder / name).parent for name in files):
                made.enter_context(without_empty_folders(parent))
            undo = made.enter_context(ExitStack())
            for name, text in files.items():
                path = folder / name
                path.parent.mkdir(parents=True, exist_ok=True)
                with path.open("x", encoding="utf-8") as file:
                    undo.callback(path.unlink, missing_ok=True)
                    file.write(text)
            undo.pop_all()
    except OSError as error:
        if isinstance(error, FileExistsError):  # created after the check
            raise InputError(
                str(error.filename or folder),
                "was just created: another `gangway init` is writing into this folder",
                fix="use its files, or name another folder",
            ) from None
        fix = "free some space, or name another folder" if error.errno in FULL else "name another folder"
        raise InputError(str(error.filename or folder), f"cannot be written: {error.strerror}", fix=fix) from None


def _print_next_steps(folder: Path, answers: "Answers", policy: bool, errors: Sequence["Finding"]) -> None:
    from gangway.cli.new_project import file_names

    typer.echo(f"created in {shlex.quote(str(folder))}: {', '.join(file_names(answers.stack, policy=policy))}")
    if errors:
        typer.echo(f"fix in Pulumi.{answers.stack}.yaml before `pulumi up`:")
    for finding in errors:
        typer.echo(f"  {finding.path}: {finding.message}\n    fix: {finding.fix}")
    for line in (
        f"cd {shlex.quote(str(folder))}",
        f"gangway plan {answers.stack}      # offline: resources, findings, cost, energy",
        "pulumi install        # .venv from requirements.txt",
        f"pulumi stack init {answers.stack} && pulumi up",
    ):
        typer.echo(f"  {line}")
