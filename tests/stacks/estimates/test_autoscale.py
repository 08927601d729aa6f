"""`job.autoscale` in a plan: the curve by number of nodes, the number that it would begin with, and mistakes."""

import re
from collections.abc import Callable
from copy import deepcopy
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from gangway.components.catalog.loader import load
from gangway.components.core.findings import Finding, InputError, Severity
from gangway.components.core.job import Training
from gangway.stacks.config.stack_config import StackConfig
from gangway.stacks.estimates.autoscale import autoscale_findings, find_curve, wanted_nodes
from gangway.stacks.estimates.run_costs import rung_in_use, rung_lines
from gangway.stacks.loading.loader import from_file
from gangway.stacks.plan.plan import Plan, make_plan, run_program
from gangway.stacks.program import get_program
from gangway.stacks.recording import PlaceholderCloud
from gangway.trainer.__main__ import _parser
from gangway.trainer.config.values.control import Bounds, ControlSettings
from gangway.trainer.control.flags import parse_control

Edited = Callable[[Callable[[dict[str, Any]], object]], StackConfig]
H100X8 = load().machine("p5.48xlarge")
NOW = datetime(2030, 1, 1, tzinfo=UTC)


def asking(autoscale: dict[str, Any], **job: Any) -> Callable[[dict[str, Any]], None]:
    """On one to eight nodes, with a network that more of them make faster."""

    def edit(values: dict[str, Any]) -> None:
        own = {"preset": "r3gan-imagenet64", "kimg": 20_000, "max_hours": 300, "settings": {"batch_size": 4096}}
        values["gangway:job"] = {**own, "autoscale": autoscale, **job}
        values["gangway:cluster"]["nodes"] = {"min": 1, "max": 8}

    return edit


def told(config: StackConfig, now: datetime = NOW) -> dict[str, Finding]:
    return {finding.code: finding for finding in autoscale_findings(config, H100X8, None, now)}


def begins_with(config: StackConfig, now: datetime = NOW) -> int:
    return int(told(config, now)["autoscale.begins"].message.removeprefix("the job would start with ").split()[0])


def test_the_curve_is_the_plans_own_and_grows_with_the_nodes(edited: Edited) -> None:
    config = edited(asking({"images_per_sec": 1}))
    curve = find_curve(config, H100X8)
    assert [*curve] == list(range(1, 9))
    assert all(rate.low < rate.mid < rate.high for rate in curve.values())
    assert curve[8].mid > 2 * curve[1].mid


def test_what_was_measured_is_the_level_and_the_projection_the_shape(edited: Edited) -> None:
    plain = find_curve(edited(asking({"images_per_sec": 1})), H100X8)

    def measure(values: dict[str, Any]) -> None:
        asking({"images_per_sec": 1})(values)
        values["gangway:estimate"] = {"images_per_second": 5000}

    curve = find_curve(edited(measure), H100X8)
    assert curve[8].low == curve[8].mid == curve[8].high
    assert 4000 < curve[8].mid <= 5000, "less what checkpoints and interruptions take"
    assert curve[1].mid / curve[8].mid == pytest.approx(plain[1].mid / plain[8].mid, rel=0.1)
    assert curve[1].high / curve[1].low < plain[1].high / plain[1].low, "a measurement narrows it"


def test_a_nearer_deadline_begins_with_more_nodes(edited: Edited) -> None:
    config = edited(asking({"deadline": "2030-02-01T00:00:00Z"}))
    deadline = datetime(2030, 2, 1, tzinfo=UTC)
    numbers = [begins_with(config, deadline - timedelta(hours=hours)) for hours in (700, 40, 20, 10, 5, 1)]
    assert numbers == sorted(numbers)
    assert (numbers[0], numbers[-1]) == (1, 8)


