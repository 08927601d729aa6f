"""What a plan says on every provider, finding by finding."""

from collections.abc import Callable, Sequence
from datetime import date
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangway.components.catalog.loader import load
from gangway.components.catalog.validators import STALE_DAYS
from gangway.components.core.findings import Finding, InputError, Severity
from gangway.components.estimate.cost import CostComponent, CostEstimate, estimate
from gangway.components.gcp.slices import plan_slice, slice_machine
from gangway.stacks.base.registry import all_providers
from gangway.stacks.config.stack_config import StackConfig
from gangway.stacks.estimates.common_findings import check_budget, common_findings, money_findings, span, stale_prices
from gangway.stacks.estimates.run_costs import pace, price_ladder
from gangway.stacks.plan.plan import Plan
from gangway.trainer.config.parts.fields import SELF_PREPARED
from gangway.trainer.config.presets import PRESETS

Edited = Callable[[Callable[[dict[str, Any]], object]], StackConfig]
DEMO_FINDINGS = {"boot.minutes", "config.placeholder", "speed.mostly-waiting"}
"""What is said of the demo, whose 64 digits are too few for 16 H100s."""


def bill(hourly: float | None, priced_in: str = "") -> CostEstimate:
    line = CostComponent("nodes", "hours", 1, hourly, hourly, "a list", "2026-09-06", "list-price", priced_in=priced_in)
    return estimate([line], 1)


def codes(found: list[Finding]) -> set[str]:
    return {finding.code for finding in found}


def cluster(**changes: Any) -> Callable[[dict[str, Any]], object]:
    return lambda values: values["gangway:cluster"].update(changes)


@pytest.mark.parametrize(
    ("nodes", "message", "fix"),
    [
        (
            {"min": 2, "max": 4},
            "on 3 nodes 8 of 24 workers get one image fewer (11% idle)",
            "set nodes: {min: 4, max: 4} (also even: 1, 2)",
        ),
        (
            {"min": 1, "max": 8},
            "on 3 nodes 8 of 24 workers get one image fewer (11% idle); "
            "on 5 nodes 16 of 40 workers get one image fewer (20% idle); "
            "on 6 nodes 32 of 48 workers get one image fewer (33% idle); "
            "on 7 nodes 48 of 56 workers get one image fewer (43% idle)",
            "set nodes: {min: 8, max: 8} (also even: 1, 2, 4)",
        ),
        (
            {"min": 3, "max": 3},
            "on 3 nodes 8 of 24 workers get one image fewer (11% idle)",
            "set nodes: {min: 2, max: 2} (also even: 1)",
        ),
    ],
)
def test_a_batch_that_does_not_divide_evenly_is_told_with_what_it_costs(
    edited: Edited, nodes: dict[str, int], message: str, fix: str
) -> None:
    """The demo's preset has a global batch of 64, and each node 8 workers."""
    found = common_findings(edited(cluster(nodes=nodes)), load().machine("p5.48xlarge"), None)
    (finding,) = [f for f in found if f.code.startswith("batch.")]
    assert (finding.severity, finding.code) == (Severity.INFO, "batch.uneven")
    assert finding.path == "gangway:cluster.nodes"
    assert finding.message == f"batch_size 64 of dcgan-digits does not divide evenly (idle is estimated): {message}"
    assert finding.fix == fix


@pytest.mark.parametrize("nodes", [{"min": 1, "max": 2}, {"min": 4, "max": 4}, {"min": 8, "max": 8}])
def test_nothing_is_said_of_a_batch_that_divides_evenly(edited: Edited, nodes: dict[str, int]) -> None:
    found = common_findings(edited(cluster(nodes=nodes)), load().machine("p5.48xlarge"), None)
    assert not {code for code in codes(found) if code.startswith("batch.")}


def test_many_uneven_numbers_of_nodes_are_told_by_the_first_few_and_the_worst(edited: Edited) -> None:
    found = common_findings(edited(cluster(nodes={"min": 1, "max": 64})), load().machine("g5.xlarge"), None)
    (finding,) = [f for f in found if f.code.startswith("batch.")]
    assert "on 3 nodes 2 of 3 workers get one image fewer (3% idle); on 5 nodes 1 of 5 workers" in finding.message
    assert finding.message.endswith("likewise for 53 other numbers of nodes up to 63 (at most 49% idle)")
    assert finding.fix == "set nodes: {min: 64, max: 64} (also even: 1, 2, 4, 8, 16, 32)"


