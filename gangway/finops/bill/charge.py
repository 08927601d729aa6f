"""One row of a bill in the words of FOCUS 1.4, only the columns that a reconciliation needs, and how values are read
that every export spells another way.
"""

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, date, datetime
from functools import lru_cache
from typing import Any, NamedTuple, TypeVar

from components.core.findings import InputError

T = TypeVar("T")

CATEGORIES = ("Usage", "Purchase", "Tax", "Credit", "Adjustment")
"""ChargeCategory's allowed values."""

_PROVIDERS = {"aws": "aws", "amazon": "aws", "microsoft": "azure", "azure": "azure", "google": "gcp", "gcp": "gcp"}
# A bill repeats few moments and few sets of tags in very many rows.
_REMEMBERED = 4096


class Charge(NamedTuple):
    """One row of a bill.

    Attributes:
        service_provider_name: aws, azure or gcp; another provider's name as the bill has it, in lower case.
        billing_account_id: who pays; empty where the export does not say.
        sub_account_id: whose use it was, such as an AWS account, an Azure subscription or a Google project; empty where
            the export does not say.
        billing_period: first day of the billing period, ISO 8601; empty where the export does not say.
        service_category: FOCUS's, such as `Compute` for machines; empty where nobody can say.
        service_name: as the bill has it.
        region_id: as the bill has it; empty where there is none.
        resource_id: what was used; empty where the export does not say.
        charge_category: one of `CATEGORIES`.
        charge_class: `Correction` for one of an earlier bill, else empty.
        charge_period_start: UTC, inclusive.
        charge_period_end: UTC, exclusive.
        billed_cost: as invoiced, in `billing_currency`.
        effective_cost: with what was paid before, such as a capacity block, shared out over its use.
        billing_currency: ISO 4217.
        tags: values by the key that `tag_key` makes.
    """

    service_provider_name: str
    billing_account_id: str
    sub_account_id: str
    billing_period: str
    service_category: str
    service_name: str
    region_id: str
    resource_id: str
    charge_category: str
    charge_class: str
    charge_period_start: datetime
    charge_period_end: datetime
    billed_cost: float
    effective_cost: float
    billing_currency: str
    tags: Mapping[str, str]


def get_value(row: Mapping[str, Any], column: str, read: Callable[[Any], T]) -> T:
    """A column's value as `read` takes it. InputError: it is none; the place is the column."""
    try:
        return read(row.get(column))
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise InputError(
            column, f"cannot be read: {error}", value=row.get(column), fix="download or export it again"
        ) from None


def provider_key(name: str) -> str:
    """A provider's name as run records spell it: aws, azure, gcp; another's in lower case."""
    low = name.lower()
    return next((key for word, key in _PROVIDERS.items() if low.startswith(word)), low)


@lru_cache(_REMEMBERED)
def tag_key(text: str) -> str:
    """The key of a tag whatever the export made of it.

    >>> {tag_key(key) for key in ("gangway:stack", "gangway-stack", "user:gangway:stack", "user_gangway_stack")}
    {'gangway_stack'}
    """
    return word(text).removeprefix("resourcetags_").removeprefix("user_")


@lru_cache(_REMEMBERED)
def word(text: str) -> str:
    """A name whatever a cloud made of it: labels of Google Cloud are in lower case, and know fewer characters."""
    return re.sub(r"[^a-z0-9]+", "_", text.lower())


def moment(value: Any) -> datetime:
    """A time in UTC, with which every export means its times; one that names no zone is in UTC too. ValueError: it is
    no time.
    """
    if isinstance(value, datetime):
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
    if isinstance(value, date):  # a column of Parquet
        return datetime(value.year, value.month, value.day, tzinfo=UTC)
    return _parse(value) if isinstance(value, str) else _parse("")


@lru_cache(_REMEMBERED)
def _parse(text: str) -> datetime:
    # BigQuery writes `2026-10-01 00:00:00 UTC`.
    return moment(datetime.fromisoformat(text.strip().replace(" UTC", "+00:00")))


def amount(value: Any) -> float:
    """A number as exports write it. ValueError: it is none, or nothing at all."""
    if value is None or value == "":
        raise ValueError("there is no number")
    number = float(value)
    if not math.isfinite(number):
        raise ValueError("not a finite number")
    return number


def optional_amount(value: Any) -> float:
    """A number that an export leaves out where it is 0."""
    return 0.0 if value is None or value == "" else amount(value)


def get_tags(value: Any) -> Mapping[str, str]:
    """Tags by `tag_key`, from a JSON object, a map of Parquet, or a list of keys and values as BigQuery has it.
    ValueError: it is none of these.
    """
    if isinstance(value, str):
        return _tags_of_text(value)
    return _tags(value)


@lru_cache(_REMEMBERED)
def _tags_of_text(text: str) -> Mapping[str, str]:
    stripped = text.strip()
    # Azure's older exports leave the braces out.
    return _tags(json.loads(f"{{{stripped}}}" if stripped.startswith('"') else stripped)) if stripped else {}


def _tags(value: Any) -> Mapping[str, str]:
    if value is None:
        return {}
    pairs = value.items() if isinstance(value, Mapping) else _pairs(value)
    return {tag_key(str(key)): "" if text is None else str(text) for key, text in pairs}


def _pairs(value: Any) -> Iterable[tuple[Any, Any]]:
    if not isinstance(value, list):
        raise ValueError("neither a JSON object nor a list of keys and values")
    for item in value:
        if isinstance(item, Mapping) and "key" in item:
            yield item["key"], item.get("value")
        elif isinstance(item, Mapping) and "Key" in item:  # Google's FOCUS
            yield item["Key"], item.get("Value")
        elif isinstance(item, tuple) and len(item) == 2:
            yield item[0], item[1]
        else:
            raise ValueError("an item that is no key and value")
