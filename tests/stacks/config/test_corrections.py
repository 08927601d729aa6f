"""What somebody meant: pure functions on values, and that a corrected value, put in, is accepted."""

from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from gangway.components.core.findings import InputError
from gangway.stacks.config.corrections import (
    Span,
    get_unit,
    match_pattern,
    parse_bool,
    parse_moment,
    parse_number,
    parse_range,
)
from gangway.stacks.loading.loader import from_file

ABOVE_0, WHOLE = Span(above=0), Span(above=0, whole=True)
SHARE = Span(low=0, below=1)


@pytest.mark.parametrize(
    ("name", "value", "span", "meant"),
    [
        ("max_hours", "48h", ABOVE_0, 48),
        ("max_hours", "2 days", ABOVE_0, 48),
        ("max_hours", "1d 12h", ABOVE_0, 36),
        ("max_hours", "1:30", ABOVE_0, 1.5),
        ("max_hours", "90min", ABOVE_0, 1.5),
        ("no_steps_minutes", "1h", ABOVE_0, 60),
        ("years", "36 months", ABOVE_0, None),
        ("max_hours", "3 parsecs", ABOVE_0, None),
        ("max_usd_per_hour", "$28", ABOVE_0, 28),
        ("max_usd_per_hour", "28 USD per hour", ABOVE_0, 28),
        ("max_usd_per_hour", "$28/h", ABOVE_0, 28),
        ("monthly_usd", "1,000", ABOVE_0, 1000),
        ("monthly_usd", "60_000", ABOVE_0, 60000),
        ("monthly_usd", "60k", ABOVE_0, 60000),
        ("monthly_usd", "€500", ABOVE_0, None),
        ("kimg", "$150", ABOVE_0, None),
        ("alert_percent", "60%", Span(above=0, high=1000), 60),
        ("interruptions", "15%", SHARE, 0.15),
        ("interruptions", 15, SHARE, 0.15),
        ("pue", "130%", ABOVE_0, 1.3),
        ("capacity_gib", "9.6 TiB", WHOLE, 9830),  # a TiB is 1,024 GiB
        ("capacity_gib", "9.6T", WHOLE, 9830),
        ("capacity_gib", "2 TB", WHOLE, 1863),
        ("capacity_gib", "9600GiB", WHOLE, 9600),
        ("throughput_mbps_per_tib", "500 MB/s/TiB", WHOLE, 500),
        ("network_gbps", "100G", ABOVE_0, 100),
        ("kimg", "25M", ABOVE_0, 25000),
        ("kimg", "150k", ABOVE_0, 150),
        ("kimg", "25M images", ABOVE_0, None),
        ("kimg", -150, ABOVE_0, 150),
        ("kimg", 0, ABOVE_0, None),
        ("kimg", "many", ABOVE_0, None),
        ("kimg", True, ABOVE_0, None),
        ("kimg", "nan", ABOVE_0, None),
        ("kimg", "9" * 400, ABOVE_0, None),
        ("kimg", "9" * 400 + "M", ABOVE_0, None),
        ("nodes", 10**400, Span(low=1, high=512, whole=True), 512),
        ("seed", 1.5, WHOLE, 2),
        ("max", 9999, Span(low=1, high=512, whole=True), 512),
    ],
)
def test_a_number_is_read_in_the_unit_of_its_setting(name: str, value: object, span: Span, meant: float | None) -> None:
    assert parse_number(name, value, span) == meant


def test_other_values() -> None:
    assert [parse_bool(value) for value in ("yes", "true", 1, "off", 0, "maybe")] == [
        True,
        True,
        True,
        False,
        False,
        None,
    ]
    assert [parse_range(value) for value in ("2-4", "2 to 4", [3, 8], 5, "5", "x")] == [
        (2, 4), (2, 4), (3, 8), (5, 5), (5, 5), None,
    ]  # fmt: skip
    assert match_pattern("2*4*4", r"^[0-9]+(x[0-9]+){1,2}$") == "2x4x4"
    assert match_pattern("11/01/2026", r"^\d{4}-\d\d-\d\d$") == "2026-11-01"
    assert match_pattern("none", r"^\d$") is None
    assert parse_moment("2026-12-01") == "2026-12-01T00:00:00Z"
    assert parse_moment("2026-12-01T10:00:00Z") is None
    assert (get_unit("max_hours"), get_unit("capacity_gib"), get_unit("preset")) == ("hours", "GiB", "")
    assert (get_unit("images_per_sec"), get_unit("usd_per_hour")) == ("", "US dollars"), "a rate is no length of time"
    assert parse_number("images_per_sec", "5 minutes", Span(above=0)) is None


