"""The stack's key: it rotates, and only the service agents of what the stack uses may use it."""

from collections.abc import Callable
from typing import Any

import pytest

from gangway.components.gcp.identity import EncryptionKey


@pytest.fixture
def args(labels: dict[str, str]) -> dict[str, Any]:
    return {
        "project": "lab",
        "project_number": "123456789012",
        "region": "us-east5",
        "services": ["lustre", "filestore", "tpu"],
        "agents": {"storage": "serviceAccount:s@gs", "logging": "serviceAccount:c@logging"},
        "tags": labels,
    }


def test_the_key(make: Callable[..., Any], args: Any, api_mistakes: Callable[..., list[str]]) -> None:
    made = make(EncryptionKey, args)
    key = made.one("CryptoKey").inputs
    assert key["keyRing"] == made.one("KeyRing").id
    assert key["rotationPeriod"] == "7776000s"
    assert key["destroyScheduledDuration"] == "2592000s"
    body = {name: key[name] for name in ("purpose", "rotationPeriod", "destroyScheduledDuration", "labels")}
    assert api_mistakes("cloudkms.v1", "CryptoKey", body) == []


def test_only_the_agents_of_what_is_used_may_use_it(make: Callable[..., Any], args: Any) -> None:
    made = make(EncryptionKey, args)
    members = {m.name.removeprefix("demo-"): m.inputs for m in made.of("CryptoKeyIAMMember")}
    assert {name: member["member"] for name, member in members.items()} == {
        "artifactregistry": "${ServiceIdentity.demo-artifactregistry.member}",
        "compute": "serviceAccount:service-123456789012@compute-system.iam.gserviceaccount.com",
        "filestore": "${ServiceIdentity.demo-filestore.member}",
        "logging": "serviceAccount:c@logging",
        "lustre": "${ServiceIdentity.demo-lustre.member}",
        "pubsub": "${ServiceIdentity.demo-pubsub.member}",
        "storage": "serviceAccount:s@gs",
        "tpu": "${ServiceIdentity.demo-tpu.member}",
    }
    assert {member["role"] for member in members.values()} == {"roles/cloudkms.cryptoKeyEncrypterDecrypter"}
    asked = {identity.name: identity.inputs["service"] for identity in made.of("ServiceIdentity")}
    assert asked["demo-filestore"] == "file.googleapis.com", "the API's name, not the part's"
    assert {member["cryptoKeyId"] for member in members.values()} == {made.one("CryptoKey").id}


def test_its_name_is_what_others_take(declare: Callable[..., Any], args: Any) -> None:
    seen: list[str] = []
    args["services"] = []
    made = declare(lambda: EncryptionKey("demo", args).key_name.apply(seen.append))
    assert seen == ["${CryptoKey.demo-data.id}"]
    assert len(made.of("CryptoKeyIAMMember")) == 5
    (own,) = [r for r in made.resources if r.type == "gangway:gcp:EncryptionKey"]
    assert made.outputs[own.urn] == {"key_name"}


@pytest.mark.parametrize("wait_sec", [120, 0])
def test_its_name_comes_after_the_wait_for_its_users(declare: Callable[..., Any], args: Any, wait_sec: int) -> None:
    args |= {"services": [], "grant_wait_sec": wait_sec}
    seen: list[str] = []
    made = declare(lambda: EncryptionKey("demo", args).key_name.apply(seen.append))
    assert seen == ["${CryptoKey.demo-data.id}"]
    waits = made.of("Settling")
    assert len(waits) == (1 if wait_sec else 0)
    for wait in waits:
        assert wait.inputs["what"] == "Google heeds the key's users"
        assert {user.urn for user in made.of("CryptoKeyIAMMember")} <= wait.dependencies
