"""What a Slurm of one's own reads: golden text for each release, and what is refused before there is any."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangway.images.slurm.conf import Release, SlurmMachine, SlurmRung, SlurmSpec, conf_files, rung_names, slurm_conf

P5 = SlurmMachine(cpus=192, memory_gib=2048, gpus=8, gpu_type="h100", fabric="efa")
RUNGS = (SlurmRung("spot", "spot", 8), SlurmRung("on-demand", "on-demand", 4))


def spec(**changes: Any) -> SlurmSpec:
    whole = SlurmSpec(
        cluster="demo", release="23.11", head_host="head.demo.internal", head_name="head", machine=P5, rungs=RUNGS
    )
    return replace(whole, **changes)


SPECS = {
    "p5": spec(nodes_up=1, accounting=True),
    "jammy": spec(release="21.08"),
    "cpus": spec(release="22.05", machine=SlurmMachine(cpus=2, memory_gib=4), rungs=RUNGS[1:]),
}


@pytest.mark.parametrize("name", SPECS)
def test_files_are_golden(name: str, same_as_golden: Callable[[str, str], None]) -> None:
    text = "".join(f"### {file}\n{text}" for file, text in sorted(conf_files(SPECS[name]).items()))
    same_as_golden(f"slurm-{name}.conf", text)


def lines(text: str) -> dict[str, str]:
    return dict(line.split("=", 1) for line in text.splitlines() if not line.startswith(("NodeName", "PartitionName")))


def test_the_ladders_order_is_that_of_tiers_and_weights() -> None:
    text = slurm_conf(SPECS["p5"])
    nodes, partitions = (
        [line for line in text.splitlines() if line.startswith(kind)] for kind in ("NodeName", "PartitionName")
    )
    weights = [int(line.partition("Weight=")[2].split()[0]) for line in nodes]
    tiers = [int(line.partition("PriorityTier=")[2].split()[0]) for line in partitions]
    assert weights == sorted(weights)
    assert tiers == sorted(tiers, reverse=True)
    assert ["State=CLOUD" in line for line in nodes] == [True, True]


@pytest.mark.parametrize(("release", "held"), [("21.08", False), ("22.05", True), ("23.11", True)])
def test_cgroups_where_slurm_knows_those_of_its_system(release: Release, held: bool) -> None:
    files = conf_files(spec(release=release))
    assert ("cgroup.conf" in files) is held
    assert ("cgroup" in lines(files["slurm.conf"])["ProctrackType"]) is held


def test_accounts_only_where_they_are_wanted() -> None:
    assert "slurmdbd.conf" not in conf_files(spec())
    with_accounts = conf_files(spec(accounting=True))
    assert "Pass" not in with_accounts["slurmdbd.conf"]
    assert lines(with_accounts["slurm.conf"])["PreemptMode"] == "REQUEUE"


def test_one_gpu_and_none() -> None:
    one = conf_files(spec(machine=replace(P5, gpus=1)))
    assert "File=/dev/nvidia0\n" in one["gres.conf"]
    none = conf_files(spec(machine=SlurmMachine(cpus=2, memory_gib=4)))
    assert "Gres" not in none["slurm.conf"]
    assert "topology.conf" not in none


@pytest.mark.parametrize(
    "changes",
    [
        {"cluster": "Demo\nInclude=/etc/passwd"},
        {"head_host": "head demo"},
        {"rungs": ()},
        {"rungs": (RUNGS[0], RUNGS[0])},
        {"nodes_up": 9},
        {"idle_minutes": 0},
        {"node_port": 6817},
        {"controller_port": 80},
        {"state_dir": "/var/lib/a b"},
        {"suspend_sec": 0},
        {"resume_minutes": 0},
    ],
)
def test_what_slurm_would_choke_on_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="allowed:"):
        spec(**changes)


@pytest.mark.parametrize("name", ["", "Spot", "spot,all", "spot[1-2]", "all", "9spot", "spot\n", "a" * 60])
def test_a_partitions_name_has_one_form(name: str) -> None:
    with pytest.raises(ValueError, match="SlurmRung"):
        SlurmRung(name, "spot", 1)


@pytest.mark.parametrize("machine", [{"cpus": 0}, {"gpus": 8}, {"gpu_type": "h100"}, {"gpus": 1, "gpu_type": "H 100"}])
def test_a_machine_is_whole(machine: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="SlurmMachine"):
        SlurmMachine(**{"cpus": 1, "memory_gib": 1.0, **machine})


@given(st.lists(st.sampled_from(["spot", "on-demand", "reservation", "capacity-block"]), min_size=1, max_size=12))
def test_rungs_of_one_kind_have_names_of_their_own(kinds: list[str]) -> None:
    names = rung_names(kinds)
    assert len(set(names)) == len(kinds)
    assert all(name.startswith(kind) for name, kind in zip(names, kinds, strict=True))
    assert [SlurmRung(name, "spot", 3).hosts for name in names]
