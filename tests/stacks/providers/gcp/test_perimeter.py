"""`gcp.service_perimeter`: what a stack file may say, what is declared, what the plan says of it."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pulumi
import pytest
from pulumi_gcp import accesscontextmanager

from gangway.components.core.findings import Finding, InputError, Severity
from gangway.components.gcp.perimeter import RESTRICTED, read_perimeter
from gangway.stacks.config.stack_config import StackConfig
from gangway.stacks.providers.gcp.perimeter_findings import perimeter_findings
from gangway.stacks.providers.gcp.plan import plan
from gangway.stacks.recording import PlaceholderCloud, Recording, record

GPU, SLICES = "gcp-a3-spot", "gcp-v5p-multislice"
OWN = {"access_policy": 330193482019, "operators": ["user:ops@example.com"]}
Edited = Callable[..., StackConfig]


@pytest.fixture
def found(gcp_edited: Edited) -> Callable[..., dict[str, Finding]]:
    """The findings of a stack with this perimeter, by code; egress by endpoints."""

    def of(perimeter: dict[str, Any], name: str = GPU, **changes: Any) -> dict[str, Finding]:
        gcp = {"service_perimeter": perimeter}
        config = gcp_edited(name, **{"network": {"egress": "endpoints"}, "gcp": gcp, **changes})
        return {finding.code: finding for finding in perimeter_findings(config, plan(config))}

    return of


def perimeters(recorded: Recording) -> list[Any]:
    return [r for r in recorded.resources if r.type.endswith(":ServicePerimeter") and r.type.startswith("gcp:")]


@pytest.mark.parametrize("name", [GPU, SLICES])
def test_it_stands_after_all_that_machines_are_in(
    gcp_edited: Edited, recorded: Callable[[StackConfig], Recording], name: str
) -> None:
    """Until Google heeds a new perimeter it may refuse anybody, so `up` makes it last, and destroy takes it first."""
    made = recorded(gcp_edited(name, gcp={"service_perimeter": OWN}))
    (perimeter,) = perimeters(made)
    machines = {"gcp-a3-spot": "InstanceGroupManager", "gcp-v5p-multislice": "QueuedTpuRequest"}[name]
    before = {r.urn for r in made.resources if r.type.endswith((f":{machines}", ":Dashboard"))}
    assert before
    assert before <= perimeter.dependencies
    assert made.result["service_perimeter"] == perimeter.inputs["name"]
    apis = [r.inputs["service"] for r in made.resources if r.type.endswith(":Service")]
    assert "accesscontextmanager.googleapis.com" in apis


@pytest.mark.slow
def test_a_dry_run_is_what_a_stack_gets_that_says_nothing_of_it(
    gcp_edited: Edited, recorded: Callable[[StackConfig], Recording]
) -> None:
    assert perimeters(recorded(gcp_edited(GPU))) == []
    dry = recorded(gcp_edited(GPU, gcp={"service_perimeter": OWN}))
    assert "spec" in perimeters(dry)[0].inputs
    enforced = recorded(gcp_edited(GPU, gcp={"service_perimeter": {**OWN, "mode": "enforced"}}))
    assert "status" in perimeters(enforced)[0].inputs


def test_one_that_is_there_is_read_and_not_declared(
    gcp_edited: Edited, recorded: Callable[[StackConfig], Recording]
) -> None:
    there = {"access_policy": 330193482019, "existing": "corp"}
    made = recorded(gcp_edited(GPU, gcp={"service_perimeter": there}))
    assert perimeters(made) == []
    assert made.result["service_perimeter"] == "accessPolicies/330193482019/servicePerimeters/corp"


@pytest.mark.parametrize(
    ("status", "lacks"),
    [
        (SimpleNamespace(resources=["projects/1"], restricted_services=list(RESTRICTED)), ""),
        (SimpleNamespace(resources=["projects/2"], restricted_services=list(RESTRICTED)), "projects/1"),
        (SimpleNamespace(resources=["projects/1"], restricted_services=list(RESTRICTED[1:])), RESTRICTED[0]),
        (None, "storage.googleapis.com"),
    ],
    ids=["holds all", "another project", "a service less", "a dry run alone"],
)
def test_up_ends_where_one_does_not_hold_the_project(monkeypatch: pytest.MonkeyPatch, status: Any, lacks: str) -> None:
    read = SimpleNamespace(title=pulumi.Output.from_input("corp"), status=pulumi.Output.from_input(status))
    monkeypatch.setattr(accesscontextmanager.ServicePerimeter, "get", lambda *_, **__: read)

    def program() -> dict[str, Any]:
        return {"name": read_perimeter("demo", 7, "corp", "1", pulumi.ResourceOptions())}

    if not lacks:
        assert record(program, PlaceholderCloud(), "demo").result["name"].endswith("/corp")
        return
    with pytest.raises(InputError) as refused:
        record(program, PlaceholderCloud(), "demo")
    assert refused.value.place == "gangway:gcp.service_perimeter.existing"
    assert lacks in str(refused.value.allowed)


def test_an_enforced_perimeter_closes_what_it_holds(found: Callable[..., dict[str, Finding]]) -> None:
    ways = found({**OWN, "mode": "enforced"})["network.ways-out"]
    assert ways.message == "data can still leave by DNS: Google's resolver resolves every name"
    reading = found({**OWN, "mode": "enforced", "reads_from": [42]})["network.ways-out"].message
    assert "into registries of 42" in reading


def test_a_dry_run_closes_nothing(found: Callable[..., dict[str, Finding]]) -> None:
    ways = found(OWN)["network.ways-out"]
    assert "into other projects' buckets and registries" in ways.message
    assert "mode: enforced" in ways.fix


def test_what_it_takes_and_was_not_tried_is_said(found: Callable[..., dict[str, Finding]]) -> None:
    dry, enforced = (found({**OWN, "mode": mode})["network.perimeter"] for mode in ("dry-run", "enforced"))
    assert (dry.severity, enforced.severity) == (Severity.INFO, Severity.WARNING)
    for finding in (dry, enforced, found({"access_policy": 7, "existing": "corp"})["network.perimeter"]):
        assert "Untested on a real organisation" in finding.message
        assert "roles/accesscontextmanager." in finding.fix
    assert "one perimeter only" in dry.message


def test_what_machines_read_from_elsewhere_is_named(found: Callable[..., dict[str, Finding]]) -> None:
    digest = "0123456789abcdef" * 4
    image = {"prebuilt": f"us-central1-docker.pkg.dev/images-lab/gan/trainer@sha256:{digest}"}
    region = {"image": image, "region": "us-central1", "cluster": {"zone": "us-central1-a"}}
    outside = found(OWN, **region)
    assert "add the number of images-lab" in outside["network.perimeter-image"].fix
    assert "network.perimeter-image" not in found({**OWN, "reads_from": [42]}, **region)


def test_workflows_are_a_warning_where_it_is_enforced(found: Callable[..., dict[str, Finding]]) -> None:
    assert "network.perimeter-workflow" in found({**OWN, "mode": "enforced"}, SLICES)
    assert "network.perimeter-workflow" not in found(OWN, SLICES)


@pytest.mark.parametrize(
    ("perimeter", "place", "fix"),
    [
        ({"access_policy": 7}, "gangway:gcp.service_perimeter", "add operators: [user:YOU@example.com]"),
        ({**OWN, "existing": "corp"}, "gangway:gcp.service_perimeter", "remove operators"),
        ({**OWN, "operators": ["ops@example.com"]}, "gangway:gcp.service_perimeter.operators[0]", "serviceAccount:"),
        ({**OWN, "operators": ["group:ops@example.com"]}, "gangway:gcp.service_perimeter.operators[0]", ""),
        ({**OWN, "mode": "on"}, "gangway:gcp.service_perimeter.mode", ""),
        ({**OWN, "access_levels": ["a/b"]}, "gangway:gcp.service_perimeter.access_levels[0]", ""),
        ({**OWN, "reads_from": [0]}, "gangway:gcp.service_perimeter.reads_from[0]", ""),
    ],
)
def test_bad_input_names_the_place_and_the_fix(
    gcp_edited: Edited, perimeter: dict[str, Any], place: str, fix: str
) -> None:
    with pytest.raises(ExceptionGroup) as refused:
        gcp_edited(GPU, gcp={"service_perimeter": perimeter})
    (error,) = refused.value.exceptions
    assert isinstance(error, InputError)
    assert error.place.endswith(f": {place}")
    assert fix in f"{error.fix} {error.allowed} {error.problem}"
