"""Every command that an output proposes works as printed: each is made to be printed, and what was printed is run.

Proposals are the texts in the code that name a command of ours. Each stands in one of three tables: it is run here, it
cannot be run here, or it proposes nothing. A new one in none of them fails, and so does an entry that nothing prints.
"""

import ast
import os
import re
import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

REPO = Path(__file__).resolve().parent.parent.parent
PACKAGES = ("components", "gangway", "stacks", "trainer")
_PROGRAM = r"(?<![\w./-])(?:\{program\(\)\}|gangway|python -m gangway.trainer)"
_PROPOSAL = re.compile(rf"{_PROGRAM}(?= [a-z{{])[^`;,\n]*?(?=[`;,\n]|  |$)")
"""A command in a text: up to a backtick, a comma, a semicolon, two spaces or the line's end."""
_HOLE = re.compile(r"\{[^{}]*\}")


class Case(NamedTuple):
    """How a proposal is run.

    Attributes:
        says: a shell command that prints it, with whatever exit code.
        given: what a person puts in the place of its capitals.
        within: the folder in which it is run.
        code: that it ends with.
    """

    says: str
    given: Mapping[str, str] = {}
    within: str = "."
    code: int = 0


TRAIN = "gangway train --preset dcgan-digits --ngf 4 --ndf 4 --kimg 0.128 --metrics-samples 64"
PICTURE = "python -c \"from PIL import Image; Image.new('RGB', (80, 80)).save('my pictures/1.png')\""
TAMPERED = 'cp -r $RUN here && sed -i \'s/"done"/"failed"/\' here/run.json'
CONTROLLED = (
    """mkdir 'a run'; echo '{"event": "controller", "images": 0, "time": 1, "session": 0, "settings": {}}' """
    """> 'a run/stats.jsonl';"""
)
WITHOUT = "sed '/accelerator:/d' stacks/Pulumi.aws-demo.yaml > Pulumi.my.yaml; gangway plan Pulumi.my.yaml"
UNPRICED = "sed '/usd_per_node_hour:/d' stacks/Pulumi.openstack-gpu.yaml > Pulumi.my.yaml; gangway plan Pulumi.my.yaml"