def test_what_cannot_be_reached_is_an_error_and_what_is_not_expected_a_warning(edited: Edited) -> None:
    curve = find_curve(edited(asking({"images_per_sec": 1})), H100X8)
    slow = told(edited(asking({"images_per_sec": curve[8].high * 1.01})))
    assert slow["autoscale.missed"].severity is Severity.ERROR
    unsure = told(edited(asking({"images_per_sec": curve[8].mid * 1.01})))
    assert unsure["autoscale.missed"].severity is Severity.WARNING
    assert "autoscale.missed" not in told(edited(asking({"images_per_sec": curve[8].mid * 0.99})))


@pytest.mark.slow
def test_an_hours_bound_of_the_controller_holds_back_nodes(edited: Edited) -> None:
    def begins(**job: Any) -> tuple[int, str]:
        config = edited(asking({"images_per_sec": 1e9}, **job))
        (found,) = (each for each in make_plan(config).findings if each.code == "autoscale.begins")
        words = found.message.removeprefix("the job would start with ")
        return int(words.split()[0]), words

    assert begins()[0] == 8
    with pytest.raises(InputError) as caught:
        begins(controller={"bounds": {"usd_per_hour": 0.01}})
    least = float(caught.value.fix.rpartition(" ")[2])  # of a node on the cheapest rung
    _, words = begins(controller={"bounds": {"usd_per_hour": least}})
    price = float(words.partition("a node costs ")[2].split()[0])
    nodes, words = begins(controller={"bounds": {"usd_per_hour": 2.5 * price}})
    assert nodes == 2
    assert f"allows at most {nodes}" in words


def test_an_hour_whose_price_nobody_knows_brings_no_more_nodes(edited: Edited) -> None:
    job = {"controller": {"bounds": {"usd_per_hour": 200}}}
    config = edited(asking({"images_per_sec": 1e9}, **job))
    curve = find_curve(config, H100X8)
    for present, nodes in ((None, 1), (3, 3)):
        wanted = wanted_nodes(config, H100X8, None, curve, NOW, present=present)
        assert (wanted.nodes, "is unknown" in wanted.reason) == (nodes, True)


@pytest.mark.slow
@pytest.mark.parametrize("nodes", [2, 3, 6, 7])
def test_an_hours_bound_of_some_nodes_price_pays_so_many(edited: Edited, nodes: int) -> None:
    """Whatever the last bit of the quotient says: 1.2 is three times 0.4, and 1.2 / 0.4 is less than 3."""
    plain = edited(asking({"images_per_sec": 1e9}))
    cost, curve = make_plan(plain).cost, find_curve(plain, H100X8)
    assert cost is not None
    price = sum(line.hourly or 0.0 for line in rung_lines(plain, cost.components, rung_in_use(plain, cost))) / 8
    bound = {"controller": {"bounds": {"usd_per_hour": price * nodes * (1 - 1e-12)}}}
    config = edited(asking({"images_per_sec": 1e9}, **bound))
    assert wanted_nodes(config, H100X8, cost, curve, NOW, present=8).nodes == nodes


def test_an_hours_bound_gives_up_no_node_that_is_paid_for_anyway(edited: Edited) -> None:
    def edit(values: dict[str, Any]) -> None:
        asking({"images_per_sec": 1e9}, controller={"bounds": {"usd_per_hour": 200}})(values)
        values["gangway:cluster"]["capacity"] = [{"kind": "reservation", "id": "cr-0123456789abcdef0"}]

    config = edited(edit)
    curve = find_curve(config, H100X8)
    assert wanted_nodes(config, H100X8, None, curve, NOW, present=8).nodes == 8


