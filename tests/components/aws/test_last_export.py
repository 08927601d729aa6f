"""What nodes wrote last, before the file system goes: boto3 against FSx's tasks in small."""

from typing import Any

import boto3
import pytest
from pulumi.dynamic.dynamic import serialize_provider

from gangway.components.aws.last_export import LastExportError, LastExportProvider, export_rest

FILES = "fs-0123456789abcdef0"


@pytest.fixture
def client(fsx: Any) -> Any:
    return boto3.client("fsx", region_name="us-east-2")


def export(client: Any, wait_sec: float = 30) -> None:
    export_rest(client, FILES, "runs", wait_sec, poll_sec=0.01)


def operations(fsx: Any) -> list[str]:
    return [operation.partition("DataRepository")[0] for operation, _ in fsx.asked]


def test_it_waits_until_all_is_exported_and_says_so(client: Any, fsx: Any, capsys: pytest.CaptureFixture[str]) -> None:
    export(client)
    (begun,) = [body for operation, body in fsx.asked if operation.startswith("Create")]
    assert begun["FileSystemId"] == FILES
    assert (begun["Type"], begun["Paths"], begun["Report"]) == ("EXPORT_TO_REPOSITORY", ["runs"], {"Enabled": False})
    assert [task["Lifecycle"] for task in fsx.tasks.values()] == ["SUCCEEDED"]
    said = capsys.readouterr().out
    assert f"waiting until {FILES} has exported to S3 what was written last" in said
    assert "0 of 10 files" in said
    assert f"/runs of {FILES} is in S3, 10 files exported" in said


def test_a_task_of_an_earlier_destroy_is_waited_for_and_is_not_enough(client: Any, fsx: Any) -> None:
    """Its list of files may be older than what nodes wrote last."""
    fsx.begin(FILES, ["runs"])
    export(client)
    assert [task["Lifecycle"] for task in fsx.tasks.values()] == ["SUCCEEDED", "SUCCEEDED"]
    assert operations(fsx).index("Create") > operations(fsx).index("Describe")


def test_one_that_was_called_off_is_begun_anew(client: Any, fsx: Any) -> None:
    fsx.begin(FILES, ["runs"])["Lifecycle"] = "CANCELED"
    export(client)
    assert [task["Lifecycle"] for task in fsx.tasks.values()] == ["CANCELED", "SUCCEEDED"]


def test_a_failure_keeps_the_file_system_and_says_what_to_do(client: Any, fsx: Any) -> None:
    fsx.ends_as, fsx.failed = "FAILED", 3
    with pytest.raises(LastExportError, match=r"3 files of /runs not exported \(S3 said AccessDenied\)") as caught:
        export(client)
    assert "run `pulumi destroy` again" in str(caught.value)
    assert "pulumi state delete" in str(caught.value)


def test_files_that_were_left_out_are_a_failure_too(client: Any, fsx: Any) -> None:
    fsx.failed = 1
    with pytest.raises(LastExportError, match="1 files of /runs not exported"):
        export(client)


def test_it_waits_so_long_and_no_longer(client: Any, fsx: Any) -> None:
    fsx.looks_until_done = 10**9
    with pytest.raises(LastExportError, match="the time for it is over; run `pulumi destroy` again"):
        export(client, wait_sec=0)
    # The next one goes on with the same task.
    (task,) = fsx.tasks.values()
    task["looks"] = fsx.looks_until_done = 0
    export(client)
    assert len(fsx.tasks) == 2


def test_a_file_system_that_is_gone_has_nothing_to_export(
    client: Any, fsx: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    fsx.gone = True
    export(client)
    assert "is gone already" in capsys.readouterr().out


PROPS = {"region": "us-east-2", "file_system_id": FILES, "path": "runs", "wait_minutes": 1.0}


def test_the_provider_acts_at_the_end_alone(fsx: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gangway.components.aws.last_export.POLL_SEC", 0.01)
    provider = LastExportProvider()
    made = provider.create(PROPS)
    assert fsx.asked == []
    assert not provider.diff(made.id, PROPS, PROPS).changes
    longer = provider.diff(made.id, PROPS, {**PROPS, "wait_minutes": 2.0})
    assert (longer.changes, longer.replaces) == (True, [])
    other = provider.diff(made.id, PROPS, {**PROPS, "file_system_id": "fs-1"})
    assert (other.changes, other.replaces, other.delete_before_replace) == (True, ["file_system_id"], False)
    fsx.looks_until_done = 0
    provider.delete(made.id, PROPS)
    assert [task["Lifecycle"] for task in fsx.tasks.values()] == ["SUCCEEDED"]
    assert serialize_provider(provider)
