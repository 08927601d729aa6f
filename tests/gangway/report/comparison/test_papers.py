"""Which rows of the papers stand beside which runs: those of the same task, and a word on the others."""

from collections.abc import Callable
from typing import Any

import pytest

from gangway.report.comparison.groups import Member, Source
from gangway.report.comparison.tables import Name, as_json, beside, get_paper, get_report
from gangway.report.comparison.write import ComparisonReport
from gangway.trainer.config.presets import PRESETS

Make = Callable[..., Member]


def fields(**fields: Any) -> dict[str, Any]:
    return fields


DCGAN32, DCGAN64 = fields(dataset="cifar10"), fields(dataset="celeba", resolution=64)
VIDEO = PRESETS["progan-video-ucf101"].model_dump(exclude={"seed"})
LABELS = {
    "P2": ["single node", "AWS", "GCP", "private (OpenStack, VMware)"],
    "P3": ["DCGAN on images, control", "DCGAN on images, resource-aware", "change, as the paper has it"],
}
LABELS["video"] = [label.replace("DCGAN on images", "Progressive GAN on UCF101 video") for label in LABELS["P3"]]


def test_the_papers_figures_are_theirs_to_the_digit() -> None:
    environments, arms = get_paper("P2"), get_paper("P3")
    assert [row.cells["FID"] for row in environments.rows] == [45.2, 42.5, 40.1, 43.3]
    assert [row.cells["total_h"] for row in environments.rows] == [48, 24, 20, 30]
    assert [row.cells.get("memory_gib") for row in arms.rows if not row.change] == [16, 12, 32, 28]
    assert arms.units == {"memory_gib": "GB"}


@pytest.mark.parametrize("name", ["P2", "P3"])
def test_every_row_is_of_a_task_and_has_columns(name: Name) -> None:
    paper = get_paper(name)
    assert {row.task for row in paper.rows} == paper.tasks.keys()
    for row in paper.rows:
        assert row.cells.keys() <= set(paper.columns)
        assert row.label.startswith(paper.tasks[row.task].said) or name == "P2" or row.change
    if paper.epochs is not None:
        assert {60 * row.cells["total_h"] / row.cells["min_per_epoch"] for row in paper.rows} == {paper.epochs}


@pytest.mark.parametrize(
    ("name", "config", "labels", "left_out"),
    [
        ("P2", DCGAN32, LABELS["P2"], ""),
        ("P2", DCGAN64, LABELS["P2"], ""),
        ("P2", {}, [], "DCGAN on CIFAR-10 and CelebA; these runs: dcgan on digits, 32 x 32."),
        ("P2", fields(dataset="cifar10", resolution=64), [], "these runs: dcgan on cifar10, 64 x 64."),
        ("P2", fields(dataset="folder"), [], "these runs: dcgan on folder, 32 x 32."),
        ("P2", fields(dataset="cifar10", architecture="resnet"), [], "these runs: resnet on cifar10, 32 x 32."),
        ("P3", DCGAN32, LABELS["P3"], "3 rows of paper P3 are left out, of another task: Progressive GAN on UCF101"),
        ("P3", VIDEO, LABELS["video"], "3 rows of paper P3 are left out, of another task: DCGAN on images;"),
        ("P3", {}, [], "DCGAN on images and Progressive GAN on UCF101 video; these runs: dcgan on digits, 32 x 32."),
    ],
)
def test_rows_stand_beside_runs_of_their_task_alone(
    name: Name, config: dict[str, Any], labels: list[str], left_out: str, member_of: Make
) -> None:
    found = beside(name, get_paper(name), [member_of("a", suite="s", paper=name, config=config)])
    assert [row.label for row in found.rows] == labels
    assert left_out in found.left_out
    assert bool(left_out) == bool(found.left_out)
    assert not found.notes if not labels else all(note.startswith("The paper") for note in found.notes)


def test_treatments_of_a_paper_stand_beside_its_suite_alone(member_of: Make) -> None:
    runs = [member_of(arm, arm=arm, suite="s", config=DCGAN32) for arm in ("c", "t")]
    report = get_report(Source(tuple(runs), ()), None)
    assert report.table.name == "P3"
    assert [row.kind for row in report.table.rows] == ["ours", "ours", "change"]
    assert report.table.left_out == "The rows of paper P3 are left out: no suite of that paper made these runs."


def test_one_run_of_another_task_is_enough_to_leave_rows_out(member_of: Make) -> None:
    runs = [member_of("a", config=DCGAN32), member_of("b", config=fields(dataset="cifar10", architecture="resnet"))]
    found = beside("P2", get_paper("P2"), runs)
    assert found.rows == ()
    assert found.left_out.endswith("these runs: dcgan on cifar10, 32 x 32, resnet on cifar10, 32 x 32.")


def test_a_run_of_another_length_says_so(member_of: Make) -> None:
    short = member_of("a", config=DCGAN32)
    images = short.record.dataset.images
    whole = member_of("b", config=fields(dataset="cifar10", kimg=480 * images / 1000))
    said = [beside("P2", get_paper("P2"), [run]).notes[-1] for run in (short, whole)]
    assert said[0].startswith("The paper's runs are of 480 epochs, ours of 3.3")
    assert "epochs" not in said[1]


def test_page_markdown_and_json_say_that_rows_are_left_out_and_keep_no_empty_columns(member_of: Make) -> None:
    report = get_report(Source((member_of("a"), member_of("b", 1)), ()), None)
    why = "The rows of paper P2 are left out, of another task: DCGAN on CIFAR-10 and CelebA; these runs: dcgan on"
    made = ComparisonReport(report)
    assert why in made.markdown()
    assert "(theirs)" not in made.markdown()
    assert "Rows of the paper" not in made.markdown()
    assert as_json(report)["paper_rows_left_out"].startswith(why)
    assert {row["kind"] for row in as_json(report)["rows"]} == {"ours"}
    assert {"IS", "FID"} & {column.key for column in report.table.columns} == set()
