"""Another number in a stack file makes another member key, and the plan says when nodes use it."""

from collections.abc import Callable

import pytest

from gangway.stacks.config.stack_config import StackConfig
from gangway.stacks.estimates.provider_findings import member_key_refreshed
from gangway.stacks.plan.plan import make_plan

STACKS = ("aws-demo", "gcp-a3-spot", "azure-nc-dev", "openstack-gpu", "hosts-lab")


@pytest.mark.slow
@pytest.mark.parametrize("stack", STACKS)
def test_another_number_makes_another_key_and_is_reported(stack: str, gcp_edited: Callable[..., StackConfig]) -> None:
    made = make_plan(gcp_edited(stack, job={"member_key_refresh": 3}))
    names = {resource.name for resource in made.resources if "-member-key-" in resource.name}
    assert f"{stack}-member-key-3" in names
    assert f"{stack}-member-key-0" not in names
    (told,) = [finding for finding in made.findings if finding.code == "job.member-key"]
    assert "when they start" in told.message


def test_an_unused_number_warns(gcp_edited: Callable[..., StackConfig]) -> None:
    config = gcp_edited("aws-demo", job={"member_key_refresh": 1})
    (told,) = member_key_refreshed(config, has_key=False)
    assert (told.severity.value, told.path) == ("warning", "gangway:job.member_key_refresh")
    assert not list(member_key_refreshed(gcp_edited("aws-demo"), has_key=False))
