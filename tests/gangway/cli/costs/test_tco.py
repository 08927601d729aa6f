"""`gangway tco` from outside: both bills, the break-evens, the plot, mistakes."""

import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner

from gangway.cli import main
from gangway.cli.costs.quote import carriers
from gangway.components.catalog.schema import Fact
from gangway.components.core.findings import InputError
from gangway.components.estimate.offers import find_offers
from gangway.components.estimate.tco import CloudSide, break_even_months, discounted_hours
from gangway.finops.quotes.tco_inputs import Inputs, gather
from gangway.finops.quotes.tco_tables import compare, draw_plot, show
from gangway.stacks.base.registry import get_provider

ASK = ["tco", "--accelerator", "H100x8", "--nodes", "4", "--years", "3", "--providers", "aws"]


def run(*arguments: str) -> str:
    result = CliRunner().invoke(main.app, [*ASK, *arguments], env={"COLUMNS": "250"})
    assert result.exit_code == 0, result.output
    return result.stdout


def ask(*arguments: str) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(run(*arguments, "--json"))
    return answer


def inputs(**given: float) -> Inputs:
    return gather("H100x8", 4, 3, find_offers(carriers("H100x8", [get_provider("aws")])), given)


def with_reservation(inputs: Inputs, usd_per_hour: float) -> Inputs:
    """The same with a year's commitment at that price."""
    offer = next(o for o in find_offers(carriers("H100x8", [get_provider("aws")])) if o.kind == "reserved-1y")
    price = Fact[float | None].model_validate({**offer.price.model_dump(), "value": usd_per_hour})
    return replace(inputs, reserved=(replace(offer, price=price, on_demand=55.04),))


def test_both_bills_by_hand() -> None:
    """4 nodes over 26,280 h, all inputs given: 50 at half use; 400,000 less 100,000 and 10 an hour."""
    answer = ask(
        *("--usd-per-hour", "50", "--utilisation", "0.5", "--capex", "400000", "--resale", "0.25"),
        *("--kw", "10", "--pue", "1.5", "--usd-per-kwh", "0.1", "--colo", "2555", "--ops", "3650"),
        *("--cost-of-capital", "0", "--availability", "1"),
    )
    assert answer["cloud"]["value"] == pytest.approx(4 * 26_280 * 25)
    assert answer["onprem"]["value"] == pytest.approx(4 * (300_000 + 26_280 * 10))
    assert answer["onprem_node_hour"]["value"] == pytest.approx(300_000 / 26_280 + 10)
    assert answer["onprem_used_hour"]["value"] == pytest.approx(2 * (300_000 / 26_280 + 10))
    assert answer["break_even"]["months"] == pytest.approx(300_000 / 15 / 730)
    assert answer["break_even"]["utilisation"] == pytest.approx((300_000 / 26_280 + 10) / 50)
    assert answer["rented"] is None
    assert {value["source"] for name, value in answer["inputs"].items() if name != "fixed"} == {
        "given on the command line"
    }


def test_the_stated_assumptions_keep_the_rule_of_thumb() -> None:
    answer = ask()
    months = {row["utilisation"]: row["months"] for row in answer["break_even"]["by_utilisation"]}
    assert 12 <= months[0.8] < months[0.7] <= 24
    assert answer["rule_of_thumb"]["holds"] is True
    assert answer["inputs"]["capex"]["confidence"] == "assumed"
    assert answer["inputs"]["usd_per_hour"]["confidence"] == "list-price"
    assert answer["rented"] == "aws us-east-1 p5.48xlarge on-demand"
    assert "holds" in run()


def test_an_hour_of_an_owned_node_is_told_as_a_stack_file_takes_it() -> None:
    """Discounted alike on both sides: renting at that rate, all the time, comes to what owning does."""
    answer = compare(inputs(utilisation=0.5))
    rented = answer.onprem_usd_per_node_hour * discounted_hours(answer.inputs.hours, answer.inputs.rate)
    assert 4 * rented == pytest.approx(answer.onprem_usd)
    printed = run("--utilisation", "0.5")
    assert f"an hour of an owned node costs ${answer.onprem_usd_per_node_hour:.2f}, used or not" in printed
    assert f"gangway:site: {{usd_per_node_hour: {2 * answer.onprem_usd_per_node_hour:.2f}}}" in printed


