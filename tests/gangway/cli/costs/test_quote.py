"""`gangway quote` from outside: the ranking, the JSON with its sources, mistakes, and what it does not load."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from gangway.cli import main
from gangway.cli.costs.quote import carriers, chosen_providers, get_hours
from gangway.components.core.findings import InputError
from gangway.components.estimate.offers import find_offers
from gangway.components.estimate.quotes import Job, rank
from gangway.components.estimate.quotes import quote as quote_one
from gangway.finops.quotes.quote_tables import Answer, answer_json
from gangway.stacks.base.registry import get_provider

ASK = ["quote", "--accelerator", "H100x8", "--nodes", "4", "--hours", "100"]


def run(*arguments: str, exit_code: int = 0) -> str:
    # Wide, so that no sentence is broken.
    result = CliRunner().invoke(main.app, [*ASK, *arguments], env={"COLUMNS": "250"})
    assert result.exit_code == exit_code, result.output
    return result.stdout


def ask(*arguments: str, exit_code: int = 0) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(run(*arguments, "--json", exit_code=exit_code))
    return answer


def mistake(*arguments: str) -> InputError:
    result = CliRunner().invoke(main.app, list(arguments))
    assert isinstance(result.exception, InputError), result.output
    return result.exception


def test_spot_of_aws_is_its_cheapest_way_to_four_nodes() -> None:
    answer = ask("--deadline", "180h", "--providers", "aws")
    first = answer["ranked"][0]
    assert (first["rank"], first["provider"], first["region"], first["kind"]) == (1, "aws", "eu-north-1", "spot")
    assert first["usd"]["value"] == pytest.approx(4 * 10.5722 * first["hours"])
    assert first["usd"]["high"] == pytest.approx(4 * 32.012 * first["hours"])
    assert first["reason"].startswith("cheapest of those ranked; 82% below on demand at the same place")
    assert first["in_time"] == pytest.approx(1, abs=1e-3)
    dollars = [row["usd"]["value"] for row in answer["ranked"]]
    assert dollars == sorted(dollars)


# US dollars of a node-hour, read off the lists by hand: SkyPilot's vms.csv (commit 2c3d7ea7; spot is the median of the
# zones), Karpenter's zz_generated.pricing.go of 2026-06-18, Cyclenerd's pricing.yml of 2026-07-30.
LISTED = {
    "aws us-east-1 p5.48xlarge on-demand": 55.04,
    "aws us-east-2 p5.48xlarge on-demand": 55.04,
    "aws us-west-1 p5.48xlarge on-demand": 68.8,
    "aws ap-northeast-1 p5.48xlarge on-demand": 68.8,
    "aws ap-south-1 p5.48xlarge on-demand": 66.048,
    "aws eu-north-1 p5.48xlarge on-demand": 58.8928,
    "aws eu-west-2 p5.48xlarge on-demand": 71.552,
    "aws us-east-2 p5.48xlarge spot": 14.0818,
    "aws eu-north-1 p5.48xlarge spot": 10.5722,
    "aws eu-west-2 p5.48xlarge spot": 14.0899,
    "azure eastus Standard_ND96isr_H100_v5 on-demand": 98.32,
    "azure uksouth Standard_ND96isr_H100_v5 on-demand": 122.9,
    "azure japaneast Standard_ND96isr_H100_v5 on-demand": 142.564,
    "gcp us-central1 a3-highgpu-8g on-demand": 88.49,
    "gcp us-east4 a3-highgpu-8g on-demand": 88.555756,
}


def test_every_region_is_quoted_at_the_price_of_its_list() -> None:
    found = {
        f"{row['provider']} {row['region']} {row['machine_type']} {row['kind']}": row
        for row in ask("--top", "0")["ranked"]
    }
    for label, usd in LISTED.items():
        row = found[label]
        assert row["price"]["value"] == usd, label
        assert row["price"]["priced_in"] == row["region"], label
        # Failures and interruptions lengthen the 100 hours of 4 nodes.
        assert row["usd"]["value"] == pytest.approx(4 * row["hours"] * usd, rel=1e-6), label
        assert 100 <= row["hours"] < 101, label


def test_another_regions_price_is_shown_and_not_ranked() -> None:
    answer = ask("--providers", "aws")
    (row,) = (one for one in answer["unknown"] if (one["region"], one["kind"]) == ("sa-east-1", "on-demand"))
    assert (row["price"]["value"], row["price"]["priced_in"], row["usd"]["high"]) == (55.04, "us-east-1", None)
    assert "that of us-east-1 stands in" in row["reason"]
    by_carbon = ask("--providers", "aws", "--sort", "carbon")
    ranked = {(one["region"], one["kind"]) for one in by_carbon["ranked"]}
    assert ("sa-east-1", "on-demand") in ranked, "emissions need no price"


def test_every_figure_says_where_it_is_from() -> None:
    answer = ask("--interruptions", "0.15")
    rows = [*answer["ranked"], *answer["unknown"]]
    assert len(rows) > 20
    for row in rows:
        for name in ("price", "usd", "energy", "carbon"):
            figure = row[name]
            assert set(figure) >= {"value", "unit", "source", "as_of", "confidence"}, name
            assert figure["source"], name
        assert (row["interruptions"] is not None) == (row["kind"] == "spot")
    given = next(row for row in answer["ranked"] if row["provider"] == "gcp" and row["kind"] == "spot")
    assert given["interruptions"] == {
        "value": 0.15,
        "unit": "share of nodes a month",
        "source": "as given: nobody publishes it",
        "url": "",
        "as_of": None,
        "confidence": "assumed",
    }
    for provider, words in (("gcp", "5 to 15 % a day"), ("azure", "0 to 5 %")):
        row = next(row for row in ask()["ranked"] if row["provider"] == provider and row["kind"] == "spot")
        rate = row["interruptions"]
        assert (rate["confidence"], words in rate["source"], rate["url"][:8]) == ("assumed", True, "https://")


def test_sci_is_of_the_images_expected_and_at_most() -> None:
    rows = ask("--kimg", "25000", "--providers", "aws", "--deadline", "180h")["ranked"]
    first, without = rows[0], ask("--providers", "aws", "--deadline", "180h")["ranked"][0]
    for name in ("energy", "carbon", "sci"):
        figure = first[name]
        assert figure["low"] < figure["value"] < figure["high"] < figure["most"], name
    assert first["sci"]["value"] > first["carbon"]["value"] / 25_000, "and of making the machines"
    assert without["sci"]["value"] is None
    assert "--kimg" in without["sci"]["source"]
    text = " ".join(run("--kimg", "25000", "--providers", "aws", "--deadline", "180h").split())
    assert f"SCI (1,000 images) {first['sci']['value']:.3g} g expected, {first['sci']['most']:.3g} g at most" in text
    assert mistake("quote", "--accelerator", "H100x8", "--hours", "1", "--kimg", "0").place == "--kimg"


def test_a_job_shorter_than_the_best_interval_saves_at_its_end() -> None:
    rows = ask("--hours", "0.5", "--providers", "aws")["ranked"]
    (spot,) = [row for row in rows if (row["region"], row["kind"]) == ("us-east-1", "spot")]
    assert spot["spot"]["interval_sec"] == 1800 < spot["spot"]["best_interval_sec"]
    assert "with a checkpoint each 30 min" in spot["details"]


def test_a_rate_that_nobody_publishes_is_assumed_and_said() -> None:
    """The middle of 5 to 15 % a day, as a share of a month."""
    answer = ask("--providers", "gcp")
    spot = [row for row in answer["ranked"] if row["kind"] == "spot"]
    assert spot
    assert all(row["interruptions"]["value"] == pytest.approx(1 - 0.9**30) for row in spot)
    assert "(10% of nodes a day, assumed; failures)" in spot[0]["details"]
    text = run("--providers", "gcp")
    assert "a3-megagpu-8g spot*" in text
    assert "gcp a3-highgpu-8g spot*: " in text, "below the first rows, too"
    assert "* gcp publishes no rate of interruptions for these: 10% of nodes a day, assumed: " in text
    assert "--interruptions states another" in text
    stated = run("--providers", "gcp", "--interruptions", "0.2")
    assert "publishes no rate" not in stated
    assert "spot*" not in stated
    assert "(20% of nodes a month, as given; failures)" in stated


def test_no_offer_is_without_its_dollars_or_the_reason() -> None:
    answer = ask()
    text = run()
    assert "cheapest of those ranked: " in text
    assert "the first that cannot be interrupted: aws us-west-2 p5.48xlarge on-demand, $22,096" in text, (
        "as cheap as us-east-1"
    )
    assert f"ranked: {len(answer['ranked'])} offers" in text
    in_full = run("--top", "0")
    assert all(f"{row['usd']['value']:,.0f}" in in_full for row in answer["ranked"])
    assert all(row["reason"] for row in answer["unknown"])
    for row in answer["unknown"]:
        assert (row["region"] in in_full, row["machine_type"] in text) == (True, True)
    reserved = next(row for row in answer["unknown"] if row["provider"] == "aws" and row["kind"] == "reserved-1y")
    assert (reserved["price"]["value"], reserved["elsewhere"]) == (None, None)
    assert "aws p5.48xlarge: no price in the catalogue: reserved-1y, reserved-3y, capacity-block in 13 regions" in text
    assert "that of us-east-1 stands in: on-demand in 1 region, in us-west-2 $22,096; spot in 1 region, in eu" in text
    on_demand = next(row for row in answer["ranked"] if (row["region"], row["kind"]) == ("westus2", "spot"))
    assert f"westus2 at most ${on_demand['usd']['value']:,.0f}" in text, "no price of spot, so that of on demand"


def test_at_80_columns_an_answer_is_a_screen_or_two() -> None:
    answer = CliRunner().invoke(main.app, ASK, env={"COLUMNS": "80"}).stdout
    assert len(answer.splitlines()) < 100
    by_carbon = run("--sort", "carbon")
    rows = ask("--sort", "carbon")["ranked"]
    assert f"the other {len(rows) - 4}, by carbon (kg CO2e); --top 0: a line and reasons each" in by_carbon
    in_full = run("--sort", "carbon", "--top", "0")
    assert all(f"{row['carbon']['value'] / 1000:,.0f} {row['provider']} {row['region']} " in in_full for row in rows)


def test_a_region_in_which_the_machine_is_known_to_be_is_listed_whoever_knows_its_price() -> None:
    offers = find_offers(carriers("H100x8", [get_provider("aws")]))
    assert {"us-east-1", "us-east-2", "us-west-2", "eu-north-1", "sa-east-1"} <= {offer.region for offer in offers}
    foreign = {offer.region for offer in offers if offer.quote and offer.quote.priced_in != offer.region}
    assert foreign == {"sa-east-1"}


def test_at_80_columns_no_line_is_longer() -> None:
    for arguments in ([], ["--top", "0"], ["--deadline", "101h"]):
        result = CliRunner().invoke(main.app, [*ASK, *arguments], env={"COLUMNS": "80"})
        assert [line for line in result.stdout.splitlines() if len(line) > 80] == []


def test_spot_that_cannot_finish_is_infeasible() -> None:
    answer = ask("--deadline", "120h", "--providers", "aws")
    assert {row["kind"] for row in answer["infeasible"]} == {"spot"}
    (spot,) = [row for row in answer["infeasible"] if row["region"] == "us-east-1"]
    assert spot["usd"]["value"] == pytest.approx(4 * 18.7089 * spot["hours"])
    assert spot["reason"].startswith("too late: 157.3 h expected with interruptions on nodes that can be had 64% of")
    assert "not suitable" in run("--deadline", "120h", "--providers", "aws")


def test_nothing_is_done_within_just_its_undisturbed_hours() -> None:
    """Machines fail whoever rents them out, and checkpoints take time on all of them."""
    result = CliRunner().invoke(main.app, [*ASK, "--deadline", "100h", "--providers", "aws", "--json"])
    assert result.exit_code == 1
    reasons = {row["kind"]: row["reason"] for row in json.loads(result.stdout)["infeasible"]}
    assert reasons["on-demand"] == "too late: 100.4 h expected with interruptions, the deadline is 100 h"


def test_on_demand_fails_too_and_says_at_which_rate() -> None:
    """64 nodes x 720 h by hand: one in 6,334.6 node-hours is 7.3 in all, each of 10 min and half an interval."""
    result = CliRunner().invoke(
        main.app,
        ["quote", "--accelerator", "H100x8", "--nodes", "64", "--hours", "720", "--providers", "aws", "--json"],
    )
    row = next(row for row in json.loads(result.stdout)["ranked"] if row["kind"] == "on-demand")
    assert row["failures"]["value"] == pytest.approx(419 / (54 * 24 * 2048), rel=1e-4)
    assert (row["failures"]["confidence"], row["interruptions"]) == ("documented", None)
    mtbf_sec = 54 * 24 * 2048 / 419 / 64 * 3600
    interval_sec = (2 * 10 * (mtbf_sec + 600)) ** 0.5
    lost = (interval_sec / 2 + 600) / mtbf_sec
    assert row["hours"] == pytest.approx(1 / 6 + 720 * (1 + 10 / interval_sec) / (1 - lost), rel=1e-4)
    assert row["risk_hours"] == pytest.approx((row["hours"] - 1 / 6) * lost, rel=1e-4)
    assert row["risk_hours"] > 3
    assert "7.3 failures expected (one in 6,335 node-hours, documented)" in row["details"]


def test_clouds_on_one_grid_differ_in_carbon_by_their_buildings_alone() -> None:
    """Data of two years once made Virginia 21 % cleaner at Google than at Amazon."""
    rows = [row for row in ask("--sort", "carbon")["ranked"] if (row["grid"] or {}).get("zone") == "US-MIDA-PJM"]
    assert {row["provider"] for row in rows} >= {"aws", "azure", "gcp"}
    for row in rows:
        assert row["carbon"]["value"] == pytest.approx(row["energy"]["value"] * 396.25)
        assert (row["grid"]["counted"], row["grid"]["average"]["value"]) == ("average", 396.25)
        assert row["grid"]["marginal"]["value"] == pytest.approx(557, abs=0.2)


def test_a_grid_that_is_too_dirty_is_left_out() -> None:
    answer = ask("--max-intensity", "150")
    clean = {row["region"] for row in answer["ranked"]}
    assert {"us-west1", "swedencentral"} <= clean
    assert not {"us-east-1", "us-central1", "eastus", "europe-west1"} & clean
    assert answer["left_out"] > 20
    assert "offers excluded: their grid has more than 150 g/kWh" in run("--max-intensity", "150")


def test_nothing_that_will_do_exits_1() -> None:
    assert ask("--max-intensity", "1", exit_code=1)["ranked"] == []
    assert "no suitable offer" in run("--max-intensity", "1", exit_code=1)


def test_a_person_reads_the_best_ones_and_the_gaps() -> None:
    text = run("--top", "2", "--deadline", "180h")
    assert "H100x8, 4 nodes, 100 h of training, done within 180 h; by cost" in text
    assert "aws p5.48xlarge spot: us-east-2 $5,658, " in text
    assert text.count(" per node-hour, ") == 2
    assert "the other 200, by cost (expected dollars); --top 0: a line and reasons each" in text
    assert "Standard_ND96isr_H100_v5" in text
    in_full = run("--top", "0")
    assert "reserved-3y in eastus, eastus2, centralus, " in in_full
    assert "--top 0" not in in_full


def test_a_tpu_slice_is_priced_by_its_chips_and_its_energy_is_unknown() -> None:
    result = CliRunner().invoke(main.app, ["quote", "--accelerator", "v5p-64", "--hours", "4d", "--json"])
    answer = json.loads(result.stdout)
    first = next(row for row in answer["ranked"] if row["kind"] == "on-demand")
    assert (first["machine_type"], first["region"]) == ("v5p-64", "us-central1")
    assert first["usd"]["value"] == pytest.approx(first["hours"] * 32 * 4.2)
    assert (first["hours"] > 96, first["failures"]["confidence"]) == (True, "assumed"), "nobody publishes TPUs' rate"
    assert first["carbon"]["value"] is None
    assert first["carbon"]["confidence"] == "unknown"
    by_carbon = ["quote", "--accelerator", "v5p-64", "--hours", "4d", "--sort", "carbon"]
    result = CliRunner().invoke(main.app, by_carbon, env={"COLUMNS": "250"})
    assert result.exit_code == 1
    assert "emissions not known: Google publishes no power figure" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--accelerator", "H100x9"], ["--accelerator: no such accelerator", "'H100x9'", "did you mean 'H100x8'?"]),
        (["--accelerator", "V5P-64"], ["--accelerator: ", "'V5P-64'", "write v5p-64"]),
        (["--accelerator", "v5p-60"], ["--accelerator: no v5p slice has this size", "nearest: v5p-32"]),
        (["--accelerator", "v5p-64", "--providers", "aws"], ["--accelerator: no such accelerator on aws"]),
        (["--hours", "0"], ["--hours: invalid duration", "'0'", "hours above 0"]),
        (["--hours", "-3"], ["--hours: invalid duration", "'-3'"]),
        (["--hours", "9" * 400], ["--hours: invalid duration", "up to 876000"]),
        (["--hours", "nan"], ["--hours: invalid duration"]),
        (["--deadline", "99h"], ["--deadline: shorter than the training", "'99h'", "100h or more", "--deadline 120h"]),
        (["--nodes", "0"], ["--nodes: out of range", "got:     0", "1 to 1,000,000"]),
        (["--nodes", "1" + "0" * 400], ["--nodes: out of range", "1 to 1,000,000"]),
        (["--top", "-1"], ["--top: out of range", "got:     -1", "write --top 0"]),
        (["--providers", "aws,gpc"], ["--providers: no such provider", "'gpc'", "did you mean 'gcp'?"]),
        (["--sort", "price"], ["--sort: cannot sort by this", "'price'", "cost, carbon, risk"]),
        (["--interruptions", "15"], ["--interruptions: out of range", "15.0", "write --interruptions 0.15"]),
        (["--max-intensity", "-1"], ["--max-intensity: out of range", "-1.0", "write --max-intensity 200"]),
        (["--max-intensity", "nan"], ["--max-intensity: out of range"]),
    ],
)
def test_a_mistake_names_its_place_its_value_and_its_fix(arguments: list[str], said: list[str]) -> None:
    text = str(mistake(*ASK, *arguments))
    assert [part for part in said if part not in text] == []


@pytest.mark.parametrize(("text", "hours"), [("100", 100), ("130h", 130), ("1.5 d", 36), (" 2h", 2)])
def test_lengths_of_time_as_people_write_them(text: str, hours: float) -> None:
    assert get_hours(text, "--hours") == hours


def test_providers_keep_their_order() -> None:
    assert [one.name for one in chosen_providers(None)] == ["aws", "gcp", "azure"]
    assert [one.name for one in chosen_providers("azure, aws")] == ["aws", "azure"]


def test_a_slice_is_offered_where_its_generation_is() -> None:
    (carrier,) = carriers("v6e-16", [get_provider("gcp")])
    assert set(carrier.offered_in) <= set(carrier.regions)
    assert {price.region for price in carrier.prices} <= set(carrier.offered_in)


def test_a_region_without_a_grid_says_so() -> None:
    """Prices may come from regions that the catalogue has no grid of."""
    here = [offer for offer in find_offers(carriers("H100x8", [get_provider("aws")])) if offer.region == "us-east-1"]
    job = Job(1, 10)
    quoted = [quote_one(replace(offer, place=None), job) for offer in here if offer.kind == "on-demand"]
    answer = answer_json(Answer("H100x8", job, "carbon", None, 0, rank(quoted, "carbon")))
    (row,) = (row for row in answer["unknown"] if row["region"] == "us-east-1")
    assert row["reason"] == "emissions not known: no grid intensity and PUE of us-east-1 in the catalogue"
    assert row["carbon"]["source"] == "absent: no grid intensity and PUE of us-east-1 in the catalogue"


def test_a_job_that_runs_is_told_to_stay_or_to_move() -> None:
    here = "aws us-east-1 p5.48xlarge on-demand"
    move = ask("--here", here)["move"]
    assert move["go"] is True
    assert move["saves"]["low"] > 0
    assert move["saves"]["low"] <= move["saves"]["value"] <= move["saves"]["high"]
    assert move["egress"]["source"]
    assert "move" not in ask(), "nobody asked"
    heavy = ask("--here", here, "--carry-gib", "1000000", "--providers", "aws,gcp")["move"]
    assert heavy["to"].startswith("aws us-east-1 "), "what stays in the region carries nothing"
    assert heavy["egress"]["usd"] == 0
    near = ask("--here", "gcp europe-west4 a3-highgpu-8g on-demand", "--allow", "gcp:europe-west1")["move"]
    assert near["to"].startswith("gcp europe-west1 ")
    assert (near["egress"]["usd_per_gib"], near["egress"]["usd"]) == (0.02, 0.2), "the pair's, not the internet's 0.12"
    text = run("--here", here)
    assert f"you are on {here}" in text
    assert f"move to {move['to']}: saves $" in text
    assert "pulumi up" in text
    alone = ask("--here", here, "--max-intensity", "0", exit_code=1)["move"]
    assert (alone["go"], alone["to"], alone["saves"]) == (False, None, None)


def test_what_a_job_is_on_has_to_be_an_offer() -> None:
    wrong = mistake(*ASK, "--here", "aws us-east-1 p5.48xlarge ondemand")
    assert (wrong.place, wrong.value) == ("--here", "aws us-east-1 p5.48xlarge ondemand")
    assert "aws us-east-1 p5.48xlarge on-demand" in wrong.fix
    assert mistake(*ASK, "--carry-gib", "-1").place == "--carry-gib"


def test_it_loads_no_sdk(repo: Path) -> None:
    """What keeps it under a second."""
    program = (
        "import sys; from typer.testing import CliRunner; from gangway.cli.main import app; "
        f"result = CliRunner().invoke(app, {ASK!r}); "
        "heavy = ('pulumi', 'pulumi_aws', 'boto3', 'google.auth', 'torch', 'numpy', 'matplotlib', 'jinja2'); "
        "print(result.exit_code, [name for name in heavy if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=repo, capture_output=True, text=True, check=True)
    assert done.stdout == "0 []\n"


@pytest.mark.parametrize(
    ("options", "kept"),
    [
        (
            ("--residency", "EU"),
            {
                *("aws eu-north-1", "gcp europe-north1", "gcp europe-west1", "gcp europe-west3", "gcp europe-west4"),
                "gcp europe-west9",
                *("azure polandcentral", "azure spaincentral", "azure swedencentral", "azure westeurope"),
            },
        ),
        (("--allow", "aws:eu-north-1,gcp:europe-west4"), {"aws eu-north-1", "gcp europe-west4"}),
        (
            ("--residency", "US", "--deny", "gcp:,azure:"),
            {f"aws us-{side}" for side in ("east-1", "east-2", "west-1", "west-2")},
        ),
    ],
)
def test_offers_elsewhere_are_left_out_and_counted(options: tuple[str, ...], kept: set[str]) -> None:
    every, answer = ask("--top", "0"), ask("--top", "0", *options)

    def offers(of: dict[str, Any]) -> list[dict[str, Any]]:
        return [row for kind in ("ranked", "infeasible", "unknown") for row in of[kind]]

    seen = {f"{row['provider']} {row['region']}" for row in offers(answer)}
    assert seen == kept
    left_out = answer["left_out_by_regions"]
    assert sum(left_out.values()) == len(offers(every)) - len(offers(answer)) > 0
    assert set(left_out) <= {option.removeprefix("--") for option in options}
    text = run(*options)
    assert all(f"{number} offers excluded: " in text for number in left_out.values())
    assert every["left_out_by_regions"] == {}


def test_nowhere_is_no_offer() -> None:
    answer = ask("--residency", "IS", exit_code=1)
    assert answer["ranked"] == answer["unknown"] == []
    assert list(answer["left_out_by_regions"]) == ["residency"]


def test_a_job_is_advised_to_go_only_where_it_may() -> None:
    here = ("--here", "aws us-east-1 p5.48xlarge on-demand", "--sort", "carbon")
    free, bound = ask(*here), ask(*here, "--allow", "aws:us-east-1")
    assert "us-east-1" not in free["move"]["to"]
    assert bound["move"]["to"].startswith("aws us-east-1 ")


def test_data_are_where_they_may_be() -> None:
    assert mistake(*ASK, "--residency", "EU", "--data", "aws:us-east-1=40").place == "--data"
    assert ask("--residency", "EU", "--data", "aws:eu-west-3=40")["ranked"]


@pytest.mark.parametrize("options", [("--residency", "UK"), ("--allow", "eu-west-1"), ("--deny", "aws:eu-,")])
def test_limits_on_regions_that_are_none(options: tuple[str, str]) -> None:
    found = mistake(*ASK, *options)
    assert found.place == options[0]
    assert found.fix


def test_the_way_of_its_data_is_in_the_price() -> None:
    def of(*more: str) -> dict[str, dict[str, Any]]:
        rows = ask("--providers", "aws,gcp", *more)["ranked"]
        return {f"{row['provider']} {row['region']} {row['machine_type']} {row['kind']}": row for row in rows}

    plain, with_data = of(), of("--data", "aws:us-east-1=1000")
    near = next(label for label in with_data if label.startswith("aws us-east-1 "))
    assert with_data[near]["usd"]["value"] == plain[near]["usd"]["value"]
    assert with_data[near]["data"]["usd"] == 0
    far = next(label for label, row in with_data.items() if row["data"]["usd"] and row["data"]["rtt_ms"])
    way = with_data[far]["data"]
    assert way["usd"] == pytest.approx(1000 * way["usd_per_gib"])
    assert with_data[far]["usd"]["value"] == pytest.approx(plain[far]["usd"]["value"] + way["usd"])
    megabits = 1000 * 2**30 * 8 / 1e6
    assert way["hours_of_one_stream"] == pytest.approx(megabits / way["one_stream_mbps"]["value"] / 3600)
    text = run("--providers", "aws", "--data", "aws:eu-west-1=1000", "--top", "0")
    assert "data: 1000 GiB from aws:eu-west-1 at 0.02 USD" in text
    assert "h by one stream (" in text


def test_a_way_that_nobody_has_priced_is_not_ranked() -> None:
    answer = ask("--providers", "aws", "--data", "hosts:lab/DE=10", exit_code=1)
    assert not answer["ranked"]
    assert any("no price of its data's way" in row["reason"] for row in answer["unknown"])


@pytest.mark.parametrize("text", ["40", "aws:us-east-1", "aws:us-east-1=x", "aws:us-east-1=-1", "nowhere=3"])
def test_data_are_a_region_and_a_size(text: str) -> None:
    error = mistake(*ASK, "--data", text)
    assert error.place == "--data"
    assert error.fix
