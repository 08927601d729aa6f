"""Suggests an accepted value for an invalid one: `48h` for hours, `"$28"`, `60%`, `9.6 TiB`, `yes`, `2-4`.

Each function returns None instead of guessing. Fixes in messages about files (`explain_errors`) and flags
(`gangway.cli`) come from here. A setting's name contains its unit.
"""

import math
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType
from typing import Any

_HOUR, _DAY = 3600, 86_400
_SHELL_SYNTAX = re.compile(r"[|&;<>$`*?~]")
_Units = Mapping[str, float]
_TIME: _Units = {
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), 1),
    **dict.fromkeys(("m", "min", "mins", "minute", "minutes"), 60),
    **dict.fromkeys(("h", "hr", "hrs", "hour", "hours"), _HOUR),
    **dict.fromkeys(("d", "day", "days"), _DAY),
    **dict.fromkeys(("w", "week", "weeks"), 7 * _DAY),
    **dict.fromkeys(("y", "yr", "year", "years"), 365 * _DAY),
}
# A TiB is 1,024 GiB; `9.6T`, as tools print sizes, is one too. A TB of a data sheet is a little less.
_BYTES: _Units = {
    **{f"{letter}ib": 2.0 ** (10 * power) for power, letter in enumerate("kmgtp", 1)},
    **{letter: 2.0 ** (10 * power) for power, letter in enumerate("mgtp", 2)},
    **{f"{letter}b": 10.0 ** (3 * power) for power, letter in enumerate("kmgtp", 1)},
    "k": 1e3 * 2.0**30,  # no disk is measured in KiB: `5k` means thousands of the setting's GiB
}
_COUNT: _Units = MappingProxyType({"k": 1e3, "m": 1e6})
_IMAGES: _Units = {"image": 1, "images": 1, "img": 1, "k": 1e3, "kimg": 1e3, "m": 1e6, "mimg": 1e6, "million": 1e6}
_DOLLARS: _Units = MappingProxyType({"usd": 1, "dollar": 1, "dollars": 1, **_COUNT})
_RATE: _Units = MappingProxyType({"mb/s": 1, "mbps": 1, "mib/s": 1, "gb/s": 1000, "gbps": 1000})
_LINK: _Units = MappingProxyType({"mbps": 1e-3, "mbit/s": 1e-3, "g": 1, "gbps": 1, "gbit/s": 1, "tbps": 1e3})
_PERCENT: _Units = MappingProxyType({"%": 1, "percent": 1, "pct": 1})
_GRAMS: _Units = MappingProxyType({"g": 1, "kg": 1000})
_WATTS: _Units = MappingProxyType({"w": 1, "watt": 1, "watts": 1, "kw": 1000})


@dataclass(frozen=True)
class _Measure:
    """Spellings of units with their factors, and the factor of the setting's unit."""

    units: _Units
    own: float = 1.0


# By a word of the setting's name; the first match decides: `max_usd_per_hour` counts dollars.
_MEASURES: Mapping[str, _Measure] = {
        "usd": _Measure(_DOLLARS), "budget": _Measure(_DOLLARS), "capex": _Measure(_DOLLARS),
        "hours": _Measure(_TIME, _HOUR), "deadline": _Measure(_TIME, _HOUR), "minutes": _Measure(_TIME, 60),
        "sec": _Measure(_TIME), "days": _Measure(_TIME, _DAY), "years": _Measure(_TIME, 365 * _DAY),
        "gib": _Measure(_BYTES, 2.0**30), "kimg": _Measure(_IMAGES, 1e3), "percent": _Measure(_PERCENT),
        "mbps": _Measure(_RATE), "gbps": _Measure(_LINK),
        "intensity": _Measure(_GRAMS), "watts": _Measure(_WATTS), "kw": _Measure(_WATTS, 1000),
    }  # fmt: skip
_UNIT_NAMES: Mapping[str, str] = {
        "usd": "US dollars", "hours": "hours", "deadline": "hours", "minutes": "minutes", "sec": "seconds",
        "days": "days", "years": "years", "gib": "GiB", "kimg": "thousands of images", "percent": "percent",
        "mbps": "MB/s", "gbps": "Gbit/s", "watts": "watts",
    }  # fmt: skip
_SHARE = MappingProxyType({"x": 1, "%": 0.01, "percent": 0.01, "pct": 0.01, **_COUNT})
_NUMBER = r"[-+]?(?:\d{1,3}(?:[,_' ]\d{3})+|\d+(?:_\d+)*)?(?:\.\d+)?(?:e[-+]?\d+)?"
_AMOUNT = re.compile(rf"({_NUMBER})\s*([a-z%/][a-z0-9%/ ]*?)?\s*")
_CLOCK = re.compile(r"(\d+):([0-5]\d)(?::([0-5]\d))?(?:\.0*)?\s*(?:h|hours)?")
_DURATION = re.compile(rf"({_NUMBER})\s*([a-z]+)[\s,]*")
_PER = re.compile(r"\s*(?:/|\bper\b|\ban?\b).*")
_RANGE = re.compile(r"\s*(\d+)\s*(?:-|\.\.+|to|,)\s*(\d+)\s*")
_AMERICAN_DAY = re.compile(r"(\d{1,2})/(\d{1,2})/(\d{4})")
# Without $, which means US dollars.
_CURRENCY = re.compile(r"[€£¥₹₩]|\b(?:eur|euros?|gbp|pounds?|jpy|yen|cny|inr|chf|cad|aud)\b", re.IGNORECASE)
TPU_SLICE = re.compile(r"(v[0-9]+[a-z]*|tpu[0-9]+x)-[0-9]+", re.IGNORECASE)
_TRUE, _FALSE = ("true", "yes", "on", "1", "y"), ("false", "no", "off", "0", "n")


