"""LastExport: `destroy` exports to S3 before it deletes FSx for Lustre. Nothing waits for the automatic export."""

import time
from collections.abc import Mapping
from typing import Any

import pulumi
from pulumi.dynamic import CreateResult, DiffResult, Resource, ResourceProvider, UpdateResult

from gangway.components.core.findings import GangwayError

SAY_SEC, POLL_SEC = 30.0, 10.0  # seconds between progress messages, and between polls
RUNNING = ("PENDING", "EXECUTING")
_LOST = (
    "run `pulumi destroy` again, which goes on waiting; if it fails again, copy the runs from a node to the bucket and "
    "check them there; then `pulumi state delete` with the URN of the LastExport, and `pulumi destroy`"
)


class LastExportError(GangwayError):
    """The last writes are not in S3: the file system stays."""


def export_rest(fsx: Any, file_system_id: str, path: str, wait_sec: float, poll_sec: float = POLL_SEC) -> None:
    """Have FSx export what is not in S3 yet, and wait. First waits for a task of another `destroy`, since only a new
    one has the writes since then. LastExportError: it failed, or takes too long.
    """
    until = time.monotonic() + wait_sec
    # FSx runs one task of a file system at a time.
    for task in _running(fsx, file_system_id):
        _wait(fsx, file_system_id, task, until, poll_sec)
    try:
        begun = fsx.create_data_repository_task(
            Type="EXPORT_TO_REPOSITORY", FileSystemId=file_system_id, Paths=[path], Report={"Enabled": False}
        )
    except fsx.exceptions.FileSystemNotFound:
        print(f"{file_system_id} is gone already: nothing to export", flush=True)
        return
    task = begun["DataRepositoryTask"]["TaskId"]
    found = _wait(fsx, file_system_id, task, until, poll_sec)
    status = found.get("Status") or {}
    if found["Lifecycle"] != "SUCCEEDED" or status.get("FailedCount"):
        why = (found.get("FailureDetails") or {}).get("Message", "no reason given")
        raise LastExportError(
            f"{task} of {file_system_id}: {found['Lifecycle']}, {status.get('FailedCount', 'unknown how many')} files "
            f"of /{path} not exported ({why}); the log group /aws/fsx/... names them; {_LOST}"
        )
    print(f"{task}: /{path} of {file_system_id} is in S3, {status.get('SucceededCount', 0)} files exported", flush=True)


def _running(fsx: Any, file_system_id: str) -> list[str]:
    filters = [
        {"Name": "file-system-id", "Values": [file_system_id]},
        {"Name": "task-lifecycle", "Values": list(RUNNING)},
    ]
    return [task["TaskId"] for task in fsx.describe_data_repository_tasks(Filters=filters)["DataRepositoryTasks"]]


def _wait(fsx: Any, file_system_id: str, task: str, until: float, poll_sec: float) -> Mapping[str, Any]:
    """Wait for the task. Reports progress on standard output, which Pulumi shows."""
    reported_at = -SAY_SEC
    while True:
        (found,) = fsx.describe_data_repository_tasks(TaskIds=[task])["DataRepositoryTasks"]
        if found["Lifecycle"] not in (*RUNNING, "CANCELING"):
            result: Mapping[str, Any] = found
            return result
        now = time.monotonic()
        if now >= until:
            raise LastExportError(f"{task} of {file_system_id} is not done yet, and the time for it is over; {_LOST}")
        if now - reported_at >= SAY_SEC:
            reported_at, status = now, found.get("Status") or {}
            done, of = status.get("SucceededCount", 0), status.get("TotalCount", "an unknown number of")
            print(
                f"waiting until {file_system_id} has exported to S3 what was written last ({task}): {done} of {of} "
                f"files, {until - now:.0f} s left",
                flush=True,
            )
        time.sleep(poll_sec)


class LastExportProvider(ResourceProvider):
    """Does nothing until it is deleted."""

    # It contains no secret, and a secret would hide every difference in a preview.
    serialize_as_secret_always = False

    def create(self, props: dict[str, Any]) -> CreateResult:
        """Nothing to export yet."""
        return CreateResult(f"{props['file_system_id']}/{props['path']}", props)

    def diff(self, _id: str, olds: dict[str, Any], news: dict[str, Any]) -> DiffResult:
        """Another file system replaces it; the waiting time applies the next time."""
        others = [key for key in ("file_system_id", "path", "region") if olds.get(key) != news.get(key)]
        changed = bool(others) or olds.get("wait_minutes") != news.get("wait_minutes")
        return DiffResult(changed, others, [], delete_before_replace=False)

    def update(self, _id: str, _olds: dict[str, Any], news: dict[str, Any]) -> UpdateResult:
        """Store another waiting time."""
        return UpdateResult(news)

    def delete(self, _id: str, props: dict[str, Any]) -> None:
        """Wait until everything is in S3. LastExportError: it is not."""
        import boto3

        client = boto3.client("fsx", region_name=props["region"])
        export_rest(client, props["file_system_id"], props["path"], 60 * float(props["wait_minutes"]))


class LastExport(Resource, module="gangway", name="LastExport"):
    """The export as a resource, deleted before what `opts.depends_on` names. `path`: below the mount point."""

    def __init__(
        self,
        name: str,
        region: str,
        file_system_id: pulumi.Input[str],
        path: str,
        wait_minutes: float,
        opts: pulumi.ResourceOptions,
    ) -> None:
        inputs = {"region": region, "file_system_id": file_system_id, "path": path, "wait_minutes": wait_minutes}
        super().__init__(LastExportProvider(), name, inputs, opts)
