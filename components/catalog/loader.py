"""Typed access to the catalogue: one directory of YAML files per provider.

An unknown value is null; the code that needs it reports it as missing. Newer prices come from `gangway prices refresh`
as an overlay (`gangway.components.catalog.prices`).

>>> catalog = load()
>>> catalog.machine("p5.48xlarge").fabric.num_efa_interfaces
32
>>> load_provider("gcp").machine("a3-megagpu-8g").gpu_fabric.num_gpu_nics.value
8
>>> load_tpus().generations["v5p"].hbm_gib.value
95.0
>>> load_provider("azure").machine("Standard_ND96isr_H100_v5").infiniband.num_hcas.value
8
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache
from math import inf
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, TypeVar

from pydantic import BaseModel, SkipValidation, ValidationError

from gangway.components.catalog.geography import on_grid
from gangway.components.catalog.prices import (
    LISTS,
    Kind,
    MachinePrices,
    OverlayFile,
    PriceQuote,
    ServicePrices,
    lay_over,
    newest_overlay,
    read_lists,
    read_overlay,
    resolve_price,
)
from gangway.components.catalog.schema import (
    EVERYWHERE,
    AmlfsTier,
    AzureMachineType,
    FilestoreTier,
    Frozen,
    GcpMachineType,
    LustreOffer,
    LustreTier,
    MachinePrice,
    MachineType,
    Offered,
    Region,
    ServicePrice,
    SubnetRule,
    TpuCatalog,
    TpuGeneration,
    TpuPrice,
)
from gangway.components.catalog.tables import InterruptionTable, Source, read_file, read_interruptions, with_facts
from gangway.components.core.findings import InputError, letters_wrong, listed, nearest_hint

Row = TypeVar("Row", bound=BaseModel)
_ROOT = Path(__file__).resolve().parents[2]
_COMPASS = re.compile(r"east|west|north|south|central")
Provider = Literal["aws", "gcp", "azure"]
PROVIDERS: tuple[Provider, ...] = ("aws", "gcp", "azure")  # each read separately: a plan loads its own only
MACHINE_MODELS: Mapping[str, type[MachineType]] = {"aws": MachineType, "gcp": GcpMachineType, "azure": AzureMachineType}


class Catalog(Frozen):
    """All facts. Look-ups raise InputError with the nearest known name."""

    machines: Mapping[str, MachineType]
    prices: SkipValidation[Iterable[MachinePrice]]
    services: SkipValidation[Iterable[ServicePrice]]
    lustre: Mapping[str, LustreOffer]
    regions: Mapping[str, Region]
    folder: Path

    @property
    def interruptions(self) -> InterruptionTable:
        """How often spot machines are taken; the folder's spot.yaml, read when first used."""
        return read_interruptions(self.folder)

    def machine(self, name: str, place: str = "machine_type") -> MachineType:
        """The machine type called `name`."""
        if name not in self.machines:
            raise InputError.not_among(place, "no such machine type", name, sorted(self.machines))
        return self.machines[name]

    def machine_for(
        self,
        accelerator: str,
        provider: str,
        place: str = "accelerator",
        region: str = "",
        unfit: Mapping[str, str] = MappingProxyType({}),
    ) -> MachineType:
        """The machine with `accelerator`. InputError: none or several, with the cheapest in `region` not in `unfit`."""
        offers: dict[str, list[MachineType]] = {}
        for machine in self.machines.values():
            if machine.provider == provider:
                offers.setdefault(machine.accelerator, []).append(machine)
        if accelerator not in offers:
            raise InputError(
                place,
                f"no such accelerator on {provider}",
                value=accelerator,
                allowed=listed(sorted(offers), accelerator),
                fix=f"write machine_type: {accelerator} in place of accelerator"
                if accelerator in self.machines
                else accelerator_hint(accelerator, offers),
            )
        carriers = offers[accelerator]
        if len(carriers) > 1:
            raise self._several(accelerator, carriers, place, region, unfit)
        return carriers[0]

    def _several(
        self,
        accelerator: str,
        carriers: Sequence[MachineType],
        place: str,
        region: str,
        unfit: Mapping[str, str],
    ) -> InputError:
        prices = {machine.name: self.price(machine.name, region, "on-demand") for machine in carriers}

        def label(name: str) -> str:
            price, why = prices[name], unfit.get(name)
            known = f"{price.usd:,.2f} USD an hour on demand in {price.priced_in}" if price else "price unknown"
            return f"{name} ({known}{f'; {why}' if why else ''})"

        def rank(machine: MachineType) -> tuple[bool, bool, float]:
            price, sold = prices[machine.name], machine.offered
            usd = inf if price is None or price.usd is None else price.usd
            return machine.name in unfit, sold is not None and sold.excludes(region), usd

        best = min(carriers, key=rank)
        why = "the cheapest with a known price" if rank(best)[2] < inf else "one of those without a known price"
        why += ", and without that drawback" if unfit.keys() & prices and best.name not in unfit else ""
        return InputError(
            place,
            "several machine types carry this accelerator",
            value=accelerator,
            allowed=", ".join(label(machine.name) for machine in carriers),
            fix=f"write machine_type: {best.name} in place of accelerator, {why}",
        )

    def region(self, name: str, provider: str, place: str = "region") -> Region:
        """The region called `name` of `provider`."""
        known = {k: r for k, r in self.regions.items() if r.provider == provider}
        if name not in known:
            word = misspelt_region(name, known)
            raise InputError(
                place,
                f"this {provider} region is not in the catalogue",
                value=name,
                allowed=f"known are {', '.join(sorted(known))}",
                fix=f"did you mean {word!r}?" if word else "choose one of the known regions",
            )
        return known[name]

    def get_prices(self, machine_type: str) -> Sequence[MachinePrice]:
        """The prices of a machine type by region, the home region's first."""
        if isinstance(self.prices, MachinePrices):
            return self.prices.of(machine_type)
        return [price for price in self.prices if price.machine_type == machine_type]

    def price(self, machine_type: str, region: str, kind: Kind) -> PriceQuote | None:
        """The price of a node in `region`; None if no region has one."""
        return resolve_price(self.get_prices(machine_type), region, kind)

    def get_services(self, provider: str) -> frozenset[str]:
        """The services of `provider` with a price in any region."""
        if isinstance(self.services, ServicePrices):
            return frozenset(self.services.units)
        return frozenset(p.service for p in self.services if p.provider == provider)

    def service_price(self, provider: str, region: str, service: str) -> ServicePrice:
        """The price in `region` or everywhere; else that of the first listed region: check `.region`."""
        offers: Sequence[ServicePrice]
        if isinstance(self.services, ServicePrices):
            offers = self.services.of(service)
        else:
            offers = [p for p in self.services if (p.provider, p.service) == (provider, service)]
        assert offers, f"no row for {service} of {provider}; a price nobody knows is a row with null"
        everywhere = next((p for p in offers if p.region == EVERYWHERE), offers[0])
        return next((p for p in offers if p.region == region), everywhere)


