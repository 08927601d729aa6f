"""Refused settings of stacks on existing machines: place, reason and fix."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gangway.components.core.findings import InputError
from gangway.stacks.base.registry import all_providers
from gangway.stacks.config.provider_settings import ENCRYPTED
from gangway.stacks.config.stack_config import StackConfig
from gangway.stacks.plan.plan import Plan
from gangway.stacks.providers.hosts.settings import HostsConfig
from tests.stacks.providers.test_contract import models_in

Told = Callable[..., dict[str, InputError]]
Edited = Callable[..., StackConfig]
KEY = "-----BEGIN OPENSSH PRIVATE KEY-----\nnobody's\n-----END OPENSSH PRIVATE KEY-----\n"
DIGEST = "sha256:" + "ab" * 32

WRONG: dict[str, tuple[dict[str, Any], str, str]] = {
    "no machines": ({"hosts": None}, "gangway:hosts", "add gangway:hosts: {machines: "),
    "no site": ({"site": None}, "gangway:site", "add gangway:site: {as_of: "),
    "another accelerator": ({"cluster": {"machine_type": None, "accelerator": "A100x8"}}, "gangway:cluster.accelerator",
                            "set accelerator: H100x8"),
    "no accelerator": ({"site": {"accelerator": None}}, "gangway:site.accelerator", "add accelerator: H100x8"),
    "a slice": ({"site": {"accelerator": None}, "cluster": {"machine_type": None, "accelerator": "v5p-64"}},
                "gangway:cluster.accelerator", "write accelerator: H100x8"),
    "no image": ({"image": None}, "gangway:image.prebuilt", "gangway dockerfile cuda > Dockerfile"),
    "an image by its tag": ({"image": {"prebuilt": "registry.example.com/trainer:1"}}, "gangway:image.prebuilt",
                            "gangway dockerfile cuda > Dockerfile"),
    "a key in plain text": ({"hosts": {"private_key": KEY}}, "gangway:hosts.private_key", "pulumi config set --path"),
    "no day": ({"site": {"as_of": None}}, "gangway:site.as_of", "add as_of"),
    "a day in words": ({"site": {"as_of": "November"}}, "gangway:site.as_of", "2026-11-01"),
    "half a fabric": ({"site": {"fabric": {"kind": "roce", "gbps": 100}}}, "gangway:site.fabric", "add devices"),
    "a bucket of a kind": ({"hosts": {"run_store": "ftp://x"}}, "gangway:hosts.run_store", "s3://my-bucket/runs"),
    "two engines": ({"hosts": {"container_engine": "lxc"}}, "gangway:hosts.container_engine", "choose one"),
    "a topology": ({"cluster": {"topology": "4x4x4"}}, "gangway:cluster.topology", "leave topology out"),
    "a network": ({"network": {"egress": "nat"}}, "gangway:network", "leave network out"),
    "a file system": ({"storage": {"kind": "lustre", "capacity_gib": 9600}}, "gangway:storage", "leave storage out"),
    "a zone": ({"cluster": {"zone": "rack-1"}}, "gangway:cluster.zone", "leave zone out"),
    "a stop": ({"budget": {"stop_at_percent": 100}}, "gangway:budget.stop_at_percent", "leave stop_at_percent out"),
    "nodes that leave": ({"job": {"terminate_when_done": True}}, "gangway:job.terminate_when_done", "leave terminate"),
    "an idle stop": ({"cluster": {"idle_stop": {}}}, "gangway:cluster.idle_stop", "leave idle_stop out"),
    "a key of the stack": ({"encryption": "customer-key"}, "gangway:encryption", "leave encryption out"),
    "alarms": ({"observe": {"no_steps_minutes": 20}}, "gangway:observe.no_steps_minutes", "leave no_steps_minutes out"),
    "a head": ({"head": {"machine_type": "small"}}, "gangway:head.machine_type", "leave machine_type out"),
    "a section of Azure": ({"gcp": {"project": "my-project", "billing_account": "012345-6789AB-CDEF01"}}, "gangway:gcp",
                           "leave it out, or set provider: gcp"),
}  # fmt: skip


@pytest.mark.parametrize("what", WRONG)
def test_a_mistake_is_reported_with_its_place_and_its_fix(told: Told, what: str) -> None:
    changes, place, fix = WRONG[what]
    mistakes = told(**changes)
    assert list(mistakes) == [place]
    assert fix in mistakes[place].fix


MACHINES: dict[str, tuple[list[dict[str, Any]], str, str]] = {
    "a key that is none": (
        [{"address": "a", "host_key": "SHA256:abc"}], "gangway:hosts.machines[0].host_key", "ssh-ed25519"),
    "an RSA key, which no server offers any more": (
        [{"address": "a", "host_key": f"ssh-rsa {'A' * 300}"}], "gangway:hosts.machines[0].host_key", "ssh-ed25519"),
    "a key and none": (
        [{"address": "a", "host_key": f"ssh-ed25519 {'A' * 68}", "accept_unknown_host_key": True}],
        "gangway:hosts.machines[0]", "remove accept_unknown_host_key"),
    "nothing to know it by": (
        [{"address": "10.0.0.9"}], "gangway:hosts.machines[0]", "ssh-keyscan -t ed25519 10.0.0.9"),
    "an address with a user": ([{"address": "me@a"}], "gangway:hosts.machines[0].address", "write a"),
    "an address that is none": (
        [{"address": "s3://bucket/a b"}], "gangway:hosts.machines[0].address", "write the address of its SSH server"),
    "a number above 255": (
        [{"address": "192.168.1.300", "accept_unknown_host_key": True}], "gangway:hosts.machines[0].address",
        "300 is above 255"),
    "three numbers": (
        [{"address": "10.20.11", "accept_unknown_host_key": True}], "gangway:hosts.machines[0].address",
        "write all four numbers, or the machine's name"),
    "zeros before a number": (
        [{"address": "a", "cluster_address": "10.020.0.011", "accept_unknown_host_key": True}],
        "gangway:hosts.machines[0].cluster_address", "write 10.20.0.11"),
    "an address with its port": (
        [{"address": "node:22", "accept_unknown_host_key": True}], "gangway:hosts.machines[0].address",
        "write it without the port"),
    "a name of two machines with IPv6": (
        [{"address": a, "name": "x", "accept_unknown_host_key": True} for a in ("fd00::1", "fd00::2")],
        "gangway:hosts.machines[1].name", "remove the second machine, or correct x"),
    "a port that is none": (
        [{"address": "a", "accept_unknown_host_key": True, "port": 0}], "gangway:hosts.machines[0].port", "port"),
    "a machine twice": (
        [{"address": "10.0.0.1", "accept_unknown_host_key": True, "name": name} for name in ("one", "two")],
        "gangway:hosts.machines[1].address", "remove the second machine, or correct 10.0.0.1"),
    "a name twice": (
        [{"address": address, "accept_unknown_host_key": True, "name": "one"} for address in ("a", "b")],
        "gangway:hosts.machines[1].name", "remove the second machine, or correct one"),
    "one address among the machines": (
        [{"address": a, "accept_unknown_host_key": True, "cluster_address": "c"} for a in ("a", "b")],
        "gangway:hosts.machines[1].cluster_address", "remove the second machine, or correct c"),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("what", MACHINES)
def test_duplicate_machines_are_refused(told: Told, what: str) -> None:
    machines, place, fix = MACHINES[what]
    mistakes = told(hosts={"machines": machines})
    assert list(mistakes) == [place]
    assert fix in mistakes[place].fix


def test_a_private_key_is_never_repeated(told: Told) -> None:
    assert "nobody's" not in str(told(hosts={"private_key": KEY})["gangway:hosts.private_key"])


def test_an_encrypted_key_is_one_and_stays_unknown(alone: StackConfig) -> None:
    assert alone.section(HostsConfig).private_key == ENCRYPTED


def test_what_is_not_read_is_known_to_the_models(lab: StackConfig) -> None:
    """Or the table would speak of settings that there are not."""
    tables = [(*p.settings.unsupported, *p.settings.lacking) for p in all_providers()]
    assert sum(map(len, tables)) > 20
    for paths in tables:
        for path in paths:
            section, _, name = path.partition(".")
            models = models_in(StackConfig.model_fields[section].annotation)
            assert not name or any(name in model.model_fields for model in models), path


def test_defaults_of_pulumis_own_file_are_nothing_that_somebody_wrote(edited_lab: Edited, lab: StackConfig) -> None:
    """The engine adds what Pulumi.yaml declares."""
    same = edited_lab(storage={}, network={}, observe={}, encryption="provider-key", gcp={}, azure={})
    assert same.model_dump() == lab.model_dump()


@pytest.mark.slow
@settings(suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_a_mutated_file_is_planned_or_refused(
    repo: Path,
    tmp_path_factory: pytest.TempPathFactory,
    with_wrong: Callable[[dict[str, Any], st.DataObject], dict[str, Any]],
    outcome: Callable[[Path], Plan | list[InputError]],
    check_plan: Callable[[Plan], None],
    data: st.DataObject,
) -> None:
    values = yaml.safe_load((repo / "stacks/Pulumi.hosts-lab.yaml").read_text("utf-8"))["config"]
    for _ in range(data.draw(st.integers(1, 2))):
        values = with_wrong(values, data)
    path = tmp_path_factory.getbasetemp() / "Pulumi.mutated-lab.yaml"
    path.write_text(yaml.safe_dump({"config": values}), "utf-8")
    made = outcome(path)
    if isinstance(made, Plan):
        check_plan(made)
    else:
        assert made
        for mistake in made:
            assert mistake.place
            assert mistake.problem
            assert mistake.fix


@pytest.mark.parametrize("key", [f"\n{KEY}", KEY.replace("nobody's", "nobody's\n" * 1000)])
def test_a_private_key_has_lines_and_may_be_long(told: Told, key: str) -> None:
    (said,) = [str(error) for place, error in told(hosts={"private_key": key}).items() if "private_key" in place]
    assert "in plain text" in said


@pytest.mark.parametrize("key", [KEY + "\x1b[31m", KEY + "x" * 20_000])
def test_errors_of_a_private_key_do_not_contain_it(told: Told, key: str) -> None:
    (said,) = [str(error) for place, error in told(hosts={"private_key": key}).items() if "private_key" in place]
    assert "in plain text" not in said
    assert "nobody's" not in said
