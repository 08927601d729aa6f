"""Names that are short enough for Google, and the same for the same stack."""

import re

from hypothesis import given
from hypothesis import strategies as st

from gangway.components.gcp.identity import account_id, filesystem_name

STACKS = st.from_regex(r"\A[a-z]([a-z0-9-]{0,38}[a-z0-9])?\Z")


@given(STACKS, st.sampled_from(["node", "head", "stop"]))
def test_a_service_account_has_an_id_google_takes(stack: str, role: str) -> None:
    name = account_id(stack, role)
    assert re.fullmatch(r"[a-z]([-a-z0-9]*[a-z0-9])", name)
    assert 6 <= len(name) <= 30
    assert name.endswith(f"-{role}")


def test_what_fits_is_kept_and_what_does_not_stays_apart() -> None:
    assert (account_id("demo", "node"), account_id("a", "x")) == ("demo-node", "gangway-a-x")
    long = ["a-stack-that-is-called-so-a", "a-stack-that-is-called-so-b"]
    assert len({account_id(stack, "node") for stack in long}) == 2
    assert len({filesystem_name(stack) for stack in long}) == 2
