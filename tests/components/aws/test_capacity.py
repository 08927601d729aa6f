"""The ladder as EC2 understands it: ids, machine types, zones, and the time a block's nodes stop."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from gangway.components.aws.capacity import (
    block_stop_time,
    check_ladder,
    check_zones,
    ladder_zones,
    preferred_zone,
    rung_from_args,
    rung_machines,
)
from gangway.components.catalog.loader import load
from gangway.components.core.capacity import plan_rung
from gangway.components.core.findings import InputError

OWN = load().machine("p4d.24xlarge")
SPOT = {"kind": "spot"}
# `owned` or `bought`, and changes -> a capacity block as it is written.
Written = Callable[..., dict[str, Any]]


def test_a_rung_that_is_none_is_refused() -> None:
    with pytest.raises(ValidationError, match="id"):
        rung_from_args({"kind": "reservation"})


@given(
    st.sampled_from(["capacity-block", "reservation"]),
    st.from_regex(r"\Acr-[0-9a-f]{8,17}\Z"),
    st.from_regex(r"\Acbo?-[0-9a-f]{8,17}\Z"),
)
def test_ids_as_ec2_gives_them_pass(written: Written, kind: str, id_: str, offering_id: str) -> None:
    check_ladder([rung_from_args({"kind": kind, "id": id_})], OWN)
    check_ladder([rung_from_args(written("bought", offering_id=offering_id))], OWN)


@pytest.mark.parametrize(
    ("rung", "path", "value", "allowed"),
    [
        ({"kind": "reservation", "id": "0123456789abcdef0"}, ".id", "0123456789abcdef0", "cr-0123456789abcdef0"),
        ({"kind": "capacity-block", "id": "cr-XYZ"}, ".id", "cr-XYZ", "cr- and 8 to 17 hexadecimal digits"),
        ({"kind": "capacity-block", "id": "cr-0123456789abcdef0\n"}, ".id", "cr-0123456789abcdef0\n", "cr-"),
        ({"offering_id": "cr-0123456789abcdef0"}, ".offering_id", "cr-0123456789abcdef0", "cbo-"),
    ],
)
def test_an_id_ec2_never_gives_is_refused_by_name(
    written: Written, rung: dict[str, Any], path: str, value: str, allowed: str
) -> None:
    rung = rung if "kind" in rung else written("bought", **rung)
    with pytest.raises(InputError) as caught:
        check_ladder([rung_from_args(SPOT), rung_from_args(rung)], OWN)
    assert caught.value.place == f"gangway:cluster.capacity[1]{path}"
    assert caught.value.value == value
    assert allowed in caught.value.allowed
    assert caught.value.fix.startswith("copy the id")


def test_an_unknown_machine_type_names_the_nearest() -> None:
    rung = rung_from_args({**SPOT, "machine_types": ["p4de.24xlarge", "p5.48xl"]})
    with pytest.raises(InputError) as caught:
        check_ladder([rung], OWN)
    assert caught.value.place == "gangway:cluster.capacity[0].machine_types[1]"
    assert caught.value.value == "p5.48xl"
    assert caught.value.fix == "did you mean 'p5.48xlarge'?"


def test_a_rungs_machines_begin_with_the_clusters_own(written: Written) -> None:
    for types in (["p4de.24xlarge", "p5.48xlarge"], ["p4de.24xlarge", "p4d.24xlarge", "p5.48xlarge"]):
        rung = rung_from_args({**SPOT, "machine_types": types})
        for form in (rung, plan_rung(rung)):
            names = [machine.name for machine in rung_machines(form, OWN)]
            assert names == ["p4d.24xlarge", "p4de.24xlarge", "p5.48xlarge"]
    assert rung_machines(rung_from_args(written("bought")), OWN) == (OWN,)


def test_the_ladder_says_in_which_zones_it_needs_subnets() -> None:
    rungs = [
        rung_from_args({"kind": "reservation", "id": "cr-0123456789abcdef0", "zone": "us-east-2b"}),
        rung_from_args({**SPOT, "zones": ["us-east-2c", "us-east-2a"]}),
        rung_from_args({"kind": "on-demand"}),
    ]
    assert ladder_zones(rungs, "us-east-2a") == ("us-east-2a", "us-east-2b", "us-east-2c")
    assert ladder_zones([], "us-east-2a") == ("us-east-2a",)


def test_reserved_capacity_says_which_zone_the_cluster_must_be_in(written: Written) -> None:
    reservation = rung_from_args({"kind": "reservation", "id": "cr-0123456789abcdef0", "zone": "us-east-2b"})
    elsewhere = rung_from_args(written("bought", zone="us-east-2c"))
    spot = rung_from_args({**SPOT, "zones": ["us-east-2a"]})
    zone, why = preferred_zone([spot, reservation, elsewhere]) or ("", "")
    assert (zone, why) == ("us-east-2b", "gangway:cluster.capacity[1], a reservation, is there")
    assert preferred_zone([spot, rung_from_args(written("bought"))]) is None


@pytest.mark.parametrize(
    ("rung", "path"),
    [
        ({**SPOT, "zones": ["us-east-2a", "us-east-2x"]}, "zones[1]"),
        ({"kind": "capacity-block", "id": "cr-0123456789abcdef0", "zone": "us-east-2x"}, "zone"),
        ({"kind": "reservation", "id": "cr-0123456789abcdef0", "zone": "us-east-2x"}, "zone"),
    ],
)
def test_a_zone_that_is_not_there_is_refused_by_name(rung: dict[str, Any], path: str) -> None:
    with pytest.raises(InputError) as caught:
        check_zones([rung_from_args(rung)], ["us-east-2a", "us-east-2b"])
    assert caught.value.place == f"gangway:cluster.capacity[0].{path}"
    assert caught.value.value == "us-east-2x"
    assert caught.value.allowed == "us-east-2a, us-east-2b"
    assert caught.value.fix.startswith("did you mean 'us-east-2")


def test_a_blocks_nodes_stop_forty_minutes_before_its_end() -> None:
    """EC2 begins to end them 30 minutes before; ours are asked 10 minutes earlier."""
    end = datetime(2026, 7, 1, 11, 30, tzinfo=UTC)
    assert block_stop_time(end) == datetime(2026, 7, 1, 10, 50, tzinfo=UTC)
    assert block_stop_time(end, timedelta(minutes=25)) == datetime(2026, 7, 1, 10, 35, tzinfo=UTC)


@given(
    st.datetimes(datetime(2000, 1, 1), datetime(2100, 1, 1)),
    st.integers(-720, 720),
    st.integers(0, 600),
)
def test_the_stop_is_in_utc_and_always_before_ec2s_own(moment: datetime, offset: int, lead: int) -> None:
    end = moment.replace(tzinfo=timezone(timedelta(minutes=offset)))
    stop = block_stop_time(end, timedelta(minutes=lead))
    assert stop.tzinfo is UTC
    assert end - stop == timedelta(minutes=30 + lead)
