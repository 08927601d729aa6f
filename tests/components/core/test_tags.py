"""The tag policy in each provider's alphabet."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangway.components.core.findings import InputError
from gangway.components.core.tags import TagPolicy, carbon_class, header_tags, shortened, tag_words


def policy(**changes: object) -> TagPolicy:
    values: dict[str, object] = {
        "stack": "demo", "team": "ml", "cost_center": "4711", "run": "shared",
        "energy_class": "H100x8", "carbon_class": "medium", "extra": {},
    }  # fmt: skip
    return TagPolicy(**{**values, **changes})  # type: ignore[arg-type]  # a test may put anything anywhere


@pytest.mark.parametrize(
    ("provider", "separator", "project", "energy"),
    [
        ("aws", ":", "gan zoo", "H100x8"), ("gcp", "-", "gan-zoo", "h100x8"), ("azure", "-", "gan zoo", "H100x8"),
        ("openstack", ":", "gan zoo", "H100x8"), ("hosts", ".", "gan zoo", "H100x8"),
    ],
)  # fmt: skip
def test_the_whole_policy_in_each_alphabet(provider: str, separator: str, project: str, energy: str) -> None:
    own = {"stack": "demo", "run": "shared", "energy-class": energy, "carbon-class": "medium"}
    assert getattr(policy(extra={"project": project}), provider)() == {
        "project": project, "team": "ml", "cost_center": "4711",
        **{f"gangway{separator}{key}": value for key, value in own.items()},
    }  # fmt: skip


@pytest.mark.parametrize(
    ("grams", "name"),
    [(0, "low"), (149.9, "low"), (150, "medium"), (399.9, "medium"), (400, "high"), (747, "high")],
)
def test_the_carbon_class_of_a_grid(grams: float, name: str) -> None:
    assert carbon_class(grams) == name


@pytest.mark.parametrize(
    ("provider", "problem", "key", "value"),
    [
        *(("aws", "AWS refuses this tag", key, "x") for key in ("aws:owner", "AWS:owner", "k" * 129, "own;er", "")),
        *(("aws", "AWS refuses this tag", "owner", value) for value in ("a;b", "x" * 257)),
        *(
            ("azure", "not every resource of Azure takes this tag", key, "x")
            for key in ("own er", "4th", "", "k" * 129, "owner/team", "owner:team", "ärger", "microsoft-team", "Azure")
        ),
        *(
            ("azure", "not every resource of Azure takes this tag", "owner", value)
            for value in ("x" * 257, "Jörg", "a\nb")
        ),
    ],
)
def test_a_tag_that_is_refused_is_named(provider: str, problem: str, key: str, value: str) -> None:
    with pytest.raises(InputError, match=problem) as caught:
        getattr(policy(extra={key: value}), provider)()
    assert caught.value.place == f"gangway:tags.{key}"
    assert "256" in caught.value.allowed
    assert caught.value.fix
    assert provider == "aws" or (caught.value.fix == "shorten it to 256 characters") == (len(value) > 256)


@pytest.mark.parametrize(
    ("provider", "key"),
    [
        ("aws", "gangway:stack"), ("aws", "gangway:run"), ("aws", "gangway:energy-class"),
        ("aws", "gangway:carbon-class"), ("aws", "team"), ("gcp", "gangway-stack"), ("gcp", "gangway-run"),
        ("gcp", "gangway-energy-class"), ("gcp", "cost_center"),
    ],
)  # fmt: skip
def test_a_tag_of_our_own_is_not_silently_overwritten(provider: str, key: str) -> None:
    with pytest.raises(InputError, match="Gangway sets this tag itself"):
        getattr(policy(extra={key: "mine"}), provider)()


@pytest.mark.parametrize(
    ("provider", "most", "takes"),
    # Components add a Name to AWS's tags.
    [("aws", 49, "AWS takes 50 "), ("gcp", 64, "Google Cloud takes 64 "), ("azure", 50, "Azure takes 50 "),
     ("openstack", 128, "OpenStack takes 128 ")],
)  # fmt: skip
def test_the_number_of_tags_has_an_end(provider: str, most: int, takes: str) -> None:
    extra = {f"k{number}": "v" for number in range(most - 6)}
    assert len(getattr(policy(extra=extra), provider)()) == most
    with pytest.raises(InputError, match="too many tags") as caught:
        getattr(policy(extra={**extra, "more": "v"}), provider)()
    assert (caught.value.value, caught.value.fix) == (most - 5, "remove 1")
    assert caught.value.allowed.startswith(f"{most - 6} besides team and cost_center ({takes}")


def test_the_name_that_every_resource_bears_is_not_the_users() -> None:
    with pytest.raises(InputError, match=r"gangway:tags\.Name: Gangway names each resource") as caught:
        policy(extra={"Name": "mine"}).aws()
    assert caught.value.value == "mine"


KEYS = st.from_regex(r"\A(?!aws:)[a-z0-9][\w .:/=+@-]{0,20}\Z").filter(lambda key: key not in policy().aws())


# 43: what AWS's 50 tags leave beside our own.
@given(st.dictionaries(KEYS, st.from_regex(r"\A[\w .@]{0,20}\Z"), max_size=43))
def test_extra_tags_are_all_kept_beside_the_policy(extra: dict[str, str]) -> None:
    assert policy(extra=extra).aws() == {**extra, **policy().aws()}


def test_what_is_ours_is_lowered_and_shortened() -> None:
    labels = policy(energy_class="A100-80G.x8", run="R" * 70).gcp()
    assert labels["gangway-energy-class"] == "a100-80g-x8"
    assert labels["gangway-run"] == "r" * 63


@pytest.mark.parametrize(
    ("changes", "place", "fix"),
    [
        ({"team": "ML Platform"}, "team", "write team: 'ml-platform'"),
        ({"cost_center": "4711/a"}, "cost_center", "write cost_center: '4711-a'"),
        ({"extra": {"Owner": "ann"}}, "Owner", "write owner: 'ann'"),
        ({"extra": {"owner": "Ann.Lee@example.com"}}, "owner", "write owner: 'ann-lee-example-com'"),
        ({"extra": {"owner": "x" * 64}}, "owner", f"write owner: '{'x' * 63}'"),
        ({"extra": {"4th": "x"}}, "4th", "write th: 'x'"),
        ({"extra": {"ärger": "x"}}, "ärger", "write rger: 'x'"),
        ({"extra": {"1": "x"}}, "1", "write label: 'x'"),
    ],
)
def test_a_label_google_refuses_comes_with_one_it_takes(changes: dict[str, object], place: str, fix: str) -> None:
    with pytest.raises(InputError, match="Google Cloud refuses this label") as caught:
        policy(**changes).gcp()
    assert (caught.value.place, caught.value.fix) == (f"gangway:tags.{place}", fix)


@given(st.text(max_size=80), st.text(max_size=80), st.text(max_size=80))
def test_the_corrected_label_is_taken(key: str, value: str, ours: str) -> None:
    """Whatever is wrong, following the fix once is enough."""
    try:
        policy(extra={key: value}, energy_class=ours).gcp()
    except InputError as error:
        if "itself" in str(error):
            return
        new_key, _, new_value = error.fix.removeprefix("write ").partition(": ")
        if new_key in policy().gcp():
            return
        assert policy(extra={new_key: new_value.strip("'")}).gcp()[new_key] == new_value.strip("'")


@pytest.mark.parametrize(("extra", "other"), [({"Team": "x"}, "team"), ({"OWNER": "x", "owner": "y"}, "owner")])
def test_azure_tells_no_two_tags_apart_by_case(extra: dict[str, str], other: str) -> None:
    with pytest.raises(InputError, match=f"the same tag as {other!r}") as caught:
        policy(extra=extra).azure()
    assert caught.value.place == f"gangway:tags.{next(iter(extra))}"


@pytest.mark.parametrize("extra", [{"a/b": "c"}, {"": "c"}, {"a": "\n"}, {"a": "\u00e9"}, {"a": "x" * 256}])
def test_a_tag_that_not_every_machine_takes_is_named(extra: dict[str, str]) -> None:
    (key,) = extra
    for spelled in (policy(extra=extra).openstack, policy(extra=extra).hosts):
        with pytest.raises(InputError, match="not a tag that every machine takes") as caught:
            spelled()
        assert caught.value.place == f"gangway:tags.{key}"


NAMES = st.from_regex(r"[a-z]([a-z0-9-]{0,60}[a-z0-9])?", fullmatch=True)


@given(NAMES, st.integers(8, 30))
def test_a_shortened_name_fits_and_ends_well(name: str, most: int) -> None:
    short = shortened(name, most)
    assert len(short) <= most
    assert short == name or re.fullmatch(r"[a-z0-9-]*[a-z0-9]", short)
    assert (short == name) is (len(name) <= most)


def test_two_long_names_stay_two() -> None:
    assert shortened("a-stack-that-is-called-so-a", 12) != shortened("a-stack-that-is-called-so-b", 12)


PLAIN = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=255)
OPENSTACK_KEYS = st.from_regex(r"[a-zA-Z][a-zA-Z0-9_:. -]{0,80}", fullmatch=True)


@given(st.dictionaries(OPENSTACK_KEYS, PLAIN, max_size=5))
def test_every_word_is_one_that_neutron_takes(tags: dict[str, str]) -> None:
    words = tag_words(tags)
    assert words == sorted(words)
    assert len(words) == len(tags)
    assert all(len(word) <= 60 and "," not in word for word in words)


def test_two_long_tags_stay_two() -> None:
    one, other = tag_words({"a": "x" * 100, "b": "x" * 100})
    assert one != other
    assert tag_words({"a": "x" * 100}) != tag_words({"a": "x" * 101})


@given(OPENSTACK_KEYS)
def test_every_key_is_a_name_of_a_header(key: str) -> None:
    (name,) = header_tags({key: ""})
    assert re.fullmatch(r"[a-z0-9-]+", name)
