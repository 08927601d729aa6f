"""Whether a run ends in its hours and its budget: by the peak, by the band, by what was measured; and what it costs."""

from collections.abc import Callable
from typing import Any

import pytest

from gangway.components.catalog.loader import load
from gangway.components.core.findings import Finding, Severity
from gangway.components.estimate.cost import CostComponent, CostEstimate, estimate
from gangway.components.estimate.statistics import Band
from gangway.components.gcp.slices import plan_slice, slice_machine
from gangway.stacks.config.stack_config import StackConfig
from gangway.stacks.estimates.expected_run import expected_run, run_findings
from gangway.stacks.estimates.run_costs import pace
from gangway.stacks.estimates.throughput import throughput
from gangway.stacks.plan.plan import Plan, make_plan
from gangway.trainer.config.network_size import least_flop
from gangway.trainer.config.presets import PRESETS

Edited = Callable[[Callable[[dict[str, Any]], object]], StackConfig]
H100X8 = load().machine("p5.48xlarge")
IN_AN_HOUR = 16 * 494.5e12 * 3600 / least_flop(PRESETS["dcgan-digits"]) / 1000
"""kimg that the demo's sixteen H100s would compute at 494.5 TFLOP/s of TF32 each."""


def with_job(kimg: float, max_hours: float, **more: Any) -> Callable[[dict[str, Any]], None]:
    def edit(values: dict[str, Any]) -> None:
        values["gangway:job"] |= {"kimg": kimg, "max_hours": max_hours}
        values["gangway:budget"]["monthly_usd"] = 10_000_000
        for section, change in more.items():
            values[f"gangway:{section}"] = {**values.get(f"gangway:{section}", {}), **change}

    return edit


def the_length(edited: Edited, kimg: float, max_hours: float, **more: Any) -> list[tuple[Severity, str, str, str]]:
    found = make_plan(edited(with_job(kimg, max_hours, **more))).findings
    return [(f.severity, f.code, f.message, f.fix) for f in found if f.code.startswith(("run.", "estimate.beyond"))]


def band_of(edited: Edited) -> Band:
    """Of the demo, images a second."""
    rate = throughput(edited(lambda values: None), H100X8).images_per_second
    assert rate is not None
    return rate


@pytest.mark.slow
def test_what_no_peak_could_compute_in_time_is_an_error_with_a_length_that_will_do(edited: Edited) -> None:
    ((severity, code, message, fix),) = the_length(edited, 2 * IN_AN_HOUR, 1)
    assert (severity, code) == (Severity.ERROR, "run.cannot-finish")
    assert "take at least 2.0 h, even at the peak of 16 x H100 (494.5 TFLOP/s tf32" in message
    kimg = float(fix.partition("kimg: ")[2].partition(",")[0])
    assert the_length(edited, kimg, 1) == []
    assert the_length(edited, 1e9, 1)[0][1] == "run.cannot-finish"


@pytest.mark.slow
def test_numbers_of_half_the_bits_have_a_higher_peak(edited: Edited) -> None:
    between = 1.5 * IN_AN_HOUR

    def code(**settings: Any) -> list[str]:
        return [found[1] for found in the_length(edited, between, 1, job={"settings": settings})]

    assert code() == code(tf32=False) == ["run.cannot-finish"]
    assert code(precision="bf16") == ["run.longer-than-max-hours"]
    assert code(backend="gloo") == []


@pytest.mark.slow
def test_a_projection_is_an_error_from_its_fast_end_on_and_a_warning_from_its_middle_on(edited: Edited) -> None:
    band = band_of(edited)
    start = 1 / 6  # of the hour
    fast, usual, slow = (rate * 3600 / 1000 * (1 - start) for rate in (band.high, band.mid, band.low))
    assert the_length(edited, 1.01 * slow, 1) == the_length(edited, 0.99 * usual, 1) == []
    ((severity, code, message, fix),) = the_length(edited, 2 * usual, 1)
    assert (severity, code) == (Severity.WARNING, "run.longer-than-max-hours")
    assert "usually with 50% of the images" in message
    assert "h, 3,700 to 57,000 images/s)" in message
    kimg = float(fix.partition("kimg: ")[2].partition(",")[0])
    assert 0.9 * usual < kimg < usual
    assert the_length(edited, kimg, 1) == []
    assert the_length(edited, 2 * usual, int(fix.partition("max_hours: ")[2].partition(",")[0])) == []
    ((severity, code, message, _),) = the_length(edited, 1.01 * fast / (1 - start), 1)
    assert (severity, code) == (Severity.ERROR, "run.longer-than-max-hours")
    assert message.endswith("of the images, and never with all")
    assert the_length(edited, 0.99 * fast, 1)[0][0] is Severity.WARNING