def test_more_workers_than_images_in_a_batch_are_an_error(edited: Edited) -> None:
    """Nine nodes of 8 workers and a batch of 64; up to eight would train."""
    found = common_findings(edited(cluster(nodes={"min": 8, "max": 9})), load().machine("p5.48xlarge"), None)
    (finding,) = [f for f in found if f.code.startswith("batch.")]
    assert (finding.severity, finding.code) == (Severity.ERROR, "batch.too-small")
    assert finding.path == "gangway:cluster.nodes"
    assert finding.message == "batch_size 64 of dcgan-digits has less than one image for each of 72 workers"
    assert finding.fix == "set nodes: {min: 8, max: 8}"


def test_a_machine_with_more_accelerators_than_images_is_an_error(edited: Edited) -> None:
    machine = load().machine("p5.48xlarge")
    many = machine.model_copy(update={"num_accelerators": machine.num_accelerators.model_copy(update={"value": 65})})
    found = common_findings(edited(cluster(nodes={"min": 1, "max": 1})), many, None)
    (finding,) = [f for f in found if f.code.startswith("batch.")]
    assert (finding.severity, finding.fix) == (Severity.ERROR, "choose a smaller machine type")


def test_several_nodes_without_a_shared_file_system_are_an_error(edited: Edited) -> None:
    machine = load().machine("p5.48xlarge")
    found = common_findings(edited(lambda values: values.pop("gangway:storage")), machine, None)
    (finding,) = [f for f in found if f.code == "storage.not-shared"]
    assert finding.severity is Severity.ERROR

    def alone(values: dict[str, Any]) -> None:
        values.pop("gangway:storage")
        values["gangway:cluster"].update(nodes={"min": 1, "max": 1})

    found = common_findings(edited(alone), machine, None)
    assert "storage.not-shared" not in codes(found)
    (finding,) = [f for f in found if f.code == "storage.lost-with-node"]
    assert finding.severity is Severity.WARNING


CELEBA = ("dcgan-celeba64", "dcgan-celeba64-paper", "progan-celeba128")


@pytest.mark.parametrize(
    ("preset", "source", "other", "takes"),
    [
        (
            "dcgan-cifar10",
            "s3://my-bucket/celeba-64",
            "celeba",
            "dcgan-celeba64, dcgan-celeba64-paper, progan-celeba128",
        ),
        ("dcgan-digits", "s3://my-bucket/prepared/CIFAR10", "cifar10", "dcgan-cifar10"),
        ("dcgan-cifar10", "s3://my-bucket/cifar10", None, ""),
        ("dcgan-cifar10", "s3://celeba/cifar10-shards", None, ""),
        ("few-images", "s3://my-bucket/celeba", None, ""),
        ("dcgan-cifar10", "s3://my-bucket/shards", None, ""),
    ],
)
def test_a_source_called_like_another_data_set_is_a_warning(
    edited: Edited, preset: str, source: str, other: str | None, takes: str
) -> None:
    def change(values: dict[str, Any]) -> None:
        values["gangway:job"]["preset"] = preset
        values["gangway:storage"]["source"] = source

    config = edited(change)
    found = [f for f in common_findings(config, load().machine("p5.48xlarge"), None) if f.code.startswith("data.")]
    if other is None:
        assert [f.code for f in found] == ["data.prepared"]
        return
    (warning,) = found
    assert (warning.severity, warning.code, warning.path) == (
        Severity.WARNING,
        "data.other-name",
        "gangway:job.preset",
    )
    assert (
        f"{source} has the name of {other}: if its shards are of that data set, the trainer refuses them"
        in warning.message
    )
    assert takes in warning.fix


