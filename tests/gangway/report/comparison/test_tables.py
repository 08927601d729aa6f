"""The tables: means of ours, changes against the control, the papers' rows marked and apart, what is missing told."""

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gangway.components.core.findings import InputError
from gangway.report.comparison.groups import Member, Missing, Source
from gangway.report.comparison.measures import late_loss
from gangway.report.comparison.tables import PUBLISHED, Name, Report, Row, as_json, beside, get_paper, get_report
from gangway.report.comparison.write import ComparisonReport, as_markdown
from gangway.trainer.config.presets import PRESETS
from gangway.trainer.records.quality import QualityRecord
from gangway.trainer.records.quantity import Quantity

Make = Callable[..., Member]


def rows(report: Report, kind: str) -> list[Row]:
    return [row for row in report.table.rows if row.kind == kind]


def cell(row: Row, key: str) -> float | None:
    return row.cells[key].value


def test_environments_have_the_columns_of_the_paper_and_means_over_seeds(environments: Report) -> None:
    table = environments.table
    assert [column.key for column in table.columns] == [
        *("total_h", "min_per_epoch", "s_per_epoch", "gpus", "IS", "FID", "FD-ENL0", "loss_g", "loss_d"),
        *("scaling_efficiency", "usd", "it_wh", "gco2e"),
    ]
    single = rows(environments, "ours")[0]
    assert single.label == "single-node"
    assert single.seeds == (0, 1, 2)
    seconds = environments.members[0].record.wall_sec.value
    assert seconds is not None
    assert cell(single, "total_h") == pytest.approx(seconds * 1.05 / 3600)
    assert cell(single, "s_per_epoch") == pytest.approx(60 * (cell(single, "min_per_epoch") or 0))
    assert single.cells["total_h"].std == pytest.approx(seconds * 0.05 / 3600)
    assert single.cells["usd"].provenance == "list-price"
    assert single.cells["FID"].source == "this run has no FID; FD-ENL0 is another measure"
    assert table.rows_are == "Environment"


def test_scaling_efficiency_needs_a_run_on_one_worker_of_the_same_device(environments: Report) -> None:
    single, _, gcp = rows(environments, "ours")
    assert cell(single, "scaling_efficiency") is None
    speeds = [member.record.images_per_sec.value or 0 for member in environments.members]
    expected = (sum(speeds[6:]) / 3 / 4) / (sum(speeds[:6]) / 6)
    assert cell(gcp, "scaling_efficiency") == pytest.approx(expected)
    assert "against 6 run(s) on one such worker" in gcp.cells["scaling_efficiency"].source


def test_scaling_efficiency_of_other_devices_is_not_made_up(member_of: Make) -> None:
    many = member_of("b", stack="gcp", world_size=4)
    session = many.record.sessions[0].model_copy(update={"device": "NVIDIA L4"})
    other = member_of("b", stack="gcp", sessions=(session,))
    report = get_report(Source((member_of("a"), other), ()), None)
    assert [cell(row, "scaling_efficiency") for row in rows(report, "ours")] == [None, None]
    assert [cell(row, "gpus") for row in rows(report, "ours")] == [0, 4]


def test_scaling_efficiency_on_a_machine_that_nobody_named_is_not_made_up(member_of: Make) -> None:
    runs = (member_of("a"), member_of("b", world_size=4))
    for row in rows(get_report(Source(runs, ()), None), "ours"):
        assert cell(row, "scaling_efficiency") is None
        assert "does not name the machine" in row.cells["scaling_efficiency"].source


def test_without_the_control_there_is_no_change_and_that_is_said(member_of: Make) -> None:
    suite = {"suite": "s", "paper": "P3"}
    runs = [replace(member_of(f"aws-{arm}", stack="aws", arm=arm, **suite), control="c") for arm in ("t", "u")]
    report = get_report(Source(tuple(runs), ()), None)
    assert rows(report, "change") == []
    assert [row.remarks for row in rows(report, "ours")] == [("no change is told: no run of control c is done",)] * 2
    late = replace(member_of("aws-c", stack="aws", arm="c", **suite), control="c")
    report = get_report(Source((*runs, late), ()), None)
    assert [row.label for row in rows(report, "change")] == ["change against c"] * 2


def test_kid_changes_by_a_difference(member_of: Make) -> None:
    def member(name: str, value: float) -> Member:
        quality = build_kid(member_of(name).record.quality[0], value)
        return member_of(name, arm=name, suite="s", paper="P3", quality=(quality,))

    (change,) = rows(get_report(Source((member("c", -0.01), member("t", 0.02)), ()), None), "change")
    assert cell(change, "KID") == pytest.approx(0.03)
    assert change.cells["KID"].unit == ""
    assert change.cells["cpu_percent"].unit == "points"