def test_slices_of_which_nobody_knows_the_network_are_held_against_their_peak(edited: Edited) -> None:
    slices = slice_machine(plan_slice(accelerator_type="v4-32"))
    found = [f for f in run_findings(edited(with_job(1e9, 1)), slices, None) if f.code.startswith("run.")]
    assert [(f.severity, f.code) for f in found] == [(Severity.ERROR, "run.cannot-finish")]
    assert "the peak of 32 x v4" in found[0].message
    assert "TFLOP/s bf16" in found[0].message


@pytest.mark.slow
def test_a_measured_speed_says_how_much_of_the_run_there_will_be(edited: Edited) -> None:
    """1,000 images/s are 3,600 kimg in an hour, after ten minutes until the nodes are up."""
    assert the_length(edited, 2950, 1, estimate={"images_per_second": 1000}) == []
    ((severity, code, message, fix),) = the_length(edited, 7200, 1, estimate={"images_per_second": 1000})
    assert (severity, code) == (Severity.WARNING, "run.longer-than-max-hours")
    assert "take 2.2 h at the 1,000 images/s of gangway:estimate" in message
    assert "with 42% of the images" in message
    assert fix == "set gangway:job.max_hours: 3, or more; or gangway:job.kimg: 2900, or less", (
        "interruptions and checkpoints take their part"
    )
    assert the_length(edited, 2900, 1, estimate={"images_per_second": 1000}) == []
    ((_, _, message, fix),) = the_length(edited, 7200, 0.15, estimate={"images_per_second": 1000})
    assert "with 0% of the images" in message, "max_hours are over before the first step"
    assert fix == "set gangway:job.max_hours: 3, or more"
    assert the_length(edited, 1e9, 1, estimate={"images_per_second": 1000})[0][0] is Severity.WARNING


@pytest.mark.slow
def test_a_measured_speed_beyond_the_peak_is_an_error(edited: Edited) -> None:
    at_peak = IN_AN_HOUR * 1000 / 3600
    ((severity, code, message, fix),) = the_length(edited, 150, 1, estimate={"images_per_second": 1.01 * at_peak})
    assert (severity, code) == (Severity.ERROR, "estimate.beyond-peak")
    assert f"{at_peak:,.0f} (494.5 TFLOP/s tf32, the vendor's data sheet" in message
    assert "leave it out" in fix
    assert the_length(edited, 150, 1, estimate={"images_per_second": 0.99 * at_peak}) == []


def bill(hourly: float, hours: float, upfront: float = 0.0) -> CostEstimate:
    return estimate(
        [CostComponent("nodes", "hours", 1, hourly, hourly, "a list", "2026-09-06", "list-price", upfront=upfront)],
        hours,
    )


def test_the_expected_run_by_hand(edited: Edited) -> None:
    """3,600 kimg at 1,000 images/s are an hour, and a save of 1 s every 20 s makes it 1.05; one interruption in 1,643.7
    h costs 10 s and the 600 s of the restart. Before that the nodes start for 600 s. At most max_hours are paid for.
    """
    start, training = 1 / 6, 1.05 / (1 - 610 / (1643.7 * 3600))
    for max_hours, paid, share in ((2, start + training, 1.0), (0.25, 0.25, (0.25 - start) / training)):
        config = edited(with_job(3600, max_hours, estimate={"images_per_second": 1000, "checkpoint_sec": 1}))
        run = expected_run(config, H100X8, throughput(config, H100X8), bill(40, max_hours, 7))
        assert run.hours is not None
        assert run.share is not None
        assert run.usd is not None
        assert (run.hours.low, run.hours.mid, run.hours.high) == pytest.approx([paid] * 3, rel=1e-5)
        assert (run.share.low, run.share.mid, run.share.high) == pytest.approx([share] * 3, rel=1e-5)
        assert (run.usd.low, run.usd.mid, run.usd.high) == pytest.approx([40 * paid + 7] * 3, rel=1e-5)