def misspelt_region(name: str, known: Collection[str]) -> str | None:
    """The region that was meant, with up to two wrong letters: never another number, first word or compass point."""

    def get_letters(region: str) -> str:
        return re.sub(r"[^a-z0-9]", "", region.lower())

    if same := next((word for word in known if get_letters(word) == get_letters(name)), None):
        return same

    def get_place(region: str) -> tuple[str, list[str]]:
        letters = region.lower().replace("_", "-")
        return letters.partition("-")[0] if "-" in letters else "", [each for each in letters if each.isdigit()]

    def turned(word: str) -> bool:
        return not set(_COMPASS.findall(name.lower())) <= set(_COMPASS.findall(word))

    close = [
        word
        for word in known
        if get_place(word) == get_place(name) and not turned(word) and letters_wrong(name.lower(), word) <= 2
    ]
    return min(close, key=lambda word: letters_wrong(name.lower(), word), default=None)


def accelerator_hint(wanted: str, offered: Collection[str]) -> str:
    """A fix for a mistyped accelerator; of the same model, the next larger number: H100x4 is no typo of V100x4."""
    bare = [name for name in offered if name.rpartition("x")[0].lower() == wanted.lower()]
    if bare:
        in_order = sorted(bare, key=lambda name: int(name.rpartition("x")[2]))
        return f"say how many of them one machine has: {' or '.join(in_order)}"
    model, _, number = wanted.rpartition("x")
    parts = [(*name.rpartition("x"), name) for name in offered]
    numbers = {int(count): name for own_model, _, count, name in parts if own_model.lower() == model.lower()}
    if not numbers or not number.isdecimal():
        return nearest_hint(wanted, offered)
    enough = [count for count in numbers if count >= int(number)]
    return f"did you mean {numbers[min(enough) if enough else max(numbers)]!r}?"