def test_the_whole_stacks_cost_has_a_column_where_a_suite_tells_it(member_of: Make) -> None:
    plain = member_of("a", usd=1.0)
    dollars = Quantity(value=4.0, unit="USD", provenance="estimated", source="the plan, times the hours it stood")
    without, known = (get_report(Source((one,), ()), None) for one in (plain, replace(plain, stack_usd=dollars)))
    assert "stack_usd" not in {column.key for column in without.table.columns}
    (row,) = rows(known, "ours")
    assert (cell(row, "usd"), cell(row, "stack_usd")) == (1.0, 4.0)
    assert row.cells["stack_usd"].provenance == "estimated"


def build_kid(quality: QualityRecord, value: float) -> QualityRecord:
    return quality.model_copy(update={"name": "KID", "trained": Quantity.measured(value, "1", "made up")})


def test_a_treatment_is_followed_by_its_change_seed_by_seed(arms: Report) -> None:
    kinds = [row.kind for row in arms.table.rows]
    assert kinds[:3] == ["ours", "ours", "change"]
    assert set(kinds[3:]) == {"theirs"}
    change = rows(arms, "change")[0]
    assert change.label == "change against control"
    assert cell(change, "total_h") == pytest.approx(-20)
    assert dict(change.cells["total_h"].values) == pytest.approx({"seed 0": -20, "seed 1": -20})
    assert cell(change, "usd") is None
    assert arms.settings == {"precision": {"control": "fp32", "half": "bf16"}}
    assert arms.table.rows_are == "Arm"


def test_each_stack_has_a_control_of_its_own(member_of: Make) -> None:
    runs = tuple(
        member_of(f"{stack}-{arm}", stack=stack, arm=arm, suite="s", paper="P3", factor=factor)
        for stack, arm, factor in (("aws", "c", 1.0), ("aws", "t", 0.5), ("gcp", "c", 2.0), ("gcp", "t", 3.0))
    )
    changes = rows(get_report(Source(runs, ()), None), "change")
    assert [cell(row, "total_h") for row in changes] == pytest.approx([-50, 50])


@pytest.mark.parametrize("name", ["arms", "environments"])
def test_theirs_are_marked_apart_and_in_no_mean_of_ours(name: str, request: pytest.FixtureRequest) -> None:
    report: Report = request.getfixturevalue(name)
    kinds = [row.kind for row in report.table.rows]
    assert kinds == sorted(kinds, key=lambda kind: kind == "theirs"), "ours first, theirs last"
    theirs = rows(report, "theirs")
    assert len(theirs) == {"arms": 3, "environments": 4}[name]
    keys = {column.key for column in report.table.columns}
    for row in theirs:
        assert row.cells.keys() <= keys, "a figure of theirs without a column would be lost"
        assert {one.provenance for one in row.cells.values()} == {PUBLISHED}
        assert all("theirs, not ours" in one.note for one in row.cells.values())
        assert row.runs == ()
    assert not {PUBLISHED} & {one.provenance for row in rows(report, "ours") for one in row.cells.values()}


def test_quality_of_different_protocols_is_not_averaged(member_of: Make) -> None:
    first, second = member_of("a"), member_of("b", 1)
    quality = second.record.quality[0]
    protocol = quality.protocol.model_copy(update={"num_fakes": 10_000})
    other = member_of("b", 1, quality=(quality.model_copy(update={"protocol": protocol}),))
    assert cell(rows(get_report(Source((first, second), ()), None), "ours")[0], "FD-ENL0") is not None
    (row,) = rows(get_report(Source((first, other), ()), None), "ours")
    assert row.cells["FD-ENL0"].source == "computed in different ways by these runs, so not to be compared"


def test_an_older_record_without_use_of_machines_says_so(member_of: Make) -> None:
    runs = (member_of("a", paper="P3", utilisation=None, summaries={}),)
    (row,) = rows(get_report(Source(runs, ()), None), "ours")
    assert row.cells["cpu_percent"].source == "not recorded by that version"


def test_large_runs_are_in_kwh(member_of: Make) -> None:
    member = member_of("a")
    energy = member.record.energy.model_copy(update={"it_joules": Quantity.measured(7.2e6, "J", "NVML")})
    (row,) = rows(get_report(Source((member_of("a", energy=energy),), ()), None), "ours")
    assert cell(row, "it_kwh") == pytest.approx(2)