_BROWSER_URLS = (
    (re.compile(r"https?://([^./]+)\.s3[.-][^/]*amazonaws\.com/?(.*)"), r"\1/\2"),
    (re.compile(r"https?://(?:s3[.-][^/]*amazonaws\.com|storage\.(?:googleapis|cloud\.google)\.com)/(.+)"), r"\1"),
    (re.compile(r"https?://([^./]+)\.blob\.core\.windows\.net/(.+)"), r"\1/\2"),
    (re.compile(r"https?://(.+)"), r"\1"),
)


@dataclass(frozen=True)
class Span:
    """Which numbers are allowed. `low` and `high` are inclusive, `above` and `below` exclusive."""

    low: float = -math.inf
    high: float = math.inf
    above: float = -math.inf
    below: float = math.inf
    whole: bool = False

    def holds(self, value: float) -> bool:
        """Whether `value` is allowed."""
        fits = self.low <= value <= self.high and self.above < value < self.below
        return fits and math.isfinite(value) and (not self.whole or value == int(value))

    def nearest(self, value: float) -> float | None:
        """The allowed number nearest to `value`; None at or beyond an exclusive end."""
        if (value <= self.above > -math.inf) or (value >= self.below < math.inf):
            return None
        inside = min(max(value, self.low), self.high)
        near = float(round(inside)) if self.whole and math.isfinite(inside) else inside
        return near if self.holds(near) else None


def get_unit(name: str) -> str:
    """The unit of a setting in words, such as `hours` for max_hours; empty if its name has none."""
    return next((_UNIT_NAMES[word] for word in _name_words(name) if word in _UNIT_NAMES), "")


def parse_number(name: str, value: object, span: Span) -> int | float | None:
    """The allowed number nearest to `value`, converted to the unit in the setting's `name`.

    >>> parse_number("max_hours", "2 days", Span(above=0)), parse_number("capacity_gib", "9.6 TiB", Span(whole=True))
    (48, 9830)
    >>> parse_number("interruptions", "15%", Span(low=0, below=1)), parse_number("kimg", "many", Span(above=0))
    (0.15, None)
    """
    if isinstance(value, bool):
        return None
    read = _parse_amount(name, value) if isinstance(value, str) else None
    if isinstance(value, int | float):
        read = _parse_float(str(value))
    if read is None or math.isnan(read):
        return None
    if math.isfinite(read) and not span.holds(read):
        if 1 < read <= 100 and min(span.high, span.below) == 1:
            read /= 100  # a percentage given for a share
        elif read < 0 <= span.above:
            read = -read
    near = span.nearest(read)
    if near is None:
        return None
    return int(near) if near == int(near) and abs(near) < 1e15 else near


def explain_conversion(name: str, value: str, pattern: str, span: Span) -> str:
    """The fix for another currency or a missing number of accelerators, where no value is certain; else empty.

    >>> explain_conversion("monthly_usd", "€90,000", "", Span(above=0))
    'convert €90,000 to US dollars; if you meant dollars, write monthly_usd: 90000'
    """
    text = value.strip()
    amount = _CURRENCY.sub("", text)
    if (
        get_unit(name) == _UNIT_NAMES["usd"]
        and amount != text
        and (dollars := parse_number(name, amount, span)) is not None
    ):
        return f"convert {text} to US dollars; if you meant dollars, write {name}: {dollars}"
    is_slice = TPU_SLICE.fullmatch(text) is not None
    if name == "accelerator" and pattern and not is_slice and re.search(pattern, f"{text}x1"):
        return f"add the number per machine, such as {name}: {text}x1 or {name}: {text}x8"
    return ""


def _name_words(name: str) -> list[str]:
    # Without the denominator: `images_per_sec` does not count seconds.
    return name.lower().replace("-", "_").partition("_per_")[0].split("_")


