"""Names of images, and their signatures: a name that could be read as anything else, or another payload, is none."""

import base64
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangway.components.core.findings import InputError
from gangway.components.core.image_reference import (
    BY_DIGEST,
    LETTERS,
    NAME,
    ONE_VERSION,
    checked_signature,
    is_reference,
    payload_text,
    signed_name,
)
from tests.cosigned import key_pair, signed_payload, signed_text

TRAINER = "registry.example.com/gan/trainer"
DIGEST = f"sha256:{'0123456789abcdef' * 4}"


@pytest.mark.parametrize(
    "name",
    [
        "trainer", "gan/trainer", TRAINER, "localhost:5000/a__b/c--d.e", "[fd00::1]:5000/a",
        "123456789012.dkr.ecr.us-east-2.amazonaws.com/gan/trainer", "Registry.Example/a",
    ],
)  # fmt: skip
def test_names_that_registries_take(name: str) -> None:
    assert is_reference(name, NAME)
    assert is_reference(f"{name}@{DIGEST}", BY_DIGEST)
    assert is_reference(f"{name}:v1.0_x@{DIGEST}", ONE_VERSION)
    assert is_reference(f"{name}:v1", ONE_VERSION)
    assert not is_reference(name, ONE_VERSION)


@pytest.mark.parametrize(
    "name",
    [
        "", "a b", "a\n", "\na", 'a"b', "a'b", "a$(id)", "a`id`", "a;b", "a%n", "a\\b", "../a", "/a", "a//b", "a/",
        "-a/b", "a/B", "a_-_b/c", "x..y/a", "a\u202eb", "\uff41", "a:b:c", "https://a/b", "a/" + "b" * 255,
    ],
)  # fmt: skip
def test_what_is_no_name(name: str) -> None:
    assert not is_reference(f"{name}@{DIGEST}", BY_DIGEST)


@pytest.mark.parametrize("digest", [DIGEST[:-1], f"{DIGEST}0", DIGEST.upper(), f"{DIGEST}\n", "sha512:00", ""])
def test_what_is_no_digest(digest: str) -> None:
    assert not is_reference(f"a@{digest}", BY_DIGEST)


@given(st.text(max_size=40))
def test_a_reference_has_no_letters_but_its_own(text: str) -> None:
    """So that none can end a line of a unit file, a word of a shell or a string of YAML."""
    for pattern in (NAME, ONE_VERSION, BY_DIGEST):
        assert not is_reference(text, pattern) or set(text) <= LETTERS


HOSTILE = ["\n", "\r", " ", '"', "'", "$(id)", "`id`", "%h", "\\", ";", "\x00", "\u202e", "\u2028"]


@given(st.sampled_from(HOSTILE), st.integers(0, 90))
def test_nothing_hostile_stands_in_a_reference(hostile: str, at: int) -> None:
    good = f"{TRAINER}@{DIGEST}"
    assert not is_reference(good[:at] + hostile + good[at:], BY_DIGEST)
    assert not is_reference(good[:at] + hostile + good[at:], ONE_VERSION)


IMAGE = f"{TRAINER}@{DIGEST}"
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
    checked_signature(IMAGE, public, *signed_text(private, text), TRAINER)


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
    signed = checked_signature(IMAGE, public, *signed_payload(private, TRAINER, DIGEST, optional), TRAINER)
    assert signed.optional == optional


@pytest.mark.attack("a registry's writer", "an image that the stack's key has not signed")
def test_another_key(tmp_path: Path) -> None:
    private, _ = key_pair(tmp_path)
    _, other = key_pair(tmp_path, "other")
    with pytest.raises(InputError, match="does not fit the payload by this key") as caught:
        checked_signature(IMAGE, other, *signed_payload(private, TRAINER, DIGEST), TRAINER)
    assert caught.value.place == "signature"


@pytest.mark.attack("a registry's writer", "an image that the stack's key has not signed")
@pytest.mark.parametrize("length", [40, 88, 0])
def test_a_part_of_a_signature(tmp_path: Path, length: int) -> None:
    private, public = key_pair(tmp_path)
    payload, signature = signed_payload(private, TRAINER, DIGEST)
    with pytest.raises(InputError) as caught:
        checked_signature(IMAGE, public, payload, signature[:length], TRAINER)
    assert caught.value.place == "signature"


GOOD = payload_text(TRAINER, DIGEST, "null")


@pytest.mark.attack("a registry's writer", "an image that the stack's key has not signed")
@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (payload_text(TRAINER, "sha256:" + "cd" * 32, "null"), "of another image"),
        (payload_text("registry.example.com/other", DIGEST, "null"), "names the image 'registry.example.com/other'"),
        (payload_text(TRAINER, DIGEST, f'null,"critical":{{"image":"{DIGEST}"}}'), "has a key twice"),
        (payload_text(TRAINER, DIGEST, '{"a":1,"a":2}'), "has a key twice"),
        (payload_text(TRAINER, DIGEST, 'null,"more":1'), "another way than cosign's"),
        (payload_text(TRAINER, DIGEST, '{"a":{"b":1}}'), "another way than cosign's"),
        (payload_text(TRAINER, DIGEST, "NaN"), "is no JSON"),
        (payload_text(TRAINER, DIGEST, "[" * 1500 + "]" * 1500), "is no JSON|another way"),
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
    with pytest.raises(InputError, match=problem) as caught:
        looked_at(tmp_path, text)
    assert caught.value.place == "payload"


def test_a_payload_that_is_no_text(tmp_path: Path) -> None:
    private, public = key_pair(tmp_path)
    _, signature = signed_payload(private, TRAINER, DIGEST)
    for payload, problem in ((base64.b64encode(b"\xff\xfe").decode(), "no JSON"), ("ä", "no base64")):
        with pytest.raises(InputError, match=problem):
            checked_signature(IMAGE, public, payload, signature, TRAINER)


@pytest.mark.attack("a registry's writer", "an image that the stack's key has not signed")
@pytest.mark.parametrize(("curve", "problem"), [("secp384r1", "of another kind"), ("", "holds no public key")])
def test_a_key_that_is_no_key_of_cosigns(tmp_path: Path, curve: str, problem: str) -> None:
    private, _ = key_pair(tmp_path)
    public = key_pair(tmp_path, "other", curve)[1] if curve else "-----BEGIN PUBLIC KEY-----\n-----END PUBLIC KEY-----"
    with pytest.raises(InputError, match=problem) as caught:
        checked_signature(IMAGE, public, *signed_payload(private, TRAINER, DIGEST), TRAINER)
    assert caught.value.place == "public_key"


def test_a_copy_is_known_by_the_name_that_was_signed(tmp_path: Path) -> None:
    private, public = key_pair(tmp_path)
    payload = signed_payload(private, TRAINER, DIGEST)
    copied = f"mirror.example.com/trainer@{DIGEST}"
    assert checked_signature(copied, public, *payload, TRAINER).name == TRAINER
    with pytest.raises(InputError, match="names the image"):
        checked_signature(copied, public, *payload, signed_name(copied))
