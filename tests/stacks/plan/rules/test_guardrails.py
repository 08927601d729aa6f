"""Every rule over every shipped stack, which are clean, and over copies with one mistake, which is caught."""

import ast
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from gangway.components.core.findings import Finding, Severity
from gangway.components.estimate.cost import Declared
from gangway.stacks.base.rule import Limits, kind
from gangway.stacks.loading.loader import from_file
from gangway.stacks.plan.plan import Plan, make_plan
from gangway.stacks.plan.rules.guardrails import (
    PLAN_RULES,
    RESOURCE_RULES,
    STACK_RULES,
    TRAINER,
    finding_codes,
    findings_of_resources,
    job_codes,
    meaning,
)
from gangway.stacks.plan.rules.resource_rules import tags_field, types_with_tags
from tests.conftest import REPO
from tests.sdk_arguments import sdk_arguments

CLOUDS = ("aws-", "eks-", "azure-", "gcp-", "gke-", "aks-")
ALL = sorted(
    file.name.removeprefix("Pulumi.").removesuffix(".yaml")
    for file in (Path(__file__).resolve().parents[4] / "stacks").glob("Pulumi.*.yaml")
)
STACKS = [stack for stack in ALL if stack.startswith(CLOUDS)]
# Machines over SSH take no tags: their containers do, which no resource shows.
TAGGED = [*STACKS, "openstack-existing", "openstack-gpu"]
# The plan says of this size why it starts so: machine.trusted-launch-off.
NOT_CLEAN = {
    "azure-ndv4": ["machine.not-shielded"],
    # Iowa's grid and Nevada's are above the limit: their accelerators are where Google has put them.
    "gcp-a3-spot": ["region.carbon-intensity"],
    "gcp-existing": ["region.carbon-intensity"],
    "gcp-v5e-pod": ["region.carbon-intensity"],
    "gke-a3-jobset": ["region.carbon-intensity"],
    "gke-tpu-v5e": ["region.carbon-intensity"],
}
TEMPLATE, GROUP = "aws:ec2:LaunchTemplate", "aws:autoscaling:Group"
MACHINE, SCALE_SET = "azure-native:compute:VirtualMachine", "azure-native:compute:VirtualMachineScaleSet"
GCE, GCE_TEMPLATE = "gcp:compute:Instance", "gcp:compute:InstanceTemplate"
PROFILE = "virtualMachineProfile"
NIC = "networkProfile.networkInterfaceConfigurations.0.ipConfigurations.0"


def found(resources: list[Declared]) -> dict[str, Finding]:
    return {finding.code: finding for finding in findings_of_resources(resources, Limits())}


def test_there_is_one_rule_a_code() -> None:
    rules = (*RESOURCE_RULES, *STACK_RULES, *PLAN_RULES)
    codes = [rule.code for rule in rules]
    assert len(codes) == len(set(codes)) == 18
    assert all(rule.path.startswith("gangway:") and rule.holds[0].isupper() for rule in rules)
    assert all(rule.severity is not Severity.INFO for rule in rules), "nothing to enforce"


def test_the_docs_name_every_rule(repo: Path) -> None:
    text = (repo / "docs" / "costs.md").read_text("utf-8")
    assert [rule.code for rule in (*RESOURCE_RULES, *STACK_RULES, *PLAN_RULES) if f"`{rule.code}`" not in text] == []


@pytest.mark.parametrize("stack", ALL)
def test_the_shipped_stacks_are_clean(stack: str, plans: dict[str, Plan]) -> None:
    plan = plans[stack]
    assert list(found(list(plan.resources))) == NOT_CLEAN.get(stack, [])
    judged = sum(tags_field(resource.type) is not None for resource in plan.resources)
    assert (judged > 5) == (stack in TAGGED), "else nothing was judged"
    codes = [finding.code for finding in plan.findings]
    own = {rule.code for rule in (*RESOURCE_RULES, *STACK_RULES)}
    said_already = {"machine.not-shielded": "machine.trusted-launch-off"}
    expected = {said_already.get(code, code) for code in NOT_CLEAN.get(stack, [])}
    assert own & set(codes) == expected & own
    assert expected <= set(codes)
    levels = {rule.code: rule.severity for rule in PLAN_RULES}
    said = {finding.code: finding.severity for finding in plan.findings if finding.code in levels}
    assert said.items() <= levels.items(), "the pack enforces a finding at the level the plan gives it"