def test_who_carries_it_out_is_told(edited: Edited) -> None:
    config = edited(asking({"images_per_sec": 1}))
    assert config.provider == "aws"
    by_command = told(config)["autoscale.by-command"]
    assert by_command.severity is Severity.INFO
    assert f"gangway job {config.stack} --scale" in by_command.message

    def on(provider: str, kind: str) -> dict[str, Finding]:
        def edit(values: dict[str, Any]) -> None:
            asking({"images_per_sec": 1})(values)
            values["gangway:cluster"]["capacity"] = [{"kind": kind}]

        return told(edited(edit).model_copy(update={"provider": provider}))

    assert on("openstack", "on-demand")["autoscale.told-not-done"].severity is Severity.WARNING
    assert "none are removed" in on("azure", "spot")["autoscale.by-command"].message
    assert "none are removed" not in on("azure", "on-demand")["autoscale.by-command"].message
    one = edited(lambda values: values["gangway:job"].update({"autoscale": {"images_per_sec": 1}}))
    assert "autoscale.one-number" in told(one)
    assert told(edited(lambda values: None)) == {}


def test_where_nodes_may_be_sent_away_none_of_them_is_missed(edited: Edited) -> None:
    assert edited(asking({"images_per_sec": 1})).expected_nodes == 1
    plain = edited(lambda values: values["gangway:cluster"].update(nodes={"min": 1, "max": 8}))
    assert plain.expected_nodes == 8


@pytest.mark.slow
def test_mistakes_have_a_value_that_will_do(edited: Edited) -> None:
    with pytest.raises(InputError, match="in the past") as past:
        told(edited(asking({"deadline": "2029-12-31T23:59:59Z"})))
    assert "2030-01-01T00:00:00Z" in past.value.allowed
    with pytest.raises(InputError, match="below an hour of one node") as poor:
        make_plan(edited(asking({"budget_usd": 1})))
    fix = float(poor.value.fix.removeprefix("write budget_usd: "))
    assert make_plan(edited(asking({"budget_usd": fix}))).findings
    with pytest.raises(ExceptionGroup) as nothing:
        edited(asking({"hold_minutes": 5}))
    assert "at least one" in str(nothing.value.exceptions[0])


def test_what_holds_the_nodes_back_is_what_the_fix_is_about(edited: Edited) -> None:
    price = 60.0
    bound = {"controller": {"bounds": {"usd_per_hour": 2.5 * price}}}
    by_nodes = told(edited(asking({"images_per_sec": 1e9})))["autoscale.missed"].fix
    by_dollars = told(edited(asking({"images_per_sec": 1e9}, **bound)))["autoscale.missed"].fix
    assert ("cluster.nodes.max" in by_nodes, "usd_per_hour" in by_nodes) == (True, False)
    assert ("cluster.nodes.max" in by_dollars, "usd_per_hour" in by_dollars) == (False, True)


REPO = Path(__file__).resolve().parents[3]
# Those of one job: a cluster with a queue has none that could be controlled.
SHIPPED = sorted(
    path.name.split(".")[1]
    for path in (REPO / "stacks").glob("Pulumi.*.yaml")
    if "gangway:job:" in path.read_text("utf-8")
)
ASKED = {"policy": "model", "mode": "observe", "objective": "time", "min_gain": 0.05, "bounds": {"prefetch": [2, 8]}}
Change = Callable[..., Path]


@pytest.fixture
def changed(tmp_path: Path) -> Change:
    """A shipped stack file whose job asks for this controller, with keys of sections changed; None takes one out."""

    def write(stack: str, controller: object, **sections: dict[str, Any]) -> Path:
        values = deepcopy(yaml.safe_load((REPO / f"stacks/Pulumi.{stack}.yaml").read_text("utf-8"))["config"])
        for name, change in {"job": {"controller": controller}, **sections}.items():
            merged = {**values.get(f"gangway:{name}", {}), **change}
            values[f"gangway:{name}"] = {key: value for key, value in merged.items() if value is not None}
        path = tmp_path / f"Pulumi.{stack}.yaml"
        path.write_text(yaml.safe_dump({"config": values}), "utf-8")
        return path

    return write


def mistakes(path: Path) -> list[InputError]:
    found: list[InputError] = []
    try:
        make_plan(from_file(path))
    except* InputError as group:
        found = [mistake for mistake in group.exceptions if isinstance(mistake, InputError)]
    return found