def test_data_that_no_node_can_fetch_is_an_error_where_nothing_says_where_it_is(edited: Edited) -> None:
    machine = load().machine("p5.48xlarge")

    def faces(source: str | None) -> Callable[[dict[str, Any]], object]:
        def change(values: dict[str, Any]) -> None:
            values["gangway:job"].update(preset="dcgan-celeba64")
            values["gangway:storage"].update(source=source)

        return change

    (missing,) = [f for f in common_findings(edited(faces(None)), machine, None) if f.code.startswith("data.")]
    assert (missing.severity, missing.code, missing.path) == (Severity.ERROR, "data.missing", "gangway:storage.source")
    assert "celeba" in missing.message
    assert "python -m gangway.trainer data prepare celeba" in missing.fix
    assert "--out DIR && aws s3 sync DIR s3://bucket/prefix`" in missing.fix
    ready = missing.fix.partition("generate: ")[2].split(", ")
    assert {PRESETS[name].dataset for name in ready} <= set(SELF_PREPARED), "presets that exist, and need no folder"
    named = common_findings(edited(faces("s3://my-bucket/celeba")), machine, None)
    (told,) = [f for f in named if f.code.startswith("data.")]
    assert (told.severity, told.code) == (Severity.INFO, "data.prepared")
    assert "reads shards of celeba at 64x64 from s3://my-bucket/celeba" in told.message
    assert "--out DIR && aws s3 sync DIR s3://my-bucket/celeba`; if" in told.fix
    stores = {one.name: one.settings.store for one in all_providers()}
    uploads = {name: store.upload_command("a b", store.folder) for name, store in stores.items() if store}
    assert uploads == {
        "aws": "aws s3 sync 'a b' s3://bucket/prefix",
        "azure": "az storage blob upload-batch --auth-mode login --account-name account --destination container "
        "--destination-path folder --source 'a b'",
        "gcp": "gcloud storage rsync --recursive 'a b' gs://bucket/prefix",
    }


def test_without_a_bill_money_is_not_spoken_of(demo_config: StackConfig) -> None:
    assert codes(common_findings(demo_config, load().machine("p5.48xlarge"), None)) == DEMO_FINDINGS


def test_a_batch_that_xla_cannot_share_is_an_error(edited: Edited) -> None:
    """Elsewhere one worker gets an image less; there, every worker runs the same program."""
    slices = slice_machine(plan_slice(accelerator_type="v5litepod-8"))
    even = common_findings(edited(cluster(nodes={"min": 4, "max": 4})), slices, bill(1))
    assert not {"batch.uneven", "batch.too-small"} & codes(even)
    uneven = common_findings(edited(cluster(nodes={"min": 3, "max": 3})), slices, bill(1))
    (finding,) = [f for f in uneven if f.code == "batch.uneven"]
    assert finding.severity is Severity.ERROR
    assert "does not divide evenly by 24 workers" in finding.message
    assert finding.fix == "set nodes: {min: 2, max: 2} (also even: 1)"


def test_nodes_that_share_their_state_anyway_need_no_file_system(edited: Edited) -> None:
    config = edited(lambda values: values.pop("gangway:storage"))
    machine = load().machine("p5.48xlarge")
    assert {"storage.not-shared", "storage.lost-with-node"} <= codes(common_findings(config, machine, bill(1)))
    assert not {"storage.not-shared", "storage.lost-with-node"} & codes(
        common_findings(config, machine, bill(1), shared=True)
    )


def test_prices_of_elsewhere_and_unknown_prices_are_told(demo_config: StackConfig) -> None:
    machine = load().machine("p5.48xlarge")
    elsewhere = common_findings(demo_config, machine, bill(1, "us-east-1"))
    assert "cost.other-region" in codes(elsewhere)
    unknown = common_findings(demo_config, machine, bill(None))
    (finding,) = [f for f in unknown if f.code == "cost.price-unknown"]
    assert finding.message == "not in the estimate, price unknown: nodes"
    assert finding.fix.startswith("run `gangway prices refresh`")
    assert codes(common_findings(demo_config, machine, bill(1))) == DEMO_FINDINGS


def test_a_budget_below_a_full_month_is_a_warning(demo_config: StackConfig) -> None:
    found = common_findings(demo_config, load().machine("p5.48xlarge"), bill(100))
    (finding,) = [f for f in found if f.code == "budget.below-estimate"]
    assert finding.message == "60000.00 USD is less than a full month at 73000.00 USD, the spot price of capacity[0]"
    assert finding.fix.startswith("set monthly_usd: 73000")