def test_runs_that_are_not_done_are_told_and_left_out(member_of: Make) -> None:
    gone = Missing("suite", "azure-s0", "failed", "no quota")
    part = member_of("b", 1, status="interrupted", images=3008)
    report = get_report(Source((member_of("a"), part), (gone,)), None)
    assert [member.name for member in report.members] == ["a"]
    assert report.missing[0] == gone
    assert report.missing[1][1:] == ("b", "interrupted", "left out of the table: 3.008 of 6.016 kimg")
    with pytest.raises(InputError, match=r"RUNS: no run is done(.|\n)*b: interrupted"):
        get_report(Source((part,), ()), None)


def test_which_table_and_why(member_of: Make) -> None:
    def table(**more: str) -> tuple[str, str]:
        made = get_report(Source((member_of("a", **more),), ()), None).table
        return made.name, made.why

    assert table() == ("P2", "no suite of these runs names a paper")
    assert table(arm="half", suite="s") == ("P3", "the suite has arms, and names no paper")
    assert table(paper="P3", suite="s") == ("P3", "suite s is of paper P3")


def test_as_data_every_cell_has_its_provenance_and_its_runs(arms: Report) -> None:
    data = as_json(arms)
    assert data["table"] == "P3"
    for row in data["rows"]:
        for told in row["cells"].values():
            assert told["provenance"]
            assert told["source"]
            assert (told["value"] is None) == (told["provenance"] == "absent")
    ours = data["rows"][0]["cells"]["total_h"]
    assert ours["values"].keys() == {"local-control-s0", "local-control-s1"}
    assert ours["n"] == 2


def test_papers_are_data_beside_the_code(repo: Path) -> None:
    assert (repo / "gangway" / "report" / "comparison" / "papers.yaml").is_file()


def lines(*pairs: tuple[int, float | None]) -> tuple[dict[str, Any], ...]:
    return tuple({"images": at, "kimg": at / 1000, "session": 0, "loss_g": value} for at, value in pairs)


@pytest.mark.parametrize(
    ("stats", "expected", "note"),
    [
        # Of 1000 images the last tenth begins after 900: (0.2 + 0.3 + 0.7) / 3.
        (lines((500, 9.0), (900, 5.0), (920, 0.2), (960, 0.3), (1000, 0.7)), 0.4, "3 lines, from 0.92 to 1 kimg"),
        (lines((250, 4.0), (500, 3.0), (750, 2.0), (1000, 1.5)), 1.5, "1 line, at 1 kimg"),
        # None lies in it: the last there is.
        (lines((250, 4.0), (500, 3.0)), 3.0, "1 line, at 0.5 kimg"),
        # Shown twice, after an interruption: the later lines count. (0.5 + 0.7) / 2.
        (lines((950, 8.0), (990, 8.0), (940, 0.5), (1000, 0.7)), 0.6, "2 lines, from 0.94 to 1 kimg"),
        (lines((950, 0.5), (1000, None)), 0.5, "1 line, at 0.95 kimg"),
    ],
)
def test_the_last_tenth_by_hand(member_of: Make, stats: tuple[dict[str, Any], ...], expected: float, note: str) -> None:
    figure = late_loss(member_of(images=1000, stats=stats), "loss_g")
    assert figure.value == pytest.approx(expected)
    assert (figure.unit, figure.provenance, figure.source) == ("", "measured", "stats.jsonl")
    assert figure.note == f"mean over the last tenth of the images: {note}"


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_loss_that_went_off_has_no_mean(member_of: Make, value: float) -> None:
    figure = late_loss(member_of(images=1000, stats=lines((950, value), (1000, 1.0))), "loss_g")
    assert (figure.value, figure.source) == (None, "loss_g is no finite number in the last tenth of the images")
    early = late_loss(member_of(images=1000, stats=lines((100, value), (1000, 1.0))), "loss_g")
    assert early.value == 1.0


def test_without_statistics_it_is_the_last_line_of_the_record_and_says_so(member_of: Make) -> None:
    member = member_of(stats=())
    figure = late_loss(member, "loss_d")
    assert figure.value == member.record.summaries["loss_d"].last.value
    assert figure.note == "the last line's alone: no stats.jsonl with it lies beside the record"
    assert late_loss(member_of(stats=(), summaries={}), "loss_d").source == "not recorded by that version"


def test_the_heading_and_the_source_say_what_it_is(member_of: Make) -> None:
    told = as_markdown(get_report(Source((member_of("a"),), ()), None))
    assert "| G loss, last tenth | D loss, last tenth |" in told
    # The recorded run's last two lines of loss_d: (0.028333 + 0.045298) / 2.
    assert "| 0.0368[^" in told
    assert "mean over the last tenth of the images: 2 lines, from 5.504 to 6.016 kimg" in told


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