def about_controller(plan: Plan) -> dict[str, Finding]:
    """By code and key: the findings about the controller."""
    about = [finding for finding in plan.findings if finding.code.startswith("controller")]
    return {f"{finding.code} {finding.path.rpartition('.')[2]}": finding for finding in about}


@pytest.mark.slow
@pytest.mark.parametrize("stack", SHIPPED)
def test_every_provider_hands_it_to_the_trainer_and_nothing_unasked(stack: str, changed: Change) -> None:
    """The JobSpec of the resources themselves, which becomes user data; TPU slices too."""
    without = from_file(REPO / f"stacks/Pulumi.{stack}.yaml")
    before = run_program(without, PlaceholderCloud()).result["job"]["training"]
    after = run_program(from_file(changed(stack, ASKED)), PlaceholderCloud()).result["job"]["training"]
    asked = {"mode": "observe", "policy": "model", "min_gain": 0.05, "bounds": {"prefetch": [2, 8]}}
    assert after == {**before, "controller": asked}
    assert before["controller"] is None


_RANGES = st.tuples(st.integers(1, 99), st.integers(1, 99)).map(sorted)


@given(
    mode=st.sampled_from(["act", "observe"]),
    policy=st.sampled_from(["fixed", "rules", "model", "learned"]),
    objective=st.sampled_from(["time", "cost", "energy", "carbon"]),
    rest=st.fixed_dictionaries({}, optional={"interval_sec": st.floats(1, 60), "patience": st.integers(1, 9)}),
    bounds=st.fixed_dictionaries({}, optional={"batch_size": _RANGES, "nodes": _RANGES, "watts": _RANGES}),
)
def test_the_trainer_gets_all_that_was_asked(
    mode: str, policy: str, objective: str, rest: dict[str, Any], bounds: dict[str, Any]
) -> None:
    asked = ControlSettings.model_validate(
        {"mode": mode, "policy": policy, "objective": objective, **rest, "bounds": bounds}
    )
    training = Training(config={"preset": "dcgan-digits"}, run_dir="run", controller=asked.document())
    arguments = _parser().parse_args(training.argv)
    assert parse_control(arguments) == asked