def test_a_budget_of_exactly_the_estimate_is_enough(demo_config: StackConfig) -> None:
    """For an hour, for a full month, and for a month of the dearest rung; a cent less is not."""
    machine = load().machine("p5.48xlarge")

    def of(usd: float, cost: CostEstimate) -> set[str]:
        budget = demo_config.budget.model_copy(update={"monthly_usd": usd})
        config = demo_config.model_copy(update={"budget": budget})
        check_budget(config, cost)
        return codes(common_findings(config, machine, cost)) - DEMO_FINDINGS

    assert of(100, bill(100)) == {"budget.below-estimate"}
    with pytest.raises(InputError, match=r"at least 100\.00 USD"):
        of(99.99, bill(100))
    assert of(73_000, bill(100)) == set()
    assert of(72_999.99, bill(100)) == {"budget.below-estimate"}
    assert of(87_600, ladder_bill(40, 110, other=10)) == set()
    assert of(87_599.99, ladder_bill(40, 110, other=10)) == {"budget.fallback"}


def ladder_bill(*hourly: float | None, other: float = 0) -> CostEstimate:
    """A bill of the demo's ladder, spot and then on-demand, and of what surrounds it."""
    names = ["aws-demo-0-spot: nodes", "aws-demo-1-on-demand: nodes", "file system"]
    lines = [
        CostComponent(name, "hours", 1, price, price, "a list", "2026-09-06", "list-price", standby="-1-" in name)
        for name, price in zip(names, [*hourly, other], strict=True)
    ]
    return estimate(lines, 1)


@pytest.mark.parametrize(
    ("cost", "message", "fix"),
    [
        (
            ladder_bill(40, 110, other=10),
            "at 120.00 USD an hour on the fallback capacity[1] (on-demand), 60000.00 USD last 500 of 730 hours",
            "set monthly_usd: 87600 for a full month of it, or leave that rung out",
        ),
        (
            ladder_bill(40, 59_995, other=10),
            "at 60005.00 USD an hour on the fallback capacity[1] (on-demand), 60000.00 USD last not one hour",
            "set monthly_usd: 43803650 for a full month of it, or leave that rung out",
        ),
        (
            ladder_bill(40, 59_990, other=10),
            "at 60000.00 USD an hour on the fallback capacity[1] (on-demand), 60000.00 USD last 1 of 730 hours",
            "set monthly_usd: 43800000 for a full month of it, or leave that rung out",
        ),
        (ladder_bill(40, 60, other=10), None, ""),
        (ladder_bill(110, 40, other=10), None, ""),
        (ladder_bill(40, None, other=10), None, ""),
    ],
)
def test_a_budget_is_held_against_the_dearest_rung_too(
    demo_config: StackConfig, cost: CostEstimate, message: str | None, fix: str
) -> None:
    found = common_findings(demo_config, load().machine("p5.48xlarge"), cost)
    told = [(f.severity, f.message, f.fix) for f in found if f.code == "budget.fallback"]
    assert told == ([] if message is None else [(Severity.WARNING, message, fix)])


def test_the_demos_own_lines_are_those_of_its_rungs(demo_plan: Plan) -> None:
    """The check knows a rung's lines by their names: were they spelled otherwise, it would see no fallback."""
    (finding,) = [f for f in demo_plan.findings if f.code == "budget.fallback"]
    rungs = {c.name.partition(":")[0] for c in demo_plan.cost.components if c.standby}
    assert rungs == {"aws-demo-1-on-demand"}
    in_use = sum(c.hourly or 0 for c in demo_plan.cost.components if c.name.startswith("aws-demo-0-spot:"))
    hourly = demo_plan.cost.hourly - in_use + demo_plan.cost.standby_hourly
    assert finding.message.startswith(f"at {hourly:.2f} USD an hour on the fallback capacity[1]")


