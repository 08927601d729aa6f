"""SecretParameter: encrypted, below the stack's own name, a secret of the state."""

from collections.abc import Callable
from typing import Any

from gangway.components.aws.secret_parameter import SecretParameter, parameter_name


def test_it_is_encrypted_and_a_secret(make: Callable[..., Any]) -> None:
    made = make(SecretParameter).one("Parameter")
    assert made.inputs["type"] == "SecureString"
    assert made.inputs["name"] == parameter_name("test", "signing-key")
    assert made.inputs["keyId"] == "arn:aws:kms:us-east-2:1:key/x"
    assert made.to_json()["inputs"]["value"] == "[secret]"
    assert "keyId" not in make(SecretParameter, kms_key_arn=None).one("Parameter").inputs