def _parse_amount(name: str, text: str) -> float | None:
    plain = text.strip().lower().replace("us$", "$")
    measure = next((_MEASURES[word] for word in _name_words(name) if word in _MEASURES), None)
    if "$" in plain or plain.startswith("usd"):
        if measure is None or measure.units is not _DOLLARS:
            return None
        plain = plain.replace("$", "", 1).removeprefix("usd").strip()
    if measure is not None and measure.units is _TIME:
        if clock := _CLOCK.fullmatch(plain):
            hours, minutes, seconds = (int(part or 0) for part in clock.groups())
            return (hours * _HOUR + minutes * 60 + seconds) / measure.own
        if (seconds_ := _parse_duration(plain)) is not None:
            return seconds_ / measure.own
    amount = _AMOUNT.fullmatch(plain)
    if amount is None or (number := _parse_float(amount[1])) is None:
        return None
    unit = amount[2] or ""
    # `28 USD per hour`, `500 MB/s/TiB`, `380 gCO2e/kWh`: the setting's name has the denominator.
    spellings = (unit, unit.removesuffix("/tib"), _PER.sub("", unit).replace("co2e", "").replace("co2", ""))
    worths = (_worth(spelling, measure, _name_words(name)) for spelling in spellings)
    worth = next((worth for worth in worths if worth is not None), None)
    if worth is None:
        return None
    value = number * worth
    return value if worth == 1 or not math.isfinite(value) or value == int(value) else float(f"{value:.6g}")


def _worth(unit: str, measure: _Measure | None, words: list[str]) -> float | None:
    if not unit or unit in words or unit.partition("/")[0] in words:
        return 1.0
    if measure is None:
        return _SHARE.get(unit)
    own = measure.units.get(unit)
    return None if own is None else own / measure.own


def _parse_duration(text: str) -> float | None:
    if not _DURATION.match(text) or _DURATION.sub("", text):
        return None
    parts = [(_parse_float(number), _TIME.get(unit)) for number, unit in _DURATION.findall(text)]
    known = [number * worth for number, worth in parts if number is not None and worth is not None]
    return sum(known) if len(known) == len(parts) else None


def _parse_float(text: str) -> float | None:
    try:
        return float(re.sub("[,_' ]", "", text))
    except ValueError:
        return None


def parse_bool(value: object) -> bool | None:
    """The boolean in `yes`, `"true"` or 0; None for other values."""
    word = f"{value:g}" if isinstance(value, float) else str(value).strip().lower()
    return True if word in _TRUE else False if word in _FALSE else None


def parse_range(value: object) -> tuple[int, int] | None:
    """Minimum and maximum of `2-4`, `2 to 4`, `[2, 4]` or 3."""
    if isinstance(value, list | tuple) and len(value) == 2:
        value = f"{value[0]}-{value[1]}"
    if isinstance(value, int) and not isinstance(value, bool):
        value = f"{value}-{value}"
    text = str(value).strip()
    found = _RANGE.fullmatch(text if not text.isdecimal() else f"{text}-{text}")
    if found is None or not found[1].isascii() or not found[2].isascii():
        return None
    low, high = sorted((int(found[1]), int(found[2])))
    return max(low, 1), max(high, 1)


def to_store_address(value: str, scheme: str) -> str:
    """Converts a browser URL such as `https://my-bucket/celeba` to an object store's address with `scheme`."""
    if scheme not in ("s3", "gs", "az"):
        return value
    for form, own in _BROWSER_URLS:
        if found := form.fullmatch(value.strip()):
            return f"{scheme}://{found.expand(own)}"
    return value


def match_pattern(value: str, pattern: str) -> str | None:
    """A spelling of `value` that `pattern` accepts, for `4*4*8`, `11/01/2026` or upper case."""
    return next((text for text in _spellings(value.strip()) if re.search(pattern, text)), None)


def _spellings(text: str) -> Iterator[str]:
    yield text
    yield text.lower()
    yield text.upper()
    yield re.sub(r"\s*[*x, ]\s*", "x", text.lower())
    yield re.sub(r"[\s_]+", "-", text.lower())
    if day := _AMERICAN_DAY.fullmatch(text):
        # A first number above 12 is the day.
        month, of_month = (day[1], day[2]) if int(day[1]) <= 12 else (day[2], day[1])
        yield f"{day[3]}-{int(month):02}-{int(of_month):02}"


def parse_moment(value: object) -> str | None:
    """A date, or a time without a zone, as a time in UTC."""
    try:
        moment = value if isinstance(value, datetime) else datetime.fromisoformat(str(value).strip())
    except ValueError:
        return None
    return f"{moment.replace(microsecond=0, tzinfo=None).isoformat()}Z" if moment.tzinfo is None else None


def parse_command(value: Any) -> list[Any] | None:
    """The words of a command given as one line; run by a shell if it has shell syntax.

    >>> parse_command("sleep 1"), parse_command("make && ./run >log")
    (['sleep', '1'], ['sh', '-c', 'make && ./run >log'])
    """
    if not isinstance(value, str) or value.lstrip().startswith("["):
        return parse_list(value)
    if _SHELL_SYNTAX.search(value):
        return ["sh", "-c", value]
    try:
        return shlex.split(value) or None
    except ValueError:  # an unclosed quote
        return None


def parse_list(value: Any) -> list[Any] | None:
    """The items of a list given as one value: `50, 80`."""
    if isinstance(value, str):
        return [word.strip() for word in value.strip("[]").split(",") if word.strip()] or None
    return None if value is None or isinstance(value, list | dict) else [value]
