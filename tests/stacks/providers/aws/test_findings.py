"""The findings of stacks on AWS: when each appears, and its severity."""

from collections.abc import Callable
from typing import Any

import pytest

from gangway.components.catalog.loader import load
from gangway.components.core.findings import Finding, InputError, Severity
from gangway.components.estimate.cost import CostComponent, estimate
from gangway.stacks.config.stack_config import StackConfig
from gangway.stacks.plan.plan import make_plan
from gangway.stacks.providers.aws.findings import findings
from gangway.stacks.providers.aws.plan import plan

Edit = Callable[[dict[str, Any]], object]
Edited = Callable[[Edit], StackConfig]
LUSTRE = {"kind": "lustre", "capacity_gib": 38400, "throughput_mbps_per_tib": 125}
AWS_MACHINES = sorted(name for name, row in load().machines.items() if row.provider == "aws")


def section(name: str, **changes: Any) -> Edit:
    """The demo with changes in one section."""
    return lambda values: values.setdefault(f"gangway:{name}", {}).update(changes)


def on(machine_type: str, nodes: int = 2) -> Edit:
    """The demo on other machines."""

    def edit(values: dict[str, Any]) -> None:
        values["gangway:cluster"].pop("accelerator")
        values["gangway:cluster"].update(machine_type=machine_type, nodes={"min": nodes, "max": nodes})

    return edit


def found_in(config: StackConfig) -> dict[str, Finding]:
    """The findings about a configuration by their codes, without those about money."""
    return {finding.code: finding for finding in findings(config, plan(config), None)}


@pytest.mark.parametrize("machine_type", AWS_MACHINES)
def test_every_machine_can_be_trained_on_or_is_an_error(edited: Edited, machine_type: str) -> None:
    row = load().machines[machine_type]
    trainable = row.backend == "nccl" and row.architecture == "x86_64" and not row.accelerator.startswith("V100")
    found = found_in(edited(on(machine_type, 1)))
    assert ("machine.not-trained-on" in found) is not trainable
    if not trainable:
        error = found["machine.not-trained-on"]
        assert (error.severity, error.path) == (Severity.ERROR, "gangway:cluster")
        assert machine_type in error.message
        assert "gangway catalog list" in error.fix


def test_the_way_out_that_remains_is_named(edited: Edited) -> None:
    """With endpoints and their policies nothing leaves, except DNS without the firewall."""
    assert "network.ways-out" not in found_in(edited(section("network", egress="endpoints")))
    by_name = found_in(edited(section("network", egress="endpoints", dns_firewall=False)))["network.ways-out"]
    assert (by_name.severity, by_name.path) == (Severity.INFO, "gangway:network.egress")
    assert by_name.message.startswith("data can still leave by DNS: ")
    assert by_name.fix.startswith("remove gangway:network.dns_firewall")
    everywhere = found_in(edited(section("network", egress="nat")))
    assert "machines reach the whole internet" in everywhere["network.ways-out"].message
    assert "network.dns-firewall-ignored" not in everywhere


@pytest.mark.parametrize("wanted", [True, False])
def test_a_firewall_for_names_behind_nat_is_of_no_effect(edited: Edited, wanted: bool) -> None:
    found = found_in(edited(section("network", egress="nat", dns_firewall=wanted)))["network.dns-firewall-ignored"]
    assert (found.severity, found.path) == (Severity.WARNING, "gangway:network.dns_firewall")


def test_the_fabric_and_its_check_are_reported(edited: Edited) -> None:
    found = found_in(edited(on("p4d.24xlarge")))
    assert "4 EFA interfaces per node, 400 Gbit/s" in found["fabric.efa"].message
    assert found["fabric.check"].path == "gangway:cluster.fabric_check"
    assert "reaches 100 Gbit/s, 0.25 of the fabric's" in found["fabric.check"].message
    assert "fabric.none" not in found
    without = found_in(edited(section("cluster", fabric_check={"enabled": False})))
    assert "fabric.check" not in without
    assert "fabric.efa" in without


