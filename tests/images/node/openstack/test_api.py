"""What a machine on OpenStack fetches, and puts into the object store, by real Python against Keystone, Nova's metadata
and Swift in small.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from gangway.images.node.openstack import api as openstack
from gangway.images.node.openstack.api import main

PLACE = "swift://demo-runs/demo/demo"


@pytest.fixture
def credential(swift: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """As the machine has it, in a file."""
    content = {
        "auth_url": f"{swift.auth_url}/",
        "id": swift.credential[0],
        "region": "RegionOne",
        "secret": swift.credential[1],
    }
    write(tmp_path, content)
    monkeypatch.setenv("GANGWAY_SECRETS", f"{tmp_path}/secrets.json")
    return content


def write(folder: Path, content: dict[str, str]) -> None:
    (folder / "secrets.json").write_text(json.dumps({"credential": content}))


@pytest.fixture
def record(tmp_path: Path) -> Path:
    path = tmp_path / "run.json"
    path.write_text('{"id": "one"}')
    return path


@pytest.mark.usefixtures("credential")
def test_a_file_is_put_where_the_catalogue_says(swift: Any, record: Path) -> None:
    assert main(["put", str(record), f"{PLACE}/run.json"]) == 0
    assert swift.objects == {"demo-runs/demo/demo/run.json": b'{"id": "one"}'}
    (login,) = swift.logins
    own = {"id": swift.credential[0], "secret": swift.credential[1]}
    assert login == {"auth": {"identity": {"methods": ["application_credential"], "application_credential": own}}}


@pytest.mark.usefixtures("credential")
def test_a_folder_is_put_whole(swift: Any, tmp_path: Path) -> None:
    folder = tmp_path / "results"
    (folder / "checkpoints").mkdir(parents=True)
    (folder / "stats.jsonl").write_text("{}")
    (folder / "checkpoints" / "step 5 \u00e9.pt").write_bytes(b"\0weights")
    assert main(["put-folder", str(folder), PLACE]) == 0
    assert swift.objects == {
        "demo-runs/demo/demo/checkpoints/step%205%20%C3%A9.pt": b"\0weights",
        "demo-runs/demo/demo/stats.jsonl": b"{}",
    }
    assert len(swift.logins) == 1


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"secret": "old"}, "401: POST"),
        ({"region": "RegionSix"}, "404: Keystone's catalog has no object-store in region RegionSix"),
        ({"region": "RegionTwo"}, "401: PUT"),
        ({"auth_url": "http://127.0.0.1:9/v3"}, "refused"),
    ],
)
def test_why_it_was_not_put(
    credential: dict[str, str], changes: dict[str, str], said: str, record: Path, tmp_path: Path, capsys: Any
) -> None:
    write(tmp_path, {**credential, **changes})
    assert main(["put", str(record), f"{PLACE}/run.json"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("gangway: put: ")
    assert said in line
    assert credential["secret"] not in line


@pytest.mark.usefixtures("credential")
def test_another_container_is_closed(swift: Any, record: Path, capsys: Any) -> None:
    assert main(["put", str(record), "swift://others-runs/run.json"]) == 1
    assert "401: PUT" in capsys.readouterr().err
    assert swift.objects == {}


@pytest.mark.usefixtures("credential")
def test_what_is_too_large_for_one_piece_is_said(
    swift: Any, record: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(openstack, "MAX_OBJECT_BYTES", 5)
    assert main(["put", str(record), f"{PLACE}/run.json"]) == 1
    assert "13 bytes; allowed: at most 5 per object" in capsys.readouterr().err
    assert swift.objects == {}


@pytest.mark.usefixtures("credential")
def test_what_is_not_there_is_said(tmp_path: Path, capsys: Any) -> None:
    assert main(["put", f"{tmp_path}/none.json", f"{PLACE}/run.json"]) == 1
    assert "No such file" in capsys.readouterr().err


def test_a_machine_without_a_credential_says_so(record: Path, tmp_path: Path, capsys: Any, monkeypatch: Any) -> None:
    monkeypatch.setenv("GANGWAY_SECRETS", f"{tmp_path}/none.json")
    assert main(["put", str(record), f"{PLACE}/run.json"]) == 1
    assert "none.json" in capsys.readouterr().err


@pytest.fixture
def kept(swift: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the machine keeps its secrets; today's are in the object store."""
    monkeypatch.setenv("GANGWAY_SECRETS", f"{tmp_path}/secrets.json")
    monkeypatch.setenv("GANGWAY_METADATA_URL", swift.url)
    swift.publish("one.json", {"credential": {}, "member_key": "PEM"})
    return tmp_path / "secrets.json"


def test_secrets_are_fetched_once_and_are_roots_alone(swift: Any, kept: Path, capsys: Any) -> None:
    assert main(["fetch"]) == 0
    assert kept.stat().st_mode & 0o777 == 0o600
    assert json.loads(kept.read_text())["member_key"] == "PEM"
    assert main(["fetch"]) == 0
    assert len(swift.fetched) == 1, "the next boot has them"
    assert main(["secret", "member_key"]) == 0
    assert capsys.readouterr().out == "PEM"


@pytest.mark.attack("a reader of the project's servers", "an old address, or one of another key, for machines' secrets")
def test_an_address_that_is_over_is_worth_nothing(swift: Any, kept: Path, capsys: Any) -> None:
    swift.publish("one.json", {"member_key": "PEM"}, ttl_sec=-1)
    assert main(["fetch"]) == 1
    error = capsys.readouterr().err
    assert "401: GET" in error
    assert "temp_url_sig" not in error, "the console shows it"
    assert not kept.exists()
    assert swift.fetched == []


def test_what_was_fetched_is_good_when_the_address_is_over(swift: Any, kept: Path) -> None:
    assert main(["fetch"]) == 0
    swift.publish("one.json", {"member_key": "PEM"}, ttl_sec=-1)
    assert main(["fetch"]) == 0, "a boot days later"
    swift.metadata = None
    assert main(["fetch"]) == 0, "and one without the metadata service"


@pytest.mark.parametrize("broken", ["", "{", "[]", "{}"])
def test_a_file_that_is_not_whole_is_fetched_again(kept: Path, broken: str) -> None:
    kept.write_text(broken)
    assert main(["fetch"]) == 0
    assert json.loads(kept.read_text())["member_key"] == "PEM"


def test_newer_secrets_take_the_place_of_those_kept(swift: Any, kept: Path) -> None:
    assert main(["fetch"]) == 0
    swift.publish("two.json", {"member_key": "ANOTHER"})
    assert main(["fetch"]) == 0
    assert json.loads(kept.read_text())["member_key"] == "ANOTHER"
    swift.publish("three.json", {"member_key": "LATER"}, ttl_sec=-1)
    assert main(["fetch"]) == 1, "nodes with another key would not be met"


@pytest.mark.attack("a reader of the project's servers", "an old address, or one of another key, for machines' secrets")
def test_another_key_signs_nothing(swift: Any, kept: Path) -> None:
    swift.publish("one.json", {"member_key": "PEM"}, key="somebody's")
    assert main(["fetch"]) == 1
    assert not kept.exists()


@pytest.mark.parametrize("metadata", [None, {}, {"gangway:secrets": "http://127.0.0.1:9/o"}])
def test_a_machine_that_is_told_nothing_says_so(swift: Any, kept: Path, metadata: Any, capsys: Any) -> None:
    swift.metadata = metadata
    assert main(["fetch"]) == 1
    assert capsys.readouterr().err.startswith("gangway: fetch: ")
    assert not kept.exists()
