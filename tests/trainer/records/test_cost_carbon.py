"""Dollars of the capacity really used, emissions, and Software Carbon Intensity: by hand, and as rules."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangway.trainer.records.cost_carbon import by_node, carbon, cost, energy, own_capacity, price, total
from gangway.trainer.records.quantity import Quantity
from gangway.trainer.records.run_record import CarbonRecord, RunContext, SessionRecord


def figure(value: float, unit: str, as_of: str | None = None) -> Quantity:
    return Quantity(value=value, unit=unit, provenance="list-price", source="catalogue", as_of=as_of)


CONTEXT = RunContext(
    capacity=("spot", "on-demand"),
    usd_per_hour=figure(20, "USD/h"),
    usd_per_hour_by_kind={"spot": figure(20, "USD/h", "2026-09-06"), "on-demand": figure(50, "USD/h", "2026-07-20")},
    pue=figure(1.25, "1"),
    intensity_g_per_kwh=figure(400, "gCO2e/kWh"),
    accelerators_per_node=8,
    embodied_kg_per_accelerator=figure(575, "kg"),
    embodied_kg_low=figure(400, "kg"),
    embodied_kg_high=figure(2000, "kg"),
    accelerator_life_hours=figure(35_040, "h"),
)


def session(hours: float, *capacity: str, num_nodes: int | None = None, joules: float | None = 3.6e6) -> SessionRecord:
    return SessionRecord(
        start="2026-10-05T10:00:00+00:00",
        end="2026-10-05T12:00:00+00:00",
        world_size=8,
        num_nodes=num_nodes or len(capacity),
        images_from=0,
        images_to=1000,
        ended_by="done",
        wall_sec=hours * 3600,
        backend="nccl",
        device="H100",
        capacity=capacity,
        it_joules=Quantity.absent("J", "no line") if joules is None else Quantity.measured(joules, "J", "NVML"),
    )


def emitted(
    sessions: Sequence[SessionRecord], images: int = 2000, contexts: Sequence[RunContext] = (CONTEXT,)
) -> CarbonRecord:
    """Of sessions with a context each; the last one counts for those without."""
    numbered = dict(enumerate(sessions))
    launched = {number: contexts[min(number, len(contexts) - 1)] for number in numbered}
    used = energy({"node0/gpu0": total([each.it_joules for each in sessions])}, numbered, launched)
    return carbon(used, numbered, images, launched)


def test_each_session_costs_what_its_own_nodes_do() -> None:
    """Four hours on two spot nodes; one is taken, and on demand steps in for an hour and a half."""
    sessions = {0: session(4, "spot", "spot"), 2: session(1.5, "spot", "on-demand")}
    record = cost(sessions, {0: CONTEXT, 2: CONTEXT})
    assert record.total_usd.value == 4 * 2 * 20 + 1.5 * (20 + 50)
    assert {name: part.value for name, part in record.components.items()} == {
        "compute, spot": 4 * 2 * 20 + 1.5 * 20,
        "compute, on-demand": 1.5 * 50,
    }
    assert [(use.session, use.capacity, use.num_nodes, use.node_hours.value) for use in record.uses] == [
        (0, "spot", 2, 8),
        (2, "spot", 1, 1.5),
        (2, "on-demand", 1, 1.5),
    ]
    assert (record.total_usd.provenance, record.total_usd.as_of) == ("estimated", "2026-07-20")


def test_a_session_has_the_prices_of_its_own_launch() -> None:
    cheaper = CONTEXT.model_copy(update={"usd_per_hour_by_kind": {"spot": figure(10, "USD/h")}})
    record = cost({0: session(1, "spot"), 1: session(1, "spot")}, {0: CONTEXT, 1: cheaper})
    assert record.total_usd.value == 30


def test_nodes_that_told_nothing_cost_what_the_first_rung_does() -> None:
    record = cost({0: session(1, num_nodes=3)}, {0: CONTEXT})
    assert (record.total_usd.value, list(record.components)) == (60, ["compute"])


def test_one_kind_without_a_price_leaves_no_total() -> None:
    blind = CONTEXT.model_copy(update={"usd_per_hour_by_kind": {"spot": figure(20, "USD/h")}})
    record = cost({0: session(1, "spot", "on-demand")}, {0: blind})
    assert record.total_usd.provenance == "absent"
    assert record.components["compute, spot"].value == 20


@given(
    st.lists(
        st.tuples(st.floats(0, 1e4), st.lists(st.sampled_from(["spot", "on-demand", ""]), min_size=1, max_size=5)),
        min_size=1,
        max_size=5,
    )
)
def test_parts_add_up_and_lie_between_the_prices(sessions: Sequence[tuple[float, list[str]]]) -> None:
    given_sessions = {number: session(hours, *kinds) for number, (hours, kinds) in enumerate(sessions)}
    record = cost(given_sessions, dict.fromkeys(given_sessions, CONTEXT))
    hours = sum(hours * len(kinds) for hours, kinds in sessions)
    usd = record.total_usd.value or 0
    assert sum(part.value or 0 for part in record.components.values()) == pytest.approx(usd)
    assert sum(use.usd.value or 0 for use in record.uses) == pytest.approx(usd)
    assert sum(use.node_hours.value or 0 for use in record.uses) == pytest.approx(hours)
    assert 20 * hours <= usd * (1 + 1e-9) <= 50 * hours * (1 + 1e-9) * (1 + 1e-9)


def test_software_carbon_intensity_by_hand() -> None:
    """1 kWh x 1.25 x 400 g, and two nodes of 8 H100 for 4 of the 35,040 hours that 575 kg an accelerator are for."""
    record = emitted([session(4, "spot", "spot")])
    embodied = 2 * 8 * 4 * 575_000 / 35_040
    assert record.gco2e.value == pytest.approx(500)
    assert record.embodied_gco2e.value == pytest.approx(embodied)
    assert record.embodied_gco2e_low.value == pytest.approx(embodied * 400 / 575)
    assert record.embodied_gco2e_high.value == pytest.approx(embodied * 2000 / 575)
    assert record.sci_g_per_run.value == pytest.approx(500 + embodied)
    assert record.sci_g_per_kimg.value == pytest.approx((500 + embodied) / 2)
    assert (record.sci_g_per_kimg.unit, record.sci_g_per_kimg.provenance) == ("gCO2e/kimg", "estimated")
    assert record.embodied_gco2e.note == "measured: wall clock x nodes x 8 accelerators a node"
    assert record.embodied_gco2e.source == (
        "accelerator hours x kg of a machine for each of them; list-price: catalogue, over 35040 h of use "
        "(list-price: catalogue)"
    )


@pytest.mark.parametrize(
    ("missing", "why"),
    [
        ({"accelerators_per_node": 0}, "the launcher did not say how many accelerators a node has"),
        ({"embodied_kg_per_accelerator": None}, "the launcher gave no emissions of a machine"),
        ({"embodied_kg_per_accelerator": Quantity.absent("kg", "nobody publishes it")}, "nobody publishes it"),
        ({"accelerator_life_hours": None}, "the launcher gave no life of a machine"),
    ],
)
def test_without_the_cards_emissions_there_is_no_intensity(missing: dict[str, object], why: str) -> None:
    record = emitted([session(4, "spot")], contexts=[CONTEXT.model_copy(update=missing)])
    assert record.gco2e.value == pytest.approx(500)
    for figure_ in (record.embodied_gco2e, record.sci_g_per_run, record.sci_g_per_kimg):
        assert (figure_.provenance, figure_.source) == ("absent", why)


def test_a_run_that_moves_has_each_sessions_own_grid_building_and_cards() -> None:
    """1 kWh at 1.25 x 400 g, then 3 kWh at 1.1 x 20 g in another region, on nodes of 4 cards."""
    north = CONTEXT.model_copy(
        update={
            "pue": figure(1.1, "1", "2026-01-02"),
            "intensity_g_per_kwh": figure(20, "gCO2e/kWh", "2025-01-02"),
            "accelerators_per_node": 4,
        }
    )
    sessions = [session(4, "spot"), session(2, "spot", joules=3 * 3.6e6)]
    record = emitted(sessions, contexts=[CONTEXT, north])
    kwh = 1.25 + 3 * 1.1
    assert record.gco2e.value == pytest.approx(1.25 * 400 + 3 * 1.1 * 20)
    assert record.embodied_gco2e.value == pytest.approx((4 * 8 + 2 * 4) * 575_000 / 35_040)
    assert record.intensity_g_per_kwh.value == pytest.approx((1.25 * 400 + 3 * 1.1 * 20) / kwh)
    assert record.intensity_g_per_kwh.note == "mean over sessions by energy, of 400, 20"
    used = energy({"gpu": Quantity.measured(4 * 3.6e6, "J", "NVML")}, dict(enumerate(sessions)), {0: CONTEXT, 1: north})
    assert used.facility_joules.value == pytest.approx(kwh * 3.6e6)
    assert used.pue.value == pytest.approx(kwh / 4)
    assert used.pue.as_of == "2026-01-02"


def test_a_mean_and_what_is_made_of_it_are_as_old_as_their_oldest_part() -> None:
    here = CONTEXT.model_copy(
        update={
            "pue": figure(1.25, "1", "2026-03-01"),
            "intensity_g_per_kwh": figure(400, "gCO2e/kWh", "2026-02-01"),
            "embodied_kg_per_accelerator": figure(575, "kg", "2025-05-05"),
        }
    )
    north = here.model_copy(
        update={"pue": figure(1.1, "1", "2026-01-02"), "intensity_g_per_kwh": figure(20, "gCO2e/kWh", "2026-04-04")}
    )
    sessions = [session(4, "spot"), session(2, "spot")]
    record = emitted(sessions, contexts=[here, north])
    used = energy({"gpu": figure(7.2e6, "J")}, dict(enumerate(sessions)), {0: here, 1: north})
    assert (used.pue.as_of, used.facility_joules.as_of) == ("2026-01-02", "2026-01-02")
    assert (record.intensity_g_per_kwh.as_of, record.gco2e.as_of) == ("2026-02-01", "2026-02-01")
    assert record.embodied_gco2e.as_of == "2025-05-05"
    assert (record.sci_g_per_run.as_of, record.sci_g_per_kimg.as_of) == ("2025-05-05", "2025-05-05")


def test_a_session_without_a_line_leaves_the_others_energy_as_it_is() -> None:
    sessions = [session(4, "spot"), session(0.1, "spot", joules=None)]
    numbered = dict(enumerate(sessions))
    used = energy({"gpu": sessions[0].it_joules}, numbered, dict.fromkeys(numbered, CONTEXT))
    assert used.facility_joules.value == pytest.approx(1.25 * 3.6e6)
    assert used.pue == CONTEXT.pue
    alone = energy({}, {0: sessions[1]}, {0: CONTEXT})
    assert (alone.it_joules.source, alone.facility_joules.source) == ("ended before its first line",) * 2


def test_without_an_image_there_is_none_for_a_thousand() -> None:
    record = emitted([session(4, "spot")], images=0)
    assert record.sci_g_per_run.value is not None
    assert record.sci_g_per_kimg.source == "no image has been trained on"


def test_a_sum_is_no_better_than_its_parts() -> None:
    measured, listed = Quantity.measured(1, "J", "NVML"), figure(2, "J", "2026-01-01")
    assert total([measured, measured]) == Quantity.measured(2, "J", "NVML")
    assert (total([measured, listed]).provenance, total([measured, listed]).as_of) == ("estimated", "2026-01-01")
    assert total([measured, Quantity.absent("J", "no meter")]).source == "no meter"


def context(*ladder: str, **prices: float) -> RunContext:
    by_kind = {kind.replace("_", "-"): figure(value, "USD/h") for kind, value in prices.items()}
    first = by_kind.get(ladder[0]) if ladder else None
    return RunContext(capacity=ladder, usd_per_hour=first, usd_per_hour_by_kind=by_kind)


def test_a_node_tells_by_its_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GANGWAY_CAPACITY", raising=False)
    assert own_capacity() == ""
    monkeypatch.setenv("GANGWAY_CAPACITY", "spot")
    assert own_capacity() == "spot"


def test_workers_of_a_node_tell_the_same() -> None:
    assert by_node([(0, "spot"), (0, "spot"), (1, "on-demand"), (1, "on-demand")]) == ["spot", "on-demand"]


@pytest.mark.parametrize(
    ("told", "ladder", "kind", "usd"),
    [
        ("spot", ("spot", "on-demand"), "spot", 20.0),
        ("on-demand", ("spot", "on-demand"), "on-demand", 50.0),
        ("on-demand", ("spot", "capacity-block"), "capacity-block", 40.0),
        ("on-demand", ("spot", "flex-start", "on-demand"), "on-demand", 50.0),
        ("", ("spot",), "spot", 20.0),
        ("", ("spot", "on-demand"), "", 20.0),
    ],
)
def test_what_a_node_told_and_what_it_costs(told: str, ladder: tuple[str, ...], kind: str, usd: float) -> None:
    prices = {"spot": 20.0, "on_demand": 50.0, "capacity_block": 40.0, "flex_start": 50.0}
    known = context(*ladder, **{name: value for name, value in prices.items() if name.replace("_", "-") in ladder})
    assert (price(told, known)[0], price(told, known)[1].value) == (kind, usd)


def test_a_kind_without_a_price_is_said() -> None:
    kind, figure_ = price("on-demand", context("spot", spot=20.0))
    assert kind == "on-demand"
    assert figure_ == Quantity.absent("USD/h", "the launcher gave no price of on-demand nodes")
    assert price("on-demand", context("spot", "flex-start", "reservation"))[1].provenance == "absent"
    assert price("", RunContext())[1].source == "the launcher gave no price"