# stack, controller, other sections, place below job.controller, what is allowed, the fix
WRONG: dict[str, tuple[str, dict[str, Any], dict[str, Any], str, str, str]] = {
    "least above most": (
        "aws-demo", {"bounds": {"threads": [8, 2]}}, {}, "bounds.threads", "[least, most]", "write threads: [2, 8]",
    ),
    "one number": ("aws-demo", {"bounds": {"threads": 4}}, {}, "bounds.threads", "2 entries", "write threads: [4, 4]"),
    "a range in words": (
        "aws-demo", {"bounds": {"prefetch": "2-8"}}, {}, "bounds.prefetch", "2 entries", "write prefetch: [2, 8]",
    ),
    "an entry": (
        "aws-demo", {"bounds": {"threads": [1, "four"]}}, {}, "bounds.threads[1]", "whole number", "write a whole",
    ),
    "unknown policy": ("aws-demo", {"policy": "modl"}, {}, "policy", "learned", "did you mean 'model'?"),
    "unknown key": ("aws-demo", {"objektive": "time"}, {}, "objektive", "min_gain", "did you mean 'objective'?"),
    "more nodes than the cluster has": (
        "aws-p5-spot", {"bounds": {"nodes": [1, 9]}}, {}, "bounds.nodes", "within 2 to 4", "write nodes: [2, 4]",
    ),
    "batch below the workers": (
        "aws-demo", {"bounds": {"batch_size": [8, 64]}}, {}, "bounds.batch_size", "from 16 on",
        "write batch_size: [16, 64]",
    ),
    "a batch that the run never has": (
        "aws-demo", {"bounds": {"batch_size": [1024, 2048]}}, {}, "bounds.batch_size", "bounds around 64",
        "write batch_size: [64, 2048]",
    ),
    "more images at once than a worker has": (
        "aws-demo", {"bounds": {"batch_gpu": [16, 64]}}, {}, "bounds.batch_gpu", "up to 4", "write batch_gpu: [4, 4]",
    ),
    "a precision that the run never has": (
        "aws-demo", {"bounds": {"precision": ["bf16"]}}, {}, "bounds.precision", "words with fp32 among them",
        "write precision: [fp32, bf16]",
    ),
    "watts beyond the board": (
        "aws-demo", {"bounds": {"watts": [300, 900]}}, {}, "bounds.watts", "at most 700", "write watts: [300, 700]",
    ),
    "an hour too cheap": (
        "aws-demo", {"bounds": {"usd_per_hour": 1}}, {}, "bounds.usd_per_hour", "at least", "write usd_per_hour: ",
    ),
    "cost without a price": (
        "hosts-lab", {"objective": "cost"}, {"site": {"usd_per_node_hour": None}}, "objective",
        "cost with gangway:site.usd_per_node_hour", "set gangway:site.usd_per_node_hour: ",
    ),
    "a cap without a price": (
        "openstack-gpu", {"bounds": {"usd_per_hour": 9}}, {"site": {"usd_per_node_hour": None}}, "bounds.usd_per_hour",
        "only with gangway:site.usd_per_node_hour", "set gangway:site.usd_per_node_hour: ",
    ),
    "carbon without a grid": (
        "hosts-lab", {"objective": "carbon"}, {"site": {"intensity_g_per_kwh": None}}, "objective",
        "carbon with gangway:site.intensity_g_per_kwh", "set gangway:site.intensity_g_per_kwh: ",
    ),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", WRONG)
def test_what_nobody_can_keep_is_refused_with_a_value_that_will_do(name: str, changed: Change) -> None:
    stack, controller, sections, place, allowed, fix = WRONG[name]
    (mistake,) = mistakes(changed(stack, controller, **sections))
    assert mistake.place.endswith(f"gangway:job.controller.{place}")
    assert mistake.value is not None
    assert allowed in mistake.allowed
    assert mistake.fix.startswith(fix)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("stack", "name", "bound"),
    [
        ("aws-demo", "usd_per_hour", 1),
        ("aws-demo", "watts", [300, 900]),
        ("aws-demo", "batch_size", [8, 64]),
        ("aws-demo", "batch_size", [1024, 2048]),
        ("aws-demo", "precision", ["bf16"]),
    ],
)
def test_a_fix_mends_it(stack: str, name: str, bound: object, changed: Change) -> None:
    (mistake,) = mistakes(changed(stack, {"bounds": {name: bound}}))
    mended = yaml.safe_load(mistake.fix.removeprefix("write "))
    assert mistakes(changed(stack, {"bounds": mended})) == []


def test_the_engine_prices_nothing_and_knows_the_machine(changed: Change) -> None:
    def under_the_engine(config: StackConfig) -> tuple[Finding, ...]:
        program = get_program(config.provider)
        return tuple(program.findings(config, program.plan(config), None))

    cheap = from_file(changed("aws-demo", {"bounds": {"usd_per_hour": 1}}))
    assert any(finding.code == "controller" for finding in under_the_engine(cheap))
    hot = from_file(changed("aws-demo", {"bounds": {"watts": [300, 900]}}))
    with pytest.raises(InputError, match="above the power limit"):
        under_the_engine(hot)


@pytest.mark.slow
def test_a_bound_that_nothing_carries_out_there_is_told(changed: Change) -> None:
    bounds = {"watts": [300, 700], "nodes": [2, 4], "threads": [1, 4]}
    found = about_controller(make_plan(from_file(changed("aws-p5-spot", {"bounds": bounds}))))
    assert found["controller.ignored watts"].severity is Severity.WARNING
    assert found["controller.ignored nodes"].severity is Severity.WARNING
    assert "job.autoscale" in found["controller.ignored nodes"].message
    assert "nodes" not in found["controller controller"].message.partition("; unchanged")[0]
    assert "threads 1 to 4" in found["controller controller"].message
    assert "watts" not in found["controller controller"].message
    slices = about_controller(
        make_plan(from_file(changed("gcp-v5e-pod", {"objective": "energy", "bounds": {"threads": [1, 2]}})))
    )
    assert "controller.ignored threads" in slices
    assert "controller.no-meter objective" in slices
    one = about_controller(make_plan(from_file(changed("aws-demo", {"bounds": {"nodes": [2, 2]}}))))
    assert {"controller.ignored nodes"} == one.keys() - {"controller controller"}