@pytest.mark.parametrize(
    ("machine_type", "check", "expected"),
    [
        ("g7e.48xlarge", {}, "reaches 80 Gbit/s, what PCIe carries"),  # a quarter of its cards: 400
        ("g7e.48xlarge", {"min_fraction": 0.25}, "reaches 400 Gbit/s, 0.25 of the fabric's"),
        ("g6e.24xlarge", {}, "reaches 50 Gbit/s, 0.25 of the fabric's"),
        ("p5.48xlarge", {}, "reaches 800 Gbit/s, 0.25 of the fabric's"),
    ],
)
def test_gpus_on_pcie_need_not_reach_what_only_nvlink_feeds(
    edited: Edited, machine_type: str, check: dict[str, float], expected: str
) -> None:
    def changed(values: dict[str, Any]) -> None:
        on(machine_type)(values)
        values["gangway:cluster"]["fabric_check"] = check

    assert expected in found_in(edited(changed))["fabric.check"].message


def test_several_nodes_without_a_fabric_are_a_warning_and_one_is_not(edited: Edited) -> None:
    slow = found_in(edited(on("g5.xlarge", 2)))["fabric.none"]
    assert slow.severity is Severity.WARNING
    assert "gradients use TCP at 10 Gbit/s" in slow.message
    assert "fabric.none" not in found_in(edited(on("g5.xlarge", 1)))


def test_an_automatic_zone_is_reported(edited: Edited) -> None:
    assert "us-east-2a chosen" in found_in(edited(lambda values: None))["placement.zone"].message
    assert "placement.zone" not in found_in(edited(section("cluster", zone="us-east-2b")))
    block = {"kind": "capacity-block", "id": "cr-0123456789abcdef0", "zone": "us-east-2c"}
    tied = found_in(edited(section("cluster", capacity=[block])))["placement.zone"]
    assert "us-east-2c chosen: gangway:cluster.capacity[0], a capacity-block, is there" in tied.message


@pytest.mark.parametrize(
    ("egress", "image_id", "efa", "expected"),
    [
        ("endpoints", None, False, Severity.ERROR),
        ("endpoints", None, True, Severity.ERROR),
        ("endpoints", "ami-0123456789abcdef0", False, None),
        ("endpoints", "ami-0123456789abcdef0", True, Severity.WARNING),
        ("nat", None, True, None),
    ],
)
def test_the_lustre_client_has_to_come_from_somewhere(
    edited: Edited, egress: str, image_id: str | None, efa: bool, expected: Severity | None
) -> None:
    def edit(values: dict[str, Any]) -> None:
        values["gangway:network"] = {"egress": egress}
        values["gangway:storage"] = {**LUSTRE, "efa": efa}
        values["gangway:cluster"]["image_id"] = image_id

    finding = found_in(edited(edit)).get("storage.lustre-client")
    assert (finding and finding.severity) == expected


def test_a_new_image_perhaps_without_a_lustre_client_is_reported(edited: Edited) -> None:
    told = found_in(edited(lambda values: None))["storage.newest-image"]
    assert (told.severity, told.path) == (Severity.INFO, "gangway:cluster.image_id")
    assert "increase image_refresh" in told.fix
    pinned = found_in(edited(section("cluster", image_id="ami-0123456789abcdef0")))
    assert "storage.newest-image" not in pinned
    assert "storage.newest-image" not in found_in(edited(lambda values: values.pop("gangway:storage")))


