"""Host power follows its stated rule, no estimate of a machine is beyond its published full load; its emissions."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangway.components.catalog.loader import PROVIDERS, load, load_provider, load_tpus
from gangway.components.catalog.machine_facts import load_embodied, load_power, machine_emissions
from gangway.components.catalog.schema import MachineType
from gangway.components.estimate.energy import board_share, estimate_embodied, estimate_energy

POWER = load_power()
UTILISATION = POWER.busy_share.value
MACHINES = {machine.name: machine for provider in PROVIDERS for machine in load_provider(provider).machines.values()}
SERVER_OF = {
    **{"H100": "H100", "H200": "H100", "MI300X": "H100", "A100": "A100", "A100-80G": "A100"},
    **{"B200": "B200", "B300": "B200", "GB200": "GB200", "GB300": "GB200"},
}


def of_server(machine: MachineType) -> bool:
    """Boards on a base board of eight, or part of one; Azure's NC sizes have cards."""
    model = machine.accelerator.rpartition("x")[0]
    return model in SERVER_OF and not machine.name.startswith("Standard_NC")


def mean_watts(machine: MachineType) -> float:
    watts = machine.accelerator_watts.value
    assert watts is not None
    return machine.num_accelerators.value * watts * board_share(machine).value + machine.host_watts.value


def test_the_share_is_the_papers() -> None:
    """76 % of 10.2 kW on average in heavy training; 8.4 kW at the most: arXiv 2506.14551 and 2412.08602."""
    training, server = POWER.training, POWER.servers["H100"]
    assert (training.share.value, server.rated_watts.value) == (UTILISATION, 10200)
    p5 = mean_watts(MACHINES["p5.48xlarge"])
    assert p5 == pytest.approx(0.76 * 10200, rel=0.001)
    assert p5 < training.measured_peak_watts.value < server.rated_watts.value


@pytest.mark.parametrize("name", sorted(POWER.full_load_watts.value))
def test_no_estimate_is_beyond_the_published_full_load(name: str) -> None:
    assert mean_watts(MACHINES[name]) <= POWER.full_load_watts.value[name]


@pytest.mark.parametrize("name", sorted(name for name, machine in MACHINES.items() if of_server(machine)))
def test_no_estimate_is_beyond_the_makers_rating(name: str) -> None:
    machine = MACHINES[name]
    server, boards = POWER.servers[SERVER_OF[machine.accelerator.rpartition("x")[0]]], machine.num_accelerators.value
    assert machine.host_watts.value == pytest.approx(server.host_watts(boards, UTILISATION), abs=5), "rounded to 10 W"
    more = boards * max(0.0, (machine.accelerator_watts.value or 0) - server.board_watts.value)
    assert mean_watts(machine) <= server.rated_watts.value * boards / server.boards.value + more
    high = estimate_energy(machine, 1, 1, load_provider("aws").region("us-east-1", "aws")).kwh_high
    assert high is not None
    assert high / 1.15 * 1000 <= server.rated_watts.value * boards / server.boards.value * 1.005 + more


def test_every_other_host_follows_its_processor_or_teads() -> None:
    hosts = {"4.5 W a vCPU": POWER.hosts["intel"], "2.8 W a vCPU": POWER.hosts["amd"]}
    for machine in MACHINES.values():
        source = machine.host_watts.source
        if of_server(machine) or source.startswith("Teads' dataset"):
            continue
        by = next(host for words, host in hosts.items() if source.startswith(words))
        expected = by.host_watts(machine.vcpus.value, machine.memory_gib.value)
        assert machine.host_watts.value == pytest.approx(expected, abs=0.5), machine.name
    for tpu in load_tpus().generations.values():
        expected = POWER.hosts["intel"].host_watts(tpu.host_vcpus.value, tpu.host_memory_gib.value)
        assert tpu.host_watts.value == pytest.approx(expected, abs=0.5), tpu.name


