"""One row of a bill: the FOCUS 1.4 columns that a reconciliation needs, and parsers for the exports' spellings."""

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, date, datetime
from functools import lru_cache
from typing import Any, NamedTuple, TypeVar

from gangway.components.core.findings import InputError

T = TypeVar("T")

CATEGORIES = ("Usage", "Purchase", "Tax", "Credit", "Adjustment")
"""Allowed values of ChargeCategory."""

_PROVIDERS = {"aws": "aws", "amazon": "aws", "microsoft": "azure", "azure": "azure", "google": "gcp", "gcp": "gcp"}
# Bills repeat few times and few tag sets in very many rows.
_CACHE_SIZE = 4096


class Charge(NamedTuple):
    """One row of a bill; texts are empty where the export has none.

    Attributes:
        service_provider_name: aws, azure or gcp; another provider's name in lower case.
        billing_account_id: who pays.
        sub_account_id: who used it: an AWS account, an Azure subscription or a Google project.
        billing_period: first day of the billing period, ISO 8601.
        service_category: FOCUS's, such as `Compute` for machines.
        charge_class: `Correction` if it corrects an earlier bill, else empty.
        charge_period_start: UTC, inclusive.
        charge_period_end: UTC, exclusive.
        billed_cost: as invoiced, in `billing_currency`.
        effective_cost: with prepayments, such as a capacity block, spread over their use.
        billing_currency: ISO 4217.
        tags: by keys normalised with `tag_key`.
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
    """Parse a column with `read`. InputError: invalid; the place is the column."""
    try:
        return read(row.get(column))
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise InputError(
            column, f"cannot be read: {error}", value=row.get(column), fix="download or export it again"
        ) from None


def get_text(row: Mapping[str, Any], *columns: str) -> str:
    """The first of the columns with a value, as text; empty without one."""
    return str(next(filter(None, map(row.get, columns)), ""))


def provider_key(name: str) -> str:
    """The provider's name in run records: aws, azure, gcp; any other in lower case."""
    low = name.lower()
    return next((key for word, key in _PROVIDERS.items() if low.startswith(word)), low)


@lru_cache(_CACHE_SIZE)
def tag_key(text: str) -> str:
    """Normalise a tag's key across exports.

    >>> {tag_key(key) for key in ("gangway:stack", "gangway-stack", "user:gangway:stack", "user_gangway_stack")}
    {'gangway_stack'}
    """
    return word(text).removeprefix("resourcetags_").removeprefix("user_")


@lru_cache(_CACHE_SIZE)
def word(text: str) -> str:
    """Normalise a name: Google Cloud's labels are in lower case and allow fewer characters."""
    return re.sub(r"[^a-z0-9]+", "_", text.lower())


def moment(value: Any) -> datetime:
    """Parse a time; without a zone it is UTC. ValueError: not a time."""
    if isinstance(value, datetime):
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
    if isinstance(value, date):  # a column of Parquet
        return datetime(value.year, value.month, value.day, tzinfo=UTC)
    return _parse(value) if isinstance(value, str) else _parse("")


@lru_cache(_CACHE_SIZE)
def _parse(text: str) -> datetime:
    # BigQuery writes `2026-10-01 00:00:00 UTC`.
    return moment(datetime.fromisoformat(text.strip().replace(" UTC", "+00:00")))


def amount(value: Any) -> float:
    """Parse a number. ValueError: not a number, or empty."""
    if value is None or value == "":
        raise ValueError("there is no number")
    number = float(value)
    if not math.isfinite(number):
        raise ValueError("not a finite number")
    return number


def optional_amount(value: Any) -> float:
    """Parse a number; 0 if empty."""
    return 0.0 if value is None or value == "" else amount(value)


def get_tags(value: Any) -> Mapping[str, str]:
    """Parse tags from a JSON object, a Parquet map or BigQuery's list of keys and values. ValueError: invalid."""
    if isinstance(value, str):
        return _tags_of_text(value)
    return _tags(value)


@lru_cache(_CACHE_SIZE)
def _tags_of_text(text: str) -> Mapping[str, str]:
    stripped = text.strip()
    # Azure's older exports omit the braces.
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
            raise ValueError("an item that is not a key and a value")
