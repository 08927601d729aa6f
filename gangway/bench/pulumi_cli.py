"""The pulumi command for bench: a project per session, up, destroy, outputs."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from pulumi.automation import CommandResult, InvalidVersionError, PulumiCommand
from pulumi.automation.errors import create_command_error

from gangway.bench.suite import Item, SuiteConfig, get_run_id, stack_name
from gangway.components.core.findings import InputError
from gangway.stacks.base.registry import get_provider, provider_names
from gangway.stacks.config.paths import ROOT
from gangway.stacks.config.provider_settings import ProviderSettings
from gangway.stacks.config.stack_config import StackConfig
from gangway.stacks.config.yaml_file import read_yaml
from gangway.stacks.loading.loader import find_stack_file, from_file, read_settings

# Keys of a stack file beside `config:`, without which its secrets are unreadable.
_SECRETS = ("encryptedkey", "encryptionsalt", "secretsprovider")
_LOOK_SEC = 0.5
_INSTALL = "curl -fsSL https://get.pulumi.com | sh, or `gangway bench run SUITE --install-cli`"
# Pulumi waits for a resource in creation, up to a file system's time, and then leaves it unfinished.
_GRACES_SEC = (0.0, 1200.0, 1260.0)
_SIGNALS = (signal.SIGINT, signal.SIGINT, signal.SIGKILL)


def project_dir(run_dir: Path, item: Item) -> Path:
    """The item's project folder."""
    return run_dir / "work" / item.name


def write_project(folder: Path, item: Item, suite: SuiteConfig, preset: str, stamp: str, stacks_dir: Path) -> None:
    """Write Pulumi.yaml and the stack file into the new `folder`."""
    folder.mkdir(parents=True)
    declared = yaml.safe_load((ROOT / "Pulumi.yaml").read_text("utf-8"))
    del declared["stackConfigDir"]
    declared["main"] = str(ROOT / "stacks")
    declared["runtime"]["options"]["virtualenv"] = sys.prefix
    _dump(declared, folder / "Pulumi.yaml")
    source = find_stack_file(item.stack.stack, stacks_dir)
    settings = read_settings(source)
    for path, value in item.stack.set.items():
        _set(settings, path, value)
    _set_job(settings, item, suite, preset, stamp)
    secrets = {key: value for key, value in read_yaml(source).items() if key in _SECRETS}
    _dump({**secrets, "config": settings}, folder / f"Pulumi.{stack_name(item, stamp)}.yaml")


def _set_job(settings: dict[str, Any], item: Item, suite: SuiteConfig, preset: str, stamp: str) -> None:
    hours = item.stack.deadline_hours or suite.deadline_hours
    every, name = suite.checkpoint_kimg, settings.get("gangway:provider", "aws")
    # The file is unchecked here: the loader reports unknown names.
    provider = get_provider(name).settings if name in provider_names() else ProviderSettings()
    own = settings.get("gangway:job")
    job = {
        # If no process is left to destroy the stack, its nodes go when the job has ended, after the
        # record is saved. Owned machines would refuse the setting; the file or suite may override it.
        **({"terminate_when_done": True} if provider.nodes_can_leave else {}),
        **(own if isinstance(own, dict) else {}),
        "preset": preset,
        "kimg": suite.kimg,
        "seed": item.seed,
        "settings": dict(item.settings),
        "run_id": get_run_id(item, stamp),
        "max_hours": hours,
        **({"checkpoint_kimg": every} if every else {}),
        # Records are copied before the stack is destroyed, which a non-empty bucket would prevent.
        **({"keep_runs": False} if provider.deletes_runs else {}),
    }
    settings["gangway:job"] = job


def _set(settings: dict[str, Any], path: str, value: Any) -> None:
    first, *rest = path.split(".")
    *parents, last = (f"gangway:{first}", *rest)
    place: Any = settings
    for parent in parents:
        place = place.setdefault(parent, {})
        if not isinstance(place, dict):
            raise InputError(f"set: {path}", f"{parent} is not a mapping in the stack file", value=place,
                             fix="set the whole section instead")  # fmt: skip
    if value is None:
        place.pop(last, None)
    else:
        place[last] = value


def _dump(data: Mapping[str, Any], path: Path) -> None:
    path.write_text(yaml.safe_dump(dict(data), sort_keys=False, allow_unicode=True), "utf-8")


def read_project(folder: Path, item: Item, place: str) -> StackConfig:
    """Read the item's stack as the program will. ExceptionGroup: of InputError, one per mistake."""
    (path,) = folder.glob("Pulumi.*.yaml")
    location = f"{place}: stack {item.stack.name}"
    own: list[InputError] = []
    try:
        return from_file(path)
    except* InputError as mistakes:
        own = [
            InputError(f"{location}: {m.place.removeprefix(f'{path}: ')}", m.problem, value=m.value,
                       allowed=m.allowed, fix=m.fix)
            for m in mistakes.exceptions if isinstance(m, InputError)
        ]  # fmt: skip
    raise ExceptionGroup(f"{location} is not valid", own)


