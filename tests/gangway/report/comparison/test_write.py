"""The page of several runs: each number leads to its source, hostile names are text, nothing is fetched."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from gangway.components.core.findings import InputError
from gangway.report.comparison.groups import Member, Source
from gangway.report.comparison.tables import get_report
from gangway.report.comparison.write import ComparisonReport, comparison_report
from gangway.runs.run_folders import find_runs
from gangway.trainer.records.decisions import DecisionRecord
from gangway.trainer.records.run_record import RunRecord

Parse = Callable[[str], Any]
Write = Callable[[Path, RunRecord], Path]


@pytest.fixture(scope="module")
def html(suite_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    out = tmp_path_factory.mktemp("page")
    return comparison_report(find_runs([suite_folder]), None).write_page(out).read_text()


@pytest.fixture(scope="module")
def page(html: str, parse: Parse) -> Any:
    # An SVG's elements may close themselves, which the reader of plain HTML does not know.
    return parse(re.sub(r"<svg.*?</svg>", "", html, flags=re.DOTALL))


def test_every_number_of_the_table_leads_to_its_source_and_says_it(page: Any) -> None:
    links = [element for element in page.find("a") if element.attrs.get("class", "").startswith("told ")]
    lines = {element.attrs["id"]: element.text for element in page.find("li") if "id" in element.attrs}
    assert len(links) > 100
    for link in links:
        source = lines[link.attrs["href"][1:]]
        provenance = link.attrs["class"].split()[1].replace("-", " ")
        assert source.startswith(provenance), link
        assert link.attrs["data-told"] == link.attrs["aria-label"]
        assert source.split(". ")[0].split(", as of")[0].removeprefix(f"{provenance} ") in link.attrs["data-told"]
        assert link.attrs["data-note"] == link.attrs["href"].removeprefix("#source-")
    assert lines.keys() == {link.attrs["href"][1:] for link in page.find("a") if "#source-" in link.attrs["href"]}


def test_a_mean_tells_the_values_behind_it(page: Any) -> None:
    told = [link.attrs["data-told"] for link in page.find("a") if "data-told" in link.attrs]
    assert any(re.search(r"mean ± sample standard deviation of 3 \(aws-s0: .*, aws-s1: ", one) for one in told)
    assert any("list price: catalogue; as of 2026-09-06" in one for one in told)


def test_theirs_stand_apart_under_their_own_heading(page: Any) -> None:
    theirs = page.find("tbody", class_="theirs")[0]
    assert theirs.text.startswith("Theirs, not ours: from the paper, DCGAN on CIFAR-10 and CelebA")
    assert "45.2" in theirs.text
    assert "45.2" not in page.find("tbody")[0].text


def test_what_is_missing_is_told_with_its_reason(page: Any) -> None:
    assert "azure-s0 failed no quota" in page.section("wrong")
    names = [element.attrs["aria-labelledby"] for element in page.find("section")]
    assert names.index("wrong") == 0, "what failed stands before all figures"
    assert "gcp-s0" in page.section("stops")
    assert "spot-interruption 3,008 9.8 s measured" in page.section("stops")


def test_samples_are_of_each_rows_first_seed(page: Any) -> None:
    images = page.find("img")
    assert [image.attrs["alt"].split(" of run ")[1].split(",")[0] for image in images] == [
        *("single-node-s0", "aws-s0", "gcp-s0"),
    ]
    assert all(image.attrs["src"].startswith("data:image/png;base64,") for image in images)


def test_hostile_names_stay_text(html: str, page: Any, hostile: str) -> None:
    assert page.open == []
    assert "<script" not in html.lower()
    assert page.find("h1")[0].text == " ".join(hostile.split())


def test_nothing_is_fetched_and_the_page_is_small(html: str) -> None:
    assert "http://" not in html
    assert "https://" not in html
    assert "@import" not in html
    assert set(re.findall(r"url\((.)", html)) == {"#"}
    assert len(html) < 5_000_000


def test_ids_are_unique_and_references_lead_somewhere(html: str) -> None:
    ids = re.findall(r'\sid="([^"]+)"', html)
    assert len(ids) == len(set(ids))
    assert set(re.findall(r'href="#([^"]+)"', html)) | set(re.findall(r"url\(#([^)]+)\)", html)) <= set(ids)


def test_drawings_take_the_pages_colours_and_speak(html: str) -> None:
    drawings = re.findall(r"<svg.*?</svg>", html, flags=re.DOTALL)
    assert len(drawings) == 8
    for drawing in drawings:
        assert drawing.startswith('<svg role="img" aria-label="')
        assert "var(--series-1)" in drawing
        assert not re.search(r"#[0-9a-f]{6}", drawing), "a colour that is the same by day and by night"
        assert "<text" in drawing
    assert any("Open, behind in both with every run: aws (by gcp)." in drawing for drawing in drawings)


def test_structure_serves_keyboard_and_screen_reader(page: Any) -> None:
    assert len(page.find("table")) == len(page.find("caption"))
    assert all(element.attrs["scope"] in ("row", "col", "rowgroup") for element in page.find("th"))
    assert all("tabindex" in element.attrs for element in page.find("div", role="region"))
    assert [element.tag for element in page.elements if element.tag in ("h1", "main", "nav")] == ["h1", "nav", "main"]


@pytest.mark.slow
def test_the_same_runs_give_the_same_bytes(suite_folder: Path, html: str, tmp_path: Path) -> None:
    again = comparison_report(find_runs([suite_folder]), None)
    assert again.write_page(tmp_path).read_text() == html


@pytest.mark.slow
def test_figures_are_vector_files_for_papers(arms_folder: Path, tmp_path: Path) -> None:
    files = comparison_report(find_runs([arms_folder]), None).write_figures(tmp_path / "figures")
    names = {path.stem for path in files}
    assert names == {"losses", "quality", "throughput", "use", "power", "it-wh-time", "timeline"}
    assert {path.suffix for path in files} == {".pdf", ".svg"}
    for path in files:
        content = path.read_bytes()
        assert content.startswith(b"%PDF-" if path.suffix == ".pdf" else b"<?xml")
        assert b"0a0b0" not in content, "a stand-in colour of the page"
    assert b"/FontFile2" in (tmp_path / "figures" / "losses.pdf").read_bytes(), "letters are embedded as TrueType"


def test_runs_without_statistics_samples_or_prices_still_make_a_page(
    write: Write, get_record: Callable[..., RunRecord], parse: Parse, tmp_path: Path
) -> None:
    path = write(tmp_path / "runs", get_record(quality=(), quality_in_training=None))
    (path / "stats.jsonl").unlink()
    (path / "samples.png").unlink()
    html = comparison_report(find_runs([path]), None).write_page(tmp_path / "out").read_text()
    page = parse(re.sub(r"<svg.*?</svg>", "", html, flags=re.DOTALL))
    said = page.section("not-drawn")
    for title in ("Losses", "Quality over images", "Throughput", "Use of the machines", "Power"):
        assert f"{title}: no run has a line of statistics with it." in said
    assert "Cost against time: the launcher gave no price." in said
    assert "has samples.png" in page.section("samples")
    assert "None: every run went through in one piece." in page.section("stops")


@pytest.mark.slow
def test_each_row_shows_the_decisions_of_its_first_run_that_had_a_controller(
    write: Write, get_record: Callable[..., RunRecord], parse: Parse, tmp_path: Path
) -> None:
    at = get_record().sessions[0].start
    told = {"knob": "threads", "value": 1, "was": 2, "policy": "rules", "reason": "<w>", "expected_gain": 0.1}
    decided = DecisionRecord.model_validate({**told, "at": at, "images": 1000, "outcome": "done"})
    for seed in (0, 1, 2):
        write(tmp_path / "runs", get_record(f"run-s{seed}", seed, decisions=(decided,) * min(seed, 1)))
    made = comparison_report(find_runs([tmp_path / "runs"]), None)
    html = made.write_page(tmp_path / "out").read_text()
    page = parse(re.sub(r"<svg.*?</svg>", "", html, flags=re.DOTALL))
    section = page.section("controller")
    assert "run-s1" in section
    assert "run-s0" not in section
    assert "run-s2" not in section
    assert "threads 2 → 1 rules <w> +10% not judged" in section
    ids = re.findall(r'\sid="([^"]+)"', html)
    assert len(ids) == len(set(ids))
    assert (tmp_path / "figures" / "decisions-1.pdf") in made.write_figures(tmp_path / "figures")


@pytest.mark.slow
def test_a_record_without_a_digest_is_told_on_the_page(
    write: Write, get_record: Callable[..., RunRecord], parse: Parse, tmp_path: Path
) -> None:
    path = write(tmp_path / "runs", get_record("run-a"))
    record = json.loads((path / "run.json").read_text())
    sealed = comparison_report(find_runs([path]), None)
    assert "not sealed" not in sealed.write_page(tmp_path / "out").read_text() + sealed.markdown()
    (path / "run.json").write_text(json.dumps({key: value for key, value in record.items() if key != "digest"}))
    made = comparison_report(find_runs([path]), None)
    html = made.write_page(tmp_path / "out").read_text()
    page = parse(re.sub(r"<svg.*?</svg>", "", html, flags=re.DOTALL))
    assert "run-a: not sealed: its run.json has no digest" in page.section("wrong")
    assert "- run-a: not sealed: its run.json has no digest" in made.markdown()


@pytest.mark.slow
def test_large_grids_are_made_smaller_and_that_is_said(
    write: Write, get_record: Callable[..., RunRecord], tmp_path: Path
) -> None:
    path = write(tmp_path / "runs", get_record())
    Image.effect_noise((3000, 2000), 90).save(path / "samples.png")
    assert (path / "samples.png").stat().st_size > 2_000_000
    html = comparison_report(find_runs([path]), None).write_page(tmp_path / "out").read_text()
    assert "made smaller for this page: 1024 x 683 pixels, JPEG" in html
    assert "data:image/jpeg;base64," in html
    (path / "samples.png").write_text("GIF")
    with pytest.raises(InputError, match=r"samples\.png: is no image"):
        comparison_report(find_runs([path]), None).write_page(tmp_path / "other")
    assert not (tmp_path / "other").exists()


@pytest.mark.slow
def test_a_folder_that_cannot_be_made_is_a_message(suite_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    made = comparison_report(find_runs([suite_folder / "aws-s0"]), None)
    for write_it in (made.write_page, made.write_figures):
        with pytest.raises(InputError, match="cannot be made"):
            write_it(tmp_path / "file" / "below")


@pytest.mark.slow
def test_many_rows_and_runs_still_draw(member_of: Callable[..., Member], write: Write, tmp_path: Path) -> None:
    for number in range(26):
        write(tmp_path / "runs", member_of(f"run-{number:02}", number, stops=number % 2).record)
    html = comparison_report(find_runs([tmp_path / "runs"]), "run").write_page(tmp_path / "out").read_text()
    assert "2 more runs are not drawn." in html
    assert "Crosses: interruptions, 13 in all" in html


LONG = "a-stack-with-a-name-as-people-give-them-in-large-houses"


@pytest.mark.slow
@pytest.mark.usefixtures("faults")
@pytest.mark.parametrize("name", ["arms", "environments"])
def test_drawings_of_several_runs(name: str, members: dict[str, tuple[Member, ...]], tmp_path: Path) -> None:
    made = ComparisonReport(get_report(Source(members[name], ()), None))
    assert made.write_page(tmp_path).is_file()


@pytest.mark.slow
@pytest.mark.usefixtures("faults")
def test_drawings_of_many_rows_with_long_names(member_of: Callable[..., Member], tmp_path: Path) -> None:
    runs = [
        member_of(f"{LONG}-{place}", stack=f"{LONG}-{place}", stops=place % 3, usd=place + 1.0) for place in range(9)
    ]
    made = ComparisonReport(get_report(Source(tuple(runs), ()), None))
    assert made.write_page(tmp_path).is_file()
