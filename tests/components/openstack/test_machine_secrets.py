"""The machines' secrets: one object, what opens it, and for how long."""

import asyncio
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangway.components.openstack.machine_secrets import (
    RENEWED_EVERY_HOURS,
    VALID_HOURS,
    MachineSecrets,
    NodeIdentity,
    access_paths,
    get_period,
    object_name,
    split_url,
)
from tests.components.fixture_types import Make

ARGS = {"content": '{"member_key": "PEM"}', "url_key": "00ff", "period": 7, "tags": {"team": "ml"}}


@given(st.floats(0, 4e9))
def test_a_url_outlives_its_period_by_the_time_that_a_machine_takes(now_sec: float) -> None:
    signed_sec = get_period(now_sec) * RENEWED_EVERY_HOURS * 3600
    assert signed_sec <= now_sec + 1e-3
    left_sec = signed_sec + VALID_HOURS * 3600 - now_sec
    assert left_sec > 3600, "an instance may take an hour to be made"


def test_other_secrets_have_another_name() -> None:
    assert object_name("a") == object_name("a") != object_name("b")


def test_both_parts_of_a_url_fit_into_metadata() -> None:
    """Nova's limit is 255 characters an item; a host's name has 63 here, an account's what Keystone gives it."""
    container = f"{'n' * 40}-secrets-1234567"
    place = f"https://{'h' * 63}.example.com:8080/swift/v1/AUTH_{'0' * 32}/{container}/{object_name('x')}"
    parts = split_url(f"{place}?temp_url_sig={'0' * 64}&temp_url_expires=1234567890")
    assert "?".join(parts).startswith(place)
    assert max(map(len, parts)) <= 255


def test_the_key_is_the_containers_own_and_nothing_else_opens_it(make: Make) -> None:
    made = make(MachineSecrets, ARGS)
    container, signed = made.one("Container"), made.one("TempUrl").inputs
    assert container.to_json()["inputs"]["metadata"] == {"team": "ml", "Temp-URL-Key": "[secret]"}
    assert not {"containerRead", "containerWrite"} & set(container.inputs)
    assert (signed["digest"], signed["ttl"], signed["key"]["value"]) == ("sha256", VALID_HOURS * 3600, "00ff")
    assert made.one("ContainerObject").to_json()["inputs"]["content"] == "[secret]"


def test_an_accounts_key_is_not_written_anywhere(make: Make) -> None:
    made = make(MachineSecrets, {**ARGS, "of_account": True})
    assert made.one("Container").inputs["metadata"] == {"team": "ml"}
    assert made.one("TempUrl").inputs["digest"] == "sha1"


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
def test_it_may_put_and_nothing_else(make: Make) -> None:
    made = make(NodeIdentity, {"run_bucket": "demo-runs", "role": "swiftoperator"})
    credential = made.one("ApplicationCredential").inputs
    assert credential["roles"] == ["swiftoperator"]
    assert credential["unrestricted"] is False
    rules = credential["accessRules"]
    assert {(rule["method"], rule["service"]) for rule in rules} == {("PUT", "object-store")}
    assert tuple(rule["path"] for rule in rules) == access_paths("demo-runs")


def test_without_rules_its_role_alone_restricts_it(make: Make) -> None:
    credential = make(NodeIdentity, {"run_bucket": "r", "role": "member", "access_rules": False})
    assert "accessRules" not in credential.one("ApplicationCredential").inputs


def test_its_secret_stays_one(declare: Make) -> None:
    secret: list[bool] = []

    async def look(made: NodeIdentity) -> None:
        secret.append(await made.credential_secret.is_secret())

    def program() -> asyncio.Task[None]:
        return asyncio.ensure_future(look(NodeIdentity("demo", {"run_bucket": "r", "role": "member"})))

    declare(program)
    assert secret == [True]