def test_every_shipped_stack_is_tested(plans: dict[str, Plan]) -> None:
    assert plans.keys() == set(ALL)


@pytest.mark.parametrize(
    ("code", "stack", "of_kind", "path", "value", "words"),
    [
        ("tags.missing", "aws-demo", "aws:s3:Bucket", "tags.team", None, "no team tag"),
        ("tags.missing", "aws-demo", "aws:s3:Bucket", "tags", None, "no team and no cost_center tag"),
        ("tags.missing", "aws-demo", "aws:s3:Bucket", "tags.team", "", "no team tag"),
        ("tags.missing", "aws-g5-dev", TEMPLATE, "tagSpecifications.1", None, "each volume it starts: no team"),
        ("tags.missing", "aws-demo", GROUP, "tags", [{"key": "team", "value": "a"}], "no cost_center"),
        ("tags.missing", "gcp-a3-spot", GCE, "labels.cost_center", None, "no cost_center"),
        ("tags.missing", "gcp-a3-spot", "gcp:monitoring:AlertPolicy", "userLabels", None, "no team"),
        ("tags.missing", "gcp-v5e-pod", "pulumi-python:dynamic:QueuedTpuRequest", "labels", None, "no team"),
        ("tags.missing", "azure-nc-dev", "azure-native:network:NatGateway", "tags", None, "no team"),
        ("tags.missing", "openstack-gpu", "openstack:compute:Instance", "metadata.team", None, "no team"),
        ("tags.missing", "openstack-gpu", "openstack:networking:Network", "tags", ["team=ml"], "no cost_center"),
        ("tags.missing", "openstack-gpu", "openstack:networking:Port", "tags", None, "no team and no cost_center"),
        ("tags.missing", "openstack-gpu", "openstack:objectstorage:Container", "metadata.cost-center", None,
         "no cost_center"),
        ("tags.missing", "openstack-gpu", "openstack:sharedfilesystem:Share", "metadata.team", "", "no team"),
        ("address.public", "aws-demo", TEMPLATE, "networkInterfaces.0.associatePublicIpAddress", "true", "public"),
        ("address.public", "aws-demo", "aws:ec2:Instance", "associatePublicIpAddress", True, "public address"),
        ("address.public", "aws-demo", "aws:ec2:Subnet", "mapPublicIpOnLaunch", True, "whatever starts in it"),
        ("address.public", "aws-demo", "aws:ec2:Eip", "instance", "${Instance.aws-demo-head.id}", "of a machine"),
        ("address.public", "gcp-a3-spot", GCE, "networkInterfaces.0.accessConfigs", [{}], "access configuration"),
        ("address.public", "gcp-a3-spot", GCE_TEMPLATE, "networkInterfaces.1.accessConfigs", [{}], "gcp-a3-spot-"),
        ("address.public", "azure-nc-dev", "azure-native:network:NetworkInterface",
         "ipConfigurations.0.publicIPAddress", {"id": "${PublicIPAddress.x.id}"}, "has a public address"),
        ("address.public", "azure-nc-dev", SCALE_SET, f"{PROFILE}.{NIC}.publicIPAddressConfiguration", {"name": "a"},
         "each machine"),
        ("encryption.missing", "aws-demo", TEMPLATE, "blockDeviceMappings.0.ebs.encrypted", "false", "disk"),
        ("encryption.missing", "aws-g5-dev", TEMPLATE, "blockDeviceMappings", None, "disk"),
        ("encryption.missing", "azure-nc-dev", MACHINE, "securityProfile.encryptionAtHost", False, "caches"),
        ("encryption.missing", "azure-nc-dev", SCALE_SET, f"{PROFILE}.securityProfile", None, "caches"),
        ("machine.imds-v1", "aws-g5-dev", TEMPLATE, "metadataOptions", None, "answers IMDSv1"),
        ("machine.imds-v1", "aws-demo", "aws:ec2:Instance", "metadataOptions.httpTokens", "optional", "IMDSv1"),
        ("machine.not-shielded", "gcp-a3-spot", GCE, "shieldedInstanceConfig", None, "enableVtpm and enableIntegrity"),
        ("machine.not-shielded", "gcp-a3-spot", GCE_TEMPLATE, "shieldedInstanceConfig.enableVtpm", False, "enableVtpm"),
        ("machine.not-shielded", "azure-nc-dev", MACHINE, "securityProfile.securityType", "Standard", "Trusted Launch"),
        ("region.carbon-intensity", "aws-demo", "pulumi:providers:aws", "region", "ap-south-1",
         "ap-south-1: 747 gCO2e per kWh (Green Software Foundation"),
        ("region.carbon-intensity", "gcp-a3-spot", "pulumi:providers:gcp", "region", "us-east1", "above 450"),
        ("region.carbon-intensity", "azure-nc-dev", MACHINE, "location", "Poland Central", "polandcentral: 749"),
        ("region.carbon-intensity", "aws-demo", "pulumi:providers:aws", "region", "mars-1", "is not in the catalogue"),
        ("capacity.block-end", "aws-p4d-block", "aws:autoscaling:Schedule", "maxSize", 2, "scheduled actions"),
    ],
)  # fmt: skip
def test_one_mistake_is_caught(
    code: str, stack: str, of_kind: str, path: str, value: Any, words: str, broken: Callable[..., list[Declared]]
) -> None:
    finding = found(broken(stack, of_kind, path, value))[code]
    rule = next(rule for rule in (*RESOURCE_RULES, *STACK_RULES) if rule.code == code)
    assert words in finding.message
    assert (finding.severity, finding.path, finding.fix) == (rule.severity, rule.path, rule.fix)
    assert finding.fix


