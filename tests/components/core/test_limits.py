"""A number out of a range is refused with the nearest that is not."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangway.components.core.findings import InputError
from gangway.components.core.limits import (
    STEPS_ALARM_MINUTES,
    check_steps_alarm,
    check_tier,
    check_within,
    nearest_number,
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
