"""Settling of roles: what is waited for, and that a program in another language has no wait."""

from collections.abc import Callable

import pulumi
from pulumi_azure_native import authorization

from gangway.components.azure.common import heeded
from gangway.components.core.settling import Settling
from tests.components.fixture_types import Make


def program(seconds: float) -> Callable[[], None]:
    def run() -> None:
        options = pulumi.ResourceOptions()
        grants = [
            authorization.RoleAssignment(
                f"grant-{who}", principal_id=who, role_definition_id="/role", scope="/there", opts=options
            )
            for who in ("me", "you")
        ]
        for number, one in enumerate(heeded("wait", "demo", grants, seconds, options)):
            assert (number == 2) is isinstance(one, Settling)

    return run


def test_it_tells_an_assignment_from_the_one_before_though_their_ids_are_the_same(declare: Make) -> None:
    made = declare(program(300))
    wait = made.one("Settling")
    assert wait.inputs["what"] == "Azure heeds the roles of demo"
    assert wait.inputs["seconds"] == 300
    assert wait.inputs["awaited"] == [
        f"${{RoleAssignment.grant-{who}.id}} for {who} on /there" for who in ("me", "you")
    ]
    assert {grant.urn for grant in made.of("RoleAssignment")} <= wait.dependencies


def test_without_seconds_there_is_no_resource(declare: Make) -> None:
    """A program in another language has no Python in which it could run."""
    assert declare(program(0)).of("Settling") == []