@pytest.mark.parametrize("stack", STACKS)
def test_a_stack_without_a_budget_is_caught(stack: str, plans: dict[str, Plan]) -> None:
    rest = [one for one in plans[stack].resources if not kind(one.type).endswith(":Budget")]
    assert len(rest) < len(plans[stack].resources)
    assert "no budget counts them" in found(list(rest))["budget.missing"].message


def test_many_breaches_are_one_finding_that_names_three(plans: dict[str, Plan], made: Callable[..., Declared]) -> None:
    topics = [made("aws:sns/topic:Topic", tags={"name": str(number)}) for number in range(2)]
    buckets = [made("aws:s3/bucket:Bucket"), made("aws:kms/key:Key"), made("aws:ec2/vpc:Vpc")]
    message = found([*topics, *buckets])["tags.missing"].message
    assert message.count("no team and no cost_center") == 3, "equal breaches are one"
    assert message.endswith("; and 1 more")


def edited(repo: Path, folder: Path, stack: str, **sections: Any) -> Plan:
    """The plan of a shipped stack with whole sections replaced."""
    values = yaml.safe_load((repo / "stacks" / f"Pulumi.{stack}.yaml").read_text("utf-8"))["config"]
    values |= {f"gangway:{section}": value for section, value in sections.items()}
    path = folder / f"Pulumi.{stack}.yaml"
    path.write_text(yaml.safe_dump({"config": values}), "utf-8")
    return make_plan(from_file(path))


def codes_of(plan: Plan) -> list[str]:
    return [finding.code for finding in plan.findings]


