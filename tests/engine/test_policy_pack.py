"""The policy pack under the real engine: a clean stack passes, a breach fails the preview with its code in the output.

The analyzer is the real one: the engine's Python host, which runs policy packs without a plug-in of their own.
"""

import json
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.engine

REPOSITORY = Path(__file__).resolve().parent.parent.parent
Running = Callable[..., AbstractContextManager[Any]]

OPEN_MACHINE = """
import pulumi_aws as aws

provider = aws.Provider("here", region="us-west-2")
aws.ec2.Instance(
    "open", ami="ami-1", instance_type="g5.xlarge", associate_public_ip_address=True,
    opts=__import__("pulumi").ResourceOptions(provider=provider),
)
"""


@pytest.fixture
def pack(tmp_path: Path) -> Path:
    """The pack as a checkout has it: its environment stands two folders above."""
    checkout = tmp_path / "checkout"
    (checkout / "stacks").mkdir(parents=True)
    (checkout / "stacks" / "policy").symlink_to(REPOSITORY / "stacks" / "policy")
    (checkout / ".venv").symlink_to(sys.prefix)
    return checkout / "stacks" / "policy"


@pytest.fixture
def preview(
    running_plugin: Running, pack: Path, tmp_path: Path
) -> Callable[..., tuple[int, dict[str, list[str]], str]]:
    """Runs the engine under the pack: exit status, messages by level and code (`mandatory tags.missing`), text."""

    def run(
        engine: Any, config: dict[str, Any] | None = None, command: tuple[str, ...] = ("preview",)
    ) -> tuple[int, dict[str, list[str]], str]:
        options = ["--policy-pack", str(pack)]
        if config is not None:
            file = tmp_path / "policy.json"
            file.write_text(json.dumps(config), "utf-8")
            options += ["--policy-pack-config", str(file)]
        package = {"azure": "azure-native", "gcp": "gcp"}.get(engine.stack.partition("-")[0], "aws")
        with running_plugin(package, engine.cloud) as plugin:
            engine.env["PULUMI_DEBUG_PROVIDERS"] = f"{package}:{plugin.port}"
            outcome = engine.run(*command, *options)
        said: dict[str, list[str]] = {}
        for event in outcome.events:
            if breach := event.get("policyEvent"):
                key = f"{breach['enforcementLevel']} {breach['policyName']}"
                said.setdefault(key, []).append(breach["message"])
        return outcome.status, said, outcome.text

    return run


@pytest.mark.parametrize(
    ("stack", "advice"),
    [
        ("aws-g5-dev", {"prices.stale"}),
        ("gcp-a3-spot", {"prices.stale", "region.carbon-intensity"}),
        ("azure-ndv4", {"budget.below-estimate", "machine.not-shielded", "prices.stale"}),
    ],
)
def test_a_clean_stack_passes(
    stack: str, advice: set[str], make_engine: Callable[[str], Any], preview: Callable[..., Any]
) -> None:
    status, said, text = preview(make_engine(stack))
    assert (status, said.keys()) == (0, {f"advisory {code}" for code in advice}), text


def test_what_the_stack_file_says_is_held_against_the_plan(
    make_engine: Callable[[str], Any], preview: Callable[..., Any], set_value: Callable[..., Any]
) -> None:
    engine = make_engine("aws-g5-dev")
    engine.change(set_value("budget.monthly_usd", 700))
    status, said, text = preview(engine)
    assert (status, list(said)) == (0, ["advisory budget.below-estimate", "advisory prices.stale"]), text
    limits = {
        "budget.below-estimate": "mandatory",
        "region.carbon-intensity": {"enforcementLevel": "mandatory", "max_g_per_kwh": 100},
        "tags.missing": {"enforcementLevel": "mandatory", "required_tags": ["team", "owner"]},
    }
    status, said, text = preview(engine, limits)
    assert status != 0, text
    assert said.keys() == {"advisory prices.stale", *(f"mandatory {code}" for code in limits)}
    assert "823.69 USD" in said["mandatory budget.below-estimate"][0]
    assert "us-east-1: 396 gCO2e per kWh" in said["mandatory region.carbon-intensity"][0]
    assert all("no owner tag" in message for message in said["mandatory tags.missing"])


def test_a_budget_that_plan_refuses_stops_an_update_before_anything_is_made(
    make_engine: Callable[[str], Any], preview: Callable[..., Any], set_value: Callable[..., Any]
) -> None:
    engine = make_engine("aws-g5-dev")
    engine.change(set_value("budget.monthly_usd", 1))
    status, said, text = preview(engine, command=("up", "--yes", "--skip-preview"))
    assert status != 0, text
    assert list(said) == ["mandatory plan.refused"]
    assert "allowed: at least 1.13 USD" in said["mandatory plan.refused"][0]
    assert engine.resources() == []


def test_another_project_can_be_held_to_the_rules(
    make_program_engine: Callable[[str, dict[str, Any]], Any], preview: Callable[..., Any]
) -> None:
    status, said, text = preview(make_program_engine(OPEN_MACHINE, {}))
    assert status != 0, text
    codes = {"tags.missing", "address.public", "encryption.missing", "machine.imds-v1", "budget.missing"}
    assert codes - {"budget.missing"} <= {key.removeprefix("mandatory ") for key in said} <= codes
    assert said["mandatory address.public"][0].startswith("No machine, interface")
