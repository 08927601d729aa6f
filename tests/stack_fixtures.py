"""Stack files to plan: the demo's, and copies of it with a mistake in them."""

import io
import json
from collections.abc import Callable
from copy import deepcopy
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import strategies as st
from rich.console import Console

from gangway.components.core.findings import InputError, Severity
from gangway.report.plans.show import show_plan
from gangway.stacks.config.stack_config import StackConfig
from gangway.stacks.estimates.run_costs import rung_lines
from gangway.stacks.loading.loader import from_file
from gangway.stacks.plan.plan import Plan, make_plan, run_program
from gangway.stacks.recording import PlaceholderCloud, Recording

Edit = Callable[[dict[str, Any]], object]
GCP_STACKS = ("gcp-a3-spot", "gcp-v5e-pod", "gcp-v5p-multislice")
AZURE_STACKS = ("azure-nc-dev", "azure-ndv4", "azure-ndv5-spot")


@pytest.fixture(scope="session")
def demo_values(demo_file: Path) -> dict[str, Any]:
    """The demo's `config:` mapping as written, keys with their namespace. Copy before you change it."""
    values: dict[str, Any] = yaml.safe_load(demo_file.read_text("utf-8"))["config"]
    return values


@pytest.fixture(scope="session")
def demo_config(demo_file: Path) -> StackConfig:
    return from_file(demo_file)


@pytest.fixture(scope="session")
def demo_plan(demo_config: StackConfig) -> Plan:
    return make_plan(demo_config)


@pytest.fixture(scope="session")
def recorded() -> Callable[[StackConfig], Recording]:
    """What a configuration's program declares; run once a session for each stack and change of it. Read only."""
    made: dict[str, Recording] = {}

    def of(config: StackConfig) -> Recording:
        key = config.model_dump_json()
        if key not in made:
            made[key] = run_program(config, PlaceholderCloud())
        return made[key]

    return of


@pytest.fixture
def stack_file(tmp_path: Path, demo_values: dict[str, Any]) -> Callable[[Edit], Path]:
    """Writes the demo's stack file with one change and gives its path."""

    def write(edit: Edit) -> Path:
        values = deepcopy(demo_values)
        edit(values)
        path = tmp_path / "Pulumi.edited.yaml"
        path.write_text(yaml.safe_dump({"config": values}), "utf-8")
        return path

    return write


@pytest.fixture
def edited(stack_file: Callable[[Edit], Path]) -> Callable[[Edit], StackConfig]:
    """The demo's configuration with one change."""
    return lambda edit: from_file(stack_file(edit))


def shipped(repo: Path, names: tuple[str, ...]) -> dict[str, StackConfig]:
    return {name: from_file(repo / "stacks" / f"Pulumi.{name}.yaml") for name in names}


@pytest.fixture(scope="session")
def gcp_configs(repo: Path) -> dict[str, StackConfig]:
    """The shipped stacks on Google Cloud by their names."""
    return shipped(repo, GCP_STACKS)


@pytest.fixture(scope="session")
def gcp_plans(gcp_configs: dict[str, StackConfig]) -> dict[str, Plan]:
    return {name: make_plan(config) for name, config in gcp_configs.items()}


@pytest.fixture(scope="session")
def azure_configs(repo: Path) -> dict[str, StackConfig]:
    """The shipped stacks on Azure by their names."""
    return shipped(repo, AZURE_STACKS)


@pytest.fixture(scope="session")
def azure_plans(azure_configs: dict[str, StackConfig]) -> dict[str, Plan]:
    return {name: make_plan(config) for name, config in azure_configs.items()}


@pytest.fixture(scope="session")
def gcp_edited(tmp_path_factory: pytest.TempPathFactory, repo: Path) -> Callable[..., StackConfig]:
    """One of the shipped stacks with sections changed: None removes, a mapping is merged."""
    folder = tmp_path_factory.mktemp("edited")

    def edited(name: str, **sections: Any) -> StackConfig:
        values = yaml.safe_load((repo / "stacks" / f"Pulumi.{name}.yaml").read_text("utf-8"))["config"]
        for section, change in sections.items():
            key = f"gangway:{section}"
            if change is None:
                del values[key]
            elif isinstance(change, dict) and isinstance(values.get(key), dict):
                values[key] = {k: v for k, v in {**values[key], **change}.items() if v is not None}
            else:
                values[key] = change
        path = folder / f"Pulumi.{name}.yaml"
        path.write_text(yaml.safe_dump({"config": values}), "utf-8")
        return from_file(path)

    return edited