RUN: dict[str, Case] = {
    # The trainer.
    "{program()} {evaluate}": Case(f"{TRAIN} --data $RUN/data --run-dir 'a run'"),
    "{program()} evaluate --help": Case("gangway evaluate --run-dir $RUN --metrics nonesuch"),
    "{program()} presets": Case("gangway train --preset zzz"),
    "{program()} presets NAME": Case("gangway presets", {"NAME": "few-images"}),
    "python -m gangway.trainer presets NAME": Case("gangway train --help", {"NAME": "few-images"}),
    "gangway presets {name}": Case("python -m gangway.trainer presets r3gan-cifar10"),
    "{program()} data prepare": Case(
        f"mkdir 'my pictures' && {PICTURE}; gangway train --preset few-images --data 'my pictures'"
    ),
    "{program()} data prepare DATASET --out {shlex.quote(str(folder))}": Case(
        "gangway data speed --data none", {"DATASET": "digits"}
    ),
    "{program()} record --run-dir {shlex.quote(str(folder))}": Case(f"{TAMPERED}; gangway report here"),
    "{program()} sign {shlex.quote(str(record.parent))} --key FILE": Case(
        "cp -r $RUN here && gangway sign here --key k --make-key; echo >> here/run.json; gangway report here",
        {"FILE": "k"},
    ),
    "{program()} control off --run-dir {shlex.quote(str(folder))}": Case(f"{CONTROLLED} gangway job 'a run'"),
    "{program()} control on --run-dir {shlex.quote(str(folder))}": Case(
        f"{CONTROLLED} touch 'a run/controller-off'; gangway job 'a run'"
    ),
    # A picture of a report.
    "{program()} sample --run-dir {run_dir} --out {grid} --overwrite": Case(
        "cp -r $RUN here && echo > here/samples.png; gangway report here --format html --out page.html"
    ),
    # Plans.
    "gangway plan STACK": Case("python -m gangway.stacks", {"STACK": "aws-demo"}),
    "gangway plan {answers.stack}": Case(
        "gangway init mine --provider aws --accelerator H100x8 --email ml@example.org --no-ask", within="mine"
    ),
    "gangway plan {stack} --json > previous.json": Case("gangway plan aws-demo --against none.json"),
    "gangway plan STACK --json > plan.json": Case(
        "echo '{}' > plan.json; gangway reconcile --bill tests/gangway/finops/bill/samples --runs $RUN"
        " --plan plan.json",
        {"STACK": "aws-demo"},
    ),
    "gangway catalog list": Case(WITHOUT),
    "gangway dockerfile cuda > Dockerfile": Case(
        "gangway init mine --provider hosts --email ml@example.org --no-ask --accelerator H100x8; "
        "sed -i /gangway:image/,/prebuilt/d mine/Pulumi.*.yaml; gangway plan mine/Pulumi.*.yaml"
    ),
    "gangway quote --accelerator {accelerator} --hours {config.work.max_hours}": Case(
        "gangway plan gcp-a3-spot --json"
    ),
    "gangway tco --accelerator {machine.accelerator} --nodes 1": Case(f"{UNPRICED} --explain site.price-unsaid"),
}
NOT_RUN: dict[str, str] = {
    "gangway dockerfile cuda > Dockerfile has the commands to build and push it": "of an engine: tests/gangway/jobs",
    "gangway job list --json": "of an engine that has jobs: tests/gangway/finops/bill/test_queue_jobs.py",
    "gangway job list --json > jobs.json": "likewise",
    "gangway job submit FILE --on slurm:FOLDER@main": "takes a Slurm: tests/gangway/jobs/slurm/test_engine.py",
    "gangway job submit FILE --on {'slurm:PARTITION' if kind == 'slurm' else 'kubernetes:CONTEXT'}": "takes an engine",
    "{program()} record --run-dir {shlex.quote(str(path.parent))}": "of a record that was changed: run above",
    "{program()} {command}": "control on after a killed session: tests/trainer/run/test_steering.py; run as above",
    "{program()} train --preset {name}": "a training of hours: tests/trainer/config has the trainer read each",
    "{program()} train --preset few-images --data {shlex.quote(str(out))}": "a training of hours: tests/trainer/data",
    "gangway bench resume {shlex.quote(str(run_dir))}": "needs a suite that was stopped: tests/gangway/bench",
    "gangway bench resume {shlex.quote(str(run_dir))} --clean-only": "needs a stack that stands: tests/gangway/bench",
    "gangway bench resume {shlex.quote(str(path.parent))}": "needs the folder of a suite: tests/gangway/bench",
    "gangway plan {stack_or_file}": "of a stack that preflight does not check: tests/gangway/live/preflight",
    "gangway audit {stack_name}": "of names that another stack holds: tests/gangway/live/preflight",
    "gangway permissions STACK": "of a caller who lacks permissions: tests/gangway/live/preflight",
    "gangway status --on ENGINE": "of a cluster with a queue: tests/gangway/live/test_status.py",
    "gangway report {shlex.quote(str(run_dir))}": "printed by a suite that has run: tests/gangway/bench",
    "gangway bench run SUITE --install-cli": "fetches the Pulumi CLI",
    "gangway breaker reset STACK": "told by an alarm of a stack: tests/gangway/jobs/systemd/test_breaker.py",
    "gangway forecast HISTORY --out forecast.csv": "takes a history: tests/gangway/cli/costs/test_forecast.py",
    "gangway forecast FILE": "takes a history of spot prices: tests/components/core/test_foreign_files.py",
    "gangway reconcile --bill FILE --runs runs/": "takes a bill: tests/gangway/finops/bill/test_reconcile.py",
    "gangway breaker show": "told of a group that is held: tests/gangway/jobs/systemd/scaling/test_contract.py",
    "gangway job submit FILE --on {submit_on or 'slurm:SHARED_FOLDER'}": "needs a cluster that is up: tests/engine",
    "gangway job submit FILE": "begins a process that outlives the command: tests/gangway/cli/jobs/test_jobs.py",
    "gangway job list": "of an engine elsewhere: tests/gangway/jobs/test_remote.py",
    "gangway job list --on {way.to}": "of a job that a move is taking there: tests/gangway/jobs/test_migration.py",
    "gangway job wait": "of a job whose process or node is gone: tests/gangway/jobs",
    "gangway job wait {job_id}{named}": "of a job that was submitted: tests/gangway/cli/jobs/test_jobs.py",
    "gangway job logs -f {job_id}{named}": "of a job that was submitted: tests/gangway/cli/jobs/test_jobs.py",
    "gangway job {config.stack_name}": "needs a running stack: tests/gangway/cli/jobs/test_job.py",
    "gangway job record {command_of} --stack": "likewise: tests/gangway/jobs/systemd/test_command_record.py",
    "gangway job {config.stack_name} --scale": "needs a running stack: tests/gangway/cli/jobs/test_job.py",
    "gangway job {config.stack_name} {SCALE_FLAG}{more}": "needs a running stack: tests/gangway/cli/jobs/test_job.py",
    "gangway job": "words about a command, not one to type: tests/gangway/jobs/systemd/test_autoscale_now.py",
    "gangway breaker reset {self.stack}": "needs a stack that is up: tests/gangway/jobs/systemd/test_breaker.py",
    "gangway plan {config.stack_name} --explain existing.network-owner": "asks a cloud: tests/gangway/live",
    "gangway preflight {config.stack_name}": "needs a cloud: tests/gangway/live/preflight",
    "gangway plan {config.stack_name}": "printed under `pulumi up`: tests/engine; the command is that of every page",
    "gangway plan {run.record.stack} --json > plan.json": "printed of another version's plan; another line's command",
    "gangway signature IMAGE --key FILE": "asks a registry by cosign: tests/stacks/test_cosign.py",
    "gangway prices diff": "printed by a refresh: tests/gangway/finops/prices",
    "gangway init DIR": "asks its questions at a terminal: tests/gangway/cli/test_init.py",
    "gangway prices refresh": "asks the providers: tests/gangway/finops/prices",
    "python -m gangway.trainer evaluate": "stands in a record, whose folder the reader knows: docs/outputs.md runs it",
    "python -m gangway.trainer record --run-dir DIR": "printed of an older version's record: the command is run above",
    "python -m gangway.trainer train --backend xla on every host starts the right number": "TPUs: tests/trainer/xla",
}
NO_PROPOSAL: dict[str, str] = {
    "gangway bench": "says what wrote a file",
    "gangway bench run": "says what wrote a file",
    "gangway forecast": "says what wrote a file",
    "gangway init": "names who is at work",
    "gangway job submit": "names where a finding is reported",
    "gangway forecast --out": "says what wrote a file",
    "gangway job serve": "names who has answered",
    "gangway namespace would be ignored": "no command",
    "gangway needs for the stack {plan.config.stack}": "no command",
    "gangway needs for the stack {stack}": "no command",
    "gangway quote lists other offers": "a command among words: tests/docs runs it",
    "gangway {command}": "says which command needs a permission",
    "gangway plan": "says what wrote a file, or what a finding was found by",
    "gangway permissions": "says what wrote a role",
    "gangway plan --json": "says what wrote a file",
    "gangway plan STACK --json": "says what wrote a file",
    "gangway plan: the whole stack on its first rung": "says what wrote a figure",
    "gangway preflight": "says what checks an existing resource",
    "gangway report": "says what wrote a file",
    "gangway {version('gangway-iac')}": "no command",
    "gangway image build --remote": "describes a resource by what uses it",
    "gangway signature": "a command among words: tests/gangway/cli/test_image.py runs it",
}


