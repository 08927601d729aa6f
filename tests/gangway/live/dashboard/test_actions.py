"""Cancelling and submitting again: only with --allow-actions, from our own form, and with a line in the log."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from gangway.components.core.findings import InputError
from gangway.jobs.base import Phase
from gangway.live.dashboard.access import Access
from gangway.live.dashboard.actions import ActionLog
from tests.gangway.live.dashboard.asgi import Client
from tests.gangway.live.dashboard.conftest import FakeEngine, Open, get_queue
from tests.gangway.live.dashboard.test_pages import JOB, read

WEB_PAGE = pytest.mark.attack("a web page in the same browser", "reads or changes something through the dashboard")


@pytest.fixture
def engine() -> FakeEngine:
    return FakeEngine([JOB, replace(JOB, id="eval-2", phase=Phase.DONE)])


@pytest.fixture
def url(engine: FakeEngine) -> str:
    return f"/jobs/{get_queue(engine).key}/train-1"


@pytest.fixture
def client(open_board: Open, engine: FakeEngine) -> Client:
    return open_board(queues=(get_queue(engine),), acts=True)


def logged(folder: Path) -> list[dict[str, str]]:
    return [json.loads(line) for line in (folder / "actions.jsonl").read_text().splitlines()]


def test_a_confirmed_cancel_happens_and_is_logged(client: Client, engine: FakeEngine, url: str, tmp_path: Path) -> None:
    assert [link.attrs["href"] for link in read(client.get(url)).find("a", class_="button")] == [f"{url}/cancel"]
    page = read(client.get(f"{url}/cancel"))
    assert engine.cancelled == [], "not without a confirmation"
    token = page.find("br", name="form_token")[0].attrs["value"]
    answer = client.post(f"{url}/cancel", {"form_token": token})
    assert (answer.code, answer.headers["location"]) == (303, url)
    assert engine.cancelled == ["train-1"]
    lines = logged(tmp_path)
    assert [(line["action"], line["job"], line["outcome"]) for line in lines] == [
        ("cancel", "train-1", "begun"), ("cancel", "train-1", "done"),
    ]  # fmt: skip
    assert (tmp_path / "actions.jsonl").stat().st_mode & 0o777 == 0o600


def test_without_the_option_there_is_no_way(open_board: Open, engine: FakeEngine, url: str, access: Access) -> None:
    client = open_board(queues=(get_queue(engine),))
    assert "button" not in client.get(url).text
    assert client.get(f"{url}/cancel").code == 404
    assert client.post(f"{url}/cancel", {"form_token": access.form_token(f"{url}/cancel")}).code == 404
    assert engine.cancelled == []


@WEB_PAGE
@pytest.mark.parametrize("token", ["", "wrong", "é", "of another action"])
def test_a_form_of_another_page_changes_nothing(
    client: Client, engine: FakeEngine, url: str, token: str, access: Access
) -> None:
    given = access.form_token(f"{url}/resubmit") if token == "of another action" else token
    assert client.post(f"{url}/cancel", {"form_token": given}).code == 403
    assert client.post(f"{url}/cancel", {}).code == 403
    assert engine.cancelled == []


@WEB_PAGE
@pytest.mark.parametrize(
    "headers", [{"origin": "http://evil.example"}, {"cookie": None}, {"host": "evil.example:8808"}, {"origin": None}]
)
def test_a_right_form_from_the_wrong_place_changes_nothing(
    client: Client, engine: FakeEngine, url: str, headers: dict[str, str | None], access: Access
) -> None:
    right = {"form_token": access.form_token(f"{url}/cancel")}
    assert client.post(f"{url}/cancel", right, headers).code in (403, 421)
    assert engine.cancelled == []


def test_only_what_a_job_allows_can_be_done(client: Client, engine: FakeEngine, url: str, access: Access) -> None:
    over = url.replace("train-1", "eval-2")
    for path in (f"{over}/cancel", f"{url}/resubmit", f"{url}/delete", f"{over}/resubmit"):
        assert client.get(path).code == 404
        assert client.post(path, {"form_token": access.form_token(path)}).code == 404
    assert engine.cancelled == []


def test_a_failure_is_shown_and_logged(open_board: Open, url: str, access: Access, tmp_path: Path) -> None:
    engine = FakeEngine([JOB])
    client = open_board(queues=(get_queue(engine),), acts=True)
    engine._problem = "the controller is down"
    answer = client.post(f"{url}/cancel", {"form_token": access.form_token(f"{url}/cancel")})
    assert (answer.code, "the controller is down" in answer.text) == (400, True)
    assert logged(tmp_path)[-1]["outcome"] == "failed: slurm: the controller is down"


def test_without_a_log_nothing_is_done(
    tmp_path: Path, client: Client, engine: FakeEngine, url: str, access: Access
) -> None:
    (tmp_path / "other").write_text("")
    (tmp_path / "actions.jsonl").symlink_to(tmp_path / "other")
    assert client.post(f"{url}/cancel", {"form_token": access.form_token(f"{url}/cancel")}).code == 400
    assert engine.cancelled == []
    with pytest.raises(InputError, match="log of actions"):
        ActionLog(tmp_path / "other" / "log").write({})
