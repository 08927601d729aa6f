"""What a machine on Google Cloud asks of the APIs: against a stand-in with state, and Google's own descriptions."""

import ast
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import gangway.images.node
from gangway.images.node.gcp.api import GoogleApi, log_entry, main
from gangway.images.node.web import MAX_VALUE_CHARS, RefusedError

SOURCES = sorted(Path(gangway.images.node.__file__).parent.rglob("*.py"))


@pytest.fixture(autouse=True)
def _machine(gce: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment that the scripts give."""
    monkeypatch.setenv("GANGWAY_METADATA_URL", gce.url)
    monkeypatch.setenv("GANGWAY_API_URL", gce.url)
    monkeypatch.setenv("GANGWAY_POLL_SEC", "0.01")
    # A proxy that is not there: the machine's own metadata must not go through it.
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_the_machines_python_needs_no_more_than_ubuntu_22_has(source: Path) -> None:
    """Python 3.10 and the standard library; TPU hosts run that Ubuntu."""
    tree = ast.parse(source.read_text("utf-8"), feature_version=(3, 10))
    imported = {
        name.partition(".")[0]
        for node in ast.walk(tree)
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else []
        )
    }
    known = {
        "base64",
        "collections",
        "contextlib",
        "datetime",
        "hashlib",
        "itertools",
        "json",
        "os",
        "pathlib",
        "re",
        "shutil",
        "signal",
        "socket",
        "stat",
        "subprocess",
        "sys",
        "threading",
    }
    # A controller of Slurm's has Ubuntu's python3-boto3 besides.
    more = {"boto3", "botocore", "fcntl"} if source.name == "slurm_scaler.py" else set()
    assert imported <= known | more | {"gangway", "http", "time", "types", "typing", "urllib"}


def test_every_call_is_one_that_google_publishes(
    gce: Any, google: GoogleApi, published: Callable[[Any], set[str]], tmp_path: Path
) -> None:
    file = tmp_path / "a file"
    file.write_bytes(b"1")
    gce.objects["b/p/x y"] = b"2"
    google.put(file, "gs://b/p/ü/run.json")
    google.get("gs://b/p/x y")
    google.copy("gs://b/p", tmp_path / "there")
    google.write_log("acme-ml", [log_entry("acme-ml", "gangway-demo", {"event": "e"})])
    google.call_group("recreateInstances")
    google.call_group("deleteInstances")
    gce.secrets["projects/acme-ml/secrets/demo-member-key"] = b"PEM"
    assert google.secret("projects/acme-ml/secrets/demo-member-key") == "PEM"
    found = [published(call) for call in gce.calls]
    assert all(found), [call for call, ids in zip(gce.calls, found, strict=True) if not ids]
    expected = {"compute.instanceGroupManagers.deleteInstances", "compute.instanceGroupManagers.recreateInstances"}
    expected |= {
        "logging.entries.write",
        "storage.objects.insert",
        "storage.objects.get",
        "storage.objects.list",
    }
    every = set().union(*found)
    # Secret Manager's paths end in any name at all.
    of_secrets = {name for name in every if name.startswith("secretmanager.")}
    assert "secretmanager.projects.secrets.versions.access" in of_secrets
    assert every - of_secrets == expected


def test_a_token_is_kept_while_it_is_good(gce: Any, google: GoogleApi, monkeypatch: pytest.MonkeyPatch) -> None:
    first = google.token()
    assert google.token() == first
    monkeypatch.setattr("gangway.images.node.gcp.api.time.clock_gettime", lambda _clock: 4e9)
    assert google.token() != first
    assert len(gce.tokens) == 2


def test_an_event_is_the_fields_of_an_entry(gce: Any) -> None:
    assert main(["event", "acme-ml", "gangway/demo", "job-ended", "exit_status", "75", "reason", "x" * 9000]) == 0
    (entry,) = gce.entries
    assert entry["logName"] == "projects/acme-ml/logs/gangway%2Fdemo"
    payload = entry["jsonPayload"]
    assert (payload["exit_status"], payload["reason"]) == (75, "x" * MAX_VALUE_CHARS)


def test_an_answer_that_is_an_error_is_one_line_and_a_code_of_its_own(
    gce: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    gce.denied.add("deleteInstances")
    assert main(["leave"]) == 3
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("gangway: leave: 403: POST ")
    del gce.items["instance/attributes/created-by"]
    assert main(["replace"]) == 2
    assert "gangway: replace: 404: GET " in capsys.readouterr().err


def test_a_machine_without_its_metadata_server_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GANGWAY_METADATA_URL", "http://127.0.0.1:9")
    assert main(["token"]) == 1
    assert "gangway: token: " in capsys.readouterr().err


def test_what_is_in_the_bucket_is_found_and_what_is_not_is_told(gce: Any, capsys: pytest.CaptureFixture[str]) -> None:
    gce.objects["b/k/ä b"] = b""
    assert main(["exists", "gs://b/k/ä b"]) == 0
    assert main(["exists", "gs://b/k/c"]) == 2
    assert "gs://b/k/c does not exist" in capsys.readouterr().err
    gce.denied.add("storage")
    assert main(["exists", "gs://b/k/ä b"]) == 3
    assert "403" in capsys.readouterr().err


def test_who_is_not_told_what_is_missing_asks_by_name(gce: Any, google: GoogleApi) -> None:
    """Cloud Storage hides missing objects from who may not list all, and may still answer a list of a prefix."""
    gce.hides_missing = True
    gce.objects |= {"b/k/ended-12": b"", "b/k/there": b"content"}
    assert (google.exists("gs://b/k/ended-1"), google.exists("gs://b/k/ended-12")) == (False, True)
    assert (google.get("gs://b/k/ended-1"), google.get("gs://b/k/there")) == (None, b"content")


def test_an_object_that_may_not_be_read_is_not_taken_for_a_missing_one(gce: Any, google: GoogleApi) -> None:
    gce.hides_missing = True
    gce.denied.add("storage.objects.list")
    with pytest.raises(RefusedError, match=r"403: GET .*storage\.objects\.list"):
        google.get("gs://b/k/a")
    gce.denied = {"storage.objects.get"}
    gce.objects["b/k/a"] = b""
    with pytest.raises(RefusedError, match=r"403: GET .*alt=media: storage\.objects\.get"):
        google.get("gs://b/k/a")


def test_a_folder_is_put_with_all_that_is_in_it(gce: Any, tmp_path: Path) -> None:
    for name, text in {"a.pt": "0" * 100_000, "samples/0 ä.png": "1", "empty": ""}.items():
        (tmp_path / "run" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "run" / name).write_text(text)
    assert main(["put-folder", str(tmp_path / "run"), "gs://b/p/job/"]) == 0
    assert gce.objects == {"b/p/job/a.pt": b"0" * 100_000, "b/p/job/empty": b"", "b/p/job/samples/0 ä.png": b"1"}


def test_a_token_is_printed_for_docker(gce: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["token"]) == 0
    assert capsys.readouterr().out.strip() in gce.tokens


@pytest.mark.parametrize("uri", ["gs://b", "gs://b/", "gs://b/set", "gs://b/set/"])
def test_a_copy_is_whole_and_leaves_what_is_there(gce: Any, google: GoogleApi, tmp_path: Path, uri: str) -> None:
    prefix = "set/" if "set" in uri else ""
    gce.objects |= {f"b/{prefix}one": b"1", f"b/{prefix}two/2": b"22", "c/other": b"no"}
    assert google.copy(uri, tmp_path) == 2
    (tmp_path / "one").write_text("9")
    assert google.copy(uri, tmp_path) == 2
    assert (tmp_path / "one").read_text() == "9", "as large as it should be: it is left"
    (tmp_path / "one").write_text("half")
    google.copy(uri, tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == {"one": b"1", "2": b"22"}


def test_an_object_that_comes_in_half_is_no_object(gce: Any, google: GoogleApi, tmp_path: Path) -> None:
    gce.objects["b/one"] = b"1234"
    gce.cut.add("b/one")
    with pytest.raises(OSError, match="one: received 2 of 4 bytes"):
        google.copy("gs://b", tmp_path)
    assert not (tmp_path / "one").exists()
    gce.cut.clear()
    assert google.copy("gs://b", tmp_path) == 1
    assert (tmp_path / "one").read_bytes() == b"1234"


def test_an_import_is_waited_for_and_its_error_is_told(
    gce: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "import.json"
    url = "https://lustre.googleapis.com/v1/projects/p/locations/z/instances/i:importData"
    file.write_text(json.dumps({"url": url, "body": {"gcsPath": {"uri": "gs://b"}}}))
    gce.looks_until_imported = 3
    assert main(["import", str(file)]) == 0
    assert len(gce.asked("lustre")) == 4
    gce.import_error = {"code": 7, "message": "no permission"}
    assert main(["import", str(file)]) == 3
    assert "gangway: import: 7: no permission" in capsys.readouterr().err
    gce.import_error = {"code": 14, "message": "unavailable"}
    assert main(["import", str(file)]) == 1


def test_a_prefix_without_objects_is_not_copied_as_if_it_were_there(
    gce: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    gce.objects |= {"b/digits/one": b"1", "b/digist/": b""}
    assert main(["copy", "gs://b/digits", str(tmp_path)]) == 0
    assert main(["copy", "gs://b/digist/", str(tmp_path)]) == 2
    assert "gangway: copy: 404: no objects below gs://b/digist/" in capsys.readouterr().err
