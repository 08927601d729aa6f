"""The cloud Environment: `pulumi up` by the Automation API, on a project and a stack per item."""

import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pulumi.automation import (
    CommandError,
    ConcurrentUpdateError,
    EngineEvent,
    LocalWorkspace,
    PulumiCommand,
    Stack,
    StackNotFoundError,
)
from pydantic import ValidationError

from gangway.bench.processes import end_leftover, process_facts
from gangway.bench.pulumi_cli import WatchedCommand, project_dir, read_project
from gangway.bench.runner import Environment, Guard
from gangway.bench.suite import Item, get_run_id, stack_name
from gangway.components.core.findings import InputError
from gangway.runs.run_store import RunFailedError, RunStore, StoreFailedError, bucket_region, check_not_ended, runs_url
from gangway.runs.signatures import get_signature, read_public_key
from gangway.stacks.providers.openstack.settings import storage_cloud
from gangway.trainer.core.regular_files import read_regular
from gangway.trainer.core.validation import first_mistake
from gangway.trainer.records.run_record import RunRecord

_PASSPHRASES = ("PULUMI_CONFIG_PASSPHRASE", "PULUMI_CONFIG_PASSPHRASE_FILE")
_SHOWN_ERRORS = 3
_TORN = (
    "the engine was killed while it wrote the stack's state; a file backend keeps the previous state as "
    "FILE.json.bak: restore that, then clean up again"
)
_LOST = (
    "the state backend does not know the stack {name}, which was created: its state is with another user, machine or "
    "disk; clean up from there. If you destroyed and removed the stack yourself, run `pulumi stack init {name}` in "
    "{folder}, then clean up again"
)
# How long another process's operation may take to stop: it waits for file systems.
_GRACE_SEC = 1200.0
SIGNER = "signer.pub"
"""In a run's folder: the public key of its stack, which is destroyed with the stack."""


class Cloud(Environment):
    """Runs items on their own stacks. `env`: additional variables; `poll_sec`: first and longest pause of polling."""

    def __init__(
        self,
        run_dir: Path,
        stamp: str,
        command: PulumiCommand,
        env: Mapping[str, str],
        poll_sec: tuple[float, float] = (10.0, 60.0),
    ) -> None:
        self._run_dir, self._stamp, self._env, self.poll_sec = run_dir, stamp, dict(env), poll_sec
        super().__init__()
        self._command = WatchedCommand(command)
        self._errors: list[str] = []

    def up(self, item: Item, note: Callable[..., None], guard: Guard) -> Mapping[str, Any]:
        """See Environment."""
        began = datetime.now(UTC)
        self._command.why_stop = guard
        self._command.began = _process_note(note)
        name = stack_name(item, self._stamp)
        try:
            stack = Stack.create_or_select(name, self._workspace(item))
            note(stack_made=name)
            with self._log(item) as log:
                on_event = self._event_listener(item, "up")
                made = stack.up(color="never", suppress_outputs=True, on_output=log, on_event=on_event)
        except CommandError as error:
            raise RunFailedError(self._command.stopped_by or f"up: {self._reason(error)}") from None
        finally:
            self._command.why_stop, self._command.began = str, lambda pid: None
        outputs = {key: output.value for key, output in made.outputs.items()}
        config = read_project(project_dir(self._run_dir, item), item, "the suite")
        region = bucket_region(config.provider, config.region)
        place = {"runs_url": runs_url(config.provider, outputs, name), "region": region, "cloud": storage_cloud(config)}
        signer = outputs.get("signing_public_key") or ""
        return {**place, "signer": signer, "began": began.isoformat()}

    def record(self, item: Item, facts: Mapping[str, Any]) -> RunRecord | None:
        """See Environment."""
        store = self._store(facts)
        self._doing[item.name] = f"waiting for {store.url}/run.json"
        run_id, record = get_run_id(item, self._stamp), _read_record(store)
        if record is not None and record.id == run_id:  # not of an earlier run in the same place
            self._doing[item.name] = f"{record.status}, {record.images:,} images of {record.config.total_images:,}"
            if record.status == "done":
                return record
        # Journals of older versions lack it.
        check_not_ended(store, run_id, datetime.fromisoformat(facts["began"]) if "began" in facts else None)
        return None

    def collect(self, item: Item, facts: Mapping[str, Any]) -> None:
        """See Environment."""
        if "runs_url" not in facts:
            raise RunFailedError("its stack was never up")
        folder = self._run_dir / get_run_id(item, self._stamp)
        if not self._store(facts).copy(folder):
            raise RunFailedError(f"{facts['runs_url']}: no files")
        if facts.get("signer"):  # not every cloud's machines sign, nor does a journal of an older version know
            check_signer(folder, facts["signer"])

    def destroy(self, item: Item, facts: Mapping[str, Any], note: Callable[..., None]) -> list[str]:
        """See Environment. First ends what an earlier process started on this stack."""
        end_leftover(facts, signal.SIGINT, _GRACE_SEC)
        self._command.began = _process_note(note)
        name = stack_name(item, self._stamp)
        try:
            stack = Stack.select(name, self._workspace(item))
            leftovers = _get_leftovers(stack.export_stack().deployment or {})
            with self._log(item) as log:
                on_event = self._event_listener(item, "destroy")
                stack.destroy(color="never", continue_on_error=True, on_output=log, on_event=on_event)
            note(stack_emptied=name)
            # Keep its settings: they belong to this run.
            stack.workspace.remove_stack(name, preserve_config=True)
        except StackNotFoundError:
            if ("stack_made" in facts or "runs_url" in facts) and "stack_emptied" not in facts:
                raise RunFailedError(_LOST.format(name=name, folder=project_dir(self._run_dir, item))) from None
            return []  # never created, or destroyed earlier
        except ConcurrentUpdateError:
            # Only this process knows the stack, and the process of its last update is gone.
            with suppress(CommandError):
                stack.cancel()
            raise RunFailedError("an unfinished update held the stack's lock; the lock was removed") from None
        except CommandError as error:
            raise RunFailedError(self._reason(error)) from None
        return leftovers

    def _workspace(self, item: Item) -> LocalWorkspace:
        folder = str(project_dir(self._run_dir, item))
        return LocalWorkspace(work_dir=folder, env_vars=self._env, pulumi_command=self._command)

    def _store(self, facts: Mapping[str, Any]) -> RunStore:
        return RunStore(facts["runs_url"], facts["region"], facts["cloud"])

    @contextmanager
    def _log(self, item: Item) -> Iterator[Callable[[str], None]]:
        file = (project_dir(self._run_dir, item) / "pulumi.log").open("a", encoding="utf-8")

        def write(line: str) -> None:
            with suppress(OSError):
                file.write(f"{line}\n")
                file.flush()

        try:
            yield write
        finally:
            with suppress(OSError):
                file.close()

    def _event_listener(self, item: Item, operation: str) -> Callable[[EngineEvent], None]:
        """Counts operations and keeps errors. Called from a thread of the API."""
        count, self._errors = 0, []

        def on_event(event: EngineEvent) -> None:
            nonlocal count
            if event.res_outputs_event is not None:
                count += 1
                self._doing[item.name] = f"{operation}: {count} done, {event.res_outputs_event.metadata.type}"
            diagnostic = event.diagnostic_event
            if diagnostic is not None and diagnostic.severity == "error" and diagnostic.message.strip():
                self._errors.append(" ".join(diagnostic.message.split()))

        return on_event

    def _reason(self, error: CommandError) -> str:
        if self._errors:
            return "; ".join(self._errors[:_SHOWN_ERRORS])
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        reason = next((line for line in lines if "error:" in line), " ".join(lines[-_SHOWN_ERRORS:]))
        return f"{reason}; {_TORN}" if "failed to load checkpoint" in reason else reason


