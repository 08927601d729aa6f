"""The fault drill: it judges what came of a fault, puts its table in its place, and a real fault is survived."""

import os
from pathlib import Path
from typing import Any

import pytest

from tools.drill.__main__ import BEGIN, CONFIG, END, Outcome, get_problem, get_row, main, replace_table

UNDISTURBED = Outcome(40.0, CONFIG.total_images, 0, 0, ((0,), (0,)), {"generator": "a"}, (2,))


def outcome(images_lost: int = 0, saved_lost: int = 0, **other: Any) -> Outcome:
    return UNDISTURBED._replace(images_lost=images_lost, saved_lost=saved_lost, **other)


def test_a_saved_image_that_is_lost_is_a_problem() -> None:
    assert get_problem("store killed", UNDISTURBED) == ""
    assert get_problem("store killed", outcome(256, 0)) == "", "what was not saved yet may be made again"
    assert get_problem("store killed", outcome(256, 64)) == "64 saved images lost"
    assert get_problem("newest checkpoint damaged", outcome(2048, 2048)) == "", "it was the disk that lost them"
    assert get_problem("newest checkpoint damaged", outcome(4096, 4096)) == "4,096 saved images lost"
    assert get_problem("store killed", outcome(images=64)) == f"ended at 64 of {CONFIG.total_images:,} images"


def test_a_row_says_whether_the_run_is_the_undisturbed_one() -> None:
    other = {"generator": "b"}
    codes = ((1, 0), (-9, 0))
    assert get_row("f", outcome(256, codes=codes, wall_sec=47.4), UNDISTURBED) == ("f", "256", "7", "1 0; -9 0", "yes")
    assert get_row("f", outcome(state=other), UNDISTURBED)[-1] == "no"
    assert get_row("f", outcome(state=other, workers=(2, 1)), UNDISTURBED)[-1].startswith("no: one worker's sums")


def test_the_table_takes_the_place_of_the_one_before(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    replace_table("| new |", page)
    assert page.read_text() == f"before\n{BEGIN}\n| new |\n{END}\nafter\n"
    page.write_text("no place")
    with pytest.raises(SystemExit, match="no place for the table"):
        replace_table("| new |", page)
    assert page.read_text() == "no place"


def test_a_fault_that_nobody_knows_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["node killed", "flood"])
    assert ended.value.code == 2
    told = capsys.readouterr().err
    assert "no such fault: flood, node killed" in told
    assert "node killed in training" in told


@pytest.mark.slow  # two runs of some 40 s
@pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces are root's")
def test_a_stopped_worker_costs_what_was_not_saved(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["worker stopped", "--keep", str(tmp_path / "runs")]) == 0
    (row,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("| worker stopped")]
    assert row.split("|")[4:6] == [" 0; 0 ", " yes "]
    assert list((tmp_path / "runs" / "worker-stopped" / "run" / "hangs").iterdir())
