"""What a run uses up once: said lines, unsaid ones, and settings that change nothing."""

from collections.abc import Callable
from typing import Any

import pytest

from stacks.config.stack_config import StackConfig
from stacks.planning.run_costs import idle_settings, unsaid_usage, usage_lines

Edited = Callable[[Callable[[dict[str, Any]], object]], StackConfig]


def estimate(**values: Any) -> Callable[[dict[str, Any]], object]:
    return lambda stack: stack.update({"gangway:estimate": values})


def test_without_figures_there_is_no_line_and_each_is_named(demo_config: StackConfig) -> None:
    assert usage_lines(demo_config) == []
    assert [what.rpartition("(")[2].rstrip(")") for what in unsaid_usage(demo_config)] == [
        "source_region, source_gib", "nat_gib", "log_gib", "download_gib",
    ]  # fmt: skip


def test_each_figure_is_a_line_priced_by_the_gib(edited: Edited) -> None:
    """40 GiB from another region at 0.02, 60 through NAT at 0.045, 2 of logs at 0.50, 5 out at 0.09."""
    config = edited(estimate(source_gib=40, source_region="us-east-1", nat_gib=60, log_gib=2, download_gib=5))
    lines = usage_lines(config)
    assert [line.once for line in lines] == pytest.approx([0.8, 2.7, 1.0, 0.45])
    assert {line.unit for line in lines} == {"GiB"}
    assert {line.hourly for line in lines} == {0.0}
    assert all("(price of us-east-1)" in line.source for line in lines)
    assert unsaid_usage(config) == ()


@pytest.mark.parametrize(
    ("tib", "usd"),
    [
        (10, 10 * 1024 * 0.09),
        (12, 10 * 1024 * 0.09 + 2 * 1024 * 0.085),
        (160, 10 * 1024 * 0.09 + 40 * 1024 * 0.085 + 100 * 1024 * 0.07 + 10 * 1024 * 0.05),
    ],
)
def test_what_leaves_the_cloud_is_priced_tier_by_tier(tib: float, usd: float, edited: Edited) -> None:
    lines = usage_lines(edited(estimate(download_gib=tib * 1024)))
    assert sum(line.once for line in lines) == pytest.approx(usd)
    assert sum(line.quantity for line in lines) == tib * 1024
    names = [line.name for line in lines]
    assert len(set(names)) == len(names)


def test_a_bucket_in_the_own_region_costs_no_transfer(edited: Edited) -> None:
    config = edited(estimate(source_gib=40, source_region="us-east-2"))
    assert usage_lines(config) == []
    assert not any("data set" in what for what in unsaid_usage(config))


def test_a_bucket_elsewhere_of_unknown_size_is_said(edited: Edited) -> None:
    config = edited(estimate(source_region="us-west-2"))
    assert usage_lines(config) == []
    assert any("data set" in what for what in unsaid_usage(config))


def test_settings_without_effect_are_told(edited: Edited) -> None:
    def change(stack: dict[str, Any]) -> None:
        stack["gangway:storage"].pop("source")
        stack["gangway:network"] = {"egress": "endpoints"}
        stack["gangway:cluster"]["capacity"] = [{"kind": "on-demand"}]
        stack["gangway:estimate"] = {
            "source_gib": 1, "source_region": "us-east-1", "nat_gib": 1, "log_gib": 1, "restart_sec": 3,
            "taken_percent_per_month": 5,
        }  # fmt: skip

    config = edited(change)
    assert idle_settings(config) == {
        "source_gib": "there is no storage.source",
        "source_region": "there is no storage.source",
        "nat_gib": "there is no NAT gateway",
        "taken_percent_per_month": "no rung is spot",
    }, "machines that nobody takes fail, and restart too"
    assert [line.name for line in usage_lines(config)] == ["log lines, a run"]


def test_nothing_is_idle_in_the_shipped_stacks(
    demo_config: StackConfig, gcp_configs: dict[str, StackConfig], azure_configs: dict[str, StackConfig]
) -> None:
    for config in (demo_config, *gcp_configs.values(), *azure_configs.values()):
        assert idle_settings(config) == {}
        assert len(unsaid_usage(config)) >= 2
