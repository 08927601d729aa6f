"""A site's machines: what the stack file states, what stands in for what it does not, and what only its owner knows."""

from datetime import date
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from gangway.components.catalog.loader import PROVIDERS, load_bundled
from gangway.components.catalog.machine_facts import load_power
from gangway.components.catalog.site import (
    SiteConfig,
    plan_site_fabric,
    site_findings,
    site_machine,
    site_price,
    site_region,
)
from gangway.components.core.findings import InputError, Severity
from gangway.components.estimate.energy import estimate_energy

UTILISATION = load_power().busy_share.value
DAY = "2026-11-01"
LEAST: dict[str, Any] = {"as_of": DAY, "vcpus": 96, "memory_gib": 512, "interconnect": "nvlink"}
ALL: dict[str, Any] = {
    **LEAST,
    "accelerator_watts": 650,
    "host_watts": 900,
    "network_gbps": 25,
    "usd_per_node_hour": 3.5,
    "intensity_g_per_kwh": 40,
    "pue": 1.1,
    "country": "SE",
}
IB = {"kind": "infiniband", "devices": 4, "gbps": 200}


def site(**changes: Any) -> SiteConfig:
    return SiteConfig.model_validate({**LEAST, **changes})


def codes(config: SiteConfig, accelerator: str = "A100x8") -> dict[str, str]:
    """Path -> code of the findings."""
    machine = site_machine(config, "hosts", accelerator)
    return {finding.path: finding.code for finding in site_findings(config, machine)}


def test_what_is_stated_is_taken_with_its_place_and_day() -> None:
    machine = site_machine(site(**{**ALL, "fabric": IB}), "hosts", "A100x8", "rack-7")
    assert (machine.name, machine.provider, machine.accelerator) == ("rack-7", "hosts", "A100x8")
    facts = {
        "num_accelerators": 8,
        "accelerator_watts": 650,
        "host_watts": 900,
        "vcpus": 96,
        "memory_gib": 512,
        "interconnect": "nvlink",
        "network_gbps": 800,
    }
    for name, value in facts.items():
        fact = getattr(machine, name)
        assert (fact.value, fact.confidence, fact.as_of) == (value, "stated", date(2026, 11, 1)), name
        assert fact.source.startswith("stated by the stack file: gangway:site."), name
    region = site_region(site(**ALL), "hosts", "lab")
    assert (region.name, region.intensity_g_per_kwh.value, region.pue.value, region.zones) == ("lab", 40, 1.1, ())
    assert region.intensity_g_per_kwh.source.endswith("(SE)")
    assert site_price(site(**ALL), machine, "lab").on_demand.value == 3.5
    assert codes(site(**ALL)) == {}


def test_what_is_not_stated_is_assumed_and_said() -> None:
    machine, region = site_machine(site(), "openstack", "A100x8"), site_region(site(), "openstack", "RegionOne")
    assert machine.host_watts.value == 2510, "that of the clouds' machines with eight A100"
    assert machine.host_watts.source.startswith("as a p4d.24xlarge: ")
    other = site_machine(site(accelerator_watts=300), "openstack", "A100x3")
    assert other.host_watts.value == pytest.approx(4.5 * other.vcpus.value + 0.4 * other.memory_gib.value)
    for fact in (machine.host_watts, region.pue, region.intensity_g_per_kwh):
        assert fact.confidence == "assumed"
        assert fact.source
    # The boards of a model that a catalogue knows are not the site's to measure.
    assert machine.accelerator_watts.value == 400
    assert codes(site()) == {
        "gangway:site.host_watts": "site.assumed",
        "gangway:site.pue": "site.assumed",
        "gangway:site.intensity_g_per_kwh": "site.assumed",
        "gangway:site.usd_per_node_hour": "site.price-unsaid",
    }


def test_a_price_nobody_says_stays_unknown_and_a_price_of_nothing_does_not() -> None:
    machine = site_machine(site(), "hosts", "A100x8")
    unsaid = site_price(site(), machine, "lab")
    assert unsaid.on_demand.value is None
    assert "usd_per_node_hour" in unsaid.on_demand.source
    assert {unsaid.spot_low.value, unsaid.spot_high.value, unsaid.reserved_1y.value, unsaid.block.value} == {None}
    assert site_price(site(usd_per_node_hour=0), machine, "lab").on_demand.value == 0.0
    assert "gangway:site.usd_per_node_hour" not in codes(site(usd_per_node_hour=0))