OnLine = Callable[[str], Any]


def find_cli(*, install: bool) -> PulumiCommand:
    """Return the CLI on PATH or, if allowed, install it. InputError: missing, too old, or not installable."""
    if shutil.which("pulumi") is None and not install:
        raise InputError("the Pulumi CLI", "not on PATH", allowed="pulumi 3 on PATH, or --install-cli", fix=_INSTALL)
    try:
        return PulumiCommand() if shutil.which("pulumi") else PulumiCommand.install()
    except InvalidVersionError as error:
        raise InputError("the Pulumi CLI", str(error), value=shutil.which("pulumi"), fix=_INSTALL) from None
    except (OSError, subprocess.CalledProcessError) as error:
        output = error.output.decode("utf-8", "replace") if isinstance(error, subprocess.CalledProcessError) else error
        raise InputError(
            "--install-cli", f"the Pulumi CLI cannot be installed: {output}", fix=f"install it yourself: {_INSTALL}"
        ) from None


class WatchedCommand(PulumiCommand):
    """A PulumiCommand that can be stopped: `why_stop` is polled while it runs, `stopped_by` is its last reason."""

    def __init__(self, found: PulumiCommand) -> None:
        self.command, self.version = found.command, found.version
        self.why_stop: Callable[[], str] = str
        self.began: Callable[[int], None] = lambda pid: None
        self.stopped_by = ""

    def run(
        self,
        args: list[str],
        cwd: str,
        additional_env: Mapping[str, str],
        on_output: OnLine | None = None,
        on_error: OnLine | None = None,
    ) -> CommandResult:
        """Run a command as PulumiCommand does. CommandError: its exit code is not 0."""
        self.stopped_by = ""
        # Files instead of pipes: if this process dies, a pipe would kill the CLI while it writes a stack's state.
        with tempfile.TemporaryFile() as stdout, tempfile.TemporaryFile() as stderr:
            out, err = _Follower(stdout.fileno(), on_output), _Follower(stderr.fileno(), on_error)
            process = subprocess.Popen(
                [self.command, "--non-interactive", *args],
                cwd=cwd,
                env=self._env(additional_env),
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                start_new_session=True,
            )
            # On an immediate exit the CLI outlives this process, and `resume` ends it in order.
            self.began(process.pid)
            self._wait(process, (out, err))
            result = CommandResult(out.text(), err.text(), process.returncode)
        if process.returncode != 0:
            raise create_command_error(result)
        return result

    def _env(self, additional: Mapping[str, str]) -> dict[str, str]:
        env = {**os.environ, **additional, "PULUMI_AUTOMATION_API": "true", "PULUMI_SKIP_UPDATE_CHECK": "true"}
        if Path(self.command).is_absolute():
            # Its language hosts are in its folder.
            env["PATH"] = os.pathsep.join([str(Path(self.command).parent), env.get("PATH", "")])
        return env

    def _wait(self, process: subprocess.Popen[bytes], followers: "Sequence[_Follower]") -> None:
        signals_sent, asked_at = 0, 0.0
        while True:
            try:
                process.wait(_LOOK_SEC)
            except subprocess.TimeoutExpired:
                for follower in followers:
                    follower.report_new_lines()
                if not self.stopped_by and (reason := self.why_stop()):
                    self.stopped_by, asked_at = reason, time.monotonic()
                overdue = signals_sent < len(_SIGNALS) and time.monotonic() >= asked_at + _GRACES_SEC[signals_sent]
                if self.stopped_by and overdue:
                    process.send_signal(_SIGNALS[signals_sent])
                    signals_sent += 1
            else:
                for follower in followers:
                    follower.report_new_lines()
                return


class _Follower:
    def __init__(self, descriptor: int, on_line: OnLine | None) -> None:
        self._descriptor, self._on_line, self._offset = descriptor, on_line, 0

    def report_new_lines(self) -> None:
        if self._on_line is not None:
            whole = self._read(self._offset).rpartition(b"\n")[0]
            if whole:
                self._offset += len(whole) + 1
                for line in whole.decode("utf-8", "replace").splitlines():
                    self._on_line(line)

    def text(self) -> str:
        """All output without trailing blanks, as the API has it."""
        return "\n".join(line.rstrip() for line in self._read(0).decode("utf-8", "replace").splitlines())

    def _read(self, start: int) -> bytes:
        """Uses its own position: the writer's, which is shared, must not move."""
        return os.pread(self._descriptor, os.fstat(self._descriptor).st_size - start, start)
