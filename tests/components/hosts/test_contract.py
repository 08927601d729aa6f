"""What every component keeps to: names, arguments, outputs, parents, other languages."""

from typing import Any, cast

import gangway.components.hosts
from gangway.components.hosts.node_pool import HostPool, HostPoolArgs
from tests.components.contract import check_declared, check_signature, components_in
from tests.components.fixture_types import Make

MACHINE: dict[str, Any] = {
    "name": "dgx-1",
    "address": "10.20.0.11",
    "port": 22,
    "user": "gangway",
    "host_key": "ssh-ed25519 AAAA",
    "installer": "#!/usr/bin/env bash\n",
}
EVERYTHING: dict[str, Any] = {"machines": [MACHINE], "private_key": "nobody's"}


def test_the_walk_finds_what_stacks_are_made_of() -> None:
    assert components_in(gangway.components.hosts) == [HostPool]


def test_the_contract(declare: Make) -> None:
    check_signature(HostPool)
    made = declare(lambda: HostPool("demo", cast("HostPoolArgs", EVERYTHING)))
    check_declared(HostPool, "hosts", made)
    children = [r for r in made.resources if r.type != "gangway:hosts:HostPool"]
    assert all(child.name.startswith("demo-dgx-1-") for child in children)
