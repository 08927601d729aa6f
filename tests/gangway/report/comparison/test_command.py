"""`gangway report` of several runs as a person types it: formats, places, refusals, and files that are damaged."""

import csv
import io
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from gangway.cli.main import app
from gangway.components.core.findings import InputError
from gangway.trainer.records.run_record import RunRecord

Gangway = Callable[..., Result]
Write = Callable[[Path, RunRecord], Path]


@pytest.fixture
def gangway() -> Gangway:
    """Runs the command; a mistake is raised as it is."""

    def call(*words: object) -> Result:
        result = CliRunner().invoke(app, ["report", *(str(word) for word in words)])
        if result.exception and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result

    return call


def test_markdown_is_a_table_of_github_with_footnotes(gangway: Gangway, arms_folder: Path) -> None:
    done = gangway(arms_folder, "--format", "md")
    lines = [line for line in done.stdout.splitlines() if line.startswith("|")]
    table, settings = lines[: lines.index(next(line for line in lines if "`precision`" in line)) - 2], lines[-3:]
    unescaped = {len(re.findall(r"(?<!\\)\|", line)) for line in table}
    assert len(unescaped) == 1, "every line has as many columns"
    assert re.search(r"^\| control \(n = 2\) \| 0\.0191 \(0\.0182 to 0\.0201\)\[\^1\]", table[2])
    assert re.search(r"^\| \*change against control\* \| -20\.0 %\[", table[4].replace("\N{MINUS SIGN}", "-"))
    assert any("*DCGAN on images, control (theirs)* | *48*[^" in line for line in table)
    assert any("*16 GB*[^" in line for line in table)
    assert any("*change, as the paper has it (theirs)* | *\N{MINUS SIGN}33 %*[^" in line for line in table)
    assert "`precision` | fp32 | bf16" in settings[-1]
    used = set(re.findall(r"\[\^(\d+)\](?!:)", done.stdout))
    assert used == set(re.findall(r"^\[\^(\d+)\]: ", done.stdout, flags=re.MULTILINE))
    assert "- azure-s0: failed. no quota" in done.stdout
    assert "azure-s0: failed: no quota" in done.stderr


def test_hostile_names_stay_text_in_markdown(gangway: Gangway, arms_folder: Path) -> None:
    title = gangway(arms_folder, "--format", "md").stdout.splitlines()[0]
    assert title == r"# &lt;script&gt;alert('x')&lt;/script&gt; \| $\\frac$ &amp; \`\*\_"


def test_json_has_the_table_and_the_records_whole(gangway: Gangway, arms_folder: Path, tmp_path: Path) -> None:
    assert "wrote" in gangway(arms_folder, "--format", "json", "--out", tmp_path / "all.json").stderr
    data = json.loads((tmp_path / "all.json").read_text())
    assert data["table"]["table"] == "P3"
    assert data["no_table"] == ""
    assert [RunRecord.model_validate(record).seed for record in data["runs"]] == [0, 1, 0, 1]


def test_json_of_runs_that_make_no_table_says_why(
    gangway: Gangway, write: Write, get_record: Callable[..., RunRecord], tmp_path: Path
) -> None:
    write(tmp_path, get_record("a"))
    write(tmp_path, get_record("b", config={"precision": "bf16"}))
    done = gangway(tmp_path, "--format", "json")
    data = json.loads(done.stdout)
    assert data["table"] is None
    assert data["no_table"].startswith("RUNS: precision: differs inside one table")
    assert "no table: RUNS: precision" in done.stderr
    assert len(data["runs"]) == 2
    for kind in ("html", "md"):
        with pytest.raises(InputError, match="RUNS: precision: differs inside one table"):
            gangway(tmp_path, "--format", kind)
    assert not (tmp_path / "report").exists()
    assert "precision bf16" in gangway(tmp_path, "--format", "md", "--group-by", "precision").stdout


def test_csv_has_a_line_a_run_with_its_arm_and_its_figures(gangway: Gangway, arms_folder: Path) -> None:
    rows = list(csv.DictReader(io.StringIO(gangway(arms_folder, "--format", "csv").stdout)))
    assert [(row["suite"], row["arm"], row["seed"]) for row in rows] == [
        ("made-up", arm, seed) for arm in ("control", "half") for seed in ("0", "1")
    ]
    assert all(float(row["loss_g"]) > 0 and row["loss_g_provenance"] == "measured" for row in rows)
    assert {row["gpu_percent_provenance"] for row in rows} == {"absent"}
    assert {row["gpu_percent"] for row in rows} == {""}