def test_teads_half_load_is_between_idle_and_full() -> None:
    """Of g4dn.xlarge: 24 W of its 33 W at full load beside the card; the row of power.yaml has the card's 71 W too."""
    by_teads = [machine for machine in MACHINES.values() if machine.host_watts.source.startswith("Teads' dataset")]
    assert {machine.name.partition(".")[0] for machine in by_teads} == {"p3", "p3dn", "g4dn", "inf1"}
    assert MACHINES["g4dn.xlarge"].host_watts.value == 24
    assert MACHINES["g4dn.metal"].host_watts.value == 568


def test_machines_with_a_source_and_those_without() -> None:
    machines = {name: machine_emissions(machine) for name, machine in MACHINES.items()}
    assert {name: machines[name].kg.value for name in ("p5.48xlarge", "p4d.24xlarge", "g4dn.metal")} == {
        "p5.48xlarge": 7011, "p4d.24xlarge": 4677, "g4dn.metal": 3011,
    }  # fmt: skip
    assert machines["p5.48xlarge"].kg.confidence == "secondary", "NVIDIA's report was not read, others quote it"
    for unknown in ("p6e-gb200.36xlarge", "trn2.48xlarge", "Standard_ND128isr_GB300_v6"):
        assert machines[unknown].kg.value is None
    life = load_embodied().life_hours
    assert life.value == 4 * 365 * 24
    assert life.confidence == "assumed"


def test_every_band_holds_its_figure() -> None:
    for model, whole in load_embodied().machines.items():
        kg, low, high = whole.kg_co2e.value, whole.low.value, whole.high.value
        assert kg is not None
        assert low is not None
        assert high is not None
        assert 1000 < low < kg < high, model


def test_every_listed_model_is_some_machines() -> None:
    models = {machine.accelerator.rpartition("x")[0] for machine in MACHINES.values()}
    assert load_embodied().machines.keys() <= models


@pytest.mark.parametrize(
    ("name", "share"),
    [
        ("p5.48xlarge", 1.0), ("p5.4xlarge", 1 / 8), ("g4dn.16xlarge", 64 / 96), ("g4dn.xlarge", 1 / 8),
        ("a3-highgpu-2g", 52 / 192), ("Standard_ND96isr_H100_v5", 1.0),
    ],
)  # fmt: skip
def test_a_part_of_a_machine_has_its_accelerators_or_its_vcpus_share(name: str, share: float) -> None:
    assert machine_emissions(MACHINES[name]).share == pytest.approx(share)


def test_two_p5_for_a_day_by_hand() -> None:
    """2 machines x 7,011 kg x 24 / 35040 hours = 9.604 kg, between 6.006 and 23.014."""
    found = estimate_embodied(load().machine("p5.48xlarge"), 2, 24)
    assert found.gco2e == pytest.approx(9604.1, abs=0.1)
    assert (found.gco2e_low, found.gco2e_high) == pytest.approx((6005.5, 23013.7), abs=0.1)
    assert (found.kg_per_machine, found.kg_low, found.kg_high, found.machine_share) == (7011, 4384, 16800, 1.0)
    assert (found.life_hours, found.confidence) == (35040, "secondary")
    assert "HGX H100 PCF" in found.source


def test_an_unknown_machine_has_no_share() -> None:
    found = estimate_embodied(load().machine("trn2.48xlarge"), 1, 10)
    assert (found.gco2e, found.gco2e_low, found.gco2e_high) == (None, None, None)
    assert "No life-cycle assessment" in found.source


@given(st.integers(1, 512), st.floats(0, 1e4), st.floats(0, 1e4))
def test_the_share_adds_up_over_hours(num_nodes: int, first: float, more: float) -> None:
    machine = load().machine("p4d.24xlarge")
    parts = [estimate_embodied(machine, num_nodes, hours).gco2e or 0.0 for hours in (first, more)]
    assert estimate_embodied(machine, num_nodes, first + more).gco2e == pytest.approx(sum(parts))
