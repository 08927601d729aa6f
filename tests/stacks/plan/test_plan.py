"""The offline plan: its graph, its bill, its JSON, and what happens to values nobody foresaw."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gangway.components.catalog.loader import load
from gangway.components.core.findings import Finding, InputError, Severity
from gangway.components.estimate.cost import load_billing
from gangway.stacks.base.registry import get_provider
from gangway.stacks.config.stack_config import StackConfig
from gangway.stacks.estimates.common_findings import common_findings
from gangway.stacks.estimates.run_costs import most_expensive_rung
from gangway.stacks.loading.loader import from_file
from gangway.stacks.plan import plan as plan_module
from gangway.stacks.plan.plan import Plan, make_plan, run_program
from gangway.stacks.providers.aws.plan import plan as plan_on_aws
from gangway.stacks.recording import PlaceholderCloud
from tests.sdk_arguments import sdk_arguments

Edited = Callable[[Callable[[dict[str, Any]], object]], StackConfig]
REPO = Path(__file__).resolve().parents[3]


def test_the_demo_has_its_bill_by_hand(demo_plan: Plan) -> None:
    """2 x 14.0818 spot + 9600 GiB x 0.34 / 730 + (2 x 200 + 60) GiB x 0.08 / 730, with 2 x 375 MiB/s x 0.04 / 730 + NAT
    at 0.045 and its address at 0.005 + a head at 0.0416 + a zone at 0.50 a month and CloudWatch. A run is all of
    max_hours, one.
    """
    watched = 3 + 14 * 0.10 + 0.50 + 9 * 0.30  # dashboard, alarms by their metrics, a composite, metrics of lines
    around = 0.045 + 0.005 + 0.0416 + (0.50 + watched) / 730
    hourly = 28.1636 + 9600 * 0.34 / 730 + 460 * 0.08 / 730 + 750 * 0.04 / 730 + around
    cost = demo_plan.cost
    assert cost.hourly == pytest.approx(hourly)
    assert cost.monthly == pytest.approx(730 * hourly)
    assert cost.run_hours == 1
    assert cost.run == pytest.approx(hourly)
    assert cost.standby_hourly == pytest.approx(2 * 55.04 + 400 * 0.08 / 730 + 750 * 0.04 / 730)
    assert cost.unknown == ()
    at_rating = 17.52856 / 0.76 * cost.run_hours
    assert demo_plan.energy.kwh_most == pytest.approx(at_rating), "all of max_hours"
    assert demo_plan.carbon.gco2e_most == pytest.approx(at_rating * 396.25)


def test_the_json_has_the_keys_of_the_design(demo_plan: Plan) -> None:
    data = demo_plan.to_json()
    assert list(data) == [
        "stack", "provider", "region", "resources", "findings", "cost", "rungs", "ladder", "expected_run",
        "checkpoints", "energy", "carbon", "job", "team_access", "versions",
    ]  # fmt: skip
    assert {frozenset(r) for r in data["resources"]} == {frozenset(["urn", "type", "name", "parent", "inputs"])}
    assert {frozenset(f) for f in data["findings"]} == {frozenset(["severity", "code", "path", "message", "fix"])}
    assert {"currency", "hourly", "monthly", "run", "idle_hourly", "components"} <= data["cost"].keys()
    assert [rung["kind"] for rung in data["rungs"]] == ["spot", "on-demand"]
    assert {"embodied", "sci"} <= data["carbon"].keys()
    line = {"name", "unit", "quantity", "price", "hourly", "source", "as_of", "confidence"}
    assert all(line <= component.keys() for component in data["cost"]["components"])
    assert {"kwh", "it_kwh", "pue", "source"} <= data["energy"].keys()
    assert {"gco2e", "intensity_g_per_kwh", "method", "source"} <= data["carbon"].keys()
    assert data["job"]["name"] == data["stack"] == "aws-demo"
    assert set(data["versions"]) == {"gangway", "pulumi", "pulumi-aws"}


def test_every_resource_hangs_below_a_component_or_the_stack(demo_plan: Plan) -> None:
    urns = {resource.urn: resource for resource in demo_plan.resources}
    assert len(urns) == len(demo_plan.resources)
    for resource in demo_plan.resources:
        if resource.custom and not resource.type.startswith(("pulumi:providers:", "pulumi:index:")):
            assert urns[resource.parent].type.startswith("gangway:"), resource.name
        else:
            assert resource.parent.endswith("::gangway-aws-demo"), resource.name


def test_every_taggable_resource_of_the_demo_carries_the_whole_policy(demo_plan: Plan) -> None:
    policy = plan_on_aws(demo_plan.config).tags
    checked = set()
    for resource in demo_plan.resources:
        if not resource.type.startswith("aws:"):
            continue
        if "tags" not in sdk_arguments(resource.type):
            continue
        carried = resource.inputs["tags"]
        if isinstance(carried, list):
            carried = {tag["key"]: tag["value"] for tag in carried}
        assert policy.items() <= carried.items(), resource.urn
        checked.add(resource.type.rpartition(":")[2])
    assert {"Budget", "Group", "LaunchTemplate", "LustreFileSystem", "Bucket", "Role", "Vpc", "VpcEndpoint"} <= checked


@pytest.mark.parametrize("path", sorted((REPO / "stacks").glob("Pulumi.*.yaml")), ids=lambda path: path.name)
def test_every_stack_file_plans_without_an_error(path: Path) -> None:
    made = make_plan(from_file(path))
    assert [f for f in made.findings if f.severity is Severity.ERROR] == []
    assert not made.has_errors
    assert made.cost.hourly > 0
    assert made.resources


def test_two_plans_in_one_process_are_equal_to_the_byte(demo_plan: Plan, demo_config: StackConfig) -> None:
    again = make_plan(demo_config)
    assert json.dumps(again.to_json()).encode() == json.dumps(demo_plan.to_json()).encode()


@pytest.mark.slow
def test_another_process_with_another_hash_seed_plans_the_same_bytes(demo_plan: Plan) -> None:
    environment = {**os.environ, "PYTHONHASHSEED": "12345"}
    command = [sys.executable, "-m", "gangway.cli", "plan", "aws-demo", "--json"]
    done = subprocess.run(command, cwd=REPO, env=environment, capture_output=True, check=True)
    assert done.stdout.decode() == json.dumps(demo_plan.to_json(), indent=2) + "\n"
    assert done.stderr == b""


@pytest.mark.slow
def test_a_plan_loads_no_trainer_and_no_cloud_client() -> None:
    program = (
        "import sys\n"
        "from pathlib import Path\n"
        "from gangway.stacks.loading.loader import from_file\n"
        "from gangway.stacks.plan.plan import make_plan\n"
        "make_plan(from_file(Path('stacks/Pulumi.aws-demo.yaml'))).to_json()\n"
        "print(sorted({'torch', 'boto3', 'moto', 'matplotlib', 'numpy'} & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=REPO, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_ids_name_what_they_refer_to() -> None:
    id_, outputs = PlaceholderCloud()("aws:ec2/vpc:Vpc", "demo-vpc", {"cidrBlock": "10.0.0.0/16", "name": "given"})
    assert id_ == "${Vpc.demo-vpc.id}"
    assert outputs["arn"] == "${Vpc.demo-vpc.arn}"
    assert (outputs["name"], outputs["cidrBlock"]) == ("given", "10.0.0.0/16"), "an input is known and wins"


def test_a_program_that_asks_the_cloud_cannot_be_planned(
    demo_config: StackConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    import pulumi_aws

    monkeypatch.setattr(
        plan_module, "build", lambda config, planned: {"zones": pulumi_aws.get_availability_zones().names}
    )
    with pytest.raises(Exception, match="a plan has no cloud"):
        run_program(demo_config, PlaceholderCloud())


def test_the_exports_are_resolved(demo_config: StackConfig) -> None:
    exports = run_program(demo_config, PlaceholderCloud()).result
    assert exports["run_bucket"] == "${Bucket.aws-demo-runs.bucket}"
    assert exports["group_names"] == ["${Group.aws-demo-0-spot.name}", "${Group.aws-demo-1-on-demand.name}"]
    assert exports["lustre_dns_name"] == "${LustreFileSystem.aws-demo-lustre.dnsName}"
    assert exports["budget_topic_arn"] == "${Topic.aws-demo-budget.arn}"
    assert exports["job"]["image"] == "${Repository.aws-demo-trainer.repositoryUrl}@${Image.aws-demo-trainer.digest}"


@pytest.mark.slow
def test_a_budget_below_one_hour_is_refused_with_one_that_lasts(edited: Edited) -> None:
    config = edited(lambda values: values["gangway:budget"].update(monthly_usd=30))
    with pytest.raises(InputError, match="below the cost of one hour") as caught:
        make_plan(config)
    assert (caught.value.place, caught.value.value) == ("gangway:budget.monthly_usd", 30)
    assert caught.value.allowed == "at least 32.83 USD"
    mended = float(caught.value.fix.split()[2])
    assert make_plan(edited(lambda v: v["gangway:budget"].update(monthly_usd=mended))).cost.monthly == pytest.approx(
        mended, abs=1
    )


@pytest.mark.slow
def test_a_failed_plan_leaves_the_next_one_alone(demo_plan: Plan, edited: Edited) -> None:
    with pytest.raises(InputError):
        make_plan(edited(lambda values: values["gangway:budget"].update(monthly_usd=1)))
    assert make_plan(demo_plan.config).to_json() == demo_plan.to_json()


SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(-3, 100_000), st.floats(), st.text(max_size=8),
    st.sampled_from(["H100x8", "A10Gx1", "us-east-1", "us-east-2a", "nat", "spot", "10.0.0.0/16", "s3://b/x", "x@y.z"]),
)  # fmt: skip
ANYTHING = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=8), inner, max_size=2),
    max_leaves=4,
)


def paths_in(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Where every value below `value` is."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(found for key, item in inner for found in paths_in(item, (*path, key)))]


def mutated(values: dict[str, Any], data: st.DataObject) -> dict[str, Any]:
    """A copy with one to three values replaced, removed or added."""
    copy = deepcopy(values)
    for _ in range(data.draw(st.integers(1, 3))):
        *path, last = data.draw(st.sampled_from(paths_in(copy)[1:]))
        node = copy
        for key in path:
            node = node[key]
        action = data.draw(st.sampled_from(["replace", "replace", "remove", "add"]))
        if action == "remove":
            del node[last]
        elif action == "add" and isinstance(node, dict):
            node[data.draw(st.text(max_size=8))] = data.draw(ANYTHING)
        else:
            node[last] = data.draw(ANYTHING)
        if not copy:
            break
    return copy


def planned_or_told(values: dict[str, Any], planner: Callable[[StackConfig], object], path: Path) -> None:
    """Either a plan comes out, or InputErrors that say what to do; any other exception goes on."""
    # JSON is YAML, and writes every float and control character in a way that YAML reads back.
    path.write_text(json.dumps({"config": values}), "utf-8")
    made: object = None
    mistakes: list[InputError] = []
    try:
        made = planner(from_file(path))
    except* InputError as group:
        mistakes = [error for error in group.exceptions if isinstance(error, InputError)]
    assert (made is None) == bool(mistakes)
    assert all(mistake.place and mistake.problem and mistake.fix for mistake in mistakes)


@pytest.mark.slow
@settings(suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_a_mutated_stack_file_is_checked_or_told(
    demo_values: dict[str, Any], tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    path = tmp_path_factory.getbasetemp() / "Pulumi.mutated.yaml"
    planned_or_told(mutated(demo_values, data), plan_on_aws, path)


@pytest.mark.slow
@settings(max_examples=settings().max_examples // 3, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_what_passes_the_checks_also_plans(
    demo_values: dict[str, Any], tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """Only values that differ where many are accepted, so that most examples reach the program."""
    values = deepcopy(demo_values)
    fewest = data.draw(st.integers(1, 60))
    values["gangway:cluster"].update(
        accelerator=data.draw(st.sampled_from(["H100x8", "A100x8", "V100x1", "H100x1"])),
        nodes={"min": fewest, "max": fewest + data.draw(st.integers(0, 30))},
        capacity=data.draw(
            st.lists(
                st.sampled_from(
                    [{"kind": "spot"}, {"kind": "on-demand"}, {"kind": "spot", "max_usd_per_hour": 0.5},
                     {"kind": "reservation", "id": "cr-0123456789abcdef0"},
                     {"kind": "capacity-block", "id": "cr-0123456789abcdef1"}]
                ),
                min_size=1, max_size=4,
            )
        ),
    )  # fmt: skip
    values["gangway:network"] = {"egress": data.draw(st.sampled_from(["nat", "endpoints"]))}
    values["gangway:budget"]["monthly_usd"] = data.draw(st.floats(1, 1e7))
    values["gangway:tags"].update(
        data.draw(st.dictionaries(st.text("abc:/", min_size=1), st.text("xyz ;"), max_size=2))
    )
    path = tmp_path_factory.getbasetemp() / "Pulumi.varied.yaml"
    planned_or_told(values, make_plan, path)


FILES = sorted((Path(__file__).resolve().parents[3] / "stacks").glob("Pulumi.*.yaml"))
IN_CLOUDS = [path for path in FILES if from_file(path).site is None]
"""A private cloud's quotas are its owner's."""


@cache
def found_in(path: Path) -> tuple[StackConfig, tuple[Finding, ...]]:
    config = from_file(path)
    program: Any = get_provider(config.provider).program()
    return config, program.findings(config, program.plan(config), None)


def quotas_of(path: Path) -> tuple[StackConfig, list[Finding]]:
    config, findings = found_in(path)
    return config, [finding for finding in findings if finding.code == "capacity.quota"]


@pytest.mark.parametrize("path", IN_CLOUDS, ids=lambda path: path.stem)
def test_every_rung_names_a_quota_or_why_there_is_none(path: Path) -> None:
    config, quotas = quotas_of(path)
    for index, _ in enumerate(config.cluster.capacity):
        messages = [one.message for one in quotas if one.path == f"gangway:cluster.capacity[{index}]"]
        assert messages, index
        for message in messages:
            needs = re.match(r"[\d,]+ \S.* of the quota .+ in .+, for \d+ (nodes?|slices?); `.+` shows", message)
            assert needs or message.startswith("no quota: "), message


@pytest.mark.parametrize("path", IN_CLOUDS, ids=lambda path: path.stem)
def test_no_quota_stands_twice(path: Path) -> None:
    names = [re.search(r"of the quota (.*?) in ", one.message) for one in quotas_of(path)[1]]
    named = [match[1] for match in names if match]
    assert len(named) == len(set(named))


def test_gkes_slices_are_compute_engines_and_queued_ones_the_tpu_apis() -> None:
    of = {path.stem.removeprefix("Pulumi."): " ".join(one.message for one in quotas_of(path)[1]) for path in IN_CLOUDS}
    assert "PREEMPTIBLE_TPU_LITE_PODSLICE_V5" in of["gke-tpu-v5e"]
    assert "ForTPUAPI" not in of["gke-tpu-v5e"]
    assert "tpu.googleapis.com" not in of["gke-tpu-v5e"]
    assert "TPUV5sPreemptibleLitepodPerProjectPerZoneForTPUAPI" in of["gcp-v5e-pod"]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_stop_says_how_late_it_is_where_somebody_bills(path: Path) -> None:
    config, findings = found_in(path)
    late = [finding.message for finding in findings if finding.code == "budget.late"]
    assert len(late) == (config.budget.stop_at_percent is not None)
    for message in late:
        assert f"{load_billing().delays[config.provider].stop_hours[1]:g} h after the cost" in message
        assert "USD" not in message, "nothing is priced"


@pytest.fixture
def stopping(demo_config: StackConfig) -> StackConfig:
    budget = demo_config.budget.model_copy(update={"stop_at_percent": 110.0})
    return demo_config.model_copy(update={"budget": budget})


def test_the_delay_costs_all_nodes_on_the_dearest_rung(stopping: StackConfig, demo_plan: Plan) -> None:
    findings = common_findings(stopping, load().machine("p5.48xlarge"), demo_plan.cost)
    (late,) = [finding for finding in findings if finding.code == "budget.late"]
    position, hourly = most_expensive_rung(stopping, demo_plan.cost)
    assert "8 to 12 h after the cost (AWS Cost Management user guide" in late.message
    assert f": {hourly * 8:,.0f} to {hourly * 12:,.0f} USD more with all nodes on capacity[{position}]" in late.message
    assert f"{hourly * 12 / stopping.budget.monthly_usd:.0%} of monthly_usd" in late.message
    assert hourly > demo_plan.cost.hourly, "on-demand behind spot"


def test_a_budget_that_stops_nothing_is_not_late(demo_config: StackConfig, demo_plan: Plan) -> None:
    findings = common_findings(demo_config, load().machine("p5.48xlarge"), demo_plan.cost)
    assert "budget.late" not in {finding.code for finding in findings}
