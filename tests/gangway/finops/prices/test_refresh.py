"""From answers to an overlay: what changed, what was refused and stays, what of a failing region, and writing it."""

from collections.abc import Callable, Iterable, Sequence
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from gangway.components.catalog.loader import load_provider, load_tpus
from gangway.components.catalog.prices import newest_overlay, read_overlay
from gangway.components.catalog.validators import Observed
from gangway.finops.prices.azure import AzureSource
from gangway.finops.prices.gcp import GcpSource
from gangway.finops.prices.refresh import Report, get_queries, refresh, write_overlay
from gangway.finops.prices.source import Answer, Gap, Query, SourceError, UnreachableError
from gangway.stacks.config.stack_config import StackConfig
from gangway.stacks.plan.plan import make_plan

TODAY = date(2026, 11, 21)


def price(
    field: Any, value: float, region: str = "us-east-1", item: str = "p5.48xlarge", as_of: date = TODAY
) -> Observed:
    return Observed("aws", item, region, field, value, "a list", as_of)


class Played:
    """A source that answers what it was given, by region; an error is raised."""

    name = "aws"
    how = "a test"

    def __init__(self, by_region: dict[str, list[Answer] | SourceError]) -> None:
        self._by_region = by_region
        self.asked: list[str] = []

    def fetch(self, queries: Sequence[Query]) -> Iterable[Answer]:
        region = queries[0].region
        self.asked.append(region)
        answers = self._by_region[region]
        if isinstance(answers, SourceError):
            raise answers
        yield from answers


def run(by_region: dict[str, list[Answer] | SourceError], regions: Sequence[str] | None = None) -> Report:
    return refresh(Played(by_region), "aws", regions or list(by_region), TODAY, lambda region: None)


def known(region: str = "us-east-1", machine: str = "p5.48xlarge") -> Any:
    return next(row for row in load_provider("aws").get_prices(machine) if row.region == region)


def test_a_new_price_reaches_every_estimate(overlays: Path) -> None:
    report = run({"us-east-1": [price("on_demand", 49.5, as_of=date(2026, 11, 18)), price("reserved_1y", 33.0)]})
    assert [(c.observed.field, c.before, c.observed.value) for c in report.changes] == [
        ("on_demand", 55.04, 49.5),
        ("reserved_1y", None, 33.0),
    ]
    path = write_overlay(overlays, report, TODAY)
    assert path == overlays / "aws-2026-11-21.yaml"
    assert known().on_demand.value == 49.5
    assert known().on_demand.source == "overlay, 2026-11-21: a list"
    assert (known().on_demand.as_of, known().on_demand.read_on) == (date(2026, 11, 18), TODAY)
    assert known().on_demand.confidence == "list-price"
    assert known().spot_high.value == 55.04, "what was not asked about stays"


def test_what_is_refused_stays_as_it_was(overlays: Path) -> None:
    report = run({"us-east-1": [price("on_demand", 700.0), price("on_demand", 0.0, item="g5.xlarge")]})
    assert report.changes == ()
    assert [refusal.observed.item for refusal in report.refused] == ["p5.48xlarge", "g5.xlarge"]
    write_overlay(overlays, report, TODAY)
    assert known().on_demand.value == 55.04


def test_what_is_as_it_was_is_confirmed_and_dated_anew(overlays: Path) -> None:
    report = run({"us-east-1": [price("on_demand", 55.0401)]})
    assert (report.changes, report.confirmed) == ((), 1)
    write_overlay(overlays, report, TODAY)
    assert (known().on_demand.value, known().on_demand.read_on) == (55.0401, TODAY)


def test_a_first_price_of_a_region_is_measured_by_another_regions(overlays: Path) -> None:
    report = run({"sa-east-1": [price("on_demand", 56.0, "sa-east-1"), price("block", 400.0, "sa-east-1")]})
    assert [(c.observed.value, c.before) for c in report.changes] == [(56.0, None), (400.0, None)]
    far = run({"sa-east-1": [price("on_demand", 5504.0, "sa-east-1")]})
    assert "more than 10 times above the 55.04" in far.refused[0].reason