def test_the_plan_prints_the_same_codes(repo: Path, tmp_path: Path) -> None:
    plan = edited(repo, tmp_path, "aws-g5-dev", region="ap-south-1")
    assert codes_of(plan).count("region.carbon-intensity") == 1
    (fix,) = [finding.fix for finding in plan.findings if finding.code == "region.carbon-intensity"]
    assert "`gangway quote --accelerator A10Gx1 --hours " in fix
    assert not plan.has_errors


@pytest.mark.slow
def test_the_grid_of_a_site_is_what_the_stack_file_says(repo: Path, tmp_path: Path) -> None:
    for stack in ("hosts-lab", "openstack-gpu"):
        site = yaml.safe_load((repo / "stacks" / f"Pulumi.{stack}.yaml").read_text("utf-8"))["config"]["gangway:site"]
        dirty = edited(repo, tmp_path, stack, site={**site, "intensity_g_per_kwh": 700})
        (finding,) = [finding for finding in dirty.findings if finding.code == "region.carbon-intensity"]
        assert "700 gCO2e per kWh (" in finding.message
        assert finding.message.endswith("is above 450")
        assert "gangway quote" not in finding.fix, "a site has no other regions"


@pytest.mark.slow
def test_the_plan_says_nothing_twice(repo: Path, tmp_path: Path) -> None:
    """A block without its end is found in the stack file, and in what is declared."""
    block = {"kind": "capacity-block", "id": "cr-0123456789abcdef0", "zone": "us-west-2b"}
    cluster = {"machine_type": "p4d.24xlarge", "nodes": {"min": 2, "max": 2}, "capacity": [block]}
    plan = edited(repo, tmp_path, "aws-p4d-block", cluster=cluster)
    assert codes_of(plan).count("capacity.block-end") == 1
    assert "capacity.block-end" in found(list(plan.resources))


@pytest.mark.slow
def test_spot_that_saves_only_at_its_end_is_caught(repo: Path, tmp_path: Path) -> None:
    job = {"preset": "dcgan-digits", "kimg": 25000, "max_hours": 12}
    rare = edited(repo, tmp_path, "gcp-a3-spot", job={**job, "checkpoint_kimg": 30000})
    (finding,) = [finding for finding in rare.findings if finding.code == "checkpoint.missing"]
    assert "a run of 25000 kimg in 12 h has none before its end" in finding.message
    assert finding.fix == "set checkpoint_kimg: 2500"
    often = edited(repo, tmp_path, "gcp-a3-spot", job={**job, "checkpoint_kimg": 500})
    assert "checkpoint.missing" not in codes_of(often)
    on_demand = edited(repo, tmp_path, "azure-ndv4", job={**job, "checkpoint_kimg": 30000})
    assert "checkpoint.missing" not in codes_of(on_demand)


@pytest.mark.slow
def test_what_an_estimate_says_of_checkpoints_is_not_said_again(repo: Path, tmp_path: Path) -> None:
    job = {"preset": "dcgan-digits", "kimg": 25000, "max_hours": 12, "checkpoint_kimg": 30000}
    estimate = {"taken_percent_per_month": 95, "images_per_second": 579}
    judged = edited(repo, tmp_path, "aws-p5-spot", job=job, estimate=estimate)
    assert {"checkpoint.interval", "checkpoint.missing"} & set(codes_of(judged)) == {"checkpoint.interval"}


CODE = re.compile(r"[a-z]+(\.[a-z0-9_-]+)?")
IN_JOBS = REPO / "gangway" / "jobs"


