"""One `gangway bench run` or `resume`. All checks run before the first stack exists and runs/ is written."""

import json
import os
import secrets
import shlex
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from gangway.bench.journal import Journal, State
from gangway.bench.local import Local, hardware
from gangway.bench.processes import AbandonedError, Stop, writable_out
from gangway.bench.results import Caps, Rate, Screen, get_rate, get_results, show_results, write_results
from gangway.bench.runner import Environment, Runner
from gangway.bench.suite import LOCAL, Item, SuiteConfig, get_items, get_preset, load_suite
from gangway.components.core.findings import InputError, Severity
from gangway.stacks.base.extras import require
from gangway.stacks.config.job_settings import effective_config
from gangway.trainer.config.parts.fields import SELF_PREPARED

if TYPE_CHECKING:  # Pulumi, which a suite on this machine does not need
    from pulumi.automation import PulumiCommand

EXIT_FAILED = 1
EXIT_STOPPED = 130


@dataclass(frozen=True)
class Options:
    """`backend_url`: of Pulumi's state; `as_json`: everything but results.json on standard error."""

    local: bool = False
    data: Path | None = None
    install_cli: bool = False
    backend_url: str = ""
    as_json: bool = False

    @property
    def console(self) -> Console:
        """For human output."""
        return Console(stderr=self.as_json)


def run_suite(path: Path, out: Path, stacks_dir: Path, options: Options) -> int:
    """Run below `out`. Exit code 0: every run has its record, 1: not all, 130: stopped. InputError: invalid."""
    suite = load_suite(path)
    preset = get_preset(suite, str(path), stacks_dir)
    items = get_items(suite, local=options.local)
    _check_packages(items)
    stamp = f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"
    screen = Screen(options.console)
    _check_options(options, items)
    _check_data(preset, items, options.data)
    if unused := [entry.name for entry in suite.stacks if options.local and entry.stack != LOCAL]:
        screen.console.print(f"--local: runs on this machine only, without {', '.join(unused)}", markup=False)
    with writable_out(out):
        out.mkdir(parents=True, exist_ok=True)
        fresh = Path(tempfile.mkdtemp(prefix=".bench-", dir=out))
    try:
        command, rates, backend = _prepare(fresh, suite, preset, items, str(path), stamp, stacks_dir, options, screen)
        shutil.copy(path, fresh / "suite.yaml")
        run_dir = out.resolve() / f"{suite.name}-{stamp}"
        fresh.rename(run_dir)
    except BaseException:
        shutil.rmtree(fresh, ignore_errors=True)
        raise
    header = {
        "version": 1,
        "suite": suite.model_dump(mode="json"),
        "place": str(path),
        "preset": preset,
        "stamp": stamp,
        "local": options.local,
        "data": str(options.data.resolve()) if options.data else None,
        "backend_url": options.backend_url,
        "backend": backend,
        "rates": {name: asdict(rate) for name, rate in rates.items()},
    }
    with Journal.create(run_dir, header) as journal:
        for item in items:
            journal.enter(item.name, State.PLANNED)
        return _run_items(run_dir, suite, items, journal, command, options, screen, clean_only=False)


def resume_suite(run_dir: Path, options: Options, *, clean_only: bool) -> int:
    """Finish an earlier `run_suite` or, with `clean_only`, destroy what exists. Returns and raises likewise."""
    run_dir = run_dir.resolve()
    with Journal.open(run_dir) as journal:
        header = journal.header
        suite = SuiteConfig.model_validate(header["suite"])
        items = get_items(suite, local=header["local"])
        if not clean_only:
            _check_packages(items)
        command = None
        if any(not item.is_local and not journal[item.name].is_finished for item in items):
            command = _log_in_again(run_dir, items, header, options)
        return _run_items(
            run_dir, suite, items, journal, command, options, Screen(options.console), clean_only=clean_only
        )


def _check_packages(items: Sequence[Item]) -> None:
    if any(item.is_local for item in items):
        require("torch")


def _check_options(options: Options, items: Sequence[Item]) -> None:
    has_local = any(item.is_local for item in items)
    cloud = not all(item.is_local for item in items)
    idle = {
        "--install-cli": options.install_cli and not cloud,
        "--backend-url": options.backend_url and not cloud,
        "--data": options.data and not has_local,
    }
    for name, value in idle.items():
        if value:
            place = "on this machine" if name == "--data" else "on a stack"
            raise InputError(name, f"has no effect: no run of this suite is {place}", fix="remove it")


def _check_data(preset: str, items: Sequence[Item], data: Path | None) -> None:
    local_items = {effective_config(preset, item.settings): item for item in items if item.is_local}
    for config, item in local_items.items():
        if data is None and config.dataset in SELF_PREPARED:
            continue
        from gangway.trainer.__main__ import data_mistake  # with torch, which takes seconds

        mistake = data_mistake(config, data or Path("data"))
        if mistake is not None:
            problem = f"arm {item.arm}: {mistake.problem}" if item.arm else mistake.problem
            fix, allowed = mistake.fix, mistake.allowed
            raise InputError(mistake.place, problem, value=mistake.value, allowed=allowed, fix=fix)


