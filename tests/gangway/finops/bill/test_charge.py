"""Values that every export spells another way: times and their zones, numbers, tags, providers."""

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangway.components.core.findings import InputError
from gangway.finops.bill.charge import amount, get_tags, get_value, moment, optional_amount, provider_key, tag_key, word

TEN = datetime(2026, 10, 5, 10, tzinfo=UTC)


@pytest.mark.parametrize(
    "text",
    [
        "2026-10-05T10:00:00Z",
        "2026-10-05T10:00Z",
        "2026-10-05T10:00:00.000Z",
        "2026-10-05 10:00:00 UTC",
        "2026-10-05 10:00:00",
        "2026-10-05T12:00:00+02:00",
        "2026-10-05T03:00:00-07:00",
        datetime(2026, 10, 5, 10),
        datetime(2026, 10, 5, 12, tzinfo=timezone(timedelta(hours=2))),
    ],
)
def test_one_moment_in_every_spelling(text: Any) -> None:
    assert moment(text) == TEN
    assert moment(text).tzinfo is UTC


@given(st.datetimes(min_value=datetime(2020, 1, 1), max_value=datetime(2030, 1, 1)), st.integers(-14, 14))
def test_zones_never_move_a_moment(naive: datetime, hours: int) -> None:
    local = naive.replace(tzinfo=UTC).astimezone(timezone(timedelta(hours=hours)))
    assert moment(local.isoformat()) == naive.replace(tzinfo=UTC) == moment(local)


@pytest.mark.parametrize("value", ["10/05/2026", "", None, 3])
def test_what_is_no_time_is_refused(value: Any) -> None:
    with pytest.raises(ValueError, match="isoformat"):
        moment(value)


def test_numbers() -> None:
    assert [amount(value) for value in ("1.5", -2, "1e-3", "-0")] == [1.5, -2, 0.001, 0]
    assert [optional_amount(value) for value in (None, "", "2")] == [0, 0, 2]
    for value in (None, "", "1,5", "nan", "inf", "USD 3"):
        with pytest.raises(ValueError, match=r"number|convert"):
            amount(value)


@pytest.mark.parametrize(
    "value",
    [
        '{"gangway:stack": "Demo"}',
        '{"user:gangway:stack": "Demo"}',
        '{"user_gangway_stack": "Demo"}',
        '"gangway-stack": "Demo"',
        '[{"key": "gangway-stack", "value": "Demo"}]',
        {"gangway-stack": "Demo"},
        [{"key": "gangway-stack", "value": "Demo"}],
        [("gangway:stack", "Demo")],
    ],
)
def test_one_tag_in_every_spelling(value: Any) -> None:
    assert get_tags(value) == {"gangway_stack": "Demo"}


def test_tags_without_a_value_and_no_tags() -> None:
    assert get_tags('{"a": null, "b": true}') == {"a": "", "b": "True"}
    nothing: tuple[Any, ...] = (None, "", "{}", [], " ")
    assert [get_tags(value) for value in nothing] == [{}] * 5


@pytest.mark.parametrize("value", ["{", "3", '["a"]', 3, [("a", "b", "c")]])
def test_what_is_no_tags_is_refused(value: Any) -> None:
    with pytest.raises(ValueError, match=r"Expecting|neither|not a key"):
        get_tags(value)


def test_a_stack_named_user_keeps_its_name() -> None:
    assert word("User-1") == "user_1"
    assert tag_key("user:team") == "team"


def test_providers_as_records_spell_them() -> None:
    names = ("AWS", "Amazon Web Services", "Microsoft", "Azure", "Google Cloud", "GCP", "Contoso")
    assert [provider_key(name) for name in names] == ["aws", "aws", "azure", "azure", "gcp", "gcp", "contoso"]


def test_a_bad_value_is_named_with_its_column() -> None:
    with pytest.raises(InputError, match=r"BilledCost: cannot be read: could not convert(.|\n)*got: +'x'"):
        get_value({"BilledCost": "x"}, "BilledCost", amount)
