"""ServicePerimeter: what it holds, who passes, and what a perimeter of somebody else's is found to lack."""

from collections.abc import Callable
from typing import Any

import pytest

from gangway.components.gcp.identity import plan_services
from gangway.components.gcp.network import RESTRICTED, ServicePerimeter, missing_from, plan_perimeter
from tests.components.fixture_types import Make, Mistakes

ARGS: dict[str, Any] = {
    "access_policy": 330193482019,
    "project": "my-lab",
    "project_number": "123456789012",
    "operators": ["user:ops@example.com"],
    "enforced": True,
}


@pytest.fixture
def declared(make: Make) -> Callable[..., dict[str, Any]]:
    """The inputs of the perimeter that these arguments make."""
    return lambda **changes: dict(make(ServicePerimeter, {**ARGS, **changes}).one("ServicePerimeter").inputs)


def test_operators_come_in_from_anywhere_or_by_access_levels() -> None:
    anywhere = plan_perimeter(7, "lab", ["user:ops@example.com"])
    assert anywhere.ingress["ingress_from"] == {
        "identities": ["user:ops@example.com"],
        "sources": [{"access_level": "*"}],
    }
    levelled = plan_perimeter(7, "lab", ["user:ops@example.com"], ["corp", "vpn"]).ingress["ingress_from"]
    assert isinstance(levelled, dict)
    assert levelled["sources"] == [
        {"access_level": f"accessPolicies/7/accessLevels/{name}"} for name in ("corp", "vpn")
    ]


def test_nothing_goes_out_but_what_is_read_from_named_projects() -> None:
    assert plan_perimeter(7, "lab", ["user:ops@example.com"]).egress == ()
    (rule,) = plan_perimeter(7, "lab", ["user:ops@example.com"], reads_from=[42, 43]).egress
    target = rule["egress_to"]
    assert isinstance(target, dict)
    assert target["resources"] == ["projects/42", "projects/43"]
    methods = {one["service_name"]: [m["method"] for m in one["method_selectors"]] for one in target["operations"]}
    assert set(methods) < set(RESTRICTED)
    assert not [method for method in methods["storage.googleapis.com"] if not method.endswith((".get", ".list"))]


def test_its_name_is_the_projects() -> None:
    """A project can be in one regular perimeter, so two stacks of it cannot have two; titles are unique in a policy."""
    assert plan_perimeter(7, "my-lab-2", ["user:ops@example.com"]).name == "gangway_my_lab_2"


@pytest.mark.parametrize(("enforced", "part", "other"), [(True, "status", "spec"), (False, "spec", "status")])
def test_what_is_declared_is_what_the_api_knows(
    declared: Callable[..., dict[str, Any]],
    api_mistakes: Mistakes,
    *,
    enforced: bool,
    part: str,
    other: str,
) -> None:
    inputs = declared(enforced=enforced, access_levels=["corp"], reads_from=[42])
    assert inputs["parent"] == "accessPolicies/330193482019"
    assert inputs["name"] == "accessPolicies/330193482019/servicePerimeters/gangway_my_lab"
    assert other not in inputs
    # An enforced perimeter's dry run is itself.
    assert inputs.get("useExplicitDryRunSpec", False) is not enforced
    rules = inputs[part]
    assert rules["resources"] == ["projects/123456789012"]
    of_the_api = {key: value for key, value in inputs.items() if key != "parent"}
    assert api_mistakes("accesscontextmanager.v1", "ServicePerimeter", of_the_api) == []


def test_machines_call_nothing_that_the_perimeter_does_not_hold(declared: Callable[..., dict[str, Any]]) -> None:
    rules = declared()["status"]
    assert rules["vpcAccessibleServices"] == {"enableRestriction": True, "allowedServices": ["RESTRICTED-SERVICES"]}
    assert rules["restrictedServices"] == list(RESTRICTED)
    assert set(RESTRICTED) <= set(plan_services("tpu", "keys")), "an API that no stack enables is called by none"


def test_a_perimeter_of_somebody_elses_has_to_hold_the_project_and_what_machines_call() -> None:
    assert missing_from(["projects/1", "projects/2"], [*RESTRICTED, "bigquery.googleapis.com"], "1") == []
    assert missing_from(["projects/2"], RESTRICTED, "1") == ["projects/1"]
    assert missing_from(["projects/1"], ["storage.googleapis.com"], "1") == [
        service for service in RESTRICTED if service != "storage.googleapis.com"
    ]