def test_a_band_of_speeds_is_one_of_hours_of_dollars_and_of_shares(edited: Edited) -> None:
    rate = band_of(edited)
    config = edited(with_job(rate.mid * 3600 / 1000, 1))
    run = expected_run(config, H100X8, throughput(config, H100X8), bill(40, 1))
    assert run.hours is not None
    assert run.usd is not None
    assert run.share is not None
    assert (run.hours.mid, run.hours.high) == (1, 1), "max_hours ends it"
    training = run.hours.low - 1 / 6  # the nodes start for ten minutes
    assert training == pytest.approx(rate.mid / rate.high, rel=0.05)
    assert training > rate.mid / rate.high, "checkpoints and interruptions"
    assert (run.usd.low, run.usd.mid, run.usd.high) == pytest.approx((40 * run.hours.low, 40, 40))
    assert (run.share.low, run.share.mid, run.share.high) == pytest.approx(
        (rate.low / rate.mid * 5 / 6, 5 / 6, 1), rel=0.02
    )


def test_every_plan_says_it_and_so_does_its_json(demo_plan: Plan) -> None:
    data = demo_plan.to_json()["expected_run"]
    assert data["throughput"]["provenance"] == "projected"
    rate, hours = data["throughput"]["images_per_second"], data["hours"]
    training = {end: hours[end] - 1 / 6 for end in hours}  # the nodes start for ten minutes
    made = [rate["low"] * training["high"], rate["mid"] * training["mid"], rate["high"] * training["low"]]
    assert made == pytest.approx([150_000 / 3600] * 3, rel=0.05)
    assert data["usd"]["mid"] == pytest.approx(demo_plan.cost.hourly * hours["mid"])
    assert data["share"] == {"low": 1, "mid": 1, "high": 1}
    assert demo_plan.cost.run_hours == 1, "the envelope is all of max_hours"
    assert demo_plan.rungs[0].run_hours == hours["mid"], "expected means one thing"
    assert demo_plan.rungs[0].run == pytest.approx(data["usd"]["mid"])


@pytest.mark.slow
@pytest.mark.parametrize("kimg", [150, 9e6, 1e9])
def test_no_hours_of_a_plan_are_beyond_max_hours(edited: Edited, kimg: float) -> None:
    """It was 149 h of 24, and 13,915 h for 1e9 kimg: what is lost is lost images, since the clock ends the job."""
    made = make_plan(edited(with_job(kimg, 24)))
    found = [made.cost.run_hours, made.energy.hours, made.energy.hours_most, *(rung.run_hours for rung in made.rungs)]
    found += [made.ladder.hours, made.ladder.hours_low, made.ladder.hours_high]
    assert made.expected.hours is not None
    assert made.expected.share is not None
    found += [made.expected.hours.low, made.expected.hours.mid, made.expected.hours.high]
    assert all(hours is not None and hours <= 24 for hours in found)
    assert made.rungs[0].share == pytest.approx(made.expected.share.mid)
    assert (made.expected.share.mid < 0.99) == (kimg > 1e6)
    dearest = 24 * max(rung.hourly or 0.0 for rung in made.rungs)
    assert all(usd is not None and usd <= dearest for usd in (made.cost.run, made.ladder.usd, made.ladder.usd_high))


def test_max_hours_far_above_the_run_are_told_with_hours_that_do(edited: Edited) -> None:
    def told(max_hours: float, kimg: float = 2000) -> list[Finding]:
        found = run_findings(edited(with_job(kimg, max_hours)), H100X8, None)
        return [f for f in found if f.code == "run.far-below-max-hours"]

    (finding,) = told(24)
    assert (finding.severity, finding.path, finding.fix) == (Severity.INFO, "gangway:job.max_hours", "set max_hours: 1")
    assert "a job that hangs costs 24 h" in finding.message
    assert told(1) == told(24, 200_000) == []


def of_budget(config: StackConfig, cost: CostEstimate) -> list[Finding]:
    return [f for f in run_findings(config, H100X8, cost) if f.code == "budget.below-run"]