def texts_of(source: str) -> Iterator[str]:
    """The texts of a module but for docstrings; what is put into one stands in braces, as it is written."""
    tree = ast.parse(source)
    skipped = {
        id(part)
        for node in ast.walk(tree)
        for part in (
            [statement.value for statement in getattr(node, "body", []) if isinstance(statement, ast.Expr)]
            if isinstance(getattr(node, "body", None), list)
            else list(ast.walk(node))[1:]
            if isinstance(node, ast.JoinedStr)
            else []
        )
    }
    for node in ast.walk(tree):
        if id(node) in skipped:
            continue
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
        elif isinstance(node, ast.JoinedStr):
            yield "".join(
                str(part.value) if isinstance(part, ast.Constant) else f"{{{ast.unparse(_held(part))}}}"
                for part in node.values
            )


def _held(part: ast.expr) -> ast.expr:
    assert isinstance(part, ast.FormattedValue)
    return part.value


def proposals_in(source: str) -> set[str]:
    """The commands that a module's texts name."""
    return {found[0].strip() for text in texts_of(source) for found in _PROPOSAL.finditer(text)}


def all_proposals() -> set[str]:
    modules = [path for name in PACKAGES for path in (REPO / name).rglob("*.py")]
    return {proposal for path in modules for proposal in proposals_in(path.read_text("utf-8"))}


