"""`stacks/__main__.py` as the engine runs it: configuration in, exports out, a mistake as one message."""

import json
import runpy
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from copy import deepcopy
from pathlib import Path
from types import FrameType
from typing import Any

import pulumi
import pytest
from pulumi.runtime import mocks, settings

from gangway.components.core.findings import InputError
from gangway.stacks.base.ownership import READ_STATE
from gangway.stacks.config.stack_config import StackConfig
from gangway.stacks.loading.loader import from_file, from_pulumi
from gangway.stacks.plan.plan import make_plan
from gangway.stacks.program import HIDDEN, get_program, next_command, stack_exports
from gangway.stacks.recording import PlaceholderCloud

REPO = Path(__file__).resolve().parents[2]
Configure = Callable[[dict[str, Any]], None]


class EndedError(Exception):
    """The program has ended its process: in a test, which would end with it."""


@pytest.fixture(autouse=True)
def exits(monkeypatch: pytest.MonkeyPatch) -> None:
    def end(code: int) -> None:
        raise EndedError(code)

    monkeypatch.setattr("os._exit", end)


class _Cloud(mocks.Mocks):
    def __init__(self) -> None:
        self.declared: list[str] = []
        self.built = "aws-demo"
        self._cloud = PlaceholderCloud()

    def new_resource(self, args: mocks.MockResourceArgs) -> tuple[str | None, dict[str, Any]]:
        self.declared.append(args.typ)
        return self._cloud(args.typ, args.name, args.inputs)

    def call(self, args: mocks.MockCallArgs) -> Any:
        if args.token == READ_STATE:
            types = ("pulumi:providers:aws", "aws:ec2/vpc:Vpc")
            return {"outputs": {f"urn:pulumi:s::gangway::{type_}::{self.built}": {"type": type_} for type_ in types}}
        return self._cloud.ask(args.token, args.args)


@pytest.fixture
def cloud() -> _Cloud:
    stand_in = _Cloud()
    settings.set_root_resource(None)  # type: ignore[arg-type]  # a new program
    mocks.set_mocks(stand_in, project="gangway", stack="aws-demo", preview=False)
    return stand_in


@pytest.fixture
def configure(monkeypatch: pytest.MonkeyPatch) -> Configure:
    """Hands configuration over as the engine does: every value a string, in PULUMI_CONFIG."""

    def set_config(values: dict[str, Any]) -> None:
        as_text = {key: value if isinstance(value, str) else json.dumps(value) for key, value in values.items()}
        monkeypatch.setenv("PULUMI_CONFIG", json.dumps(as_text))

    return set_config


@pytest.fixture
def calls_of_plan() -> Iterator[Counter[str]]:
    """How often a provider's `plan` has run, by its module; counted by Python itself, whoever calls it by what name."""
    calls: Counter[str] = Counter()

    def count(frame: FrameType, event: str, _argument: object) -> None:
        module = frame.f_globals.get("__name__", "")
        if event == "call" and frame.f_code.co_name == "plan" and module.startswith("gangway.stacks.providers."):
            calls[module] += 1

    before = sys.getprofile()
    sys.setprofile(count)
    yield calls
    sys.setprofile(before)


def run_main(repo: Path) -> None:
    """Runs the program under the SDK's test runtime."""

    def program() -> None:
        runpy.run_path(str(repo / "stacks" / "__main__.py"), run_name="__main__")

    mocks.test(program)()  # type: ignore[no-untyped-call]  # the SDK's mocks have no types


def test_the_engines_configuration_is_the_stack_files(
    cloud: _Cloud, configure: Configure, demo_values: dict[str, Any], demo_config: StackConfig
) -> None:
    configure(demo_values)
    assert from_pulumi() == demo_config
    assert not cloud.declared


def test_the_program_declares_the_stack_and_exports(
    cloud: _Cloud, configure: Configure, demo_values: dict[str, Any], repo: Path
) -> None:
    configure(demo_values)
    run_main(repo)
    assert "aws:autoscaling/group:Group" in cloud.declared
    assert "gangway:aws:EfaNodePool" in cloud.declared
    root: Any = settings.get_root_resource()
    assert set(root.outputs) == {
        "job", "image", "run_bucket", "group_names", "head_instance_id", "lustre_dns_name", "log_group", "dashboard",
        "alarm_topic_arn", "budget_topic_arn", "machine_images", "next_command", "signing_public_key",
    }  # fmt: skip


MISTAKES: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "of the file": (lambda v: v["gangway:job"].update(kimg="x"), "stack aws-demo: gangway:job.kimg"),
    "of the cloud": (
        lambda v: v.update({"gangway:region": "us"}),
        "gangway:region: this aws region is not in the catalogue",
    ),
    "unknown key": (lambda v: v.update({"gangway:netwrok": {}}), "did you mean 'network'?"),
    "missing": (lambda v: v.pop("gangway:region"), "stack aws-demo: gangway:region: missing"),
    "no JSON": (lambda v: v.update({"gangway:cluster": "H100x8"}), "stack aws-demo: gangway:cluster: not an accepted"),
    "a name": (lambda v: v.update({"gangway:stack": "x"}), "the file's name is the stack's name"),
}


