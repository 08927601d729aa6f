"""The tag policy in AWS's alphabet."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from components.findings import InputError
from components.tags import TagPolicy, carbon_class


def policy(**changes: object) -> TagPolicy:
    values: dict[str, object] = {
        "stack": "demo", "team": "ml", "cost_center": "4711", "run": "shared",
        "energy_class": "H100x8", "carbon_class": "medium", "extra": {},
    }  # fmt: skip
    return TagPolicy(**{**values, **changes})  # type: ignore[arg-type]  # a test may put anything anywhere


def test_the_whole_policy_as_aws_tags() -> None:
    assert policy(extra={"project": "gan zoo"}).aws() == {
        "project": "gan zoo",
        "team": "ml",
        "cost_center": "4711",
        "gangway:stack": "demo",
        "gangway:run": "shared",
        "gangway:energy-class": "H100x8",
        "gangway:carbon-class": "medium",
    }


@pytest.mark.parametrize(
    ("grams", "name"),
    [(0, "low"), (149.9, "low"), (150, "medium"), (399.9, "medium"), (400, "high"), (747, "high")],
)
def test_the_carbon_class_of_a_grid(grams: float, name: str) -> None:
    assert carbon_class(grams) == name


@pytest.mark.parametrize(
    "extra",
    [
        {"owner": "a;b"},
        {"owner": "x" * 257},
        {"aws:owner": "x"},
        {"AWS:owner": "x"},
        {"k" * 129: "x"},
        {"own;er": "x"},
        {"": "x"},
    ],
)
def test_a_tag_aws_refuses_is_named(extra: dict[str, str]) -> None:
    with pytest.raises(InputError) as caught:
        policy(extra=extra).aws()
    (key,) = extra
    assert caught.value.place == f"gangway:tags.{key}"
    assert "256" in caught.value.allowed
    assert caught.value.fix


@pytest.mark.parametrize(
    "key", ["gangway:stack", "gangway:run", "gangway:energy-class", "gangway:carbon-class", "team"]
)
def test_a_tag_of_our_own_is_not_silently_overwritten(key: str) -> None:
    with pytest.raises(InputError, match="Gangway sets this tag itself"):
        policy(extra={key: "mine"}).aws()


KEYS = st.from_regex(r"\A(?!aws:)[a-z0-9][\w .:/=+@-]{0,20}\Z").filter(lambda key: key not in policy().aws())


# 43: what AWS's 50 tags leave beside our own.
@given(st.dictionaries(KEYS, st.from_regex(r"\A[\w .@]{0,20}\Z"), max_size=43))
def test_extra_tags_are_all_kept_beside_the_policy(extra: dict[str, str]) -> None:
    assert policy(extra=extra).aws() == {**extra, **policy().aws()}


def test_aws_takes_fifty_tags_and_components_add_a_name() -> None:
    extra = {f"k{n}": "v" for n in range(43)}
    assert len(policy(extra=extra).aws()) == 49
    with pytest.raises(InputError, match="too many tags") as caught:
        policy(extra={**extra, "more": "v"}).aws()
    assert (caught.value.value, caught.value.fix) == (44, "remove 1")
