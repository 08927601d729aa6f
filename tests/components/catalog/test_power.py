"""Host power follows its stated rule, and no estimate of a machine is beyond its published full load."""

import pytest

from gangway.components.catalog.loader import PROVIDERS, load_provider, load_tpus
from gangway.components.catalog.power import load_power
from gangway.components.catalog.schema import MachineType
from gangway.components.estimate.energy import UTILISATION, board_share, estimate_energy

POWER = load_power()
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


@pytest.mark.parametrize("name", sorted(POWER.full_load.machines.value))
def test_no_estimate_is_beyond_the_published_full_load(name: str) -> None:
    assert mean_watts(MACHINES[name]) <= POWER.full_load.machines.value[name]


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