@pytest.mark.slow
def test_a_page_goes_beside_the_runs_or_where_it_is_told(
    gangway: Gangway,
    write: Write,
    get_record: Callable[..., RunRecord],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one, two = write(tmp_path / "runs", get_record("a")), write(tmp_path / "runs", get_record("b", 1))
    monkeypatch.chdir(tmp_path)
    for words, page in (
        ([tmp_path / "runs"], tmp_path / "runs" / "report" / "report.html"),
        ([one, two], tmp_path / "report" / "report.html"),
        ([one, two, "--out", tmp_path / "out"], tmp_path / "out" / "report.html"),
        ([one / "run.json", "--figures", tmp_path / "pdf"], tmp_path / "report" / "report.html"),
    ):
        page.unlink(missing_ok=True)
        gangway(*words, "--format", "html")
        assert page.is_file()
    assert len(list((tmp_path / "pdf").iterdir())) == 14


@pytest.mark.slow
def test_figures_go_among_nobodys_files(gangway: Gangway, arms_folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "paper"
    for _ in range(2):  # over earlier ones, with a page beside them
        assert gangway(arms_folder, "--format", "html", "--figures", out, "--out", out).exit_code == 0
    before = {path.name: path.stat().st_mtime_ns for path in out.iterdir()}
    for name in ("draft.tex", "photo.pdf"):
        (out / name).write_text("mine")
        with pytest.raises(InputError, match=f"the folder has other files: {name}") as caught:
            gangway(arms_folder, "--format", "md", "--figures", out)
        assert (caught.value.place, caught.value.fix) == ("--figures", f"--figures {out}-1")
        (out / name).unlink()
    assert {path.name: path.stat().st_mtime_ns for path in out.iterdir()} == before


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--format", "csv", "--group-by", "stack"), "--group-by: has no effect with --format csv"),
        (("--format", "json", "--figures", "x"), "--figures: has no effect with --format json"),
        (("--format", "md", "--group-by", "stak"), "did you mean 'stack'"),
    ],
)
def test_mistakes_are_named(gangway: Gangway, arms_folder: Path, words: tuple[str, ...], message: str) -> None:
    with pytest.raises(InputError, match=message):
        gangway(arms_folder, *words)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("results.json", '{"suite": "x"}', r"results.json: items: is not what `gangway bench` of this version writes"),
        ("results.json", "{", "results.json: is not JSON"),
        ("a/stats.jsonl", "{\n", "stats.jsonl: has a line that is not JSON"),
    ],
)
def test_a_damaged_file_beside_the_records_is_named(
    gangway: Gangway, write: Write, get_record: Callable[..., RunRecord], tmp_path: Path,
    name: str, content: str, message: str,
) -> None:  # fmt: skip
    write(tmp_path, get_record("a"))
    (tmp_path / name).write_text(content)
    with pytest.raises(InputError, match=message):
        gangway(tmp_path, "--format", "md")


def test_where_the_control_failed_the_treatment_does_not_take_its_place(
    gangway: Gangway, write: Write, get_record: Callable[..., RunRecord], tmp_path: Path
) -> None:
    items = [
        {
            "item": arm,
            "stack": "local",
            "arm": arm,
            "run_id": arm,
            "status": "failed" if arm == "c" else "recorded",
            "usd": {"value": 7.5, "unit": "USD", "provenance": "estimated", "source": "the plan"},
        }
        for arm in ("c", "t", "u")
    ]
    (tmp_path / "results.json").write_text(json.dumps({"suite": "s", "paper": "P3", "items": items}))
    for arm in ("t", "u"):
        write(tmp_path, get_record(arm))
    told = gangway(tmp_path, "--format", "md").stdout
    assert "change against" not in told
    assert "Cost is that of the nodes in that time: without boot" in told
    assert "| Cost of whole stack, USD ↓ |" in told
    assert "| 7.50[^" in told
    assert "- t: no change is told: no run of control c is done" in told


def test_statistics_that_cannot_be_read_are_named(
    gangway: Gangway, write: Write, get_record: Callable[..., RunRecord], tmp_path: Path
) -> None:
    path = write(tmp_path, get_record("a"))
    (path / "stats.jsonl").unlink()
    (path / "stats.jsonl").mkdir()
    with pytest.raises(InputError, match=r"stats.jsonl: cannot be read: it is no regular file"):
        gangway(tmp_path, "--format", "md")
