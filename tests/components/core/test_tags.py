"""The tag policy in each provider's alphabet."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangway.components.core.findings import InputError
from gangway.components.core.tags import TagPolicy, carbon_class, shortened


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


def test_the_name_that_every_resource_bears_is_not_the_users() -> None:
    with pytest.raises(InputError, match=r"gangway:tags\.Name: Gangway names each resource") as caught:
        policy(extra={"Name": "mine"}).aws()
    assert caught.value.value == "mine"


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


def test_the_whole_policy_as_labels() -> None:
    assert policy(extra={"project": "gan-zoo"}).gcp() == {
        "project": "gan-zoo",
        "team": "ml",
        "cost_center": "4711",
        "gangway-stack": "demo",
        "gangway-run": "shared",
        "gangway-energy-class": "h100x8",
        "gangway-carbon-class": "medium",
    }


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


@pytest.mark.parametrize("key", ["gangway-stack", "gangway-run", "gangway-energy-class", "cost_center"])
def test_a_label_of_our_own_is_not_silently_overwritten(key: str) -> None:
    with pytest.raises(InputError, match="Gangway sets this tag itself"):
        policy(extra={key: "mine"}).gcp()


def test_google_takes_sixty_four_labels() -> None:
    extra = {f"k{n}": "v" for n in range(58)}
    assert len(policy(extra=extra).gcp()) == 64
    with pytest.raises(InputError, match="too many tags") as caught:
        policy(extra={**extra, "more": "v"}).gcp()
    assert (caught.value.value, caught.value.fix) == (59, "remove 1")
    assert caught.value.allowed.startswith("58 besides team and cost_center")


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


def test_the_whole_policy_as_azure_tags() -> None:
    assert policy(extra={"project": "gan zoo"}).azure() == {
        "project": "gan zoo",
        "team": "ml",
        "cost_center": "4711",
        "gangway-stack": "demo",
        "gangway-run": "shared",
        "gangway-energy-class": "H100x8",
        "gangway-carbon-class": "medium",
    }


@pytest.mark.parametrize(
    "extra",
    [
        {"own er": "x"},
        {"4th": "x"},
        {"": "x"},
        {"k" * 129: "x"},
        {"owner/team": "x"},
        {"owner:team": "x"},
        {"ärger": "x"},
        {"microsoft-team": "x"},
        {"Azure": "x"},
        {"owner": "x" * 257},
        {"owner": "Jörg"},
        {"owner": "a\nb"},
    ],
)
def test_a_tag_some_resource_of_azure_refuses_is_named(extra: dict[str, str]) -> None:
    with pytest.raises(InputError, match="not every resource of Azure takes this tag") as caught:
        policy(extra=extra).azure()
    (key,) = extra
    assert caught.value.place == f"gangway:tags.{key}"
    assert "256" in caught.value.allowed


def test_a_tag_that_is_too_long_is_to_be_shorter() -> None:
    with pytest.raises(InputError) as caught:
        policy(extra={"owner": "x" * 257}).azure()
    assert caught.value.fix == "shorten it to 256 characters"


@pytest.mark.parametrize(("extra", "other"), [({"Team": "x"}, "team"), ({"OWNER": "x", "owner": "y"}, "owner")])
def test_azure_tells_no_two_tags_apart_by_case(extra: dict[str, str], other: str) -> None:
    with pytest.raises(InputError, match=f"the same tag as {other!r}") as caught:
        policy(extra=extra).azure()
    assert caught.value.place == f"gangway:tags.{next(iter(extra))}"


def test_azure_takes_fifty_tags() -> None:
    extra = {f"k{n}": "v" for n in range(44)}
    assert len(policy(extra=extra).azure()) == 50
    with pytest.raises(InputError, match="too many tags") as caught:
        policy(extra={**extra, "more": "v"}).azure()
    assert (caught.value.value, caught.value.fix) == (45, "remove 1")


def test_the_whole_policy_as_metadata_of_openstack_and_as_labels_of_a_container() -> None:
    shared = {"project": "gan zoo", "team": "ml", "cost_center": "4711"}
    own = {"stack": "demo", "run": "shared", "energy-class": "H100x8", "carbon-class": "medium"}
    made = policy(extra={"project": "gan zoo"})
    assert made.openstack() == {**shared, **{f"gangway:{key}": value for key, value in own.items()}}
    assert made.hosts() == {**shared, **{f"gangway.{key}": value for key, value in own.items()}}


@pytest.mark.parametrize("extra", [{"a/b": "c"}, {"": "c"}, {"a": "\n"}, {"a": "\u00e9"}, {"a": "x" * 256}])
def test_a_tag_that_not_every_machine_takes_is_named(extra: dict[str, str]) -> None:
    (key,) = extra
    for spelled in (policy(extra=extra).openstack, policy(extra=extra).hosts):
        with pytest.raises(InputError, match="not a tag that every machine takes") as caught:
            spelled()
        assert caught.value.place == f"gangway:tags.{key}"


def test_openstack_takes_128_items() -> None:
    extra = {f"key-{number}": "" for number in range(122)}
    assert len(policy(extra=extra).openstack()) == 128
    with pytest.raises(InputError, match="OpenStack takes 128 an instance"):
        policy(extra={**extra, "one-more": ""}).openstack()


NAMES = st.from_regex(r"[a-z]([a-z0-9-]{0,60}[a-z0-9])?", fullmatch=True)


@given(NAMES, st.integers(8, 30))
def test_a_shortened_name_fits_and_ends_well(name: str, most: int) -> None:
    short = shortened(name, most)
    assert len(short) <= most
    assert short == name or re.fullmatch(r"[a-z0-9-]*[a-z0-9]", short)
    assert (short == name) is (len(name) <= most)


def test_two_long_names_stay_two() -> None:
    assert shortened("a-stack-that-is-called-so-a", 12) != shortened("a-stack-that-is-called-so-b", 12)