def test_a_region_that_fails_costs_only_itself(overlays: Path) -> None:
    report = run({"us-east-1": [price("on_demand", 50.0)], "us-east-2": SourceError("opted out"), "us-west-2": []})
    assert report.regions == ("us-east-1", "us-west-2")
    assert report.failed == {"us-east-2": "opted out"}
    assert len(report.changes) == 1


def test_without_a_network_nobody_else_is_asked(overlays: Path) -> None:
    source = Played({"us-east-1": [], "us-east-2": UnreachableError("no route"), "us-west-2": []})
    report = refresh(source, "aws", ["us-east-1", "us-east-2", "us-west-2"], TODAY, lambda region: None)
    assert source.asked == ["us-east-1", "us-east-2"]
    assert report.failed == {"us-east-2": "no route", "us-west-2": "no route"}


def cluster(usd: float, region: str) -> Observed:
    return Observed("aws", "eks-cluster", region, "usd", usd, "a list", TODAY)


def test_one_price_for_all_regions_stays_one(overlays: Path) -> None:
    report = run({region: [cluster(0.12, region)] for region in ("us-east-1", "us-east-2")})
    ((region, before, now),) = [(c.observed.region, c.before, c.observed.value) for c in report.changes]
    assert (region, before, now) == ("*", 0.1, 0.12)
    write_overlay(overlays, report, TODAY)
    price = load_provider("aws").service_price("aws", "sa-east-1", "eks-cluster")
    assert (price.usd.value, price.region) == (0.12, "*"), "a region that nobody asked about has it too"


def test_regions_that_differ_on_a_price_for_all_leave_it_as_it_was(overlays: Path) -> None:
    report = run({"us-east-1": [cluster(0.12, "us-east-1")], "us-east-2": [cluster(0.13, "us-east-2")]})
    assert {refusal.reason for refusal in report.refused} == {"stated twice: 0.12, 0.13"}
    assert report.changes == ()


def test_an_older_overlays_price_of_a_region_gives_way_to_that_of_all(overlays: Path) -> None:
    report = run({"us-east-1": [cluster(0.12, "us-east-1")]})
    path = write_overlay(overlays, report, date(2026, 11, 20))
    path.write_text(path.read_text("utf-8").replace("region: '*'", "region: us-east-1"), "utf-8")
    assert load_provider("aws").service_price("aws", "us-east-1", "eks-cluster").region == "us-east-1"
    write_overlay(overlays, run({"us-east-1": [cluster(0.11, "us-east-1")]}), TODAY)
    price = load_provider("aws").service_price("aws", "us-east-1", "eks-cluster")
    assert (price.usd.value, price.region) == (0.11, "*")


def test_half_a_region_is_none(overlays: Path) -> None:
    def broken(queries: Sequence[Query]) -> Iterable[Answer]:
        yield price("on_demand", 50.0)
        raise SourceError("broke off")

    source = Played({})
    source.fetch = broken  # type: ignore[method-assign]  # the point of the test
    report = refresh(source, "aws", ["us-east-1"], TODAY, lambda region: None)
    assert (report.changes, report.failed) == ((), {"us-east-1": "broke off"})


def test_the_last_overlay_is_carried_on(overlays: Path) -> None:
    write_overlay(overlays, run({"us-east-1": [price("on_demand", 50.0)]}), date(2026, 11, 1))
    write_overlay(overlays, run({"sa-east-1": [price("on_demand", 51.0, "sa-east-1")]}), TODAY)
    newest = newest_overlay("aws")
    assert newest is not None
    assert newest.path.name == "aws-2026-11-21.yaml"
    assert (known().on_demand.value, known("sa-east-1").on_demand.value) == (50.0, 51.0)
    assert len(read_overlay(newest.path).machines) == 2


def test_gaps_are_told_once(overlays: Path) -> None:
    gap = Gap("us-east-1", "spot prices", "not authorized")
    assert run({"us-east-1": [gap, gap]}).gaps == (gap,)


