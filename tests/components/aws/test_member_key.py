"""MemberKeyParameter: encrypted, below the stack's own name, a secret of the state."""

from collections.abc import Callable
from typing import Any

from components.aws.member_key import MemberKeyParameter, parameter_name


def test_it_is_encrypted_and_a_secret(make: Callable[..., Any]) -> None:
    made = make(MemberKeyParameter).one("Parameter")
    assert made.inputs["type"] == "SecureString"
    assert made.inputs["name"] == parameter_name("test")
    assert made.inputs["keyId"] == "arn:aws:kms:us-east-2:1:key/x"
    assert made.to_json()["inputs"]["value"] == "[secret]"
    assert "keyId" not in make(MemberKeyParameter, kms_key_arn=None).one("Parameter").inputs