@pytest.fixture(scope="session")
def azure_edited(gcp_edited: Callable[..., StackConfig]) -> Callable[..., StackConfig]:
    """As `gcp_edited`, of the stacks on Azure."""
    return gcp_edited


@pytest.fixture(scope="session")
def outcome() -> Callable[[Path], Plan | list[InputError]]:
    """The plan of a stack file, or all that is wrong with it; any other exception goes on."""

    def of(path: Path) -> Plan | list[InputError]:
        mistakes: list[InputError] = []
        try:
            return make_plan(from_file(path))
        except* InputError as group:
            mistakes = [mistake for mistake in group.exceptions if isinstance(mistake, InputError)]
        return mistakes

    return of


def check_reach(made: Plan) -> None:
    """A rung with a price cap that no machine meets is said, has no share and no bill; what a run costs at most is at
    least what any other comes to.
    """
    unmet = [rung.position for rung in made.rungs if not rung.in_reach]
    said = [finding for finding in made.findings if finding.code == "capacity.spot-cap-low"]
    path = "gangway:cluster.capacity[{}].max_usd_per_hour"
    assert [finding.path for finding in said] == [path.format(position) for position in unmet]
    assert (Severity.ERROR in {finding.severity for finding in said}) == (made.rung is None)
    for position in unmet:
        assert made.ladder.shares[position] == 0
        lines = rung_lines(made.config, made.cost.components, position)
        assert all((line.hourly, line.quantity) == (0, 0) for line in lines)
    if made.rung is not None:
        at_most = made.most_usd * (1 + 1e-9)
        assert made.cost.run <= at_most
        assert (made.ladder.usd_high or 0.0) <= at_most


@pytest.fixture(scope="session")
def check_plan() -> Callable[[Plan], None]:
    """It is JSON with its own figures in it, it can be shown, and what it warns of can be mended."""

    def check(made: Plan) -> None:
        text = json.dumps(made.to_json(), allow_nan=False)
        assert json.loads(text)["cost"]["hourly"] == made.cost.hourly
        assert len({resource.urn for resource in made.resources}) == len(made.resources)
        assert made.cost.hourly >= 0
        assert made.cost.monthly >= made.cost.upfront >= 0
        check_reach(made)
        for finding in made.findings:
            assert finding.path.startswith("gangway:"), finding
            assert finding.message, finding
            assert finding.fix or finding.severity is not Severity.ERROR, finding
        shown = io.StringIO()
        show_plan(made, Console(file=shown, width=120))
        assert made.config.stack in shown.getvalue()

    return check


# A word that means something where YAML, bash, JSON or Pulumi read it is where such programs break.
ODD_WORDS = st.sampled_from(
    [
        "", " ", "-", "null", "%s", "${x}", "$(x)", "{{x}}", "[bold]", "[/]", "a'b", 'a"b', "a\\b", "a\nb", "a:b",
        "a\tb", "\u00e9", "\U0001f600", "x" * 300,
    ]
)  # fmt: skip
WRONG: list[Any] = [
    None, True, -1, 0, 0.5, 10**30, float("inf"), float("nan"), "H100x9", "p5.48xl", "us-east-2z", "cr-1", "spots",
    "10.0.0.0/8", "s3://", "x@y", [], [[]], {}, {"kind": "spot"}, datetime(2026, 1, 1, tzinfo=UTC),
]  # fmt: skip


