"""The bill: what the owner says of a node, and the names of all that nobody prices."""

from dataclasses import dataclass, field
from datetime import date
from typing import Any

from gangway.components.catalog.site import SiteConfig, site_machine, site_price
from gangway.components.openstack.pricing import price_resources

SITE = {
    "as_of": date(2026, 11, 1),
    "accelerator": "H100x8",
    "vcpus": 192,
    "memory_gib": 1800,
    "interconnect": "nvswitch",
}


@dataclass
class Declared:
    type: str
    name: str
    inputs: dict[str, Any] = field(default_factory=dict)
    id: str = ""


def instance(name: str, role: str, **inputs: Any) -> Declared:
    own = {"flavorName": "m1.medium", "metadata": {"gangway:role": role}, **inputs}
    return Declared("openstack:compute/instance:Instance", name, own)


def bill(*resources: Declared, **site: Any) -> dict[str, float | None]:
    said = SiteConfig.model_validate({**SITE, **site})
    price = site_price(said, site_machine(said, "openstack", "H100x8", "gpu"), "RegionOne")
    return {line.name: line.hourly for line in price_resources(resources, price)}


NODES = [instance(f"demo-0-on-demand-{index}", "worker") for index in range(3)]


def test_nodes_cost_what_their_owner_says() -> None:
    assert bill(*NODES, usd_per_node_hour=14.5) == {"demo-0-on-demand: 3 x gpu": 43.5}


def test_what_nobody_has_said_is_not_free() -> None:
    assert bill(*NODES) == {"demo-0-on-demand: 3 x gpu": None}


def test_all_around_them_is_named_without_a_price() -> None:
    disks = {"blockDevices": [{"volumeSize": 64}]}
    files = Declared("openstack:sharedfilesystem/share:Share", "demo-share", {"size": 1024, "shareProto": "NFS"})
    network = Declared("openstack:networking/network:Network", "demo-network")
    runs, secrets = (
        Declared("openstack:objectstorage/container:Container", f"demo-{name}", {"forceDestroy": name == "secrets"})
        for name in ("runs", "secrets")
    )
    nodes = [instance(node.name, "worker", **disks) for node in NODES]
    assert bill(*nodes, instance("demo-head", "head", **disks), files, network, runs, secrets, usd_per_node_hour=1) == {
        "demo-0-on-demand: 3 x gpu": 3.0,
        "demo-0-on-demand: boot volumes, 64 GiB each": None,
        "demo-head: m1.medium": None,
        "demo-head: boot volumes, 64 GiB each": None,
        "demo-share: 1024 GiB, NFS": None,
        "demo-runs: objects kept": None,
    }
