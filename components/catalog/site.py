"""On-premises machines and their power as a stack file states them: machine, region, price, fabric and findings."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date
from typing import Literal, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, model_validator

from gangway.components.catalog.loader import PROVIDERS, load_bundled
from gangway.components.catalog.machine_facts import load_power
from gangway.components.catalog.schema import Architecture, Fact, Frozen, MachinePrice, MachineType, Region
from gangway.components.catalog.tables import table_reader
from gangway.components.core.fields import Amount, Number, PositiveNumber, PositiveWhole, Whole
from gangway.components.core.findings import Finding, InputError, nearest_hint

PLACE = "gangway:site"
T = TypeVar("T")
DEVICES = ("/dev/infiniband",)  # a container needs them to use the adapters


class _Written(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, defer_build=True)


class SiteFabricConfig(_Written):
    """The kernel-bypass network between machines.

    Attributes:
        kind: InfiniBand or RDMA over Ethernet; none if NCCL uses TCP.
        devices: adapters per machine that NCCL uses.
        gbps: rate of one adapter.
        hcas: adapter names to restrict NCCL to; all if omitted.
        gid_index: RoCE version 2 index, as `show_gids` lists it; NCCL chooses if omitted.
    """

    kind: Literal["none", "infiniband", "roce"] = Field(default="none", examples=["infiniband"])
    devices: PositiveWhole | None = Field(default=None, examples=[8])
    gbps: PositiveNumber | None = Field(default=None, examples=[400])
    hcas: tuple[str, ...] = Field(default=(), examples=[["mlx5_0", "mlx5_1"]])
    gid_index: Whole | None = Field(default=None, examples=[3])

    @model_validator(mode="after")
    def _check_complete(self) -> Self:
        sizes = {"devices": self.devices, "gbps": self.gbps}
        if self.kind == "none":
            if idle := [name for name in self.model_fields_set if name != "kind"]:
                raise ValueError(f"nothing beside kind: none; remove {' and '.join(sorted(idle))}")
        elif missing := [name for name, value in sizes.items() if value is None]:
            raise ValueError(f"devices and gbps beside kind: {self.kind}; add {' and '.join(missing)}")
        if self.gid_index is not None and self.kind != "roce":
            raise ValueError("gid_index beside kind: roce only; remove gid_index")
        if self.hcas and len(self.hcas) != self.devices:
            raise ValueError(f"as many hcas as devices; set devices: {len(self.hcas)}, or name {self.devices} hcas")
        return self


class SiteConfig(_Written):
    """Identical machines outside the catalogue, and their place.

    Attributes:
        as_of: date of all these figures, in quotes.
        accelerator: model and number per machine, if `cluster.accelerator` is not set.
        accelerator_watts: board power of one; the catalogue's if it knows the model.
        vcpus: vCPUs per machine.
        memory_gib: memory per machine.
        architecture: CPU architecture.
        host_watts: mean draw without the accelerators; assumed if omitted.
        interconnect: network between the accelerators of a machine.
        network_gbps: all network cards of one machine, without the fabric's.
        interface: for IP between nodes, such as bond0; NCCL and gloo choose if omitted.
        usd_per_node_hour: the owner's cost; unknown if omitted.
        intensity_g_per_kwh: mean of the grid; assumed if omitted.
        pue: of the building; assumed if omitted.
        country: two letters, shown with the power source.
    """

    as_of: date = Field(examples=["2026-11-01"])
    accelerator: str | None = Field(
        default=None, pattern=r"^[A-Za-z0-9][A-Za-z0-9-]*x[1-9][0-9]?$", examples=["H100x8"]
    )
    accelerator_watts: PositiveNumber | None = Field(default=None, examples=[700])
    vcpus: PositiveWhole = Field(examples=[224])
    memory_gib: PositiveNumber = Field(examples=[2048])
    architecture: Architecture = "x86_64"
    host_watts: PositiveNumber | None = Field(default=None, examples=[2000])
    interconnect: Literal["nvswitch", "nvlink", "pcie", "xgmi", "none"] = Field(examples=["nvswitch"])
    network_gbps: PositiveNumber | None = Field(default=None, examples=[100])
    interface: str | None = Field(default=None, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,14}$", examples=["bond0"])
    fabric: SiteFabricConfig = Field(
        default=SiteFabricConfig(), examples=[{"kind": "infiniband", "devices": 8, "gbps": 400}]
    )
    usd_per_node_hour: Amount | None = Field(default=None, examples=[14.5])
    intensity_g_per_kwh: Amount | None = Field(default=None, examples=[380])
    pue: Number | None = Field(default=None, examples=[1.3])
    country: str | None = Field(default=None, pattern=r"^[A-Z]{2}$", examples=["DE"])

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if self.pue is not None and self.pue < 1:
            raise ValueError("pue of at least 1, the building's power over the machines'; set pue: 1.3")
        return self


class SiteDefaults(Frozen):
    """Assumptions for omitted settings."""

    pue: Fact[float]
    intensity_g_per_kwh: Fact[float]


class SiteFabric(Frozen):
    """The fabric of one machine. `hcas`: empty for all adapters; `gid_index`: of RoCE, None if NCCL chooses."""

    kind: Literal["infiniband", "roce"]
    num_devices: Fact[int]
    gbps_each: Fact[float]
    hcas: tuple[str, ...] = ()
    gid_index: int | None = None

    @property
    def gbps(self) -> float:
        """Rate of all adapters of one machine."""
        return self.num_devices.value * self.gbps_each.value


class SiteMachine(MachineType):
    """A machine as the stack file states it; `site_fabric` is None for TCP only."""

    site_fabric: SiteFabric | None


load_site_defaults = table_reader(SiteDefaults, "site")


def site_machine(site: SiteConfig, provider: str, accelerator: str, name: str = "") -> SiteMachine:
    """The site's machine in the catalogue's shape. InputError: the board power is neither known nor stated."""
    model, fabric = accelerator.rpartition("x")[0], _fabric(site)
    known = next((machine for machine in _machines() if machine.accelerator.rpartition("x")[0] == model), None)
    return SiteMachine(
        name=name or accelerator,
        provider=provider,
        accelerator=accelerator,
        architecture=site.architecture,
        backend=known.backend if known else "nccl",
        num_accelerators=_stated_fact(site, "accelerator", int(accelerator.rpartition("x")[2])),
        accelerator_memory_gib=known.accelerator_memory_gib
        if known
        else Fact[float | None](value=None, source="no catalogue knows it", as_of=site.as_of, confidence="assumed"),
        accelerator_watts=_board_watts(site, accelerator),
        host_watts=_host_watts(site, accelerator),
        vcpus=_stated_fact(site, "vcpus", site.vcpus),
        memory_gib=_stated_fact(site, "memory_gib", site.memory_gib),
        interconnect=_stated_fact(site, "interconnect", site.interconnect),
        # The network that carries gradients.
        network_gbps=_stated_fact(site, "fabric", fabric.gbps)
        if fabric
        else _stated_fact(site, "network_gbps", site.network_gbps),
        instance_store_gib=Fact[int | None](
            value=None, source="a site's own disks are left alone", as_of=site.as_of, confidence="stated"
        ),
        fabric=None,
        site_fabric=fabric,
    )


def site_region(site: SiteConfig, provider: str, name: str) -> Region:
    """The site as a region with its grid and PUE."""
    defaults = load_site_defaults()
    where = f" ({site.country})" if site.country else ""
    grid, pue = site.intensity_g_per_kwh, site.pue
    unsaid = _no_fact(site, "a site's own")
    return Region(
        name=name,
        provider=provider,
        zones=(),
        intensity_g_per_kwh=defaults.intensity_g_per_kwh
        if grid is None
        else _stated_fact(site, "intensity_g_per_kwh", grid, where),
        marginal_g_per_kwh=unsaid,
        market_g_per_kwh=unsaid,
        pue=defaults.pue if pue is None else _stated_fact(site, "pue", pue),
    )


def site_price(site: SiteConfig, machine: MachineType, region: str) -> MachinePrice:
    """The owner's cost per hour; without a market there is no other price."""
    none, usd = _no_fact(site, "a machine of one's own"), site.usd_per_node_hour
    facts = dict.fromkeys(("spot_low", "spot_typical", "spot_high", "reserved_1y", "reserved_3y", "block"), none)
    unsaid = _no_fact(site, f"not said: {PLACE}.usd_per_node_hour")
    on_demand = unsaid if usd is None else _stated_fact(site, "usd_per_node_hour", usd)
    return MachinePrice(
        provider=machine.provider, machine_type=machine.name, region=region, on_demand=on_demand, **facts
    )


