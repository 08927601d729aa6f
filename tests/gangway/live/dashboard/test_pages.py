"""The pages of runs, comparisons and jobs: what they show, how large they are, and that hostile texts are text."""

import json
import re
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from gangway.jobs.base import JobStatus, Phase
from gangway.live.dashboard.app import MOST_PAGE_BYTES
from gangway.live.dashboard.index import get_key
from gangway.trainer.records.digest import with_digest
from tests.gangway.live.dashboard.asgi import Answer
from tests.gangway.live.dashboard.conftest import FakeEngine, Open, add_line, get_queue
from tests.gangway.live.dashboard.synthetic import PNG, write_run
from tests.gangway.report.conftest import Page
from tests.hostile import CANARY, HOSTILE, changed, text_places

JOB = JobStatus("train-1", "train", "ann", "vision", Phase.RUNNING, ("node-1",), 1, None, "")
WRITER = pytest.mark.attack("a user who writes to a shared folder of runs", "texts or files that act in the dashboard")


def read(answer: Answer) -> Page:
    """A page or a part of it, whose tags must match."""
    assert answer.code == 200, answer.text
    assert len(answer.content) < MOST_PAGE_BYTES
    return Page(re.sub(r"<(link|meta|input|br|img|line|path|hr)\b([^>]*?)/?>", r"<br \2>", answer.text))


def url_of(runs: Path, name: str) -> str:
    return f"/runs/{get_key(runs, name)}"


def cells_of(page: Page) -> dict[str, str]:
    """The cells below a row's head, as one text."""
    found, head = dict[str, str](), ""
    for element in page.elements:
        if element.tag == "th":
            head = element.text
        elif element.tag == "td" and head:
            found[head] = f"{found.get(head, '')} {element.text}".strip()
    return found


def test_a_finished_runs_figures_have_their_sources(open_board: Open, runs: Path) -> None:
    page = read(open_board(runs).get(url_of(runs, "run-00001")))
    cells = cells_of(page)
    assert cells["Throughput"].startswith("51 images/s measured wall clock and images shown")
    assert cells["Cost"].startswith("0.01 USD list price list")
    assert cells["Energy"].startswith("58.23 J (1.62 \N{MULTIPLICATION SIGN} 10⁻⁵ kWh) estimated model: CPU seconds")
    assert cells["Emissions"] == "absent absent the launcher gave no PUE"
    assert len(page.find("svg", role="img")) == 4
    assert page.find("figure", id="chart-3")[0].text.startswith("Quality")


def test_a_running_runs_figures_are_of_its_newest_line(open_board: Open, runs: Path) -> None:
    client, url = open_board(runs), url_of(runs, "run-00003")
    before = cells_of(read(client.get(url)))
    assert before["Cost"].endswith(
        "estimated training time of each session x price of all nodes: the launcher's price of all nodes"
    )
    add_line(runs / "run-00003", time=1.79e9, images=8192, session=0, images_per_sec=777.0, watts=None, energy=None)
    add_line(runs / "run-00003", event="decision", time=1.79e9, images=8192, session=0, knob="batch_gpu", value=64,
             was=32, policy="rules", reason="memory is free", expected_gain=0.1, outcome="done")  # fmt: skip
    page = read(client.get(url, {"hx-request": "true"}))
    assert cells_of(page)["Throughput"].startswith("777 images/s measured stats.jsonl, line of 2026-09-21")
    assert cells_of(page)["Power"] == "absent absent stats.jsonl has no watts"
    assert "batch_gpu 32 to 64, by rules: memory is free" in page.find("ol")[0].text
    assert page.elements[0].attrs == {"class": "hidden", "id": "announce", "role": "status"}, (
        "without the page around it"
    )


def test_a_log_that_shrinks_is_another_one(open_board: Open, runs: Path) -> None:
    client, url = open_board(runs), url_of(runs, "run-00003")
    client.get(url)
    (runs / "run-00003" / "stats.jsonl").write_text("")
    add_line(runs / "run-00003", time=1.79e9, images=1000, session=0, images_per_sec=5.0)
    assert cells_of(read(client.get(url)))["Throughput"].startswith("5 images/s")


