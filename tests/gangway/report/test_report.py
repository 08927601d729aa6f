"""The page: every figure with its provenance, hostile names as text, nothing fetched, nothing left half written."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from gangway.components.core.findings import InputError
from gangway.render.rendering import number
from gangway.report.page import write_report
from gangway.trainer.config.presets import preset
from gangway.trainer.records.quality import QualityInTraining, QualityPoint
from gangway.trainer.records.quantity import Quantity
from gangway.trainer.records.run_record import RunRecord

NUM_CHARTS = 5
PageOf = Callable[[dict[str, Any]], Any]


def figures_in(value: object) -> Iterator[Quantity]:
    if isinstance(value, Quantity):
        yield value
    elif isinstance(value, BaseModel):
        for name in type(value).model_fields:
            yield from figures_in(getattr(value, name))
    elif isinstance(value, dict | tuple):
        for part in value.values() if isinstance(value, dict) else value:
            yield from figures_in(part)


def test_every_figure_of_the_record_is_shown_with_value_badge_and_footnote(page: Any, record: RunRecord) -> None:
    rows = [element.text for element in page.elements if element.tag in ("tr", "dd")]
    titles = [element.attrs["title"] for element in page.find("span") if "badge" in element.attrs.get("class", "")[:5]
              and "title" in element.attrs]  # fmt: skip
    footnotes = page.section("sources")
    figures = list(figures_in(record))
    assert len(figures) > 20
    for figure in figures:
        word = figure.provenance.replace("-", " ")
        shown = figure.source if figure.value is None else number(figure.value, figure.unit)
        assert any(shown in row and word in row for row in rows), figure
        assert any(title.startswith(f"{word}: {figure.source}") for title in titles), figure
        assert f"{word} {figure.source}" in footnotes, figure
        assert (figure.as_of or "") in footnotes
        assert figure.note in footnotes


def test_each_footnote_mark_leads_to_the_line_its_badge_names(page: Any) -> None:
    lines = {element.attrs["id"]: element.text for element in page.find("li") if "id" in element.attrs}
    marks = page.find("a", class_="note")
    assert {f"#{name}" for name in lines} == {mark.attrs["href"] for mark in marks}
    badge = page.elements[page.elements.index(marks[0]) - 1]
    assert lines[marks[0].attrs["href"][1:]].startswith(f"{badge.text} {badge.attrs['title'].split(': ', 1)[1]}")


def test_simulated_real_and_estimated_are_told_apart_before_anything_else(page: Any) -> None:
    header = page.find("header")[0].text
    assert "Simulated: AWS is an in-process moto cloud; nothing was billed." in header
    assert "Real: the training below ran on this machine." in header
    assert "FD-ENL0 went from 412.6 untrained to 58.32 trained (7.1 times lower)" in header
    assert page.section("sandbox").startswith("Sandbox Simulated")
    assert page.section("plan").startswith("Plan Planned")
    assert page.section("run").startswith("Run figures Real")


@pytest.mark.slow
def test_a_plan_that_was_not_applied_claims_no_sandbox(page_of: PageOf, inputs: dict[str, Any]) -> None:
    page = page_of({**inputs, "sandbox": [], "reals_png": None})
    assert "moto" not in page.find("body")[0].text
    assert "Planned only" in page.find("header")[0].text
    assert len(page.find("img")) == 2 * NUM_CHARTS + 1


def test_absent_and_unknown_figures_give_the_reason_and_never_a_zero(page: Any) -> None:
    rows = {element.text for element in page.find("tr")}
    assert any(row.startswith("Scaling efficiency absent no run with one process to compare with") for row in rows)
    assert any(row.startswith("head node 1 hours unknown unknown (no price found)") for row in rows)
    assert any(row.startswith("Per hour, at least 50.43 USD/h estimated") for row in rows)
    assert any(row.startswith("Per month unknown (no price for head node)") for row in rows)
    assert any(row.startswith("Per run unknown (no price for head node)") for row in rows)
    assert any(row.startswith("Emissions, expected unknown the plan does not know it") for row in rows)
    assert any(row.startswith("Data centre, expected 13.7 kWh (from 8.9 to 18.5) estimated") for row in rows)
    assert any(row.startswith("Data centre, at most 41.5 kWh estimated") for row in rows)
    assert any(
        row.startswith("SCI, 1,000 images, expected 0.25 gCO\u2082e (from 0.16 to 0.36) estimated") for row in rows
    )
    assert any(row.startswith("SCI, 1,000 images, at most 9.5 gCO\u2082e estimated") for row in rows)
    assert "lower bound: no price for head node" in page.section("sources")
    assert not [row for row in rows if " 0 USD" in row or "None" in row]


@pytest.mark.slow
def test_a_hint_of_the_trainer_stands_above_the_figures(page_of: PageOf, inputs: dict[str, Any]) -> None:
    assert "while it trained" not in page_of(inputs).section("run")
    hint = {"event": "hint", "images": 1, "cause": "d-wins", "figure": 0.02, "text": "the discriminator wins <b>"}
    section = page_of({**inputs, "stats": [*inputs["stats"], hint]}).section("run")
    assert "Mind: while it trained, the discriminator wins <b>. Speed and memory." in section


@pytest.mark.slow
def test_a_run_without_a_length_says_that_instead_of_naming_prices(page_of: PageOf, inputs: dict[str, Any]) -> None:
    inputs["plan"]["cost"]["components"].pop(2)
    page = page_of(inputs)
    assert "Per run unknown (the stack file sets no length of a run)" in page.section("plan")


def test_hostile_names_stay_text_and_nesting_is_sound(html: str, page: Any, hostile: str) -> None:
    assert page.open == []
    assert "<script" not in html.lower()
    assert page.find("script") == []
    plain = " ".join(hostile.split())
    assert plain in page.section("plan")
    assert plain in page.section("sandbox")
    assert any(hostile in element.attrs.get("alt", "") for element in page.find("img"))


def test_the_page_fetches_nothing(html: str, page: Any) -> None:
    links = [element.attrs["href"] for element in page.elements if "href" in element.attrs]
    assert all(link.startswith("#") for link in links)
    pictures = [element.attrs["src"] for element in page.elements if "src" in element.attrs]
    assert len(pictures) == 2 * NUM_CHARTS + 2
    assert all(picture.startswith("data:image/png;base64,") for picture in pictures)
    assert not page.find("link")
    assert "url(" not in html
    assert "@import" not in html
    assert "http://" not in html
    assert "https://" not in html


def test_structure_serves_keyboard_and_screen_reader(page: Any) -> None:
    ids = [element.attrs["id"] for element in page.elements if "id" in element.attrs]
    assert len(ids) == len(set(ids))
    targets = {element.attrs["href"][1:] for element in page.find("a")}
    named = {element.attrs["aria-labelledby"] for element in page.elements if "aria-labelledby" in element.attrs}
    assert targets | named <= set(ids)
    assert len(page.find("table")) == len(page.find("caption")) == len(page.find("div", role="region", tabindex="0"))
    assert all(element.attrs["scope"] in ("row", "col") for element in page.find("th"))
    assert all(len(element.attrs["alt"]) > 30 for element in page.find("img"))
    assert [element.tag for element in page.elements if element.tag in ("h1", "main", "nav")] == ["h1", "nav", "main"]
    assert page.find("html", lang="en")


def test_findings_and_sandbox_show_the_worst_first(page: Any) -> None:
    findings = page.section("plan")
    assert findings.index("error gangway:budget") < findings.index("info gangway:cluster")
    sandbox = page.section("sandbox")
    assert "2 read back equal 1 different" in sandbox
    assert sandbox.index("moto drops the filter") < sandbox.index("ec2:CreateVpc, ec2:DescribeVpcs")


def test_resources_hang_under_their_parents_with_their_inputs(page: Any) -> None:
    tree = page.find("ul", class_="tree")[0].text
    component = page.find("details", class_="component")[0].text
    assert component.startswith("aws-demo gangway:aws:Pool, 1 inside")
    assert "p5.48xlarge" in component
    assert "vpc aws:ec2/vpc:Vpc" not in component
    assert tree.endswith("vpc aws:ec2/vpc:Vpc")


def test_interruptions_sessions_and_versions_are_listed(page: Any) -> None:
    section = page.section("interruptions")
    assert "2026-03-01 08:15:51 UTC SIGTERM 60,032 9.84 s measured" in section
    assert "2026-03-01 08:16:02 UTC 1 min 16 s 1 60,032 150,016 done 1 node, cpu: AMD EPYC 9R14, 2 threads" in section
    versions = [element.text for element in page.find("tr")]
    assert "python 3.11.7 3.11.7" in versions
    assert "torch 2.15.0 –" in versions  # noqa: RUF001


def test_a_run_without_curves_quality_or_interruptions_says_so(
    page_of: PageOf, out: Path, inputs: dict[str, Any]
) -> None:
    bare: dict[str, object] = {"quality": (), "interruptions": (), "summaries": {}, "sessions": ()}
    inputs |= {"record": inputs["record"].model_copy(update=bare), "stats": []}
    inputs["plan"]["energy"] |= {"kwh_low": None, "kwh_high": None}
    inputs["plan"] |= {"findings": [], "cost": {**inputs["plan"]["cost"], "components": []}}
    text = page_of(inputs).find("main")[0].text
    assert "Data centre, expected 13.7 kWh estimated" in text
    assert "No curves: stats.jsonl holds no data line." in text
    assert "The record holds no quality metric" in text
    assert "None: the run went through in one piece." in text
    assert "None: fabric, capacity, cost and policy are clean." in text
    assert not (out / "plots").exists()


@pytest.mark.slow
def test_a_training_that_made_it_worse_is_called_so(out: Path, inputs: dict[str, Any]) -> None:
    worse = Quantity.measured(500.5, "", "gangway.trainer.metrics.collect")
    quality = inputs["record"].quality[0].model_copy(update={"trained": worse})
    inputs["record"] = inputs["record"].model_copy(update={"quality": (quality,)})
    text = write_report(out, **inputs).read_text()
    assert "500.5 trained (training made it worse)" in text
    assert "training has not made it better: 412.6 untrained, 500.5 trained" in text
    assert text.index("training has not made it better") < text.index('id="samples"')


@pytest.mark.slow
def test_a_metric_of_which_more_is_better_says_so_and_costs_are_shown(out: Path, inputs: dict[str, Any]) -> None:
    took = Quantity.measured(31.25, "s", "wall clock")
    quality = (
        inputs["record"].quality[0].model_copy(update={"name": "Recall-ENL0", "better": "higher", "cost_sec": took})
    )
    history = QualityInTraining(
        points=(QualityPoint(name="Recall-ENL0", kimg=20.0, value=0.5),),
        cost_sec=Quantity.measured(12.5, "s", "clock"),
        share_of_wall=Quantity.measured(0.0625, "1", "of the wall time"),
    )
    inputs["record"] = inputs["record"].model_copy(update={"quality": (quality,), "quality_in_training": history})
    text = write_report(out, **inputs).read_text()
    assert "Recall-ENL0; higher is better" in text
    assert "; lower is better" not in text
    assert "times lower" not in text
    assert "Recall-ENL0 0.5 at 20 kimg" in text
    assert "31.25" in text
    assert "12.5" in text
    assert "0.0625" in text


@pytest.mark.slow
def test_translations_say_what_their_columns_are(out: Path, inputs: dict[str, Any]) -> None:
    plain = write_report(out / "plain", **inputs).read_text()
    config = preset("cyclegan-photos")
    inputs["record"] = inputs["record"].model_copy(update={"config": config})
    text = write_report(out / "translated", **inputs).read_text()
    words = "in threes a real image, its translation and that translated back"
    assert (words in text, words in plain) == (True, False)


@pytest.mark.slow
def test_the_same_inputs_give_the_same_bytes(written: Path, out: Path, inputs: dict[str, Any]) -> None:
    inputs |= {"samples_png": written.parent / "grid.png", "reals_png": written.parent / "grid.png"}
    write_report(out, **inputs)
    names = sorted(path.relative_to(written) for path in written.rglob("*.*"))
    assert len(names) == 1 + 2 * NUM_CHARTS
    assert names == sorted(path.relative_to(out) for path in out.rglob("*.*"))
    assert all((out / name).read_bytes() == (written / name).read_bytes() for name in names)
    assert (out / "report.html").stat().st_size < 3_000_000


def test_a_missing_or_wrong_image_writes_nothing(out: Path, inputs: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such image"):
        write_report(out, **{**inputs, "samples_png": tmp_path / "none.png"})
    wrong = tmp_path / "wrong.png"
    wrong.write_text("GIF89a")
    with pytest.raises(InputError, match="not a PNG image"):
        write_report(out, **{**inputs, "reals_png": wrong})
    assert not out.exists()


@pytest.mark.slow
def test_a_folder_that_cannot_be_written_is_a_message(inputs: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(InputError, match=r"file/plots: cannot be made: Not a directory"):
        write_report(tmp_path / "file", **inputs)


def test_importing_the_package_loads_no_plotting() -> None:
    code = "import sys, gangway.report; print(sorted({'matplotlib', 'jinja2', 'torch'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