NUMBERS = (
    st.integers(-10, 10**7).map(float)
    | st.floats(1e-3, 1e7, allow_nan=False).map(lambda value: float(f"{value:.6g}"))
)  # fmt: skip
UNITS = st.sampled_from(
    [
        "",
        "h",
        " hours",
        "d",
        "min",
        "$",
        " USD",
        "k",
        "M",
        "%",
        " percent",
        "GiB",
        "TiB",
        "T",
        " TB",
        " MB/s",
        "G",
        " kimg",
        "x",
    ]
)
SPANS = st.sampled_from(
    [ABOVE_0, WHOLE, SHARE, Span(), Span(low=0), Span(low=1, high=512, whole=True), Span(above=0, high=672)]
)
NAMES = st.sampled_from(
    ["max_hours", "monthly_usd", "capacity_gib", "kimg", "alert_percent", "min", "pue", "interruptions", "log_days"]
)


@given(NAMES, NUMBERS, UNITS, st.booleans(), SPANS)
def test_whatever_comes_out_is_allowed(name: str, number: float, unit: str, in_front: bool, span: Span) -> None:
    """And is a number that means itself: to correct it again changes nothing."""
    text = f"{number:,}"
    meant = parse_number(name, f"{unit}{text}" if in_front else f"{text}{unit}", span)
    if meant is not None:
        assert span.holds(meant)
        assert parse_number(name, meant, span) == parse_number(name, str(meant), span) == meant


def mistakes_in(path: Path) -> list[InputError]:
    try:
        from_file(path)
    except InputError as error:
        return [error]
    except ExceptionGroup as group:
        return [error for error in group.exceptions if isinstance(error, InputError)]
    return []


WRONG_VALUES = (
    st.builds("{:.6g}{}".format, NUMBERS, UNITS)
    | st.builds("{:,.0f}{}".format, NUMBERS, UNITS)
    | NUMBERS
    | st.sampled_from(["yes", "true", 0, 1, "2-4", "2 to 4", [3, 8], "50, 80", "spot", "Spot", "on-demand, spot"])
    | st.sampled_from(["a@b.example", "4*4*8", "v5e-64", "NAT", "11/01/2026", "2026-12-01", "s3://my-bucket/a b"])
)  # fmt: skip
STACKS = ("aws-demo", "gcp-a3-spot", "gcp-v5p-multislice", "azure-ndv5-spot", "openstack-gpu", "hosts-lab")


def leaves(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [place for key, inner in items for place in ((*path, key), *leaves(inner, (*path, key)))]


@pytest.mark.slow
@given(st.sampled_from(STACKS), WRONG_VALUES, st.data())
def test_a_corrected_value_put_in_is_accepted(
    repo: Path, tmp_path_factory: pytest.TempPathFactory, stack: str, wrong: Any, data: st.DataObject
) -> None:
    """Anything wrong at any place of any provider's file: where the fix is a value, writing it mends that place."""
    values = yaml.safe_load((repo / f"stacks/Pulumi.{stack}.yaml").read_text("utf-8"))["config"]
    place = data.draw(st.sampled_from(leaves(values)))
    path = tmp_path_factory.getbasetemp() / "Pulumi.wrong.yaml"

    def put(value: Any) -> list[InputError]:
        changed = deepcopy(values)
        container: Any = changed
        for step in place[:-1]:
            container = container[step]
        container[place[-1]] = value
        path.write_text(yaml.safe_dump({"config": changed}), "utf-8")
        spelled = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in place)[1:]
        return [mistake for mistake in mistakes_in(path) if mistake.place == f"{path}: {spelled}"]

    for mistake in put(wrong):
        if (value := _written(mistake.fix, place[-1])) is not None:
            assert [str(left) for left in put(value)] == [], mistake


def _written(fix: str, key: Any) -> Any:
    """The value of a fix such as `write kimg: 48`; None for one that is a sentence."""
    start = next((start for start in ("write ", "put it in quotes: ") if fix.startswith(start)), None)
    if start is None or fix.startswith(("write it ", "write a ", "write text", "write without ", "write true or")):
        return None
    read = yaml.safe_load(fix.removeprefix(start))
    return read[key.removeprefix("gangway:")] if isinstance(key, str) and isinstance(read, dict) else read


Edited = Callable[[Callable[[dict[str, Any]], object]], Path]


def test_every_length_says_what_it_is_a_length_of(stack_file: Edited) -> None:
    path = stack_file(lambda values: values["gangway:job"].update(max_hours="long", kimg="short"))
    allowed = {mistake.place.rpartition(".")[2]: mistake.allowed for mistake in mistakes_in(path)}
    assert allowed == {
        "max_hours": "a number from 0.01 to 672 (hours)",
        "kimg": "a number from 0.001 to 1000000000 (thousands of images)",
    }