def test_unscraped_metrics_are_reported(edited: Edited) -> None:
    told = found_in(edited(section("network", egress="endpoints")))["head.no-prometheus"]
    assert (told.severity, told.path) == (Severity.INFO, "gangway:head.prometheus_image")
    assert "head.no-prometheus" not in found_in(edited(lambda values: None)), "the demo has a NAT gateway"

    def quiet(values: dict[str, Any]) -> None:
        section("network", egress="endpoints")(values)
        section("head", prometheus_image=None)(values)

    assert "head.no-prometheus" not in found_in(edited(quiet))
    alone = edited(lambda values: (section("network", egress="endpoints")(values), on("g5.xlarge", 1)(values)))
    assert "head.no-prometheus" not in found_in(alone), "no head, nothing to scrape from"


def test_checkpoints_on_scratch_are_a_warning_unless_they_are_exported(edited: Edited) -> None:
    scratch = {"kind": "lustre", "deployment": "scratch", "capacity_gib": 2400}
    lost = found_in(edited(lambda values: values.update({"gangway:storage": scratch})))["storage.scratch-checkpoints"]
    assert lost.severity is Severity.WARNING
    kept = {**scratch, "export_runs": True}
    assert "storage.scratch-checkpoints" not in found_in(
        edited(lambda values: values.update({"gangway:storage": kept}))
    )
    assert "storage.scratch-checkpoints" not in found_in(edited(section("storage", export_runs=False)))


@pytest.mark.parametrize(
    ("machine_type", "why"),
    [("g5.xlarge", "it has no EFA"), ("p4d.24xlarge", "does not support p4d as an EFA client"), ("p5.48xlarge", None)],
)
def test_nodes_that_cannot_mount_over_efa_are_an_error(edited: Edited, machine_type: str, why: str | None) -> None:
    def edit(values: dict[str, Any]) -> None:
        on(machine_type)(values)
        values["gangway:storage"] = {**LUSTRE, "efa": True}

    found = found_in(edited(edit))
    if why is None:
        assert "storage.efa-unreachable" not in found
    else:
        error = found["storage.efa-unreachable"]
        assert (error.severity, error.path) == (Severity.ERROR, "gangway:storage.efa")
        assert why in error.message
    over_tcp = found_in(edited(on(machine_type)))
    assert "storage.efa-unreachable" not in over_tcp


def test_hidden_costs_are_reported(edited: Edited) -> None:
    found = found_in(edited(lambda values: None))
    assert found["budget.tag-not-activated"].severity is Severity.INFO
    assert found["job.nodes-stay"].severity is Severity.INFO
    quiet = found_in(edited(section("job", terminate_when_done=True)))
    assert "job.nodes-stay" not in quiet
    assert "budget.tag-not-activated" not in found_in(edited(section("budget", activate_tag=True)))


def test_a_stop_that_counts_nothing_yet_is_a_warning(edited: Edited) -> None:
    found = found_in(edited(section("budget", stop_at_percent=120, activate_tag=False)))
    warning = found["budget.stop-without-tag"]
    assert (warning.severity, warning.path) == (Severity.WARNING, "gangway:budget.activate_tag")
    assert "stop_at_percent: 120 stops nothing" in warning.message
    assert "set activate_tag: true" in warning.fix
    assert "budget.tag-not-activated" not in found
    active = found_in(edited(section("budget", stop_at_percent=120, activate_tag=True)))
    assert {code for code in active if code.startswith("budget.")} == {"budget.late"}
    assert "budget.stop-without-tag" not in found_in(edited(section("budget", activate_tag=False)))


def test_money_is_spoken_of_only_with_a_bill(edited: Edited) -> None:
    config = edited(section("budget", monthly_usd=100))
    line = CostComponent("nodes", "hours", 1, 50.0, 50.0, "a list", "2026-09-06", "list-price")
    with_bill = {finding.code for finding in findings(config, plan(config), estimate([line], 1))}
    assert "budget.below-estimate" in with_bill
    assert not {code for code in found_in(config) if code.startswith(("cost.", "budget.below"))}


