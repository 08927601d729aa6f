"""Which APIs a stack enables, and that it takes none away."""

from collections.abc import Callable
from typing import Any

import pytest

from gangway.components.gcp.identity import AGENT_DOMAINS, ON_REQUEST, ProjectServices, get_agent, plan_services


def test_only_what_the_stack_has_is_enabled() -> None:
    plain, full = plan_services(), plan_services(*ON_REQUEST)
    assert "compute.googleapis.com" in plain
    assert "lustre.googleapis.com" not in plain
    assert "serviceusage.googleapis.com" in plain, "calls are charged to the project, which this API is asked about"
    assert set(plan_services("lustre")) - set(plain) == {"lustre.googleapis.com", "servicenetworking.googleapis.com"}
    assert set(plain) < set(full)
    assert full == sorted(set(full))


def test_apis_are_enabled_and_left_enabled(declare: Callable[..., Any]) -> None:
    seen: list[str] = []

    def program() -> None:
        made = ProjectServices("demo", {"project": "lab", "services": plan_services("tpu")})
        made.project.apply(seen.append)

    made = declare(program)
    services = made.of("Service")
    assert {s.inputs["service"] for s in services} == set(plan_services("tpu"))
    assert {s.inputs["disableOnDestroy"] for s in services} == {False}
    assert {s.inputs["project"] for s in services} == {"lab"}
    assert seen == ["lab"]


@pytest.mark.parametrize("service", sorted(AGENT_DOMAINS))
def test_an_agent_is_named_by_the_projects_number(service: str) -> None:
    assert get_agent(service, "42") == f"serviceAccount:service-42@{AGENT_DOMAINS[service]}.iam.gserviceaccount.com"
