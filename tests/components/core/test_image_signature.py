"""cosign's signature of an image, looked at with its public key: what holds, and each way in which one does not."""

import base64
import json
from pathlib import Path

import pytest

from gangway.components.core.image_signature import SignatureError, checked_signature, payload_text, signed_name
from tests.cosigned import key_pair, signed_payload, signed_text

NAME = "registry.example.com/gan/trainer"
DIGEST = "sha256:" + "ab" * 32
IMAGE = f"{NAME}@{DIGEST}"
# Of `cosign sign --key cosign.key --tlog-upload=false IMAGE` (2.6.5), as `cosign download signature IMAGE` prints it.
RECORDED_IMAGE = "127.0.0.1:5077/gan/trainer@sha256:dd9e300460890e3323817ec9d7974a818af4597d08ac9a4bc1e5895da5100f4f"
RECORDED_KEY = """-----BEGIN PUBLIC KEY-----
MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEAjFRTrSZk5OrvlirsFCkMcrgfoai
E9Rj0aTXCo1okTjiCP24unV4l6qg36a/N9noa/Iiu0OUCj+CJBQk4DpGeA==
-----END PUBLIC KEY-----
"""
RECORDED = json.loads(
    '{"Base64Signature":"MEQCIHkhDSnxQpK+J8IVTn7ZRGb246bVq7OgfejxHzXb0CKvAiAe0vsTiRywCpaISdrp6Q24aZ3tnv9SAJd9iE0beZOf3w'
    '==","Payload":"eyJjcml0aWNhbCI6eyJpZGVudGl0eSI6eyJkb2NrZXItcmVmZXJlbmNlIjoiMTI3LjAuMC4xOjUwNzcvZ2FuL3RyYWluZXIifSwi'
    "aW1hZ2UiOnsiZG9ja2VyLW1hbmlmZXN0LWRpZ2VzdCI6InNoYTI1NjpkZDllMzAwNDYwODkwZTMzMjM4MTdlYzlkNzk3NGE4MThhZjQ1OTdkMDhhYz"
    'lhNGJjMWU1ODk1ZGE1MTAwZjRmIn0sInR5cGUiOiJjb3NpZ24gY29udGFpbmVyIGltYWdlIHNpZ25hdHVyZSJ9LCJvcHRpb25hbCI6bnVsbH0=",'
    '"Cert":null,"Chain":null,"Bundle":null,"RFC3161Timestamp":null}'
)


def looked_at(folder: Path, text: str) -> None:
    """At a payload of this text, signed by its own key."""
    private, public = key_pair(folder)
    checked_signature(IMAGE, public, *signed_text(private, text), NAME)


def test_what_cosign_itself_wrote_holds() -> None:
    signed = checked_signature(
        RECORDED_IMAGE,
        RECORDED_KEY,
        RECORDED["Payload"],
        RECORDED["Base64Signature"],
        signed_name(RECORDED_IMAGE),
    )
    assert (signed.name, signed.optional) == ("127.0.0.1:5077/gan/trainer", "null")
    assert signed.signature == RECORDED["Base64Signature"]


@pytest.mark.parametrize("optional", ["null", "{}", '{"build":"17","who":"\\u003cx\\u003e Ä"}'])
def test_the_signers_remarks_are_kept_as_they_were_signed(tmp_path: Path, optional: str) -> None:
    private, public = key_pair(tmp_path)
    signed = checked_signature(IMAGE, public, *signed_payload(private, NAME, DIGEST, optional), NAME)
    assert signed.optional == optional


@pytest.mark.attack("a registry's writer", "an image that the stack's key has not signed")
def test_another_key(tmp_path: Path) -> None:
    private, _ = key_pair(tmp_path)
    _, other = key_pair(tmp_path, "other")
    with pytest.raises(SignatureError, match="does not fit the payload by this key") as caught:
        checked_signature(IMAGE, other, *signed_payload(private, NAME, DIGEST), NAME)
    assert caught.value.part == "signature"


@pytest.mark.attack("a registry's writer", "an image that the stack's key has not signed")
@pytest.mark.parametrize("length", [40, 88, 0])
def test_a_part_of_a_signature(tmp_path: Path, length: int) -> None:
    private, public = key_pair(tmp_path)
    payload, signature = signed_payload(private, NAME, DIGEST)
    with pytest.raises(SignatureError) as caught:
        checked_signature(IMAGE, public, payload, signature[:length], NAME)
    assert caught.value.part == "signature"


GOOD = payload_text(NAME, DIGEST, "null")


@pytest.mark.attack("a registry's writer", "an image that the stack's key has not signed")
@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (payload_text(NAME, "sha256:" + "cd" * 32, "null"), "of another image"),
        (payload_text("registry.example.com/other", DIGEST, "null"), "names the image 'registry.example.com/other'"),
        (payload_text(NAME, DIGEST, f'null,"critical":{{"image":"{DIGEST}"}}'), "has a key twice"),
        (payload_text(NAME, DIGEST, '{"a":1,"a":2}'), "has a key twice"),
        (payload_text(NAME, DIGEST, 'null,"more":1'), "another way than cosign's"),
        (payload_text(NAME, DIGEST, '{"a":{"b":1}}'), "another way than cosign's"),
        (payload_text(NAME, DIGEST, "NaN"), "is no JSON"),
        (payload_text(NAME, DIGEST, "[" * 1500 + "]" * 1500), "is no JSON|another way"),
        (GOOD.replace(":", ": "), "of another image|another way"),
        (GOOD.replace("cosign container image", "some"), "another way than cosign's"),
        (GOOD + "\n", "another way than cosign's"),
        (GOOD + GOOD, "is no JSON"),
        ('{"critical":{}}', "a form that nobody here knows"),
        ("[]", "a form that nobody here knows"),
        ("1" * 5000, "is no base64"),
    ],
)
def test_a_payload_that_says_anything_else(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(SignatureError, match=problem) as caught:
        looked_at(tmp_path, text)
    assert caught.value.part == "payload"


def test_a_payload_that_is_no_text(tmp_path: Path) -> None:
    private, public = key_pair(tmp_path)
    _, signature = signed_payload(private, NAME, DIGEST)
    for payload, problem in ((base64.b64encode(b"\xff\xfe").decode(), "no JSON"), ("ä", "no base64")):
        with pytest.raises(SignatureError, match=problem):
            checked_signature(IMAGE, public, payload, signature, NAME)


@pytest.mark.attack("a registry's writer", "an image that the stack's key has not signed")
@pytest.mark.parametrize(("curve", "problem"), [("secp384r1", "of another kind"), ("", "holds no public key")])
def test_a_key_that_is_no_key_of_cosigns(tmp_path: Path, curve: str, problem: str) -> None:
    private, _ = key_pair(tmp_path)
    public = key_pair(tmp_path, "other", curve)[1] if curve else "-----BEGIN PUBLIC KEY-----\n-----END PUBLIC KEY-----"
    with pytest.raises(SignatureError, match=problem) as caught:
        checked_signature(IMAGE, public, *signed_payload(private, NAME, DIGEST), NAME)
    assert caught.value.part == "public_key"


def test_a_copy_is_known_by_the_name_that_was_signed(tmp_path: Path) -> None:
    private, public = key_pair(tmp_path)
    payload = signed_payload(private, NAME, DIGEST)
    copied = f"mirror.example.com/trainer@{DIGEST}"
    assert checked_signature(copied, public, *payload, NAME).name == NAME
    with pytest.raises(SignatureError, match="names the image"):
        checked_signature(copied, public, *payload, signed_name(copied))