@pytest.mark.parametrize("what", MISTAKES)
def test_a_mistake_is_one_message_of_the_engine(
    cloud: _Cloud,
    configure: Configure,
    demo_values: dict[str, Any],
    repo: Path,
    caplog: pytest.LogCaptureFixture,
    what: str,
) -> None:
    """And the program ends at once: what it has declared is not sent."""
    edit, message = MISTAKES[what]
    values = deepcopy(demo_values)
    edit(values)
    configure(values)
    with pytest.raises(EndedError, match="1"):
        run_main(repo)
    assert message in caplog.text
    assert not [kind for kind in cloud.declared if kind.startswith("aws:")], "nothing was declared"


def test_findings_go_to_the_engines_log(
    cloud: _Cloud, configure: Configure, demo_values: dict[str, Any], repo: Path, caplog: pytest.LogCaptureFixture
) -> None:
    closed = deepcopy({**demo_values, "gangway:network": {"egress": "endpoints"}})
    closed["gangway:cluster"]["image_id"] = "ami-0123456789abcdef0"
    closed["gangway:storage"]["efa"] = True
    configure(closed)
    with caplog.at_level("WARNING"):
        run_main(repo)
    assert "gangway:network.egress: nodes download the setup script of EFA clients from the internet" in caplog.text
    assert "aws:ec2/vpc:Vpc" in cloud.declared


def test_a_finding_of_severity_error_stops_the_update(
    cloud: _Cloud, configure: Configure, demo_values: dict[str, Any], repo: Path, caplog: pytest.LogCaptureFixture
) -> None:
    configure({key: value for key, value in demo_values.items() if key != "gangway:storage"})
    with pytest.raises(pulumi.RunError, match="there are errors, see above"):
        run_main(repo)
    assert "several nodes need a shared file system" in caplog.text
    assert not [kind for kind in cloud.declared if kind.startswith("aws:")], "nothing was declared"


def test_several_mistakes_are_one_message(
    cloud: _Cloud, configure: Configure, demo_values: dict[str, Any], repo: Path, caplog: pytest.LogCaptureFixture
) -> None:
    values = deepcopy(demo_values)
    values["gangway:job"]["kimg"] = -1
    values["gangway:budget"]["emails"] = ["x"]
    configure(values)
    with pytest.raises(EndedError):
        run_main(repo)
    (record,) = caplog.records
    assert "gangway:job.kimg" in record.getMessage()
    assert "gangway:budget.emails[0]" in record.getMessage()
    assert not cloud.declared


def test_without_the_engine_the_program_names_the_ways_in(repo: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "gangway.stacks"], cwd=repo, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "stacks is Pulumi's program: run `gangway plan STACK`, or `pulumi up --stack STACK`\n"


def test_a_program_is_a_module_of_its_providers_package() -> None:
    assert get_program("aws").build.__module__ == "gangway.stacks.providers.aws.program"
    assert issubclass(InputError, ValueError)


@pytest.mark.slow
def test_up_plans_once(
    cloud: _Cloud, configure: Configure, demo_values: dict[str, Any], repo: Path, calls_of_plan: Counter[str]
) -> None:
    configure(demo_values)
    run_main(repo)
    assert calls_of_plan == {"gangway.stacks.providers.aws.plan": 1}


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(path.name for path in REPO.glob("stacks/Pulumi.*.yaml")))
def test_an_offline_plan_plans_once(name: str, calls_of_plan: Counter[str]) -> None:
    config = from_file(REPO / "stacks" / name)
    make_plan(config)
    assert calls_of_plan == {f"gangway.stacks.providers.{config.provider}.plan": 1}


STACKS = sorted((Path(__file__).resolve().parents[2] / "stacks").glob("Pulumi.*.yaml"))


@pytest.mark.parametrize("file", STACKS, ids=lambda file: file.stem.removeprefix("Pulumi."))
def test_every_stack_names_a_command_of_ours(file: Path) -> None:
    config = from_file(file)
    words = next_command(config).split()
    assert words[:2] == ["gangway", "job"]
    if config.job is None:
        assert "submit" in words
    else:
        assert words[2:] == [config.stack_name]


def test_a_slurm_head_is_named_as_it_is_submitted_to() -> None:
    config = from_file(next(file for file in STACKS if "aws-p5-slurm" in file.name))
    assert next_command(config, "slurm:/fsx/jobs@spot").endswith(" --on slurm:/fsx/jobs@spot")


def test_outputs_that_a_stack_does_not_have_are_left_out_and_long_ones_are_hidden() -> None:
    exports: dict[str, Any] = {"job": {"name": "dev"}, "kubeconfig": "{}", "zone": None, "run_bucket": "runs"}
    shown = stack_exports(from_file(STACKS[0]), exports)
    assert set(shown) == {"job", "kubeconfig", "run_bucket", "next_command"}
    assert {name for name, value in shown.items() if isinstance(value, pulumi.Output)} == HIDDEN