def check_signer(folder: Path, public_key: str) -> None:
    """Save the stack's public key (PEM) and compare it with the record's signer. RunFailedError: another signer."""
    key, record = folder / SIGNER, folder / "run.json"
    key.write_text(public_key)
    try:
        get_signature(record, read_regular(folder, record.name), read_public_key(key, str(key)))
    except FileNotFoundError:
        return  # a run that ended before it had one
    except OSError as unread:
        raise RunFailedError(f"{record}: {unread.strerror}") from None
    except InputError as forged:
        raise RunFailedError(str(forged)) from None


def _process_note(note: Callable[..., None]) -> Callable[[int], None]:
    return lambda pid: note(**process_facts(pid, "pulumi"))


def _read_record(store: RunStore) -> RunRecord | None:
    content = store.read("run.json")
    if content is None:
        return None
    try:
        return RunRecord.model_validate_json(content)
    except ValidationError as error:
        raise StoreFailedError(
            f"{store.url}/run.json: not a run record of this version: {first_mistake(error)}"
        ) from None


def _get_leftovers(deployment: Mapping[str, Any]) -> list[str]:
    """What `destroy` retains on purpose, and what may exist outside the state."""
    retained = [
        f"{resource['type']} {resource.get('id', '')}"
        for resource in deployment.get("resources") or []
        if resource.get("retainOnDelete")
    ]
    unsure = [
        f"maybe {cut['resource']['urn'].rpartition('::')[2]} ({cut['resource']['type']}): its creation was "
        "interrupted; check the cloud"
        for cut in deployment.get("pending_operations") or []
        if cut["type"] == "creating"
    ]
    return [*retained, *unsure]


def check_login(command: PulumiCommand, env: Mapping[str, str], folder: Path, environ: Mapping[str, str]) -> str:
    """Return the state's backend. InputError: not logged in, no answer, or a missing passphrase."""
    try:
        user = LocalWorkspace(work_dir=str(folder), env_vars=env, pulumi_command=command).who_am_i()
    except CommandError as error:
        lines = [line.strip() for line in str(error).splitlines() if "error:" in line]
        raise InputError(
            "pulumi login",
            f"no state backend: {lines[0] if lines else error}",
            allowed="a login, or --backend-url",
            fix="run `pulumi login`, or add --backend-url file://~/.gangway-bench",
        ) from None
    url = user.url or env.get("PULUMI_BACKEND_URL", "")
    is_service = url.startswith(("https://", "http://"))
    if not is_service and not any(name in environ for name in _PASSPHRASES):
        raise InputError(
            "PULUMI_CONFIG_PASSPHRASE",
            "missing: this backend encrypts secrets with a passphrase",
            value=url,
            allowed=f"{' or '.join(_PASSPHRASES)} in the environment",
            fix="export PULUMI_CONFIG_PASSPHRASE=...",
        )
    return url
