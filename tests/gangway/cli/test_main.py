"""The `gangway` command from outside: exit codes, what stands on stdout and stderr, what it loads."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from rich.text import Text
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command
from typer.testing import CliRunner

from gangway.cli import common
from gangway.cli import main as cli
from gangway.cli.main import app
from gangway.components.core.findings import Finding, InputError
from gangway.stacks.config.paths import ROOT
from gangway.stacks.plan import plan as plan_module
from gangway.stacks.plan.plan import Plan
from gangway.trainer.core.host import COMMANDS

StackFile = Callable[[Callable[[dict[str, Any]], object]], Path]


def gangway(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Runs the real command in a process of its own."""
    command = [sys.executable, "-m", "gangway.cli", *arguments]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)


@pytest.mark.slow
def test_a_clean_plan_exits_0(repo: Path) -> None:
    done = gangway("plan", "aws-demo", "--full", cwd=repo)
    assert done.returncode == 0, done.stderr
    assert "gangway:aws:EfaNodePool" in done.stdout
    assert done.stderr == ""


@pytest.mark.slow
def test_json_is_the_plans_own(demo_plan: Plan) -> None:
    result = CliRunner().invoke(cli.app, ["plan", "aws-demo", "--json"])
    assert result.exit_code == 0
    assert json.loads(result.stdout) == json.loads(json.dumps(demo_plan.to_json()))


def test_a_person_gets_tables(demo_plan: Plan) -> None:
    result = CliRunner().invoke(cli.app, ["plan", "aws-demo"])
    assert result.exit_code == 0
    assert result.stdout.startswith("aws-demo")
    assert "envelope (estimated)" in result.stdout
    assert f"{demo_plan.cost.hourly:.2f}" in result.stdout


