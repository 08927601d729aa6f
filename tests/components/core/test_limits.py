"""A number out of a range is refused with the nearest that is not."""

from ipaddress import IPv4Network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangway.components.core.findings import Finding, InputError
from gangway.components.core.limits import (
    STEPS_ALARM_MINUTES,
    QuotaNeed,
    check_steps_alarm,
    check_tier,
    check_within,
    count_nodes,
    nearest_number,
    no_quota,
    private_network,
)


@given(st.integers(), st.lists(st.integers(), min_size=1))
def test_nothing_is_nearer_than_the_nearest(wanted: int, values: list[int]) -> None:
    found = nearest_number(wanted, values)
    assert found in values
    assert all(abs(found - wanted) <= abs(value - wanted) for value in values)


@given(st.integers(-100, 2000))
def test_the_fix_is_taken(days: int) -> None:
    allowed = range(4, 731)
    if days in allowed:
        check_within(days, allowed, "gangway:observe.log_days", "too many")
        return
    with pytest.raises(InputError, match="too many") as caught:
        check_within(days, allowed, "gangway:observe.log_days", "too many", " days")
    assert caught.value.place == "gangway:observe.log_days"
    assert caught.value.allowed == "4 to 730 days"
    assert caught.value.fix == f"set log_days: {4 if days < 4 else 730}"


@pytest.mark.parametrize(("minutes", "fix"), [(0, 10), (9, 10), (1441, 1440)])
def test_a_window_that_tells_nothing(minutes: int, fix: int) -> None:
    with pytest.raises(InputError, match=f"set steps_alarm_minutes: {fix}$"):
        check_steps_alarm(minutes)
    assert fix in STEPS_ALARM_MINUTES


@pytest.mark.parametrize("wanted", [250, 250.0])
def test_a_tier_is_the_catalogues_own_number(wanted: int) -> None:
    """In YAML, Go and TypeScript programs a whole number is a fraction by the time it is here."""
    assert str(check_tier("gangway:storage", "FSx for Lustre", (125, 250, 500), wanted)) == "250"
    for other in (None, 251):
        with pytest.raises(InputError, match="not a throughput tier of FSx for Lustre"):
            check_tier("gangway:storage", "FSx for Lustre", (125, 250, 500), other)


NEED = QuotaNeed("gangway:cluster", 1536, "vCPUs", "L-1 (P)", "us-east-2", "8 nodes", "aws x", "a note", "ask")


def test_a_need_says_how_much_of_what_where_for_whom_and_how_to_look() -> None:
    assert NEED.finding().need == NEED
    assert (
        NEED.finding().to_json()
        == Finding.info(
            "capacity.quota",
            "gangway:cluster",
            "1,536 vCPUs of the quota L-1 (P) in us-east-2, for 8 nodes; `aws x` shows the limit; a note",
            "ask",
        ).to_json()
    )


def test_what_is_left_out_leaves_no_gap() -> None:
    need = QuotaNeed("gangway:network", 1, "", "VPCs", "us-east-2", "", "aws x")
    assert need.finding().message == "1 of the quota VPCs in us-east-2; `aws x` shows the limit"
    assert no_quota("p", "it is reserved").message == "no quota: it is reserved"
    assert (count_nodes(1), count_nodes(4), count_nodes(2, "slice")) == ("1 node", "4 nodes", "2 slices")


@pytest.mark.parametrize("cidr", ["10.42.0.0/16", "172.16.0.0/20", "192.168.240.0/20", "10.0.0.0/18"])
def test_a_private_range_is_taken(cidr: str) -> None:
    assert str(private_network(cidr)) == cidr


@pytest.mark.parametrize(
    "cidr",
    ["10.42.0.0/15", "10.42.0.0/21", "10.42.0.1/16", "8.8.0.0/16", "", "localhost", "fd00::/16", "127.0.0.0/16",
     "169.254.0.0/16", "0.0.0.0/16", "172.32.0.0/16", "10.42.0.0/99"],
)  # fmt: skip
def test_any_other_is_refused_with_one_that_can_be(cidr: str) -> None:
    with pytest.raises(InputError) as caught:
        private_network(cidr, "here")
    assert (caught.value.place, caught.value.value) == ("here", cidr)
    assert caught.value.allowed == "a private IPv4 network, /16 to /20"
    assert private_network(caught.value.fix.removeprefix("use ")) == IPv4Network("10.42.0.0/16")


@given(st.text(max_size=20))
def test_any_text_is_a_network_or_an_input_error(cidr: str) -> None:
    try:
        network = private_network(cidr)
    except InputError:
        return
    assert network.is_private
    assert 16 <= network.prefixlen <= 20
