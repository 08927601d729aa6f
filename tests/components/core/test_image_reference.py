"""Names of images: what engines take is a reference, and what could be read as anything else is none."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangway.components.core.image_reference import BY_DIGEST, LETTERS, NAME, ONE_VERSION, is_reference

DIGEST = f"sha256:{'0123456789abcdef' * 4}"


@pytest.mark.parametrize(
    "name",
    [
        "trainer", "gan/trainer", "registry.example.com/gan/trainer", "localhost:5000/a__b/c--d.e", "[fd00::1]:5000/a",
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
    good = f"registry.example.com/gan/trainer@{DIGEST}"
    assert not is_reference(good[:at] + hostile + good[at:], BY_DIGEST)
    assert not is_reference(good[:at] + hostile + good[at:], ONE_VERSION)