@pytest.mark.slow
def test_every_proposal_is_in_one_table_and_every_entry_is_proposed() -> None:
    tables, proposals = [*RUN, *NOT_RUN, *NO_PROPOSAL], all_proposals()
    assert len(set(tables)) == len(tables)
    assert proposals - set(tables) == set(), "in no table"
    assert set(tables) - proposals == set(), "proposed by nothing"
    assert all((*NOT_RUN.values(), *NO_PROPOSAL.values()))


def test_proposals_are_found() -> None:
    source = '''
"""A docstring: `gangway plan`."""
fix = f"first `{program()} data prepare {name} --out {folder}`, then"
text = "write it: gangway plan STACK --json > plan.json"; word = "gangway.yaml, /opt/gangway/x"
def f(): "gangway up"
'''
    expected = {"{program()} data prepare {name} --out {folder}", "gangway plan STACK --json > plan.json"}
    assert proposals_in(source) == expected


@pytest.fixture(scope="session")
def finished(
    shared_checkout: Path,
    run: Callable[..., subprocess.CompletedProcess[str]],
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    """A run's folder, its data in it; read only."""
    folder = tmp_path_factory.mktemp("finished") / "run"
    plain = {"PATH": f"{shared_checkout}/.venv/bin:{os.environ['PATH']}", "PYTHONPATH": str(shared_checkout)}
    done = run(f"{TRAIN} --run-dir {folder}", folder.parent, {**plain, "OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stdout
    return folder


def printed(proposal: str, output: str) -> str | None:
    """The proposal as it stands in an output, up to where it ends there; None where it does not."""
    parts = [
        "(?:gangway|python -m gangway.trainer)"
        if part == "{program()}"
        else r"[^`;\n]+?"
        if _HOLE.fullmatch(part)
        else re.escape(part)
        for part in re.split(r"(\{[^{}]*\})", proposal)
    ]
    found = re.search(
        rf"(?<![\w./-]){''.join(parts)}[^`;,\n]*", re.sub(r"\n {2,}(?=\S)(?!fix|allowed|got)", " ", output)
    )
    return found[0].rstrip(" .") if found else None


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("proposal", RUN)
def test_a_proposed_command_works_as_printed(
    proposal: str,
    finished: Path,
    workplace: Path,
    environment: dict[str, str],
    run: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    case, environment = RUN[proposal], {**environment, "RUN": str(finished)}
    said = run(case.says, workplace, environment)
    command = printed(proposal, said.stdout)
    assert command is not None, said.stdout
    for capitals, value in case.given.items():
        assert capitals in command
        command = command.replace(capitals, value)
    done = run(command, workplace / case.within, environment)
    assert done.returncode == case.code, f"{command}\n{done.stdout}"