def _no_fact(site: SiteConfig, source: str) -> Fact[float | None]:
    return Fact[float | None](value=None, source=source, as_of=site.as_of, confidence="stated")


def _stated_fact(site: SiteConfig, name: str, value: T, note: str = "") -> Fact[T]:
    source = f"stated by the stack file: {PLACE}.{name}{note}"
    return Fact[T](value=value, source=source, as_of=site.as_of, confidence="stated")


def _fabric(site: SiteConfig) -> SiteFabric | None:
    said = site.fabric
    if said.kind == "none" or said.devices is None or said.gbps is None:
        return None
    return SiteFabric(
        kind=said.kind,
        num_devices=_stated_fact(site, "fabric.devices", said.devices),
        gbps_each=_stated_fact(site, "fabric.gbps", said.gbps),
        hcas=said.hcas,
        gid_index=said.gid_index,
    )


def _host_watts(site: SiteConfig, accelerator: str) -> Fact[float]:
    if site.host_watts is not None:
        return _stated_fact(site, "host_watts", site.host_watts)
    alike = [machine for machine in _machines() if machine.accelerator == accelerator]
    if alike:
        nearest = min(alike, key=lambda machine: abs(machine.vcpus.value - site.vcpus))
        fact = nearest.host_watts
        return fact.model_copy(update={"source": f"as a {nearest.name}: {fact.source}", "confidence": "assumed"})
    by_size = load_power().hosts["intel"]
    value = by_size.host_watts(site.vcpus, site.memory_gib)
    return by_size.watts_per_vcpu.model_copy(update={"value": value})