def _rows(
    model: type[BaseModel], table: Mapping[str, Mapping[str, Any]], sources: Mapping[str, Source], provider: str
) -> Iterator[tuple[str, dict[str, Any]]]:
    for name, row in table.items():
        yield name, {"name": name, "provider": provider, **with_facts(model, row, sources)}


def _regions(
    table: Mapping[str, Mapping[str, Any]], sources: Mapping[str, Source], provider: str
) -> dict[str, dict[str, Any]]:
    plain = {
        name: {key: value for key, value in row.items() if key not in ("marginal", "stand_in")}
        for name, row in table.items()
    }
    return {name: {**row, **on_grid(table[name], sources)} for name, row in _rows(Region, plain, sources, provider)}


def _machine(model: type[MachineType], row: Mapping[str, Any], file: str) -> MachineType:
    try:
        return model.model_validate(row)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]  # in pydantic's words: only a change of the catalogue meets it
        place = ".".join(map(str, (row["name"], *first["loc"])))
        fix = "correct this row; docs/extending.md shows an example"
        raise InputError(f"{file}: {place}", first["msg"].removeprefix("Value error, "), fix=fix) from None


def _offered(folder: Path, table: str) -> dict[str, dict[str, Any]]:
    path = folder / "offered.yaml"
    if not path.exists():
        return {}
    tables, sources = read_file(path)
    return {name: with_facts(Offered, row, sources) for name, row in tables[table].items()}


def read_catalog(folder: Path, provider: str, model: type[MachineType] = MachineType) -> Catalog:
    """The catalogue of one directory, without overlays. InputError: a machine's row breaks a rule of its model."""
    machines, machine_sources = read_file(folder / "machines.yaml")
    prices, price_sources = read_file(folder / "prices.yaml")
    storage, storage_sources = read_file(folder / "storage.yaml")
    regions, region_sources = read_file(folder / "regions.yaml")
    lists = read_lists(folder / LISTS)
    rows = _rows(model, machines["machine_types"], machine_sources, provider)
    offered = _offered(folder, "machine_types")
    where = folder.relative_to(_ROOT) if folder.is_relative_to(_ROOT) else folder
    return Catalog.model_validate(
        {
            "machines": {
                name: _machine(model, {**row, "offered": offered.get(name)}, f"{where.as_posix()}/machines.yaml")
                for name, row in rows
            },
            "prices": MachinePrices(provider, lists, prices["machines"], price_sources, list(regions["regions"])),
            "services": ServicePrices(provider, lists, prices["services"], price_sources),
            "lustre": {provider: with_facts(LustreOffer, storage["lustre"], storage_sources)}
            if storage["lustre"]
            else {},
            "regions": _regions(regions["regions"], region_sources, provider),
            "folder": folder,
        }
    )


class CatalogFolder(NamedTuple):
    """One provider's catalogue: a folder of YAML files. A call gives it with the newest price overlay."""

    path: Path
    provider: str
    model: type[MachineType] = MachineType

    def __call__(self) -> Catalog:
        """The catalogue with the newest overlay; read once per process and overlay. InputError: a wrong row."""
        return _with_overlay(self, newest_overlay(self.provider))

    def bundled(self) -> Catalog:
        """The catalogue without overlays."""
        return _with_overlay(self, None)


