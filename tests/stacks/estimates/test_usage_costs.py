"""What declared usage costs: by hand, line by line, and what is missing or of no effect."""

from collections.abc import Callable
from typing import Any

import pytest

from gangway.stacks.config.stack_config import StackConfig
from gangway.stacks.estimates.usage_costs import idle_settings, missing_usage, usage_lines
from gangway.stacks.plan.plan import make_plan

Edited = Callable[[Callable[[dict[str, Any]], object]], StackConfig]


def with_estimate(**values: Any) -> Callable[[dict[str, Any]], object]:
    return lambda stack: stack.update({"gangway:estimate": values})


def test_without_figures_there_is_no_line_and_each_is_named(demo_config: StackConfig) -> None:
    assert usage_lines(demo_config) == []
    assert [what.rpartition("(")[2].rstrip(")") for what in missing_usage(demo_config)] == [
        "source_region, source_gib", "nat_gib", "log_gib", "download_gib", "run_bucket_gib", "image_gib",
        "requests, messages and calls",
    ]  # fmt: skip


def test_each_figure_is_a_line_priced_by_the_gib(edited: Edited) -> None:
    """40 GiB from the region beside at 0.01, 60 through NAT at 0.045, 2 of logs at 0.50, 5 out at 0.09; 100 GiB of runs
    at 0.023 a month, 20 of images at 0.10.
    """
    used = {"source_gib": 40, "source_region": "us-east-1", "nat_gib": 60, "log_gib": 2, "download_gib": 5}
    config = edited(with_estimate(**used, run_bucket_gib=100, image_gib=20))
    *once, runs, images = usage_lines(config)
    assert [line.once for line in once] == pytest.approx([0.4, 2.7, 1.0, 0.45])
    assert {line.unit for line in once} == {"GiB"}
    assert {line.hourly for line in once} == {0.0}
    assert [line.priced_in for line in once] == ["", "us-east-1", "us-east-1", ""]
    assert "(price of" not in once[0].source, "a price of the pair, and of no region alone"
    assert [line.unit for line in (runs, images)] == ["GiB-months", "GiB-months"]
    assert [line.hourly for line in (runs, images)] == pytest.approx([2.3 / 730, 2.0 / 730])
    assert missing_usage(config) == ("requests, messages and calls",)


@pytest.mark.parametrize(
    ("source", "usd"), [("us-east-1", 100), ("us-west-2", 200), ("sa-east-1", 1380), ("af-south-1", 1470)]
)
def test_a_way_between_regions_costs_what_the_pair_does(source: str, usd: float, edited: Edited) -> None:
    (line,) = usage_lines(edited(with_estimate(source_gib=10_000, source_region=source)))
    assert line.once == pytest.approx(usd)


@pytest.mark.slow
@pytest.mark.parametrize("source", ["ap-south-2", "us", "mars-north-1"])
def test_a_pair_that_nobody_knows_is_unknown_and_no_other_pairs(source: str, edited: Edited) -> None:
    config = edited(with_estimate(source_gib=10_000, source_region=source))
    (line,) = usage_lines(config)
    assert (line.price, line.hourly, line.once) == (None, None, 0.0)
    assert line.source == f"no price from {source} to us-east-2 in the catalogue"
    made = make_plan(config)
    assert made.cost.unknown == (line.name,)
    (finding,) = [each for each in made.findings if each.code == "cost.price-unknown"]
    assert line.name in finding.message


def test_what_is_kept_is_priced_as_its_bucket_is(azure_configs: dict[str, StackConfig]) -> None:
    config = azure_configs["azure-ndv5-spot"]
    used = {"run_bucket_gib": 100, "flow_log_gib": 2, "key_operations": 50_000}
    config = config.model_copy(update={"estimate": config.estimate.model_copy(update=used)})
    lines = {line.name: line for line in make_plan(config).cost.components}
    runs, flows = lines["run bucket: 100 GiB"], lines["flow logs, a run"]
    assert runs.price == 0.026, "kept in several zones"
    assert runs.hourly == pytest.approx(2.6 / 730)
    assert {key.rpartition("::")[2] for key in runs.of} == {"azurendv5spot", "azurendv5spflows"}
    assert (flows.once, lines["flow logs kept for a month, a run's"].once) == pytest.approx((1.0, 0.0416))
    assert lines["operations on the stack's key, a run"].once == pytest.approx(5 * 0.03)


@pytest.mark.parametrize(
    ("tib", "usd"),
    [
        (10, 10 * 1024 * 0.09),
        (12, 10 * 1024 * 0.09 + 2 * 1024 * 0.085),
        (160, 10 * 1024 * 0.09 + 40 * 1024 * 0.085 + 100 * 1024 * 0.07 + 10 * 1024 * 0.05),
    ],
)
def test_what_leaves_the_cloud_is_priced_tier_by_tier(tib: float, usd: float, edited: Edited) -> None:
    lines = usage_lines(edited(with_estimate(download_gib=tib * 1024)))
    assert sum(line.once for line in lines) == pytest.approx(usd)
    assert sum(line.quantity for line in lines) == tib * 1024
    names = [line.name for line in lines]
    assert len(set(names)) == len(names)


def test_a_bucket_in_the_own_region_costs_no_transfer(edited: Edited) -> None:
    config = edited(with_estimate(source_gib=40, source_region="us-east-2"))
    assert usage_lines(config) == []
    assert not any("data set" in what for what in missing_usage(config))


def test_a_bucket_elsewhere_of_unknown_size_is_said(edited: Edited) -> None:
    config = edited(with_estimate(source_region="us-west-2"))
    assert usage_lines(config) == []
    assert any("data set" in what for what in missing_usage(config))


def test_settings_without_effect_are_told(edited: Edited) -> None:
    def change(stack: dict[str, Any]) -> None:
        stack["gangway:storage"].pop("source")
        stack["gangway:network"] = {"egress": "endpoints"}
        stack["gangway:cluster"]["capacity"] = [{"kind": "on-demand"}]
        stack["gangway:estimate"] = {
            "source_gib": 1, "source_region": "us-east-1", "nat_gib": 1, "log_gib": 1, "restart_sec": 3,
            "flow_log_gib": 1, "key_operations": 1, "taken_percent_per_month": 5,
        }  # fmt: skip

    config = edited(change)
    assert idle_settings(config) == {
        "source_gib": "there is no storage.source",
        "source_region": "there is no storage.source",
        "nat_gib": "there is no NAT gateway",
        "flow_log_gib": "flow logs are billed as log lines (log_gib)",
        "key_operations": "the stack has no key",
        "taken_percent_per_month": "no rung is spot",
    }, "machines that nobody takes fail, and restart too"
    assert [line.name for line in usage_lines(config)] == ["log lines, a run"]


def test_nothing_is_idle_in_the_shipped_stacks(
    demo_config: StackConfig, gcp_configs: dict[str, StackConfig], azure_configs: dict[str, StackConfig]
) -> None:
    for config in (demo_config, *gcp_configs.values(), *azure_configs.values()):
        assert idle_settings(config) == {}
        assert len(missing_usage(config)) >= 2