def test_a_long_log_takes_several_looks_and_few_points(open_board: Open, runs: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr("gangway.live.dashboard.series._MOST_BYTES", 100_000)
    line = {"time": 1.79e9, "session": 0, "images_per_sec": 1.0, "loss_g": 1.0, "loss_d": 1.0, "watts": 1.0}
    text = "".join(json.dumps({**line, "images": 1000 * number}) + "\n" for number in range(1, 5000))
    (runs / "run-00003" / "stats.jsonl").write_text(text)
    client, url = open_board(runs), url_of(runs, "run-00003")
    assert "MB of stats.jsonl so far" in read(client.get(url)).find("p", class_="quiet")[1].text
    for _ in range(8):
        page = client.get(url).text
    assert "so far" not in page
    assert "4,999 of 6 kimg" in page
    assert max(page.count("L", at.start(), at.end()) for at in re.finditer(r' d="[^"]*"', page)) < 800


def test_the_end_of_the_log_is_shown(open_board: Open, runs: Path) -> None:
    (runs / "run-00001" / "train.log").write_bytes(b"x" * 100_000 + b"\nstep 1\r\x1b[31mred\n")
    page = read(open_board(runs).get(url_of(runs, "run-00001")))
    assert page.find("pre", class_="log")[0].text.endswith("step 1 \\x1b[31mred")


def test_runs_are_compared_on_one_axis(open_board: Open, runs: Path) -> None:
    keys = [get_key(runs, f"run-0000{number}") for number in (1, 2, 3)]
    page = read(open_board(runs).get(f"/compare?{'&'.join(f'run={key}' for key in keys)}"))
    rates = cells_of(page)["Throughput"].split(" images/s")
    assert [rate.split()[-1] for rate in rates[:3]] == ["51", "52", "234.3"]
    assert len(page.find("svg", role="img")) == 5
    drawn = page.find("svg", role="img")[0].attrs["aria-label"]
    assert all(name in drawn for name in ("run-00001", "run-00002", "run-00003"))
    notes = page.find("a", class_="note")
    assert {note.attrs["href"].removeprefix("#") for note in notes} <= {
        each.attrs.get("id") for each in page.find("li")
    }


@pytest.mark.parametrize("count", [0, 1, 7])
def test_two_to_six_runs_can_be_compared(open_board: Open, runs: Path, count: int) -> None:
    query = "&".join(f"run={number}" for number in range(count))
    answer = open_board(runs).get(f"/compare?{query}")
    assert (answer.code, f"{count} runs" in answer.text) == (400, True)


@pytest.mark.parametrize("url", ["/runs/0000", "/nothing", "/jobs/a/b", "/suites/a", "/runs/0/pictures/samples.png"])
def test_what_is_not_there_is_404(open_board: Open, runs: Path, url: str) -> None:
    assert open_board(runs).get(url).code == 404


def test_jobs_are_listed_and_filtered(open_board: Open) -> None:
    other = replace(JOB, id="eval-2", user="bob", phase=Phase.DONE, submitted_at=datetime(2026, 1, 1, tzinfo=UTC))
    client = open_board(queues=(get_queue(FakeEngine([JOB, other])),))
    assert {"train-1", "eval-2"} <= cells_of(read(client.get("/jobs"))).keys()
    assert "eval-2" not in cells_of(read(client.get("/jobs?user=ann")))
    assert "train-1" not in cells_of(read(client.get("/jobs?state=done")))
    assert "train-1" in read(client.get("/")).section("queues")
    assert client.get("/jobs?state=gone").code == 400


def test_an_engine_that_does_not_answer_is_named_with_the_reason(open_board: Open) -> None:
    page = read(open_board(queues=(get_queue(FakeEngine([], problem="Slurm is down")),)).get("/jobs"))
    assert "Slurm is down" in page.find("p", class_="problem")[0].text


def test_pictures_are_png_files_of_the_run(open_board: Open, runs: Path) -> None:
    (runs / "run-00001" / "samples").mkdir()
    (runs / "run-00001" / "samples" / "000004kimg.png").write_bytes(PNG)
    client, url = open_board(runs), url_of(runs, "run-00001")
    for name in ("samples.png", "000004kimg.png"):
        answer = client.get(f"{url}/pictures/{name}")
        assert (answer.code, answer.content) == (200, PNG)
        assert (answer.headers["content-type"], answer.headers["x-content-type-options"]) == ("image/png", "nosniff")


@WRITER
@pytest.mark.parametrize(
    "name",
    [
        *("run.json", "../run-00002/samples.png", "..%2f..%2fsecret.png", "%2e%2e%2fsamples.png", "/etc/passwd"),
        *("samples.png%00", "reals.png", "000001kimg.png", "000002kimg.png", "000003kimg.png", "000005kimg.png"),
    ],
)
def test_no_other_file_is_served_as_a_picture(open_board: Open, runs: Path, name: str) -> None:
    folder = runs / "run-00001"
    (runs.parent / "secret.png").write_bytes(PNG)
    (folder / "reals.png").symlink_to(runs.parent / "secret.png")
    (folder / "samples").mkdir()
    (folder / "samples" / "000001kimg.png").symlink_to("/etc/passwd")
    (folder / "samples" / "000002kimg.png").write_bytes(b"<script>alert(1)</script>")
    (folder / "samples" / "000003kimg.png").mkdir()
    assert open_board(runs).get(f"{url_of(runs, 'run-00001')}/pictures/{name}").code == 404


@WRITER
def test_a_linked_folder_of_samples_is_not_followed(open_board: Open, runs: Path) -> None:
    (runs.parent / "private").mkdir()
    (runs.parent / "private" / "000001kimg.png").write_bytes(PNG)
    (runs / "run-00001" / "samples").symlink_to(runs.parent / "private")
    client, url = open_board(runs), url_of(runs, "run-00001")
    assert client.get(f"{url}/pictures/000001kimg.png").code == 404
    for name in ("train.log", "plan.json"):
        (runs / "run-00001" / name).symlink_to(runs.parent / "private" / "000001kimg.png")
    assert "PNG" not in client.get(url).text


def harmless(answer: Answer) -> None:
    """Escaped, without characters that are not seen, on a page of bounded size."""
    page = read(answer)
    assert not [
        each for each in page.elements if each.tag == "script" and each.attrs.get("src") != "/static/htmx.min.js"
    ]
    assert not [name for each in page.elements for name in each.attrs if name.startswith("on")]
    assert all(each.isprintable() or each in "\n\t" for each in answer.text)


@WRITER
@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_texts_of_runs_are_text(open_board: Open, runs: Path, kind: str, tmp_path: Path) -> None:
    text, folder = HOSTILE[kind], runs / "run-00001"
    record = json.loads((folder / "run.json").read_text())
    places = [
        place for place in text_places(record) if place[-1] not in FIXED and place[0] not in ("sessions", "digest")
    ]
    places = [place for place in places if place[0] != "config" or place[-1] == "preset"]
    hostile = changed(record, *places, text=text)
    (folder / "run.json").write_text(json.dumps(with_digest(hostile)))
    lines = [json.loads(line) for line in (runs / "run-00003" / "stats.jsonl").read_text().splitlines()]
    lines = [changed(line, *[place for place in text_places(line) if place != ("event",)], text=text) for line in lines]
    names = ({"event": "hint", "text": text}, {"event": "failed", "why": text}, {"event": text})
    judged = {"event": "quality", "quality": {"name": text, "trained": {"value": 1.0}}}
    decided = {"event": "decision", "knob": text, "value": text, "was": text, "policy": text, "reason": text,
               "expected_gain": 0.1, "outcome": "failed", "why": text}  # fmt: skip
    lines += [{**each, "time": 1.79e9, "images": 9000, "session": 0} for each in (*names, judged, decided)]
    energy = {text + str(number): [1.0, text, text] for number in range(40)}
    lines += [{"time": 1.79e9, "images": 9000, "session": 0, "images_per_sec": 1.0, "energy": energy}]
    (runs / "run-00003" / "stats.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (runs / "run-00003" / "config.json").write_text(json.dumps({"preset": text, "kimg": 6}))
    (runs / "run-00003" / "train.log").write_text(text * (60_000 // len(text) + 1), errors="replace")
    client = open_board(runs)
    keys = [get_key(runs, name) for name in ("run-00001", "run-00003", "run-00002")]
    for url in ("/", "/runs", *(f"/runs/{key}" for key in keys), f"/compare?{'&'.join(f'run={key}' for key in keys)}"):
        harmless(client.get(url))
    assert not (Path.cwd() / CANARY).exists()


FIXED = {"provenance", "status", "ended_by", "better", "verdict", "start", "end", "at", "key"}
"""Words of a record that are checked, so that another one makes it unreadable."""


@WRITER
@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_texts_of_jobs_and_queries_are_text(open_board: Open, kind: str) -> None:
    text = HOSTILE[kind]
    jobs = [
        replace(
            JOB, id=f"a{number}", name=text[:999], user=text, team=text[:999], nodes=(text[:999],) * 50, reason=text
        )
        for number in range(60)
    ]
    client = open_board(queues=(get_queue(FakeEngine([*jobs, replace(JOB, id=text)], log=text)),))
    queue = get_queue(FakeEngine([])).key
    for url in ("/", "/jobs", f"/jobs/{queue}/a1", "/jobs?page=2"):
        harmless(client.get(url))
    query = "".join(f"%{byte:02x}" for byte in text[:300].encode())
    for url in (f"/runs?q={query}&preset={query}", f"/jobs?user={query}&engine={query}"):
        harmless(client.get(url))
    for url in (f"/runs?sort={query}", f"/{query}", f"/runs?live=0&{query}={query}"):
        answer = client.get(url)
        harmless(answer._replace(code=200))


def test_a_full_page_of_runs_stays_small(open_board: Open, tmp_path: Path) -> None:
    for number in range(51):
        write_run(tmp_path / ("<&\"'" * 20 + str(number)), number)
    harmless(open_board(tmp_path).get("/runs"))