@pytest.mark.parametrize(("spot", "on_demand"), [(None, 110), (40, None)])
def test_a_price_the_budget_check_cannot_see_is_a_warning(
    demo_config: StackConfig, spot: float | None, on_demand: float | None
) -> None:
    found = common_findings(demo_config, load().machine("p5.48xlarge"), ladder_bill(spot, on_demand))
    (finding,) = [f for f in found if f.code == "budget.unknown-price"]
    assert finding.severity is Severity.WARNING
    assert finding.path == "gangway:budget.monthly_usd"
    hidden = "aws-demo-0-spot: nodes" if spot is None else "aws-demo-1-on-demand: nodes"
    assert finding.message.endswith(f"without: {hidden}")
    check_budget(demo_config, ladder_bill(spot, on_demand))


@pytest.mark.parametrize(
    ("rung", "basis"),
    [
        ({"kind": "spot"}, "at the spot price of capacity[0]"),
        ({"kind": "on-demand"}, "at the on-demand price of capacity[0]"),
        ({"kind": "reservation", "id": "cr-0123456789abcdef0"}, "at the on-demand price of capacity[0]"),
        ({"kind": "capacity-block", "id": "cr-0123456789abcdef0"}, "at the capacity-block price of capacity[0]"),
    ],
)
def test_a_refused_budget_names_whose_price_it_is_held_against(
    edited: Edited, rung: dict[str, Any], basis: str
) -> None:
    with pytest.raises(InputError) as caught:
        check_budget(edited(cluster(capacity=[rung])), bill(1e6))
    assert caught.value.problem == f"below the cost of one hour of this stack {basis}"


@given(st.floats(0.01, 1e6))
def test_a_budget_has_to_last_an_hour(demo_config: StackConfig, hourly: float) -> None:
    if demo_config.budget.monthly_usd >= hourly:
        check_budget(demo_config, bill(hourly))
        return
    with pytest.raises(InputError) as caught:
        check_budget(demo_config, bill(hourly))
    assert caught.value.place == "gangway:budget.monthly_usd"
    assert float(caught.value.fix.split()[2]) >= hourly


def prometheus(image: str) -> Callable[[dict[str, Any]], object]:
    return lambda values: values.update({"gangway:head": {"prometheus_image": image}})


