"""Messages to users: the five parts in their places, and a nearest word where there is one."""

from difflib import SequenceMatcher
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangway.components.core.findings import SIMILAR, Finding, InputError, letters_wrong, listed, nearest, nearest_hint
from gangway.trainer.core import errors as trainers


def test_a_message_names_place_value_allowed_and_fix() -> None:
    error = InputError("stack.yaml: gangway:region", "no such region", value="us", allowed="a, b", fix="write a")
    assert str(error) == (
        "stack.yaml: gangway:region: no such region\n  got:     'us'\n  allowed: a, b\n  fix:     write a"
    )
    assert (error.place, error.problem, error.value) == ("stack.yaml: gangway:region", "no such region", "us")
    assert (error.allowed, error.fix) == ("a, b", "write a")
    assert isinstance(error, ValueError)


def test_a_part_that_is_not_there_leaves_no_empty_line() -> None:
    assert str(InputError("place", "wrong")) == "place: wrong"
    assert str(InputError("place", "wrong", value=0)) == "place: wrong\n  got:     0"


def test_a_message_can_be_put_inside_its_file() -> None:
    error = InputError("gangway:region", "no such region", value="us", allowed="a, b", fix="write a")
    assert str(error.within("stack.yaml")) == (
        "stack.yaml: gangway:region: no such region\n  got:     'us'\n  allowed: a, b\n  fix:     write a"
    )


def test_a_finding_is_plain_json() -> None:
    finding = Finding.warning("a.b", "gangway:region", "message")
    assert finding.to_json() == {
        "severity": "warning", "code": "a.b", "path": "gangway:region", "message": "message", "fix": "",
    }  # fmt: skip


def test_of_many_values_the_few_most_alike_are_listed() -> None:
    few, many = ["a", "b"], [f"region-{number}" for number in range(300)]
    assert listed(few, "c") == "a, b"
    text = listed(many, "region-299")
    assert text.startswith("300 values, such as region-299")
    assert len(text) < 120
    error = InputError.not_among("--here", "no such offer", "zzz", many)
    assert error.allowed == listed(many, "zzz")


@pytest.mark.parametrize(
    ("written", "meant"),
    [("us-east2", "us-east-2"), ("US-EAST-2", "us-east-2"), ("us_east_2", "us-east-2"), ("zzzzz", None), ("", None)],
)
def test_the_nearest_word(written: str, meant: str | None) -> None:
    words = ["us-east-2", "eu-north-1"]
    assert nearest(written, words) == meant
    expected = f"did you mean {meant!r}?" if meant else "choose one of the allowed values"
    assert nearest_hint(written, words) == expected


def test_a_word_that_begins_with_an_allowed_one_means_that() -> None:
    assert nearest("lr_generator", ["r1_interval", "lr_g", "lr_d"]) == "lr_g"
    assert nearest("LR_G2", ["lr_g2x", "lr_g"]) == "lr_g"
    assert nearest("useful_thing", ["us", "seed"]) is None, "a letter or two begin many words"


KINDS = ["reservation", "capacity-block", "spot", "on-demand"]


@pytest.mark.parametrize(
    ("written", "words", "meant"),
    [
        ("nonsense", KINDS, None),
        ("block", KINDS, None),
        ("aws-something-else", ["aws", "gcp"], None),
        ("x", ["aws", "gcp"], None),
        ("ec2", ["aws", "gcp"], None),
        ("GCP", ["aws", "gcp"], "gcp"),
        ("gpc", ["aws", "gcp"], "gcp"),
        ("Spto", KINDS, "spot"),
        ("OnDemand", KINDS, "on-demand"),
    ],
)
def test_no_word_is_proposed_that_is_unlike(written: str, words: list[str], meant: str | None) -> None:
    assert nearest(written, words) == meant
    assert trainers.nearest(written, words) == (meant or ""), "both packages propose alike"
    assert ("did you mean" in nearest_hint(written, words)) == (meant is not None)


@given(st.text(max_size=12), st.lists(st.text(max_size=12), max_size=5))
def test_a_suggestion_is_always_a_similar_allowed_word(written: str, words: list[str]) -> None:
    word = nearest(written, words)
    if word is not None:
        assert word in words
        likeness = SequenceMatcher(None, word.lower(), written.lower()).ratio()
        begins = written.lower().startswith(word.lower()) and len(word) >= len(written) / 3
        assert likeness >= SIMILAR or begins


def test_words_are_compared_in_one_place_of_each_package(repo: Path) -> None:
    """Whatever proposes a word has the one threshold."""
    packages = ("components", "gangway", "images", "stacks", "trainer")
    files = [path for package in packages for path in (repo / package).rglob("*.py")]
    using = {str(path.relative_to(repo)) for path in files if "get_close_matches" in path.read_text("utf-8")}
    assert using == {"components/core/findings.py", "trainer/core/errors.py"}
    assert trainers.SIMILAR == SIMILAR


@given(st.text("abc-1", max_size=6), st.text("abc-1", max_size=6), st.text("abc-1", max_size=6))
def test_wrong_letters_are_a_distance(one: str, other: str, third: str) -> None:
    assert (letters_wrong(one, other) == 0) == (one == other)
    assert letters_wrong(one, other) == letters_wrong(other, one) <= max(len(one), len(other))
    assert letters_wrong(one, third) <= letters_wrong(one, other) + letters_wrong(other, third)
    assert letters_wrong(one, one + "x") == 1