def _prepare(
    folder: Path,
    suite: SuiteConfig,
    preset: str,
    items: Sequence[Item],
    place: str,
    stamp: str,
    stacks_dir: Path,
    options: Options,
    screen: Screen,
) -> tuple["PulumiCommand | None", dict[str, Rate], str]:
    if any(item.is_local for item in items):
        (folder / "hardware.json").write_text(json.dumps(hardware(), indent=2) + "\n", "utf-8")
    paid = [item for item in items if not item.is_local]
    if not paid:
        return None, {}, ""
    from gangway.bench.pulumi_cli import project_dir, write_project

    rates: dict[str, Rate] = {}
    with screen:
        for item in paid:
            screen.show(item.name, "planning")
            write_project(project_dir(folder, item), item, suite, preset, stamp, stacks_dir)
            if item.stack.name not in rates:
                rates[item.stack.name] = _planned_rate(folder, item, suite, place)
    command, backend = _log_in(folder, paid[0], options.backend_url, install=options.install_cli)
    return command, rates, backend


def _planned_rate(folder: Path, item: Item, suite: SuiteConfig, place: str) -> Rate:
    from gangway.bench.pulumi_cli import project_dir, read_project
    from gangway.stacks.plan.plan import make_plan
    from gangway.stacks.providers.hosts.settings import HostsConfig

    config = read_project(project_dir(folder, item), item, place)
    hosts = config.find_section(HostsConfig)
    # Records in the machines' folder are visible only if this machine mounts it too.
    if hosts is not None and hosts.run_store.startswith("/") and not Path(hosts.run_store).is_dir():
        raise InputError(
            f"{place}: stack {item.stack.name}: gangway:hosts.run_store",
            "this machine cannot see the records in this folder",
            value=hosts.run_store,
            allowed="a bucket, or a folder mounted here at the same path",
            fix="mount it here, or set hosts.run_store: s3://my-bucket/runs",
        )
    try:
        plan = make_plan(config)
    except InputError as mistake:
        raise mistake.within(f"{place}: stack {item.stack.name}") from None
    if plan.has_errors:
        mistakes = [
            InputError(f"{place}: stack {item.stack.name}: {finding.path}", finding.message, fix=finding.fix)
            for finding in plan.findings
            if finding.severity is Severity.ERROR
        ]
        raise ExceptionGroup(f"stack {item.stack.name} has errors", mistakes)
    return get_rate(plan, item, item.stack.deadline_hours or suite.deadline_hours, place)


def _log_in(folder: Path, paid: Item, backend_url: str, *, install: bool) -> tuple["PulumiCommand", str]:
    from gangway.bench.cloud import check_login
    from gangway.bench.pulumi_cli import find_cli, project_dir

    command = find_cli(install=install)
    env = {"PULUMI_BACKEND_URL": backend_url} if backend_url else {}
    return command, check_login(command, env, project_dir(folder, paid), os.environ)


def _log_in_again(run_dir: Path, items: Sequence[Item], header: Mapping[str, Any], options: Options) -> "PulumiCommand":
    paid = next(item for item in items if not item.is_local)
    command, backend = _log_in(run_dir, paid, header["backend_url"], install=options.install_cli)
    if backend != header["backend"]:
        raise InputError(
            "pulumi login",
            "not the state backend that the suite was started with",
            value=backend,
            allowed=header["backend"],
            fix=f"run `pulumi login {header['backend']}`",
        )
    return command


def _run_items(
    run_dir: Path,
    suite: SuiteConfig,
    items: Sequence[Item],
    journal: Journal,
    command: "PulumiCommand | None",
    options: Options,
    screen: Screen,
    *,
    clean_only: bool,
) -> int:
    stop, preset = Stop(" and destroying the stacks; again: leave them up."), str(journal.header["preset"])
    runner = Runner(
        items=items,
        journal=journal,
        get_environment=_environments(run_dir, suite, preset, journal.header, command),
        rates={name: Rate(**rate) for name, rate in journal.header["rates"].items()},
        caps=Caps.of(suite),
        get_hours=lambda item: item.stack.deadline_hours or suite.deadline_hours,
        stop=stop,
        pause=stop.pause,
        say=screen.say,
        show=screen.show,
        log_dir=run_dir,
    )
    try:
        with stop.listening(), screen:
            runner.run(clean_only=clean_only)
    except AbandonedError:
        resume = f"gangway bench resume {shlex.quote(str(run_dir))}"
        text = f"stacks left up; to continue: {resume}; to destroy: {resume} --clean-only"
        screen.console.print(text, markup=False, soft_wrap=True)
        return EXIT_STOPPED
    results = get_results(suite, preset, items, journal, run_dir)
    write_results(results, run_dir)
    with suppress(OSError):  # the terminal may be closed; the file is written
        if options.as_json:
            print(json.dumps(results, indent=2))
        else:
            show_results(results, run_dir, screen.console)
    if stop.asked:
        return EXIT_STOPPED
    if clean_only:
        return EXIT_FAILED if any(row["standing"] for row in results["items"]) else 0
    good = all(row["status"] == "recorded" and not row["standing"] for row in results["items"])
    return 0 if good else EXIT_FAILED


def _environments(
    run_dir: Path, suite: SuiteConfig, preset: str, header: Mapping[str, Any], command: "PulumiCommand | None"
) -> Callable[[Item], Environment]:
    stamp = str(header["stamp"])
    data_dir = Path(header["data"]) if header["data"] else run_dir / "data"
    local = Local(run_dir, stamp, suite, preset, data_dir, hardware())
    if command is None:
        return lambda item: local
    from gangway.bench.cloud import Cloud

    env = {"PULUMI_BACKEND_URL": str(header["backend_url"])} if header["backend_url"] else {}
    cloud = Cloud(run_dir, stamp, command, env)
    return lambda item: local if item.is_local else cloud
