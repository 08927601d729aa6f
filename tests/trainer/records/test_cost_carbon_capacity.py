"""Which kind of capacity a node came from, and its price: what the node told, what the ladder allows."""

import pytest

from gangway.trainer.records.cost_carbon import by_node, own_capacity, price
from gangway.trainer.records.quantity import Quantity
from gangway.trainer.records.run_record import RunContext


def figure(value: float) -> Quantity:
    return Quantity(value=value, unit="USD/h", provenance="list-price", source="catalogue")


def context(*ladder: str, **prices: float) -> RunContext:
    by_kind = {kind.replace("_", "-"): figure(value) for kind, value in prices.items()}
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
