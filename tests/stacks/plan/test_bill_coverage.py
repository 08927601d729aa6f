"""Every resource of every shipped stack has a line, is free with its source, is paid by use, or is warned of."""

from collections import Counter
from pathlib import Path

import pytest

from gangway.components.catalog.billing import load_billing
from gangway.stacks.config.sections import EstimateConfig
from gangway.stacks.estimates.run_costs import BILLED_SETTINGS
from gangway.stacks.loading.loader import from_file
from gangway.stacks.plan.bill_coverage import Coverage, coverage, unpriced
from gangway.stacks.plan.plan import Plan, make_plan
from gangway.stacks.recording import PlannedResource

FILES = sorted((Path(__file__).resolve().parents[3] / "stacks").glob("Pulumi.*.yaml"))


def planned(kind: str, name: str = "it") -> PlannedResource:
    return PlannedResource(urn=f"urn::{kind}::{name}", type=kind, name=name, parent="", custom=True, inputs={}, id="")


@pytest.mark.slow
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_nothing_of_a_shipped_stack_is_left_out(path: Path) -> None:
    made = make_plan(from_file(path))
    found = coverage(made.resources, made.cost.components)
    assert [key for key, what in found.items() if what is Coverage.NOWHERE] == []
    assert [finding for finding in made.findings if finding.code == "cost.not-covered"] == []
    unknown = {line.name for line in made.cost.components if line.hourly is None and not line.standby}
    warned = [finding.message for finding in made.findings if finding.code == "cost.price-unknown"]
    assert all(any(name in message for message in warned) for name in unknown)
    assert Counter(found.values())[Coverage.FREE] > 0


def test_what_nobody_knows_anything_of_is_warned_of(demo_plan: Plan) -> None:
    new = [planned("aws:rds/instance:Instance", name) for name in ("a", "b")]
    (finding,) = unpriced([*demo_plan.resources, *new], demo_plan.cost.components)
    assert finding.code == "cost.not-covered"
    assert finding.message.endswith("2 x aws:rds/instance:Instance")


def test_an_endpoint_without_its_line_is_not_free() -> None:
    endpoint = planned("aws:ec2/vpcEndpoint:VpcEndpoint")
    endpoint.inputs["vpcEndpointType"] = "Interface"
    assert list(coverage([endpoint], []).values()) == [Coverage.NOWHERE]
    assert list(coverage([planned("gangway:aws:RunBucket"), planned("pulumi:providers:aws")], [])) == []


def test_settings_that_pay_for_a_type_are_the_estimates() -> None:
    named = {setting for row in load_billing().by_use for setting in row.settings}
    assert named <= set(BILLED_SETTINGS) <= set(EstimateConfig.model_fields)
    assert {"run_bucket_gib", "image_gib", "flow_log_gib", "key_operations", "log_gib"} <= named