@pytest.mark.slow
def test_how_much_is_printed_is_asked_for(demo_plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    def lines(*flags: str) -> int:
        result = CliRunner().invoke(cli.app, ["plan", "aws-demo", *flags])
        assert result.exit_code == 0
        return len(result.stdout.splitlines())

    assert lines("--explain", "fabric.efa") < lines("--brief") < lines() < lines("--full")
    assert run_main(["plan", "aws-demo", "--brief", "--full"], monkeypatch) == 2
    assert run_main(["plan", "aws-demo", "--explain", "fabric.ef"], monkeypatch) == 2


def test_a_finding_of_severity_error_exits_1(monkeypatch: pytest.MonkeyPatch, demo_plan: Plan) -> None:
    bad = replace(demo_plan, findings=(Finding.error("x.y", "gangway:cluster", "wrong"),))
    assert bad.has_errors
    monkeypatch.setattr(plan_module, "make_plan", lambda config: bad)
    assert CliRunner().invoke(cli.app, ["plan", "aws-demo", "--json"]).exit_code == 1


# change to the demo's stack file, then what stands in the message: config path, value, allowed, fix
BAD_FILES = {
    "unknown key": (
        lambda v: v["gangway:cluster"].update(acelerator="H100x8"),
        [
            "gangway:cluster.acelerator: unknown key",
            "'acelerator'",
            "accelerator, breaker, capacity",
            "mean 'accelerator'?",
        ],
    ),
    "unknown accelerator": (
        lambda v: v["gangway:cluster"].update(accelerator="H100x9"),
        ["gangway:cluster.accelerator: no such accelerator on aws", "'H100x9'", "A100x8", "did you mean 'H100x8'?"],
    ),
    "unknown region": (
        lambda v: v.update({"gangway:region": "us-east-3"}),
        ["gangway:region: this aws region is not in the catalogue", "'us-east-3'", "us-east-1, us-east-2", "known"],
    ),
    "unknown zone": (
        lambda v: v["gangway:cluster"].update(zone="us-east-2d"),
        ["gangway:cluster.zone: no such zone in us-east-2", "'us-east-2d'", "us-east-2a, ", "set zone: us-east-2a"],
    ),
    "min above max": (
        lambda v: v["gangway:cluster"].update(nodes={"min": 4, "max": 2}),
        ["gangway:cluster.nodes: ", "{'max': 2, 'min': 4}", "min of at most max", "set max: 4 or min: 2"],
    ),
    "Lustre size off its step": (
        lambda v: v["gangway:storage"].update(capacity_gib=10000),
        ["gangway:storage.capacity_gib: ", "10000", "a multiple of 2400", "set capacity_gib: "],
    ),
    "budget below an hour": (
        lambda v: v["gangway:budget"].update(monthly_usd=20),
        [
            "gangway:budget.monthly_usd: below the cost of one hour",
            "20",
            "at least 32.83 USD",
            "set monthly_usd: 23966",
        ],
    ),
    "an e-mail that is none": (
        lambda v: v["gangway:budget"].update(emails=["ml-platform@example"]),
        ["gangway:budget.emails[0]: ", "'ml-platform@example'", "an e-mail address", "write it like ml-platform@"],
    ),
}


def check_message(stderr: str, file: str, words: list[str]) -> None:
    assert stderr.startswith(f"error: {file}: "), stderr
    assert stderr.count("error: ") == 1, "one mistake, one message"
    assert "Traceback" not in stderr
    labels = [line.split()[0] for line in stderr.splitlines()[1:]]
    assert labels == ["got:", "allowed:", "fix:"]
    path, value, allowed, fix = words
    first, got, may, todo = stderr.splitlines()
    assert path in first
    assert value in got
    assert allowed in may
    assert fix in todo


@pytest.mark.parametrize("what", ["unknown key", "unknown accelerator", "budget below an hour"])
def test_the_real_command_tells_a_mistake_and_exits_2(stack_file: StackFile, repo: Path, what: str) -> None:
    edit, words = BAD_FILES[what]
    path = stack_file(edit)
    done = gangway("plan", str(path), "--json", cwd=repo)
    assert done.returncode == 2
    assert done.stdout == ""
    check_message(done.stderr, str(path), words)


def run_main(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> object:
    """`gangway ...` in this process; gives the exit code."""
    monkeypatch.setattr(sys, "argv", ["gangway", *arguments])
    with pytest.raises(SystemExit) as caught:
        cli.main()
    return caught.value.code


@pytest.mark.parametrize("what", BAD_FILES)
def test_a_mistake_in_a_file_is_one_message(
    stack_file: StackFile, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], what: str
) -> None:
    edit, words = BAD_FILES[what]
    path = stack_file(edit)
    assert run_main(["plan", str(path)], monkeypatch) == 2
    out, err = capsys.readouterr()
    assert out == ""
    check_message(err, str(path), words)


@pytest.mark.parametrize(
    ("name", "text", "message", "fix"),
    [
        ("bad.yaml", "config: {a: [", "bad.yaml, line 2: not valid YAML", "fix the YAML there"),
        ("empty.yaml", "name: x\n", "empty.yaml: has no `config:` mapping", "start the file with `config:`"),
        ("none.yaml", None, "none.yaml: no such stack file", "check the path"),
    ],
)
def test_a_file_that_cannot_be_read(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    name: str,
    text: str | None,
    message: str,
    fix: str,
) -> None:
    if text is not None:
        (tmp_path / name).write_text(text)
    assert run_main(["plan", str(tmp_path / name)], monkeypatch) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert message in err.splitlines()[0]
    assert err.splitlines()[-1] == f"  fix:     {fix}"
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("argument", "message", "fix"),
    [
        ("", "stack: the name is empty", "choose one of the allowed values"),
        ("{folder}", "{folder}: a folder, not a stack file", "name {folder}/Pulumi.x.yaml"),
        (os.devnull, f"{os.devnull}: not a regular file", "copy it to a file and name that"),
        (sys.executable, f"{sys.executable}: ", "name another file"),
        ("acme/aws-demo", "acme/aws-demo: no such stack file", "check the path"),
    ],
)
def test_what_is_no_stack_file_is_one_message(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    argument: str,
    message: str,
    fix: str,
) -> None:
    (tmp_path / "Pulumi.x.yaml").touch()
    assert run_main(["plan", argument.format(folder=tmp_path), "--json"], monkeypatch) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("error: ") == 1
    assert err.startswith(f"error: {message.format(folder=tmp_path)}")
    assert err.splitlines()[-1].endswith(fix.format(folder=tmp_path))


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [["--json"], []])
def test_a_reader_who_leaves_early_ends_the_plan_quietly(repo: Path, arguments: list[str]) -> None:
    command = [sys.executable, "-m", "gangway.cli", "plan", "aws-demo", *arguments]
    with subprocess.Popen(command, cwd=repo, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == cli.EXIT_BROKEN_PIPE == 141


@pytest.mark.slow
def test_an_error_finding_leaves_json_on_stdout_and_nothing_on_stderr(stack_file: StackFile, repo: Path) -> None:
    done = gangway("plan", str(stack_file(lambda v: v.pop("gangway:storage"))), "--json", cwd=repo)
    assert (done.returncode, done.stderr) == (1, "")
    assert "error" in {finding["severity"] for finding in json.loads(done.stdout)["findings"]}


def test_an_unknown_stack_is_told_with_those_there_are(repo: Path) -> None:
    done = gangway("plan", "aws-dem", cwd=repo)
    assert (done.returncode, done.stdout) == (2, "")
    first, *rest = done.stderr.splitlines()
    assert first == "error: stack 'aws-dem': no file Pulumi.aws-dem.yaml in stacks"
    assert "aws-demo" in rest[0]
    assert rest[-1] == "  fix:     did you mean 'aws-demo'?"


def test_several_mistakes_are_several_messages(
    stack_file: StackFile, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def two(values: dict[str, Any]) -> None:
        values["gangway:job"]["kimg"] = 0
        values["gangway:budget"]["emails"] = ["x"]

    assert run_main(["plan", str(stack_file(two))], monkeypatch) == 2
    assert capsys.readouterr().err.count("error: ") == 2


def test_stack_files_of_the_working_directory_come_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, demo_values: dict[str, Any]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert common.stacks_dir() == ROOT / "stacks", "the ones that ship with Gangway"
    (tmp_path / "stacks").mkdir()
    values = deepcopy(demo_values)
    (tmp_path / "stacks" / "Pulumi.mine.yaml").write_text(yaml.safe_dump({"config": values}))
    assert common.stacks_dir() == Path("stacks")
    result = CliRunner().invoke(cli.app, ["plan", "mine", "--json"])
    assert json.loads(result.stdout)["stack"] == "mine"


@pytest.mark.slow
def test_the_command_works_from_any_directory(tmp_path: Path) -> None:
    done = gangway("plan", "aws-demo", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["stack"] == "aws-demo"


def loaded_by(arguments: list[str], repo: Path) -> set[str]:
    """The modules a command imports."""
    command = [sys.executable, "-X", "importtime", "-m", "gangway.cli", *arguments]
    done = subprocess.run(command, cwd=repo, env=dict(os.environ), capture_output=True, text=True, check=True)
    lines = [line for line in done.stderr.splitlines() if line.startswith("import time:")]
    return {line.rpartition("|")[2].strip() for line in lines}


def test_help_loads_neither_pulumi_nor_torch(repo: Path) -> None:
    modules = loaded_by(["--help"], repo)
    assert "typer" in modules, "the list of modules is really one"
    assert not {"pulumi", "pulumi_aws", "torch", "boto3", "moto", "matplotlib", "numpy", "yaml", "pydantic"} & modules


@pytest.mark.slow
def test_a_plan_loads_neither_torch_nor_a_cloud_client(repo: Path) -> None:
    modules = loaded_by(["plan", "aws-demo", "--json"], repo)
    assert "pulumi_aws" in modules
    assert not {"torch", "boto3", "moto", "matplotlib", "numpy"} & modules


def test_help_names_the_commands() -> None:
    result = CliRunner().invoke(cli.app, ["--help"])
    assert result.exit_code == 0
    assert "plan" in result.stdout
    assert "demo" in result.stdout


def test_a_wrong_option_is_typers_message_and_exits_2(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_main(["plan", "aws-demo", "--jsn"], monkeypatch) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "--json" in err


@pytest.mark.slow
def test_a_clean_plan_leaves_main_with_0(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_main(["plan", "aws-demo", "--json"], monkeypatch) == 0
    assert json.loads(capsys.readouterr().out)["stack"] == "aws-demo"


def test_the_demo_command_hands_its_options_over(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from gangway.cli import demo

    seen: list[tuple[Path, bool]] = []

    def run_demo(out: Path, *, quick: bool) -> int:
        seen.append((out, quick))
        raise InputError("somewhere", "something")

    monkeypatch.setattr(demo, "run_demo", run_demo)
    assert run_main(["demo", "--quick", "--out", str(tmp_path)], monkeypatch) == 2
    assert seen == [(tmp_path, True)]


@pytest.mark.parametrize(
    ("arguments", "place", "value", "fix"),
    [
        (["quote", "--accelerator", "H100x8", "--hours", "2w"], "--hours", "2w", "write --hours 336h"),
        (["quote", "--accelerator", "H100x8", "--hours", "1,000"], "--hours", "1,000", "write --hours 1000h"),
        (["quote", "--accelerator", "H100x8", "--hours", "9", "--interruptions", "15%"], "--interruptions", "15%",
         "write --interruptions 0.15"),
        (["quote", "--accelerator", "H100x8", "--hours", "9", "--nodes", "4x"], "--nodes", "4x", "write --nodes 4"),
        (["quote", "--accelerator", "H100x8", "--hours", "9", "--top", "all"], "--top", "all", "write --top 4"),
        (["tco", "--accelerator", "H100x8", "--capex", "400k"], "--capex", "400k", "write --capex 400000"),
        (["tco", "--accelerator", "H100x8", "--utilisation", "75"], "--utilisation", 75.0, "write --utilisation 0.75"),
        (["init", "x", "--max-hours", "2 days"], "--max-hours", "2 days", "write --max-hours 48"),
        (["init", "x", "--no-ask", "--email", "a@b.io", "--nodes", "2 to 4"], "--nodes", "2 to 4", "write --nodes 2-4"),
        (["bench", "scaling", "--rounds", "0"], "--rounds", "0", "write --rounds 1"),
    ],
)  # fmt: skip
def test_a_flag_is_mended_from_the_value_given(arguments: list[str], place: str, value: object, fix: str) -> None:
    result = CliRunner().invoke(cli.app, arguments)
    mistakes = result.exception
    assert isinstance(mistakes, InputError), result.output
    assert (mistakes.place, mistakes.value, mistakes.fix) == (place, value, fix)
    assert mistakes.allowed


def test_other_mistakes_of_the_command_line_are_typers_own() -> None:
    result = CliRunner().invoke(cli.app, ["plan", "aws-demo", "--format", "xml"])
    assert result.exit_code == 2
    assert "--format" in result.output


def test_a_run_is_trained_and_judged_by_the_command_it_prints(repo: Path, tmp_path: Path) -> None:
    """With data that was prepared elsewhere."""
    data, run = tmp_path / "prepared here", tmp_path / "run"
    prepared = gangway("data", "prepare", "digits", "--resolution", "16", "--out", str(data), cwd=repo)
    assert prepared.returncode == 0, prepared.stderr
    small = ["--resolution", "16", "--batch-size", "8", "--kimg", "0.008", "--ngf", "8", "--ndf", "8"]
    trained = gangway(
        *("train", "--preset", "dcgan-digits", *small, "--metrics", "none", "--metrics-kimg", "0"),
        *("--data", str(data), "--run-dir", str(run)),
        cwd=repo,
    )
    assert trained.returncode == 0, trained.stderr
    printed = trained.stdout.rpartition("or judge it: python -m gangway.trainer ")[2].strip()
    assert printed == f"evaluate --run-dir {run} --data '{data}'"
    judged = subprocess.run(
        f"{sys.executable} -m gangway.cli {printed} --metrics fd-enl0 --samples 16",
        cwd=repo, shell=True, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert judged.returncode == 0, judged.stderr
    assert "FD-ENL0" in judged.stdout


@pytest.mark.parametrize("arguments", [("train", "--prset", "x"), ("presets", "nosuch"), ("data", "prepare", "nosuch")])
def test_a_mistake_ends_as_in_the_trainer(arguments: tuple[str, ...], repo: Path) -> None:
    done = gangway(*arguments, cwd=repo)
    assert done.returncode == 2
    assert "fix:" in done.stderr
    assert "Traceback" not in done.stderr


def test_help_names_every_command_of_the_trainer_and_the_version_is_said() -> None:
    shown = CliRunner().invoke(cli.app, ["-h"], terminal_width=100).stdout
    assert all(f" {name} " in shown for name in COMMANDS)
    for command in (["plan", "-h"], ["bench", "-h"], ["prices", "show", "-h"]):
        assert CliRunner().invoke(cli.app, command).exit_code == 0
    version = CliRunner().invoke(cli.app, ["--version"])
    assert version.exit_code == 0
    assert version.stdout.startswith("gangway 0.")


@pytest.mark.parametrize("preset", ["r3gan-ffhq256", "r3gan-imagenet64"])
def test_a_preset_is_told_with_what_it_takes_on_machines(preset: str) -> None:
    shown = CliRunner().invoke(cli.app, ["presets", preset])
    assert shown.exit_code == 0
    assert "projected, not measured" in shown.stdout
    for machine in ("A100-80Gx8", "H100x8", "H200x8"):
        assert re.search(rf"^{machine} .* GiB .*\$", shown.stdout, re.MULTILINE), shown.stdout
    demo = CliRunner().invoke(cli.app, ["presets", "cyclegan-photos"])
    assert demo.exit_code == 0
    assert "H100x8" not in demo.stdout, "one image in a step is none for eight workers"


WIDTH = 80 - 2
OWN = ("report", "bench run", "bench resume", "bench scaling", "audit", "reconcile", "reproduce")
FIRST = (
    "demo",
    "plan",
    "init",
    "preflight",
    "permissions",
    "status",
    "logs",
    "ssh",
    "down",
    "dashboard",
    "quote",
    "tco",
)


def commands_of(group: TyperGroup, name: str = "") -> Iterator[tuple[str, TyperCommand]]:
    for word, command in group.commands.items():
        if isinstance(command, TyperGroup):
            yield from commands_of(command, f"{name}{word} ")
        else:
            assert isinstance(command, TyperCommand)
            yield f"{name}{word}", command


WHOLE = get_command(app)
assert isinstance(WHOLE, TyperGroup)
OWN_COMMANDS = dict(commands_of(WHOLE))


@pytest.mark.parametrize("name", OWN_COMMANDS)
def test_brackets_are_no_markup(name: str) -> None:
    """`[the default]` in a help text would be swallowed in silence."""
    command = OWN_COMMANDS[name]
    texts = [command.help or "", *(getattr(option, "help", None) or "" for option in command.params)]
    assert [text for text in texts if Text.from_markup(text).plain != text] == []


@pytest.mark.parametrize("name", OWN)
def test_lines_below_the_first_paragraph_fit(name: str) -> None:
    """Typer fills the first paragraph; the lines of the others stay as they are, and would be broken."""
    _, _, rest = (OWN_COMMANDS[name].help or "").partition("\n\n")
    assert [line for line in rest.splitlines() if len(line) > WIDTH] == []


def test_what_one_begins_with_comes_first() -> None:
    assert tuple(OWN_COMMANDS)[: len(FIRST)] == FIRST