@pytest.mark.parametrize(
    ("accelerator", "said"),
    [
        ("RTX4090x4", "nobody here knows what one RTX4090 draws"),
        # A card of 300 W, and a module of 400 W.
        ("A100-80Gx3", "A100-80G comes with 300 and 400 W"),
    ],
)
def test_boards_that_nobody_knows_or_that_come_in_several_are_asked_for(accelerator: str, said: str) -> None:
    with pytest.raises(InputError, match=said) as caught:
        site_machine(site(), "hosts", accelerator)
    assert caught.value.place == "gangway:site.accelerator_watts"
    assert "add accelerator_watts" in caught.value.fix
    machine = site_machine(site(accelerator_watts=450), "hosts", accelerator)
    assert machine.accelerator_watts.value == 450
    assert machine.num_accelerators.value == int(accelerator[-1])


def test_the_number_in_a_machine_tells_cards_from_modules() -> None:
    assert site_machine(site(), "hosts", "A100-80Gx2").accelerator_watts.value == 300
    assert site_machine(site(), "hosts", "H100x8").accelerator_memory_gib.value == 80


@given(st.sampled_from([m for provider in PROVIDERS for m in load_bundled(provider).machines.values()]))
def test_every_machine_of_a_catalogue_can_be_had_at_a_site(known: Any) -> None:
    """Its boards draw there what they draw elsewhere."""
    machine = site_machine(site(), "hosts", known.accelerator)
    assert machine.accelerator_watts.value == known.accelerator_watts.value
    assert machine.backend == known.backend
    assert machine.num_accelerators.value == int(known.accelerator.rpartition("x")[2])


@given(st.floats(1, 5000), st.floats(1, 3), st.integers(1, 16), st.floats(1, 500))
def test_energy_is_the_models(host_watts: float, pue: float, num: int, hours: float) -> None:
    config = site(host_watts=host_watts, pue=pue, accelerator_watts=500)
    machine, region = site_machine(config, "hosts", f"H100x{num}"), site_region(config, "hosts", "lab")
    kwh = estimate_energy(machine, 2, hours, region).kwh
    assert kwh == pytest.approx(2 * hours * pue * (num * 500 * UTILISATION + host_watts) / 1000)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"accelerator": "H100"}, "accelerator"),
        ({"accelerator": "H100x0"}, "accelerator"),
        ({"pue": 0.9}, "pue of at least 1"),
        ({"vcpus": 0}, "vcpus"),
        ({"as_of": "yesterday"}, "as_of"),
        ({"country": "Germany"}, "country"),
        ({"fabric": {"kind": "infiniband"}}, "add devices and gbps"),
        ({"fabric": {"devices": 8}}, "remove devices"),
        ({"fabric": {**IB, "gid_index": 3}}, "kind: roce only"),
        ({"fabric": {**IB, "hcas": ["mlx5_0"]}}, "set devices: 1"),
        ({"watts": 1}, "watts"),
    ],
)
def test_what_makes_no_sense_is_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        site(**changes)


def test_a_fabric_is_taken_or_the_job_stops() -> None:
    fabric = site_machine(site(fabric={**IB, "hcas": ["mlx5_0", "mlx5_1", "mlx5_4", "mlx5_5"]}), "hosts", "A100x8")
    plan = plan_site_fabric(fabric.site_fabric, "bond0")
    assert (plan.link_layer, plan.num_devices, plan.gbps_each, plan.gbps) == ("InfiniBand", 4, 200, 800)
    assert plan.devices == ("/dev/infiniband",)
    assert plan.nccl_env == {
        "NCCL_NET": "IB",
        "NCCL_IB_HCA": "=mlx5_0,mlx5_1,mlx5_4,mlx5_5",
        "NCCL_SOCKET_IFNAME": "=bond0",
        "GLOO_SOCKET_IFNAME": "bond0",
    }


def test_roce_is_told_its_address_or_nccl_chooses_and_it_is_said() -> None:
    roce = {"kind": "roce", "devices": 2, "gbps": 100}
    chosen = site(fabric=roce)
    assert codes(chosen)["gangway:site.fabric.gid_index"] == "fabric.gid-chosen"
    assert codes(chosen)["gangway:site.fabric"] == "fabric.site"
    told = site(fabric={**roce, "gid_index": 3})
    assert "gangway:site.fabric.gid_index" not in codes(told)
    plan = plan_site_fabric(site_machine(told, "hosts", "A100x8").site_fabric)
    assert (plan.link_layer, plan.nccl_env["NCCL_IB_GID_INDEX"]) == ("Ethernet", "3")


def test_without_a_fabric_nothing_is_asked_of_nccl() -> None:
    machine = site_machine(site(network_gbps=25), "hosts", "A100x8")
    plan = plan_site_fabric(machine.site_fabric)
    assert (machine.site_fabric, plan.num_devices, plan.gbps, dict(plan.nccl_env)) == (None, 0, 0, {})
    assert machine.network_gbps.value == 25
    findings = list(site_findings(site(), machine))
    assert findings
    assert {finding.severity for finding in findings} == {Severity.INFO}
