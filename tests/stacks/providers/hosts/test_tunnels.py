"""gangway:hosts.wireguard: all that the job's machines tell each other goes through it, or the plan says why not."""

from collections.abc import Callable
from typing import Any

import pytest

from gangway.components.hosts.wireguard import WIREGUARD_FILE
from gangway.stacks.config.stack_config import StackConfig
from gangway.stacks.plan.plan import Plan, make_plan
from gangway.stacks.providers.hosts.plan import installer, job_spec, plan

Edited = Callable[..., StackConfig]
Told = Callable[..., dict[str, Any]]
TUNNELS = {"wireguard": {"network": "10.88.0.0/24"}}


@pytest.fixture(scope="module")
def joined(edited_lab: Edited) -> Plan:
    return make_plan(edited_lab(hosts=TUNNELS, site={"fabric": None}))


def test_machines_meet_and_train_through_the_tunnels(joined: Plan) -> None:
    assert joined.job["rendezvous"]["host"] == "10.88.0.1"
    assert joined.job["env"]["NCCL_SOCKET_IFNAME"] == "=gangway"
    assert joined.job["env"]["GLOO_SOCKET_IFNAME"] == "gangway"


def test_each_machine_has_a_separate_key_that_no_plan_shows(joined: Plan) -> None:
    machines = joined.job["num_nodes_max"]
    told = [made for made in joined.resources if WIREGUARD_FILE in str(made.inputs.get("create", ""))]
    assert len(told) == machines > 1
    assert {made.to_json()["inputs"]["stdin"] for made in told} == {"[secret]"}
    kept = [made for made in joined.resources if made.name.endswith("-wireguard-0")]
    assert [made.to_json()["inputs"]["input"] for made in kept] == [{"key": "[secret]"}] * machines


def test_scripts_name_the_addresses_in_the_tunnels(edited_lab: Edited) -> None:
    config = edited_lab(hosts=TUNNELS, site={"fabric": None})
    planned = plan(config)
    scripts = [installer(config, planned, job_spec(config, planned), position) for position in (0, 1)]
    for script in scripts:
        assert "ALLOWED_SOURCES='10.88.0.1 10.88.0.2" in script
        assert "join-wireguard.sh" in script
    assert "10.88.0.2:9400" in scripts[0], "Prometheus asks there too"


def test_rdma_goes_past_it_which_is_an_error(edited_lab: Edited) -> None:
    (finding,) = [each for each in make_plan(edited_lab(hosts=TUNNELS)).findings if each.code == "network.past-tunnels"]
    assert finding.severity.name == "ERROR"


@pytest.mark.parametrize(
    ("network", "said"),
    [
        ("10.88.0.0/31", "fewer addresses"),
        ("fd00::/64", "an IPv4 network"),
        ("10.88.0.1/24", "write 10.88.0.0/24"),
        ("tunnel", "a network ("),
    ],
)
def test_an_invalid_network_is_refused(told: Told, network: str, said: str) -> None:
    (mistake,) = told(hosts={"wireguard": {"network": network}}).values()
    assert mistake.place.endswith("gangway:hosts.wireguard.network")
    assert said in str(mistake)