def calls(path: Path) -> Iterator[str]:
    """The codes of the findings that a file makes, where the code is a literal."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Call):
            name = ast.unparse(node.func)
            if re.fullmatch(r"Finding\.(error|warning|info)|make", name):
                code = node.args[:1]
            elif name == "Finding":
                code = node.args[1:2]
            else:
                continue
            yield from (
                str(each.value) for each in code if isinstance(each, ast.Constant) and CODE.fullmatch(str(each.value))
            )
        elif isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(node.value, ast.Constant):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if [ast.unparse(target) for target in targets] == ["CODE"]:
                yield str(node.value.value)


def codes(*folders: Path) -> set[str]:
    return {code for folder in folders for path in folder.rglob("*.py") for code in calls(path)}


def test_every_code_has_a_sentence_and_no_sentence_lacks_a_code() -> None:
    rules = {rule.code for rule in (*PLAN_RULES, *RESOURCE_RULES, *STACK_RULES)}
    assert set(finding_codes()) == codes(REPO / "components", REPO / "stacks") | rules
    assert codes(IN_JOBS) <= set(job_codes()) | set(finding_codes())
    assert set(job_codes()) <= codes(IN_JOBS)
    assert all(text.endswith(".") for text in (*finding_codes().values(), *job_codes().values()))


def test_each_finding_of_a_plan_is_known(demo_plan: Plan) -> None:
    for finding in demo_plan.findings:
        assert finding.code in finding_codes() or finding.code.startswith(TRAINER)


def test_a_code_without_a_finding_says_what_it_reports() -> None:
    rule = meaning("data.protection-order", compared=False)
    assert "What protects or decrypts retained data is not deleted before it." in rule
    assert "Nothing found" in rule
    assert "add --against" in meaning("data.lost", compared=False)
    assert "Nothing found" in meaning("data.lost", compared=True)
    assert "gangway job submit" in meaning("job.claim", compared=False)
    assert "job.settings.batch_gpu" in meaning("trainer.batch-gpu", compared=False)
    assert meaning("trainer.nothing", compared=False) == meaning("no.such-code", compared=False) == ""


# Input on the wire -> argument in Python.
ARGUMENTS = {
    "tags": "tags",
    "labels": "labels",
    "userLabels": "user_labels",
    "resourceLabels": "resource_labels",
    "metadata": "metadata",
}
# gcp: `tags` are those of the network, and `labels` of a notification channel are its settings.
WORDS = {
    "aws": ("tags",),
    "gcp": ("user_labels", "resource_labels", "labels"),
    "azure-native": ("tags",),
    "openstack": ("metadata", "tags"),
}


# The provider puts an object anew, and an empty one, where nothing but its metadata change.
LEFT_ALONE = {"openstack:objectstorage:ContainerObject"}


@pytest.mark.slow
def test_every_type_of_the_table_takes_its_tags_so() -> None:
    table = {of_type: field for of_type, field in types_with_tags().items() if of_type.partition(":")[0] in WORDS}
    assert len(table) > 100
    assert {t: field for t, field in table.items() if ARGUMENTS[field] not in sdk_arguments(t)} == {}


def test_whatever_gangway_declares_and_takes_tags_is_in_it(plans: dict[str, Plan]) -> None:
    declared = {kind(resource.type) for plan in plans.values() for resource in plan.resources}
    judged = {of_type for of_type in declared if of_type.partition(":")[0] in WORDS}
    assert len(judged) > 100
    for of_type in sorted(judged - LEFT_ALONE):
        taken = sdk_arguments(of_type)
        word = next((word for word in WORDS[of_type.partition(":")[0]] if word in taken), None)
        field = tags_field(of_type)
        assert (None if field is None else ARGUMENTS[field]) == word, of_type


def test_options_name_inputs_as_the_engine_does(plans: dict[str, Plan]) -> None:
    """The SDK translates only a whole path's name: `agent_pool_profiles[0].count` would be nothing to the engine."""
    paths = {
        (kind(each.type), path)
        for plan in plans.values()
        for each in plan.resources
        for path in (*each.ignore_changes, *each.replace_on_changes)
    }
    assert ("azure-native:containerservice:ManagedCluster", "agentPoolProfiles[0].count") in paths
    assert [path for _, path in paths if "_" in path] == []