def test_what_never_pays_is_said() -> None:
    text = run("--usd-per-hour", "5", "--utilisation", "0.2")
    assert "renting is cheaper" in text
    assert "at 20% use, owning is cheaper never" in text
    assert "owning is cheaper at no use" in text
    assert "does not hold" in text
    assert ask("--usd-per-hour", "5")["break_even"]["months"] is None


def test_what_always_pays_is_said() -> None:
    assert "owning is cheaper at any use" in run("--fixed", "500")


def test_a_reservation_pays_above_its_share() -> None:
    answer = compare(with_reservation(inputs(), 38.0))
    (reserved,) = answer.reserved
    assert reserved.pays_above == pytest.approx(38 / 55.04)
    years = discounted_hours(26_280, 0.08)
    assert reserved.usd == pytest.approx(4 * 38 * years)
    console = Console(width=250, record=True, file=io.StringIO())
    show(answer, console)
    assert "$38.00 of $55.04 an hour, pays above 69% use" in console.export_text()
    assert reserved.onprem_months == break_even_months(CloudSide(38, 1), answer.inputs.onprem, 0.08)


def test_a_reservation_is_paid_for_whole_terms() -> None:
    """Half a year of a year's commitment costs the year; three years are three, and nothing is added."""
    half = with_reservation(inputs(), 38.0)
    (reserved,) = compare(replace(half, years=0.5)).reserved
    assert reserved.usd == pytest.approx(4 * 38 * discounted_hours(8760, 0.08))
    assert reserved.paid_hours == 8760
    console = Console(width=250, record=True, file=io.StringIO())
    show(compare(replace(half, years=0.5)), console)
    assert "over 0.5 years (whole terms: 8,760 h)" in console.export_text()
    assert compare(half).reserved[0].paid_hours == 26_280


def test_a_commitments_price_that_nobody_publishes_can_be_given() -> None:
    text = run()
    assert "no price of aws reserved-1y, aws reserved-3y for these nodes in the catalogue" in text
    answer = ask("--reserved-3y", "30", "--cost-of-capital", "0")
    (reserved,) = answer["reserved"]
    assert reserved["offer"] == "aws us-east-1 p5.48xlarge reserved-3y"
    assert (reserved["usd"], reserved["price"]["source"]) == (4 * 30 * 26_280, "given on the command line")
    assert reserved["pays_above_utilisation"] == pytest.approx(30 / 55.04)
    assert answer["reserved_unpriced"] == ["aws reserved-1y"]


def test_resale_is_by_age_and_operation_by_scale() -> None:
    by_years = [ask("--years", years)["inputs"]["resale"]["value"] for years in ("1", "3", "6")]
    assert by_years == pytest.approx([0.75 * 0.6881**years for years in (1, 3, 6)])
    few, many = (
        json.loads(CliRunner().invoke(main.app, [*ASK, "--nodes", nodes, "--json"]).stdout)["inputs"]["ops"]
        for nodes in ("4", "128")
    )
    assert few["value"] == pytest.approx(3000)
    assert many["value"] == pytest.approx(12_000 * (1 + 124 * 8 / 250) / 128)
    assert "5 engineers for 128 nodes" in many["source"]


def test_no_node_draws_more_on_average_than_at_its_peak() -> None:
    assert inputs(kw=8.0).value("colo") == pytest.approx(200 * 10.2)
    assert inputs(kw=15.0).value("colo") == pytest.approx(200 * 15 / 0.76)