def places_in(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Where every value below `value` is."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(found for key, item in inner for found in places_in(item, (*path, key)))]


@pytest.fixture(scope="session")
def with_wrong() -> Callable[[dict[str, Any], st.DataObject], dict[str, Any]]:
    """A copy in which one drawn value stands where it does not belong, or below a key that nobody knows.

    What is drawn is shared with the next examples (`sampled_from` and `just` give the element itself): changed in
    place, a strategy would not be the same twice.
    """

    def change(values: dict[str, Any], data: st.DataObject) -> dict[str, Any]:
        *path, last = data.draw(st.sampled_from(places_in(values)[1:]))
        wrong = data.draw(st.one_of(st.sampled_from(WRONG), ODD_WORDS))
        changed: dict[str, Any] = deepcopy(values)
        node: Any = changed
        for key in path:
            node = node[key]
        if isinstance(node, dict) and data.draw(st.integers(0, 4)) == 0:
            node[data.draw(st.one_of(st.just(f"{last}s"), ODD_WORDS))] = wrong
        else:
            node[last] = wrong
        return changed

    return change


ZONES = ("us-east-2a", "us-east-2b")
LADDER: tuple[dict[str, Any], ...] = (
    {"kind": "capacity-block", "id": "cr-0123456789abcdef0", "ends_at": "2035-07-01T11:30:00Z", "zone": "us-east-2b"},
    {
        "kind": "capacity-block",
        "purchase": True,
        "offering_id": "cbo-0123456789abcdef0",
        "upfront_usd": 16000,
        "starts_at": "2035-07-02T11:30:00Z",
        "ends_at": "2035-07-09T11:30:00Z",
    },
    {"kind": "spot", "machine_types": ["g5.2xlarge"], "zones": list(ZONES), "max_usd_per_hour": 2},
    {"kind": "on-demand", "machine_types": ["g5.2xlarge"]},
)


@pytest.fixture(scope="session")
def every_capacity() -> Callable[[], dict[str, Any]]:
    """A program with every shape of capacity on AWS: all kinds of rung, mixed groups, and each kind of fleet."""

    def program() -> dict[str, Any]:
        import pulumi
        from pulumi_aws import ec2

        from gangway.components.aws.fleets import Ec2Fleet, SpotFleet
        from gangway.components.aws.node_pool import EfaNodePool

        vpc = ec2.Vpc("net", cidr_block="10.7.0.0/16")
        subnets = {
            zone: ec2.Subnet(zone, vpc_id=vpc.id, cidr_block=f"10.7.{16 * index}.0/20", availability_zone=zone)
            for index, zone in enumerate(ZONES)
        }
        group = ec2.SecurityGroup("fabric", vpc_id=vpc.id, description="fabric")
        pool: Any = {
            "machine_type": "g5.xlarge",
            "num_nodes_min": 2,
            "num_nodes_max": 2,
            "subnet_ids": pulumi.Output.all(*[subnet.id for subnet in subnets.values()]).apply(list),
            "zones": list(ZONES),
            "security_group_ids": [group.id],
            "image_id": "ami-12345678",
            "instance_profile_arn": "arn:aws:iam::123456789012:instance-profile/node",
            "user_data": "IyE=",
            "root_volume_gib": 200,
            "tags": {"team": "ml"},
        }
        wired = {"kind": "spot", "machine_types": ["p4de.24xlarge"]}
        pools: dict[str, Any] = {
            "ladder": {**pool, "capacity": list(LADDER)},
            "mixed": {**pool, "machine_type": "p4d.24xlarge", "capacity": [wired]},
        }
        for name, args in pools.items():
            EfaNodePool(name, args)
        types = ("g5.xlarge", "g5.2xlarge")
        templates = {t: ec2.LaunchTemplate(t, image_id="ami-12345678", instance_type=t) for t in types}
        fleet: Any = {
            "num_nodes": 2,
            "templates": [
                {"launch_template_id": template.id, "launch_template_version": "1", "machine_types": [name]}
                for name, template in templates.items()
            ],
            "subnet_ids": {zone: subnet.id for zone, subnet in subnets.items()},
            "tags": {"team": "ml"},
        }
        fleets: dict[str, Any] = {
            "spot": {**fleet, "market": "spot", "max_usd_per_hour": 2},
            "cheap": {**fleet, "market": "spot", "allocation": "lowest-price"},
            "on-demand": {**fleet, "market": "on-demand"},
        }
        for name, args in fleets.items():
            Ec2Fleet(name, args)
        old: Any = {**fleet, "fleet_role_arn": "arn:aws:iam::123456789012:role/fleet", "max_usd_per_hour": 2}
        SpotFleet("old", old)
        return {}

    return program


@pytest.fixture(scope="session")
def every_surrounding() -> Callable[[], dict[str, Any]]:
    """A program with all that can stand around the nodes on AWS, every option on: no one stack needs them all."""

    def program() -> dict[str, Any]:
        from gangway.components.aws.budget import Budget, CostTagActivation
        from gangway.components.aws.eks import EksCluster
        from gangway.components.aws.identity import EncryptionKey, HeadIdentity, NodeIdentity
        from gangway.components.aws.image_builder import ImageBuilder
        from gangway.components.aws.network import TrainingNetwork
        from gangway.components.aws.storage import ImageRegistry, LustreFileSystem, RunBucket

        tags = {"team": "ml", "gangway:stack": "depth"}
        key = EncryptionKey("depth", {"region": "us-east-2", "tags": tags}).key_arn
        bucket = RunBucket("depth", {"kms_key_arn": key, "tags": tags})
        registry = ImageRegistry("depth", {"kms_key_arn": key, "tags": tags})
        ImageBuilder("depth", {"repository_arn": registry.repository_arn, "region": "us-east-2", "tags": tags})
        network: Any = {
            "cidr": "10.9.0.0/16",
            "region": "us-east-2",
            "zones": list(ZONES),
            "egress": "endpoints",
            "head": {"rendezvous_port": 29400, "metrics_port": 9400},
            "s3_bucket_arns": [bucket.bucket_arn],
            "kms_key_arn": key,
            "tags": tags,
        }
        net = TrainingNetwork("depth", network)
        cluster: Any = {
            "stack": "depth",
            "version": "1.35",
            "region": "us-east-2",
            "subnet_ids": net.private_subnet_ids,
            "service_cidr": "10.100.0.0/16",
            "api_cidrs": ["203.0.113.0/24"],
            "kms_key_arn": key,
            "log_days": 30,
            "tags": tags,
        }
        EksCluster("depth", cluster)
        lustre: Any = {
            "subnet_id": net.private_subnet_ids[0],
            "security_group_id": net.fabric_security_group_id,
            "source": "s3://my-bucket/digits",
            "tags": tags,
        }
        runs = bucket.bucket_name.apply(lambda name: f"s3://{name}/depth")
        fast: Any = {
            **lustre,
            "capacity_gib": 9600,
            "throughput_mbps_per_tib": 500,
            "efa": True,
            "metadata_iops": 12000,
            "runs": runs,
            "kms_key_arn": key,
            "log": True,
        }
        LustreFileSystem("depth", fast)
        scratch: Any = {**lustre, "capacity_gib": 2400, "deployment": "scratch"}
        LustreFileSystem("scratch", scratch)
        identity: Any = {
            "run_bucket_arn": bucket.bucket_arn,
            "repository_arn": registry.repository_arn,
            "stack": "depth",
            "kms_key_arn": key,
            "tags": tags,
        }
        node: Any = {**identity, "self_termination": True}
        NodeIdentity("depth", node)
        HeadIdentity("depth", identity)
        budget: Any = {
            "monthly_usd": 100,
            "emails": ["a@example.com"],
            "alert_percent": [50],
            "stop_at_percent": 120,
            "tag_key": "gangway:stack",
            "tag_value": "depth",
            "kms_key_arn": key,
            "tags": tags,
        }
        Budget("depth", budget)
        CostTagActivation("depth", {"tag_keys": ["gangway:stack"]})
        return {}

    return program


@pytest.fixture(scope="session")
def planned_or_told(
    tmp_path_factory: pytest.TempPathFactory,
    outcome: Callable[[Path], Plan | list[InputError]],
    check_plan: Callable[[Plan], None],
    with_wrong: Callable[[dict[str, Any], st.DataObject], dict[str, Any]],
) -> Callable[..., Plan | None]:
    """Plans drawn settings with so many mistakes put into them. None: they are refused, in words."""

    def run(values: dict[str, Any], mistakes: int, data: st.DataObject, name: str = "drawn") -> Plan | None:
        values = deepcopy(values)  # what was drawn may be a part of what it is drawn from
        for _ in range(mistakes):
            values = with_wrong(values, data)
        path = tmp_path_factory.getbasetemp() / f"Pulumi.{name}.yaml"
        path.write_text(yaml.safe_dump({"config": {f"gangway:{key}": each for key, each in values.items()}}), "utf-8")
        found = outcome(path)
        if isinstance(found, Plan):
            check_plan(found)
            return found
        assert found, "neither a plan nor a mistake"
        for mistake in found:
            assert all((mistake.place, mistake.problem, mistake.fix)), str(mistake)
        return None

    return run
