"""Whether a place sells a machine: an error if a complete and recent list lacks it, a warning if that is uncertain."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import date

from gangway.components.catalog.schema import Fact, MachineType, Offered, Region
from gangway.components.catalog.validators import STALE_DAYS
from gangway.components.core.findings import Finding

REGION, ZONE = "gangway:region", "gangway:cluster.zone"
ZONE_FORMS: Mapping[str, str] = {"aws": "{region}{zone}", "gcp": "{region}-{zone}"}  # elsewhere the word is the name
ASK: Mapping[str, str] = {
    "aws": "aws ec2 describe-instance-type-offerings --location-type availability-zone --region {region} "
    "--filters Name=instance-type,Values={machine}",
    "gcp": 'gcloud compute machine-types list --filter="name={machine} AND zone~{region}"',
    "azure": "az vm list-skus --location {region} --size {machine} --zone --output table",
}
ASK_TPU = "gcloud compute tpus accelerator-types list --zone={region}-ZONE"


def zone_names(provider: str, region: str, zones: Iterable[str]) -> list[str]:
    """The full names of a region's zones."""
    form = ZONE_FORMS.get(provider, "{zone}")
    return [form.format(region=region, zone=zone) for zone in zones]


def first_zone(machine: MachineType, region: Region) -> tuple[str, str]:
    """The default zone of a region with zones, and the reason for it."""
    offered = {} if machine.offered is None else machine.offered.zones.value or {}
    selling = [zone for zone in offered.get(region.name, ()) if zone in region.zones]
    why = f"the first of {region.name}{f' that has {machine.name}' if selling else ''}"
    return zone_names(machine.provider, region.name, selling or region.zones)[0], why


def region_findings(
    machine: MachineType,
    region: str,
    known: Collection[str],
    today: date,
    *,
    path: str = REGION,
    reserved: bool = False,
) -> Iterator[Finding]:
    """Findings about `machine` in `region`. `known`: regions to propose; `reserved`: the owner knows best."""
    offered = machine.offered
    if offered is None or offered.zones.value is None:
        why = "no list at hand" if offered is None else offered.zones.source
        message = f"whether {region} sells {machine.name} is not known: {why}"
        yield Finding.warning("machine.region-unknown", path, message, _lookup_fix(machine, region))
    elif region not in offered.regions:
        has_it = f"has it in {_region_names(offered.regions, known)}"
        doubt = _doubt(offered, today, complete=offered.excludes(region), reserved=reserved)
        if doubt:
            message = (
                f"whether {region} sells {machine.name} is not known: {_list_label(offered.zones)} {has_it}; {doubt}"
            )
            yield Finding.warning("machine.region-unknown", path, message, _lookup_fix(machine, region))
        else:
            message = f"{region} does not sell {machine.name}: {_list_label(offered.zones)} {has_it}"
            yield Finding.error("machine.not-in-region", path, message, _region_fix(offered, region, known))


def zone_findings(
    machine: MachineType, region: str, zone: str, path: str, today: date, *, reserved: bool = False
) -> Iterator[Finding]:
    """Findings about `machine` in `zone` (full name); `region_findings` reports regions that the list lacks."""
    offered = machine.offered
    words = () if offered is None else (offered.zones.value or {}).get(region, ())
    if offered is None or not words:
        return
    zones = zone_names(machine.provider, region, words)
    if zone in zones:
        return
    doubt = _doubt(offered, today, complete=offered.complete == "zones", reserved=reserved)
    if doubt and offered.complete == "regions":
        doubt = "its letters of zones are one account's, and yours may be others"
    has_it = f"{_list_label(offered.zones)} has it in {', '.join(zones)}"
    word = f"'{zones[0]}'" if zones[0].isdecimal() else zones[0]
    fix = f"set {path}: {f'[{word}]' if path.endswith('.zones') else word}"
    if doubt:
        message = f"{machine.name} is not known to be offered in {zone}: {has_it}; {doubt}"
        yield Finding.warning("capacity.zone-without-machine", path, message, fix)
    else:
        message = f"{zone} does not sell {machine.name}: {has_it}"
        yield Finding.error("capacity.zone-without-machine", path, message, fix)


def service_findings(
    what: str, offered: Offered, provider: str, zone: str, path: str, ask: str, today: date
) -> Iterator[Finding]:
    """Findings about a service in `zone` (full name), by the rules of machine types. `ask`: the better source."""
    regions = offered.zones.value or {}
    by_region = {region: zone_names(provider, region, words) for region, words in regions.items()}
    if zone in {name for names in by_region.values() for name in names}:
        return
    part = zone.rpartition("-")[0]  # full names of zones end in a letter
    nearby_zones = next((names for names in by_region.values() if names and names[0].rpartition("-")[0] == part), [])
    has_it = f"has it in {', '.join(nearby_zones)}" if nearby_zones else f"has it in {len(by_region)} other regions"
    doubt = _doubt(offered, today, complete=offered.complete != "none", reserved=False)
    if doubt:
        message = f"whether there is {what} in {zone} is not known: {_list_label(offered.zones)} {has_it}; {doubt}"
        yield Finding.warning("storage.zone-unknown", path, message, ask)
    else:
        message = f"there is no {what} in {zone}: {_list_label(offered.zones)} {has_it}"
        yield Finding.error(
            "storage.not-in-zone", path, message, f"set {ZONE}: {nearby_zones[0]}" if nearby_zones else ask
        )


def _doubt(offered: Offered, today: date, *, complete: bool, reserved: bool) -> str:
    if not complete:
        return "that list is not complete"
    if offered.zones.as_of is None:
        return "that list bears no date"
    if (age := (today - offered.zones.as_of).days) > STALE_DAYS:
        return f"that list is {age} days old"
    return "what is reserved its owner knows better" if reserved else ""


def _list_label(fact: Fact[Mapping[str, tuple[str, ...]] | None]) -> str:
    return f"the list ({fact.source}, {fact.dated})"


def _region_names(regions: Collection[str], known: Collection[str]) -> str:
    if not regions:
        return "no region"
    usable = [region for region in regions if region in known]
    others = len(regions) - len(usable)
    if not usable:
        return ", ".join(regions)
    more = f" and {others} that {'is' if others == 1 else 'are'} not in the catalogue" if others else ""
    return f"{', '.join(usable)}{more}"


def _region_fix(offered: Offered, region: str, known: Collection[str]) -> str:
    """The catalogue's regions that have it, the same part of the world first: data may be bound to it."""
    part = region.partition("-")[0]
    usable = sorted(
        (each for each in offered.regions if each in known), key=lambda each: each.partition("-")[0] != part
    )
    if not usable:
        return "choose another machine type: no region of the catalogue sells this one"
    return f"set {REGION}: {' or '.join((', '.join(usable[:-1]), usable[-1]) if usable[1:] else usable)}"


def _lookup_fix(machine: MachineType, region: str) -> str:
    form = ASK_TPU if machine.backend == "xla" else ASK[machine.provider]
    return f"look before `up`: `{form.format(machine=machine.name, region=region)}`"
