"""Checks of existing resources on Azure against an HTTP stand-in that knows all of azure-existing."""

from typing import Any

import pytest

from gangway.live.preflight.azure import get_checks
from gangway.live.preflight.azure_existing import existing_checks
from gangway.live.preflight.check import Answer, State
from gangway.stacks.loading.loader import from_file
from gangway.stacks.plan.plan import make_plan
from gangway.stacks.providers.azure.plan import plan
from tests.azure_existing import IDS, MISTAKES, ONLY_NEW, STACK, SUBNET, Answers, answers

CONFIG = from_file(STACK)


def checked(cloud: Any, rest: Any, outcomes: Any, known: Answers) -> list[Answer]:
    cloud.answers = {f"/management.azure.com{path}": answer for path, answer in known.items()}
    return list(outcomes(list(existing_checks(CONFIG, plan(CONFIG), rest))).values())


def test_all_in_good_order(cloud: Any, rest: Any, outcomes: Any) -> None:
    found = checked(cloud, rest, outcomes, answers())
    assert {one.check.path: one.result for one in found if one.result.state is not State.OK} == {}
    assert {one.check.path.removeprefix("gangway:azure.existing.") for one in found} >= IDS.keys()
    results = {one.check.path: one.result.answer for one in found}
    assert results["gangway:azure.existing.subnet_id"] == "247 free addresses"
    paths = [call.path for call in cloud.calls]
    assert len(paths) == len(set(paths)) + 3, "each is read once; three scopes are asked about two identities"
    assert {call.method for call in cloud.calls} == {"GET"}


def test_they_are_among_the_checks_of_the_stack(rest: Any) -> None:
    paths = {check.path for check in get_checks(make_plan(CONFIG), rest)}
    assert {f"gangway:azure.existing.{name}" for name in IDS} <= paths


@pytest.mark.parametrize("mistake", MISTAKES)
def test_what_does_not_fit(cloud: Any, rest: Any, outcomes: Any, mistake: str) -> None:
    spoil, setting, words = MISTAKES[mistake]
    known = answers()
    spoil(known)
    found = {one.check.path: one.result for one in checked(cloud, rest, outcomes, known)}
    result = found[f"gangway:azure.existing.{setting}"]
    assert result.state is (State.WARNING if mistake in ONLY_NEW else State.ERROR)
    assert words[0] in result.answer or words[0] in result.fix or mistake == "a key without roles"
    assert result.fix


def test_a_failure_is_unknown_and_a_refusal_names_the_role(cloud: Any, rest: Any, outcomes: Any) -> None:
    path = IDS["registry_id"]
    failed = checked(cloud, rest, outcomes, {**answers(), path: 500})
    assert {one.result.state for one in failed} == {State.UNKNOWN}
    refused = {one.check.path: one.result for one in checked(cloud, rest, outcomes, {**answers(), path: 403})}
    assert "or you may not read it" in refused["gangway:azure.existing.registry_id"].answer
    assert refused["gangway:azure.existing.subnet_id"].state is State.OK
    assert SUBNET.partition("/subnets/")[0] in "".join(call.path for call in cloud.calls)