def test_an_image_by_its_tag_alone_is_told(edited: Edited, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the lock has is named by its digest; what somebody else names is theirs to name so."""
    machine, own = load().machine("p5.48xlarge"), "example.com/prometheus:v9"
    by_tag = {"image.base-by-tag", "head.prometheus-by-tag"}
    assert not by_tag & codes(common_findings(edited(cluster()), machine, None))
    for image, told in ((own, {"head.prometheus-by-tag"}), (f"{own}@sha256:{'a' * 64}", set())):
        assert by_tag & codes(common_findings(edited(prometheus(image)), machine, None)) == told
    monkeypatch.setattr("gangway.images.specs.locked_digests", dict)
    found = [f for f in common_findings(edited(cluster()), machine, None) if f.code in by_tag]
    assert codes(found) == by_tag
    assert {f.severity for f in found} == {Severity.WARNING}


TODAY = date(2026, 11, 21)
LINES = [
    CostComponent("edited-0-spot: nodes", "hours", 2, 22.98, 45.96, "a list", "2026-09-06", "list-price"),
    CostComponent("edited-lustre: disks", "GiB-months", 10, 0.1, 0.01, "a list", "2026-09-06", "list-price"),
]


def said(config: StackConfig, lines: Sequence[CostComponent] = LINES) -> dict[str, Finding]:
    rungs = price_ladder(config, load().machine("p5.48xlarge"), lines, pace(config))
    return {f.code: f for f in money_findings(config, rungs, pace(config), lines, TODAY)}


def with_job(estimate: dict[str, Any], **job: Any) -> Callable[[dict[str, Any]], None]:
    def change(stack: dict[str, Any]) -> None:
        stack["gangway:job"].update(job)
        stack["gangway:estimate"] = estimate

    return change


def test_the_demo_is_near_enough_to_its_best_interval(edited: Edited) -> None:
    found = said(edited(lambda stack: None))
    assert set(found) == {"cost.usage-unsaid", "prices.stale"}
    assert found["cost.usage-unsaid"].severity is Severity.INFO
    assert "older than 180 days, the oldest of 2025-06-28 (rate of interruptions of capacity[0])" in (
        found["prices.stale"].message
    ), "the Spot Advisor's day, not the day on which it was read"
    told = said(edited(with_job({"taken_percent_per_month": 8})))
    assert "prices.stale" not in told, "the stack file answers for its own figure"


def test_saving_too_often_is_told_with_an_interval_that_is_enough(edited: Edited) -> None:
    """1 kimg of 150 in an hour: 10 s of saving every 24 s; 1 % of the time is one every 1000 s, 41.7 kimg."""
    measured = {"checkpoint_sec": 10}
    finding = said(edited(with_job(measured, checkpoint_kimg=1)))["checkpoint.interval"]
    assert (finding.severity, finding.path) == (Severity.WARNING, "gangway:job.checkpoint_kimg")
    assert "a checkpoint every 1 kimg, 24 s at 42 images/s" in finding.message
    assert "too often for spot: the run takes 41% longer than with the best interval, 60 min" in finding.message
    assert finding.fix == "set checkpoint_kimg: 41, one every 17 min"
    assert "checkpoint.interval" not in said(edited(with_job(measured, checkpoint_kimg=41)))


def test_saving_often_is_no_matter_where_a_checkpoint_may_cost_next_to_nothing(edited: Edited) -> None:
    """The demo's is 6.7 MB: 7 ms at the 0.9 GB/s that one was seen to be saved at, of 24 s; of 0.1 s it is 7 %."""
    assert "checkpoint.interval" not in said(edited(with_job({}, checkpoint_kimg=1)))
    assert "checkpoint.interval" in said(edited(with_job({}, checkpoint_kimg=1 / 240)))


def test_a_save_longer_than_its_interval_is_told_on_demand_as_well(edited: Edited) -> None:
    """Checkpoints cost the same time on every kind of capacity; it is said once, of the first rung."""

    def change(stack: dict[str, Any]) -> None:
        with_job({"checkpoint_sec": 10, "images_per_second": 1000}, checkpoint_kimg=1)(stack)
        stack["gangway:cluster"]["capacity"] = [{"kind": "on-demand"}]

    finding = said(edited(change))["checkpoint.interval"]
    assert "a checkpoint every 1 kimg, 1 s at 1,000 images/s" in finding.message
    assert "too often for on-demand" in finding.message


def test_saving_too_seldom_is_told_with_the_best_interval(edited: Edited) -> None:
    """90 % a month on 2 nodes is an interruption in 156 h: never saving in 100 h loses 50 h of them."""
    job = {"max_hours": 100, "kimg": 10000, "checkpoint_kimg": 10000}
    finding = said(edited(with_job({"taken_percent_per_month": 90}, **job)))["checkpoint.interval"]
    assert "too seldom for spot" in finding.message
    assert finding.fix.startswith("set checkpoint_kimg: ")
    advised = float(finding.fix.split()[2].rstrip(","))
    mended = {**job, "checkpoint_kimg": advised}
    assert "checkpoint.interval" not in said(edited(with_job({"taken_percent_per_month": 90}, **mended)))


def test_spot_that_cannot_finish_is_an_error_with_a_fix(edited: Edited) -> None:
    values = {"taken_percent_per_month": 99, "restart_sec": 3600 * 90}
    finding = said(edited(with_job(values)))["capacity.spot-infeasible"]
    assert finding.severity is Severity.ERROR
    assert "its 2 nodes lose one every 76.29 h, and each loss costs 90.07 h" in finding.message
    assert finding.fix == "use fewer nodes, or another kind of capacity"


def test_an_interval_that_would_make_it_feasible_is_the_fix(edited: Edited) -> None:
    """99 % a month on 2 nodes: 78 h between two interruptions, and 200 h between two checkpoints."""
    job = {"max_hours": 200, "kimg": 10000, "checkpoint_kimg": 10000}
    finding = said(edited(with_job({"taken_percent_per_month": 99}, **job)))["capacity.spot-infeasible"]
    assert finding.fix.startswith("set gangway:job.checkpoint_kimg: ")
    mended = {**job, "checkpoint_kimg": float(finding.fix.split()[2].rstrip(","))}
    assert "capacity.spot-infeasible" not in said(edited(with_job({"taken_percent_per_month": 99}, **mended)))


def test_an_unknown_rate_is_said(edited: Edited) -> None:
    config = edited(lambda stack: stack.update({"gangway:region": "eu-west-1"}))
    finding = said(config)["capacity.spot-rate-unknown"]
    assert finding.severity is Severity.INFO
    assert "AWS Spot Instance Advisor lists no such machine type" in finding.message


def test_a_setting_without_effect_is_a_warning(edited: Edited) -> None:
    def change(stack: dict[str, Any]) -> None:
        stack["gangway:cluster"]["capacity"] = [{"kind": "on-demand"}]
        stack["gangway:estimate"] = {"taken_percent_per_month": 5}

    finding = said(edited(change))["estimate.ignored"]
    assert (finding.severity, finding.path) == (
        Severity.WARNING, "gangway:estimate.taken_percent_per_month",
    )  # fmt: skip


def test_an_owned_block_that_nobody_has_priced_is_told(edited: Edited) -> None:
    block = {"kind": "capacity-block", "id": "cr-0123456789abcdef0"}

    def change(rung: dict[str, Any]) -> Callable[[dict[str, Any]], None]:
        return lambda values: values["gangway:cluster"].update(capacity=[rung, {"kind": "on-demand"}])

    finding = said(edited(change(block)))["cost.block-not-included"]
    assert finding.path == "gangway:cluster.capacity[0].paid_usd_per_hour"
    assert "cost.block-not-included" not in said(edited(change({**block, "paid_usd_per_hour": 31.5})))


@pytest.mark.parametrize(("days", "old"), [(0, False), (STALE_DAYS, False), (STALE_DAYS + 1, True)])
def test_prices_grow_old(days: int, old: bool) -> None:
    today = date.fromordinal(date(2026, 9, 6).toordinal() + days)
    assert bool(list(stale_prices(LINES, (), today))) == old


def test_old_prices_are_named_and_the_oldest_dated() -> None:
    lines = [
        CostComponent(f"line {day}", "hours", 1, 1.0, 1.0, "a list", f"2025-01-0{day}", "list-price")
        for day in range(1, 6)
    ]
    undated = CostComponent("bought", "purchase", 1, 9.0, 0.0, "file", "", "stack file")
    (finding,) = stale_prices([undated, *lines], (), TODAY)
    assert (finding.severity, finding.code) == (Severity.WARNING, "prices.stale")
    assert finding.message == ("of 6 figures, 5 older than 180 days, the oldest of 2025-01-01 (line 1, ...)")
    assert finding.fix.startswith("run `gangway prices refresh`")


def test_what_bears_no_date_and_what_was_recalled_is_of_unknown_age() -> None:
    """Read yesterday or not: a copy without a date may be of any year. All of it is one line of the plan."""
    lines = [
        CostComponent("copy", "hours", 1, 1.0, 1.0, "a list", "", "list-price", read_on="2026-11-20"),
        CostComponent("memory", "hours", 1, 1.0, 1.0, "a page", "2026-11-20", "recalled", read_on="2026-11-20"),
        CostComponent("young", "hours", 1, 1.0, 1.0, "a list", "2026-11-20", "list-price", read_on="2026-11-20"),
        CostComponent("unpriced", "hours", 1, None, None, "nobody", "", "unknown"),
    ]
    (finding,) = stale_prices(lines, (), TODAY)
    assert finding.message == ("of 3 figures, 2 undated or recalled, read from 2026-11-20 on (copy, ...)")
    assert lines[0].dated == "undated, read 2026-11-20"


def test_a_figure_without_any_day_is_told_without_one() -> None:
    """No empty date stands in the sentence."""
    (finding,) = stale_prices([CostComponent("copy", "hours", 1, 1.0, 1.0, "a list", "", "list-price")], (), TODAY)
    assert finding.message == "of 1 figures, 1 undated or recalled (copy)"


@pytest.mark.parametrize(("seconds", "text"), [(34.56, "35 s"), (480, "8 min"), (3600, "60 min"), (11091, "3.1 h")])
def test_spans_are_said_as_people_say_them(seconds: float, text: str) -> None:
    assert span(seconds) == text
