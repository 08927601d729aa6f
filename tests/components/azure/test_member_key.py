"""The key of a job's nodes in a vault: whom it answers, and what is left of it."""

from collections.abc import Callable
from typing import Any

import pytest

from gangway.components.azure.member_key import MemberKeyVault


@pytest.fixture
def made(make: Callable[..., Any], place: dict[str, Any]) -> Any:
    args = {name: place[name] for name in ("resource_group_name", "location", "tags")}
    own = {"tenant_id": "11111111-1111-1111-1111-111111111111", "subnet_id": "/subnets/private"}
    return make(MemberKeyVault, {**args, **own, "pem": "PEM", "signing_pem": "SIGN"})


def test_the_vault_answers_the_stacks_subnet_alone(made: Any, arm_mistakes: Callable[[Any], list[str]]) -> None:
    assert arm_mistakes(made) == []
    properties = made.one("Vault").inputs["properties"]
    acls = properties["networkAcls"]
    assert (acls["defaultAction"], acls["virtualNetworkRules"]) == ("Deny", [{"id": "/subnets/private"}])
    assert properties["enableRbacAuthorization"] is True
    assert "accessPolicies" not in properties


def test_its_name_leaves_room_for_digits_of_its_own(made: Any) -> None:
    """A name that is gone stays taken for a week."""
    assert "vaultName" not in made.one("Vault").inputs
    assert len(made.one("Vault").name) <= 16
    properties = made.one("Vault").inputs["properties"]
    assert (properties["softDeleteRetentionInDays"], properties["enablePurgeProtection"]) == (7, True)


def test_no_key_is_shown_anywhere(made: Any) -> None:
    secrets = made.of("Secret")
    assert [one.inputs["secretName"] for one in secrets] == ["member-key", "signing-key"]
    assert [one.inputs["properties"]["value"]["value"] for one in secrets] == ["PEM", "SIGN"]
    for secret in secrets:
        assert secret.to_json()["inputs"]["properties"]["value"] == "[secret]"
