"""Which address ranges a stack's network may have, whatever the provider."""

from ipaddress import IPv4Network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangway.components.core.findings import InputError
from gangway.components.core.network import private_network


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