def test_the_ladders_and_the_providers_own_are_among_them(edited: Edited) -> None:
    elsewhere = [{"kind": "spot", "zones": ["us-east-2a", "us-east-2b"]}, {"kind": "on-demand"}]
    assert "capacity.zones-with-fabric" in found_in(edited(section("cluster", capacity=elsewhere)))
    assert "storage.not-shared" in found_in(edited(lambda values: values.pop("gangway:storage")))


def test_each_finding_has_a_place_and_each_error_a_fix(edited: Edited) -> None:
    for machine_type in AWS_MACHINES:
        for finding in found_in(edited(on(machine_type))).values():
            assert finding.path.startswith("gangway:")
            assert finding.message
            assert finding.fix or finding.severity is not Severity.ERROR


def test_what_cannot_be_planned_raises_and_is_no_finding(edited: Edited) -> None:
    with pytest.raises(InputError):
        found_in(edited(section("cluster", zone="us-east-2z")))


def test_a_spot_cap_below_every_price_seen_is_a_warning(edited: Edited) -> None:
    low = [{"kind": "on-demand"}, {"kind": "spot", "max_usd_per_hour": 11}]
    finding = found_in(edited(section("cluster", capacity=low)))["capacity.spot-cap-low"]
    assert finding.path == "gangway:cluster.capacity[1].max_usd_per_hour"
    assert "11 USD is below the lowest spot price seen for p5.48xlarge, 11.2276 USD" in finding.message
    assert finding.fix == "set max_usd_per_hour: 15.4417"
    assert finding.severity is Severity.WARNING

    def unpriced(values: dict[str, Any]) -> None:
        on("g5.xlarge")(values)
        values["gangway:cluster"]["capacity"] = low

    assert "capacity.spot-cap-low" not in found_in(edited(unpriced))


def test_a_spot_cap_below_every_price_seen_is_an_error_where_no_other_rung_is(edited: Edited) -> None:
    def found(**more: Any) -> dict[str, Finding]:
        return found_in(edited(section("cluster", capacity=[{"kind": "spot", "max_usd_per_hour": 10, **more}])))

    finding = found()["capacity.spot-cap-low"]
    assert (finding.severity, finding.fix) == (Severity.ERROR, "set max_usd_per_hour: 15.4417")
    assert "no machine will come, and the job never starts" in finding.message
    cheaper = found(machine_types=["p4d.24xlarge"])
    assert "capacity.spot-cap-low" not in cheaper, "a type that may come at this price"


def test_a_spot_cap_among_the_prices_seen_is_said(edited: Edited) -> None:
    def found(cap: float) -> dict[str, Finding]:
        return found_in(edited(section("cluster", capacity=[{"kind": "spot", "max_usd_per_hour": cap}])))

    finding = found(13)["capacity.spot-cap-within"]
    assert (finding.severity, finding.path) == (Severity.INFO, "gangway:cluster.capacity[0].max_usd_per_hour")
    assert "13 USD is below the highest spot price of p5.48xlarge seen, 11.2276 to 15.4417 USD" in (finding.message)
    assert "the bill counts 13 USD" in finding.message
    assert finding.fix == "set max_usd_per_hour: 15.4417 for all prices seen"
    assert "capacity.spot-cap-within" not in found(15.4417)
    assert "capacity.spot-cap-within" not in found(11), "that one is a warning"


def test_idle_nodes_leave_and_the_plan_says_what_stays(edited: Edited) -> None:
    config = edited(section("cluster", idle_stop={"minutes": 30}))
    found = found_in(config)
    assert "below 5 % for 30 minutes" in found["idle.stop"].message
    assert "Head, file system and network stay" in found["idle.stop"].message
    assert "job.nodes-stay" not in found
    left, stayed = make_plan(config), make_plan(edited(lambda values: None))
    assert left.idle_hourly is not None
    assert stayed.idle_hourly is not None
    assert left.idle_hourly < stayed.idle_hourly
    policies = [str(each.inputs.get("policy", "")) for each in left.resources]
    assert any("TerminateInstanceInAutoScalingGroup" in policy for policy in policies), "nodes may leave"
