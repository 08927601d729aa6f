"""The machines' credential: what it opens, held against the rule by which Keystone's middleware matches paths."""

import asyncio
import re
from collections.abc import Callable
from typing import Any

import pytest

from gangway.components.openstack.identity import NodeIdentity, access_paths

ACCOUNT = "AUTH_e99b6f4b9bf84a9da27e20c9cbfe887a"


def admits(rule: str, path: str) -> bool:
    """As Keystone's API says it: `*` is one step of a path, `**` any number of them."""
    pattern = re.escape(rule).replace(r"\*\*", ".*").replace(r"\*", "[^/]+")
    return re.fullmatch(pattern, path) is not None


@pytest.mark.attack("root of a node", "does more than write run records (OpenStack)")
@pytest.mark.parametrize(
    ("path", "admitted"),
    [
        (f"/v1/{ACCOUNT}/demo-runs/demo/demo/run.json", True),
        (f"/swift/v1/{ACCOUNT}/demo-runs/demo/demo/run.json", True),
        (f"/v1/{ACCOUNT}/demo-runs", False),
        (f"/v1/{ACCOUNT}/demo-runs-2/run.json", False),
        (f"/v1/{ACCOUNT}/other/demo-runs/run.json", False),
        (f"/v1/{ACCOUNT}", False),
        ("/v2.1/servers/1", False),
    ],
)
def test_it_opens_the_objects_of_the_run_container_alone(path: str, admitted: bool) -> None:
    assert any(admits(rule, path) for rule in access_paths("demo-runs")) is admitted


@pytest.mark.attack("root of a node", "does more than write run records (OpenStack)")
def test_it_may_put_and_nothing_else(make: Callable[..., Any]) -> None:
    made = make(NodeIdentity, {"run_bucket": "demo-runs", "role": "swiftoperator"})
    credential = made.one("ApplicationCredential").inputs
    assert credential["roles"] == ["swiftoperator"]
    assert credential["unrestricted"] is False
    rules = credential["accessRules"]
    assert {(rule["method"], rule["service"]) for rule in rules} == {("PUT", "object-store")}
    assert tuple(rule["path"] for rule in rules) == access_paths("demo-runs")


def test_without_rules_its_role_alone_restricts_it(make: Callable[..., Any]) -> None:
    credential = make(NodeIdentity, {"run_bucket": "r", "role": "member", "access_rules": False})
    assert "accessRules" not in credential.one("ApplicationCredential").inputs


def test_its_secret_stays_one(declare: Callable[..., Any]) -> None:
    secret: list[bool] = []

    async def look(made: NodeIdentity) -> None:
        secret.append(await made.credential_secret.is_secret())

    def program() -> asyncio.Task[None]:
        return asyncio.ensure_future(look(NodeIdentity("demo", {"run_bucket": "r", "role": "member"})))

    declare(program)
    assert secret == [True]