def test_an_interrupted_write_leaves_the_old_file_and_nothing_else(
    overlays: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_overlay(overlays, run({"us-east-1": [price("on_demand", 50.0)]}), TODAY)
    before = path.read_bytes()

    def interrupted(*arguments: object) -> str:
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_overlay(overlays, run({"us-east-1": [price("on_demand", 51.0)]}), TODAY)
    assert path.read_bytes() == before
    assert list(overlays.iterdir()) == [path]


def test_google_is_asked_only_where_the_catalogue_says_it_sells() -> None:
    queries = get_queries(load_provider("gcp"), load_tpus(), "us-central2")
    assert {query.item for query in queries if not query.is_service} == {"v4"}
    assert "pd-balanced" in {query.item for query in queries}
    everywhere = get_queries(load_provider("aws"), None, "eu-north-1")
    assert {query.item for query in everywhere if not query.is_service} == set(load_provider("aws").machines)


def test_a_plan_says_which_of_its_prices_are_an_overlays(overlays: Path, demo_config: StackConfig) -> None:
    region = demo_config.region
    later = date(2026, 12, 1)
    usd = {"spot_low": 20.0, "spot_typical": 20.5, "spot_high": 21.0, "on_demand": 54.0}
    good = [price(field, each, region, as_of=later) for field, each in usd.items()]
    write_overlay(overlays, refresh(Played({region: [*good]}), "aws", [region], later, lambda region: None), later)
    lines = [line for line in make_plan(demo_config).cost.components if "p5.48xlarge" in line.name]
    assert lines
    for line in lines:
        assert line.source.startswith("overlay, 2026-12-01: a list")
        assert line.as_of == "2026-12-01"


def test_azures_answers_become_an_overlay(
    overlays: Path, play: Callable[..., Any], answer: Callable[[str], Any]
) -> None:
    source = AzureSource(play(answer("azure_1.json"), answer("azure_2.json")).web(), TODAY)
    report = refresh(source, "azure", ["eastus"], TODAY, lambda region: None)
    changed = {(c.observed.item, c.observed.field) for c in report.changes}
    assert changed == {
        ("Standard_ND96asr_v4", "spot_low"),
        ("Standard_ND96asr_v4", "spot_typical"),
        ("Standard_ND96asr_v4", "reserved_3y"),
        ("Standard_ND96isr_H100_v5", "spot_typical"),
    }
    assert report.confirmed == 7
    refused = {(r.observed.item, r.observed.field): r.reason for r in report.refused}
    assert refused == {
        ("Standard_NC24ads_A100_v4", "spot_low"): "zero stands for a price that the list does not know",
        ("Standard_NC24ads_A100_v4", "spot_typical"): "zero stands for a price that the list does not know",
        ("Standard_NC24ads_A100_v4", "spot_high"): "zero stands for a price that the list does not know",
    }
    write_overlay(overlays, report, TODAY)
    row = next(row for row in load_provider("azure").get_prices("Standard_ND96asr_v4") if row.region == "eastus")
    assert row.reserved_1y.value == round(164951 / 8760, 6)
    assert row.reserved_1y.source == (
        "overlay, 2026-11-21: Azure retail prices API, ND96asr v4, 1 Year over 8760 hours"
    )


def test_googles_answers_become_an_overlay_with_chips(
    overlays: Path, play: Callable[..., Any], answer: Callable[[str], Any]
) -> None:
    machines: Any = dict(load_provider("gcp").machines)
    session = play(answer("gcp_1.json"), answer("gcp_2.json"), {"services": []})
    source = GcpSource(session.web(), machines, TODAY, "a test")
    report = refresh(source, "gcp", ["us-central1", "us-east4"], TODAY, lambda region: None)
    assert not report.refused
    write_overlay(overlays, report, TODAY)
    chip = next(row for row in load_tpus().get_prices("v5e") if row.region == "us-central1")
    assert (chip.on_demand.value, chip.spot.value) == (1.2, 0.35)
    assert chip.spot.source.startswith("overlay, 2026-11-21: Google Cloud Billing Catalog: tpuv5e, spot")
    fields = {c.observed.field for c in report.changes if c.observed.item == "v5e"}
    assert fields == {"spot_high"}, "a chip has one spot price, and on demand is confirmed"
    slice_ = load_provider("gcp").price("a4-highgpu-8g", "us-central1", "on-demand")
    assert slice_ is not None
    assert slice_.usd == pytest.approx(8 * 16.11)


def test_the_source_is_told_which_region_is_next(overlays: Path) -> None:
    heard: list[str] = []
    refresh(Played({"us-east-1": [], "us-east-2": []}), "aws", ["us-east-1", "us-east-2"], TODAY, heard.append)
    assert heard == ["us-east-1", "us-east-2"]