def test_a_price_nobody_has_is_asked_for() -> None:
    with pytest.raises(InputError, match="--capex: not published for A100x8") as caught:
        gather("A100x8", 1, 3, find_offers(carriers("A100x8", [get_provider("aws")])), {})
    assert caught.value.fix == "give --capex"
    # With the price alone the rest is known: the draw from the catalogue, colocation by it.
    found = gather("A100x8", 1, 3, find_offers(carriers("A100x8", [get_provider("aws")])), {"capex": 200_000})
    assert found.value("kw") == pytest.approx((8 * 400 * 0.76 + 2510) / 1000, rel=0.2)
    assert found.value("colo") == pytest.approx(
        200 * (8 * 400 + found.rented.machine.host_watts.value / 0.76) / 1000 if found.rented else 0
    )


def test_a_draw_nobody_publishes_is_asked_for() -> None:
    offers = find_offers(carriers("v5p-64", [get_provider("gcp")]))
    with pytest.raises(InputError, match="--kw"):
        gather("v5p-64", 1, 3, offers, {"capex": 1e6})
    assert gather("v5p-64", 1, 3, offers, {"capex": 1e6, "kw": 15}).value("colo") == pytest.approx(200 * 15 / 0.76)


@pytest.mark.slow
def test_the_plot_is_written_as_png_and_svg(tmp_path: Path) -> None:
    out = tmp_path / "new" / "tco.png"
    text = run("--out", str(out))
    png, svg = out.read_bytes(), out.with_suffix(".svg").read_text("utf-8")
    assert png.startswith(b"\x89PNG")
    assert len(png) < 150_000
    assert "<svg" in svg
    assert str(out) in text
    for again in (out, out.with_suffix("")):  # the second stands for both endings
        refused = CliRunner().invoke(main.app, [*ASK, "--out", str(again)])
        assert isinstance(refused.exception, InputError)
        assert f"tco-1{again.suffix}" in str(refused.exception)
        assert "already exists" in str(refused.exception)
    assert ask("--out", str(out), "--overwrite")["files"] == [str(out), str(out.with_suffix(".svg"))]
    assert out.read_bytes() == png, "equal input, equal file"


def test_a_plot_without_crossings_is_drawn_too() -> None:
    dear = compare(inputs(usd_per_hour=5, utilisation=0.1))
    assert draw_plot(dear, "png").startswith(b"\x89PNG")
    assert b"<svg" in draw_plot(compare(with_reservation(inputs(), 38.0)), "svg")


@pytest.mark.parametrize("out", ["", "/"])
def test_a_plot_wants_a_name(out: str) -> None:
    result = CliRunner().invoke(main.app, [*ASK, "--out", out])
    assert isinstance(result.exception, InputError)
    assert "--out: has no file name" in str(result.exception)


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way", "utf-8")
    result = CliRunner().invoke(main.app, [*ASK, "--out", str(tmp_path / "file" / "tco")])
    assert isinstance(result.exception, InputError)
    assert str(result.exception).startswith("--out: cannot be written: ")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--nodes", "0"], ["--nodes: out of range", "1 to 1,000,000", "write --nodes 1"]),
        (["--nodes", "1" + "0" * 400], ["--nodes: out of range", "write --nodes 1000000"]),
        (["--years", "0"], ["--years: out of range", "0.1 to 20 years"]),
        (["--years", "50"], ["--years", "write --years 20"]),
        (["--years", "nan"], ["--years: out of range"]),
        (["--utilisation", "75"], ["--utilisation: out of range", "75.0", "write --utilisation 0.75"]),
        (["--pue", "0.9"], ["--pue: out of range", "0.9", "1 to 10"]),
        (["--usd-per-kwh", "-1"], ["--usd-per-kwh: out of range", "write --usd-per-kwh 0"]),
        (["--capex", "inf"], ["--capex: out of range"]),
        (["--accelerator", "H100x9"], ["--accelerator: no such accelerator", "did you mean 'H100x8'?"]),
    ],
)
def test_a_mistake_names_its_place_its_value_and_its_fix(arguments: list[str], said: list[str]) -> None:
    result = CliRunner().invoke(main.app, [*ASK, *arguments])
    assert isinstance(result.exception, InputError), result.output
    assert [part for part in said if part not in str(result.exception)] == []