@pytest.mark.slow
def test_an_hours_bound_that_the_group_goes_beyond_says_who_keeps_it(changed: Change) -> None:
    plain = about_controller(make_plan(from_file(changed("aws-p5-spot", {"bounds": {"usd_per_hour": 1e6}}))))
    assert "controller.usd-per-hour usd_per_hour" not in plain
    with pytest.raises(InputError) as caught:
        make_plan(from_file(changed("aws-p5-spot", {"bounds": {"usd_per_hour": 1}})))
    fewest = int(caught.value.fix.rpartition(" ")[2])  # of two nodes of at most four, on the cheapest rung
    found = about_controller(make_plan(from_file(changed("aws-p5-spot", {"bounds": {"usd_per_hour": fewest}}))))
    warning = found["controller.usd-per-hour usd_per_hour"]
    assert (warning.severity, "nothing enforces it" in warning.message) == (Severity.WARNING, True)


def test_compiled_losses_can_be_switched_where_no_graph_averages_between_workers(changed: Change) -> None:
    """Nobody is told of it in vain."""
    asked = {"bounds": {"compile": True}}
    found = about_controller(make_plan(from_file(changed("aws-demo", asked))))
    assert ("controller.ignored compile" in found) != ("compile on or off" in found["controller controller"].message)
    slices = about_controller(make_plan(from_file(changed("gcp-v5e-pod", asked))))
    assert "compiles by itself" in slices["controller.ignored compile"].message


def test_every_setting_is_named_once_as_changed_or_as_started(changed: Change) -> None:
    for stack in ("aws-p5-spot", "gcp-v5e-pod", "hosts-lab"):
        found = about_controller(make_plan(from_file(changed(stack, {"policy": "model"}))))
        words = re.findall(r"[a-z_]+", found["controller controller"].message)
        for name in Bounds.model_fields.keys() - {"usd_per_hour"}:
            on_chips = stack == "gcp-v5e-pod" and name == "threads"
            assert words.count(name) == (not on_chips), (stack, name)


def test_more_threads_than_cores_and_numbers_that_the_trainer_refuses(changed: Change) -> None:
    found = about_controller(make_plan(from_file(changed("aws-demo", {"bounds": {"loader_threads": [1, 400]}}))))
    assert found["controller.cores loader_threads"].fix == "set loader_threads: [1, 24]"
    slices = about_controller(make_plan(from_file(changed("gcp-v5e-pod", {"bounds": {"precision": ["fp32", "fp16"]}}))))
    assert slices["controller.precision precision"].severity is Severity.ERROR
    assert slices["controller.precision precision"].fix == "set precision: [fp32]"


def test_a_micro_batch_that_begins_outside_its_own_bounds_is_told(changed: Change) -> None:
    found = about_controller(make_plan(from_file(changed("aws-demo", {"bounds": {"batch_gpu": [1, 2]}}))))
    assert found["controller.begins-outside batch_gpu"].fix == "set batch_gpu: [1, 4]"


@pytest.mark.slow
def test_a_fixed_policy_has_no_use_for_bounds(changed: Change) -> None:
    found = about_controller(
        make_plan(from_file(changed("aws-demo", {"policy": "fixed", "bounds": {"threads": [1, 2]}})))
    )
    assert found.keys() == {"controller controller", "controller.ignored bounds"}
    assert about_controller(make_plan(from_file(REPO / "stacks/Pulumi.aws-demo.yaml"))) == {}