def test_a_run_dearer_than_the_budget_is_told_by_what_it_is_expected_to_cost(edited: Edited) -> None:
    def config(usd: float) -> StackConfig:
        return edited(
            lambda values: (
                with_job(7200, 4, estimate={"images_per_second": 1000})(values),
                values["gangway:budget"].update(monthly_usd=usd),
            )
        )

    cost = bill(100, 4)
    assert of_budget(config(400), cost) == []
    (envelope,) = of_budget(config(399), cost)
    assert envelope.severity is Severity.WARNING
    assert envelope.message == (
        "399.00 USD do not pay for a run of 4 h: 400.00 USD; it is expected to take less"
    )  # fmt: skip
    (dear,) = of_budget(config(216), cost)
    assert dear.message == (
        "216.00 USD do not pay for one run: 216.76 to 216.76 USD, usually 216.76 (measured)"
    )  # fmt: skip
    assert dear.fix == "set monthly_usd: 217, or a shorter run"


def waiting(config: StackConfig, machine_type: str = "p5.48xlarge") -> list[Finding]:
    return [f for f in run_findings(config, load().machine(machine_type), None) if f.code == "speed.mostly-waiting"]


def test_steps_that_mostly_wait_are_told_with_a_batch_that_halves_it(edited: Edited) -> None:
    (found,) = waiting(edited(with_job(200_000, 48)))
    assert (found.severity, found.path) == (Severity.WARNING, "gangway:cluster")
    assert found.message.startswith("99 % of a step (96 % or more) is waiting, not computing: ")
    assert "4 of 64 images on each of 16 x H100; " in found.message
    assert found.message.endswith(
        "they train 15,000 images/s, and 1 of them 15,000: the other 15 add cost but almost no speed"
    )
    batch_size = int(found.fix.partition("batch_size: ")[2].partition("}")[0])

    def usual(size: int) -> float:
        config = edited(lambda values: values["gangway:job"].update(settings={"batch_size": size}))
        found = throughput(config, H100X8).waiting
        assert found is not None
        return found[1]

    assert usual(batch_size) <= usual(64) / 2 < usual(batch_size // 2)
    assert batch_size * 5_000 <= 200_000_000, "steps enough to learn by"
    (short,) = waiting(edited(lambda values: None))
    assert short.fix == "use fewer machines", "no batch that leaves 150,000 images in a handful of steps"


def idle(config: StackConfig, machine_type: str = "p5.48xlarge") -> list[Finding]:
    found = run_findings(config, load().machine(machine_type), None)
    return [each for each in found if each.code == "speed.extra-accelerators"]


def test_accelerators_that_add_cost_and_no_speed_are_counted(edited: Edited) -> None:
    """Between networks so small that all wait, and so large that each is of use: some of them are."""

    def with_batch(size: int) -> StackConfig:
        return edited(lambda values: values["gangway:job"].update(settings={"batch_size": size}))

    numbers = []
    for size in (1024, 2048, 4096, 8192):
        assert waiting(with_batch(size)) == [], "else it is said there"
        (found,) = idle(with_batch(size))
        numbers.append(int(found.message.partition("the other ")[2].split()[0]))
    assert numbers == sorted(numbers, reverse=True)
    assert idle(with_batch(1 << 15)) == []
    assert idle(edited(lambda values: values["gangway:cluster"]["nodes"].update(min=1, max=1)), "g5.xlarge") == []


def test_steps_that_may_compute_most_of_the_time_are_not_spoken_of(edited: Edited) -> None:
    large = edited(lambda values: values["gangway:job"].update(settings={"batch_size": 1 << 15}))
    assert waiting(large) == []
    assert waiting(edited(lambda values: None), "g5.xlarge") == [], "uncertain: 0 % or more"
    assert waiting(edited(with_job(150, 1, estimate={"images_per_second": 1000}))) == []


def test_the_pace_of_checkpoints_is_the_bands(edited: Edited) -> None:
    config = edited(lambda values: None)
    speed = throughput(config, H100X8)
    rate = speed.images_per_second
    assert rate is not None
    found = pace(config, speed)
    assert (found.shortest_sec, found.interval_sec, found.longest_sec) == pytest.approx(
        (20_000 / rate.high, 20_000 / rate.mid, 20_000 / rate.low)
    )
    assert found.source == "projected: 3,700 to 57,000"
    assert pace(config).source == "assumed: job.kimg in just job.max_hours"