def _machines() -> Iterator[MachineType]:
    for provider in PROVIDERS:
        yield from load_bundled(provider).machines.values()


def _board_watts(site: SiteConfig, accelerator: str) -> Fact[float | None]:
    """Draw of one accelerator: stated, or agreed by the catalogues. InputError: no such model, or several values."""
    if site.accelerator_watts is not None:
        return _stated_fact(site, "accelerator_watts", site.accelerator_watts)
    model = accelerator.rpartition("x")[0]
    facts = defaultdict[str, list[Fact[float | None]]](list)
    for machine in _machines():
        facts[machine.accelerator].append(machine.accelerator_watts)
    of_model = [fact for name in facts if name.rpartition("x")[0] == model for fact in facts[name]]
    for known in (facts.get(accelerator, []), of_model):
        said = [fact for fact in known if fact.value is not None]
        if said and len({fact.value for fact in said}) == 1:
            return said[0]
    models = sorted({name.rpartition("x")[0] for name in facts})
    several = sorted({f"{fact.value:g}" for fact in of_model if fact.value is not None})
    what = f"{model} comes with {' and '.join(several)} W" if several else f"nobody here knows what one {model} draws"
    raise InputError(
        f"{PLACE}.accelerator_watts",
        f"missing: {what}",
        value=accelerator,
        allowed=f"the board power of one in watts; known without it: {', '.join(models)}",
        fix=f"add accelerator_watts, as its data sheet has it; or {nearest_hint(model, models)}",
    )


@dataclass(frozen=True)
class SiteFabricPlan:
    """The fabric of a site. `link_layer`: InfiniBand or Ethernet, empty without a fabric; `hcas`: empty for all."""

    link_layer: str = ""
    num_devices: int = 0
    gbps_each: float = 0.0
    hcas: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    nccl_env: Mapping[str, str] = field(default_factory=dict)

    @property
    def gbps(self) -> float:
        """Rate of all adapters of one node."""
        return self.num_devices * self.gbps_each


def plan_site_fabric(fabric: SiteFabric | None, interface: str | None = None) -> SiteFabricPlan:
    """None means TCP only. With NCCL_NET, NCCL fails instead of falling back to TCP; `=` matches names exactly."""
    env = {"NCCL_SOCKET_IFNAME": f"={interface}", "GLOO_SOCKET_IFNAME": interface} if interface else {}
    if fabric is None:
        return SiteFabricPlan(nccl_env=env)
    env["NCCL_NET"] = "IB"
    if fabric.hcas:
        env["NCCL_IB_HCA"] = "=" + ",".join(fabric.hcas)
    if fabric.gid_index is not None:
        env["NCCL_IB_GID_INDEX"] = str(fabric.gid_index)
    return SiteFabricPlan(
        link_layer="InfiniBand" if fabric.kind == "infiniband" else "Ethernet",
        num_devices=fabric.num_devices.value,
        gbps_each=fabric.gbps_each.value,
        hcas=fabric.hcas,
        devices=DEVICES,
        nccl_env=env,
    )


def site_findings(site: SiteConfig, machine: SiteMachine) -> Iterable[Finding]:
    """Findings about the stated site."""
    defaults = load_site_defaults()
    for name, fact, what in (
        ("host_watts", machine.host_watts, "W beside the accelerators"),
        ("pue", defaults.pue, "the building's power over the machines'"),
        ("intensity_g_per_kwh", defaults.intensity_g_per_kwh, "gCO2e per kWh"),
    ):
        if getattr(site, name) is None:
            message = f"{fact.value:g} assumed, {what}: {fact.source}"
            fix = f"write what holds for this site: {name}: {fact.value:g}"
            yield Finding.info("site.assumed", f"{PLACE}.{name}", message, fix)
    if site.usd_per_node_hour is None:
        yield Finding.info(
            "site.price-unsaid",
            f"{PLACE}.usd_per_node_hour",
            "nobody sells these machines by the hour, and what they cost their owner is not said: dollars stay unknown "
            "in the plan, the record and the tables",
            f"`gangway tco --accelerator {machine.accelerator} --nodes 1` works an hour out: usd_per_node_hour",
        )
    yield from _fabric_findings(machine)


def _fabric_findings(machine: SiteMachine) -> Iterable[Finding]:
    fabric = machine.site_fabric
    if fabric is None:
        return
    what = "InfiniBand" if fabric.kind == "infiniband" else "RDMA over Ethernet"
    yield Finding.info(
        "fabric.site",
        f"{PLACE}.fabric",
        f"{fabric.num_devices.value} x {fabric.gbps_each.value:g} Gbit/s of {what} a node, as stated: a node that "
        "shows fewer adapters up, or a slower link, trains nothing",
    )
    if fabric.kind == "roce" and fabric.gid_index is None:
        yield Finding.info(
            "fabric.gid-chosen",
            f"{PLACE}.fabric.gid_index",
            "NCCL chooses the address by which adapters speak RoCE; where the network drops that version, it is slow",
            "write the index that `show_gids` lists for RoCE version 2: gid_index: 3",
        )
