"""The machines' secrets: one object, what opens it, and for how long."""

from collections.abc import Callable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gangway.components.openstack.machine_secrets import (
    RENEWED_EVERY_HOURS,
    VALID_HOURS,
    MachineSecrets,
    get_period,
    object_name,
    split_url,
)

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


def test_the_key_is_the_containers_own_and_nothing_else_opens_it(make: Callable[..., Any]) -> None:
    made = make(MachineSecrets, ARGS)
    container, signed = made.one("Container"), made.one("TempUrl").inputs
    assert container.to_json()["inputs"]["metadata"] == {"team": "ml", "Temp-URL-Key": "[secret]"}
    assert not {"containerRead", "containerWrite"} & set(container.inputs)
    assert (signed["digest"], signed["ttl"], signed["key"]["value"]) == ("sha256", VALID_HOURS * 3600, "00ff")
    assert made.one("ContainerObject").to_json()["inputs"]["content"] == "[secret]"


def test_an_accounts_key_is_not_written_anywhere(make: Callable[..., Any]) -> None:
    made = make(MachineSecrets, {**ARGS, "of_account": True})
    assert made.one("Container").inputs["metadata"] == {"team": "ml"}
    assert made.one("TempUrl").inputs["digest"] == "sha1"
