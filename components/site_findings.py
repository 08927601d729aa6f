"""What a person should know of a site's figures: which are assumed, which nobody has said. Pure."""

from collections.abc import Iterable

from components.findings import Finding, Severity
from components.site import PLACE, SiteConfig, SiteMachine, load_site_defaults

__all__ = ["site_findings"]


def site_findings(site: SiteConfig, machine: SiteMachine) -> Iterable[Finding]:
    """All findings about what the stack file says of its site."""
    yield from _assumed(site, machine)
    yield from _price(site, machine)
    yield from _fabric(machine)


def _assumed(site: SiteConfig, machine: SiteMachine) -> Iterable[Finding]:
    defaults, host = load_site_defaults(), machine.host_watts
    assumed = {
        "host_watts": (host.value, "W beside the accelerators", host.source),
        "pue": (defaults.pue.value, "the building's power over the machines'", defaults.pue.source),
        "intensity_g_per_kwh": (
            defaults.intensity_g_per_kwh.value,
            "gCO2e per kWh",
            defaults.intensity_g_per_kwh.source,
        ),
    }
    for name, (value, what, source) in assumed.items():
        if getattr(site, name) is None:
            yield Finding(
                Severity.INFO,
                "site.assumed",
                f"{PLACE}.{name}",
                f"{value:g} assumed, {what}: {source}",
                f"write what holds for this site: {name}: {value:g}",
            )


def _price(site: SiteConfig, machine: SiteMachine) -> Iterable[Finding]:
    if site.usd_per_node_hour is None:
        yield Finding(
            Severity.INFO,
            "site.price-unsaid",
            f"{PLACE}.usd_per_node_hour",
            "nobody sells these machines by the hour, and what they cost their owner is not said: dollars stay unknown "
            "in the plan, the record and the tables",
            f"`gangway tco --accelerator {machine.accelerator} --nodes 1` works an hour out: usd_per_node_hour",
        )


def _fabric(machine: SiteMachine) -> Iterable[Finding]:
    fabric = machine.site_fabric
    if fabric is None:
        return
    what = "InfiniBand" if fabric.kind == "infiniband" else "RDMA over Ethernet"
    yield Finding(
        Severity.INFO,
        "fabric.site",
        f"{PLACE}.fabric",
        f"{fabric.num_devices.value} x {fabric.gbps_each.value:g} Gbit/s of {what} a node, as stated: a node that "
        "shows fewer adapters up, or a slower link, trains nothing",
    )
    if fabric.kind == "roce" and fabric.gid_index is None:
        yield Finding(
            Severity.INFO,
            "fabric.gid-chosen",
            f"{PLACE}.fabric.gid_index",
            "NCCL chooses the address by which adapters speak RoCE; where the network drops that version, it is slow",
            "write the index that `show_gids` lists for RoCE version 2: gid_index: 3",
        )