def bundled_folder(provider: Provider) -> CatalogFolder:
    """The folder of a provider whose catalogue is part of Gangway."""
    return CatalogFolder(Path(__file__).parent / provider, provider, MACHINE_MODELS[provider])


def load() -> Catalog:
    """AWS's catalogue, the default for modules that know no other provider."""
    return load_provider("aws")


def load_provider(provider: Provider) -> Catalog:
    """The catalogue of one provider with its newest price overlay; read once per process and overlay."""
    return bundled_folder(provider)()


def load_bundled(provider: Provider) -> Catalog:
    """The catalogue of one provider without overlays."""
    return bundled_folder(provider).bundled()


@cache
def _with_overlay(folder: CatalogFolder, overlay: OverlayFile | None) -> Catalog:
    if overlay is None:
        return read_catalog(*folder)
    bundled = folder.bundled()
    machines, services, read = bundled.prices, bundled.services, read_overlay(overlay.path)
    assert isinstance(machines, MachinePrices), "as read_catalog makes them"
    assert isinstance(services, ServicePrices), "as read_catalog makes them"
    over = {"prices": machines.laid_over(read.machines), "services": services.laid_over(read.services)}
    return bundled.model_copy(update=over)


def load_tpus() -> TpuCatalog:
    """The TPU generations and prices with Google's newest overlay; read once per process and overlay."""
    return _tpus_with(newest_overlay("gcp"))


def load_bundled_tpus() -> TpuCatalog:
    """The TPU generations and prices without overlays."""
    return _tpus_with(None)


@cache
def _tpus_with(overlay: OverlayFile | None) -> TpuCatalog:
    if overlay is not None:
        bundled = load_bundled_tpus()
        prices = lay_over(bundled.prices, read_overlay(overlay.path).tpus, "generation")
        return bundled.model_copy(update={"prices": prices})
    folder = Path(__file__).parent / "gcp"
    tables, sources = read_file(folder / "tpus.yaml")
    generations, offered = tables["generations"].items(), _offered(folder, "tpus")
    return TpuCatalog.model_validate(
        {
            "generations": {
                name: {"name": name, **with_facts(TpuGeneration, row, sources), "offered": offered[name]}
                for name, row in generations
            },
            "prices": [with_facts(TpuPrice, row, sources) for row in tables["prices"]],
        }
    )


def _storage_rows(provider: Provider, table: str, model: type[Row]) -> list[Row]:
    tables, sources = read_file(Path(__file__).parent / provider / "storage.yaml")
    return [model.model_validate(with_facts(model, row, sources)) for row in tables[table]]


@cache
def load_lustre_tiers() -> Mapping[int, LustreTier]:
    """The tiers of Google Cloud Managed Lustre by MB/s per TiB, read once per process."""
    return {tier.throughput_mbps_per_tib: tier for tier in _storage_rows("gcp", "lustre_tiers", LustreTier)}


@cache
def load_lustre_zones() -> Offered:
    """Where Google Cloud Managed Lustre is offered, read once per process."""
    (zones,) = _storage_rows("gcp", "lustre_zones", Offered)
    return zones


@cache
def load_filestore_tiers() -> Mapping[str, FilestoreTier]:
    """The zonal tiers of Filestore by our names for them, read once per process."""
    return {tier.tier: tier for tier in _storage_rows("gcp", "filestore_tiers", FilestoreTier)}


@cache
def load_amlfs_tiers() -> Mapping[int, AmlfsTier]:
    """The SKUs of Azure Managed Lustre by MB/s per TiB, read once per process."""
    return {tier.throughput_mbps_per_tib: tier for tier in _storage_rows("azure", "lustre_tiers", AmlfsTier)}


@cache
def load_amlfs_subnets() -> tuple[SubnetRule, ...]:
    """The subnets that Azure Managed Lustre needs, ordered by file system size, read once per process."""
    return tuple(_storage_rows("azure", "lustre_subnets", SubnetRule))
