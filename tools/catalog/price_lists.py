"""Turns public price lists into components/catalog/*/price_lists.yaml.

    $ python -m tools.catalog.price_lists DIR

`lists.yaml` beside this names the lists and the files that DIR must hold. Only what the catalogue has is kept: its
machine types, services and regions, without the regions that do not sell a type.
"""

import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from math import inf
from pathlib import Path
from statistics import median
from typing import Any

import yaml

from gangway.components.catalog.loader import MACHINE_MODELS, PROVIDERS, Catalog, Provider, read_catalog
from gangway.components.catalog.prices import FIELDS, LISTS
from gangway.components.catalog.validators import PLACEHOLDER_USD
from tools.catalog.readers import READERS, Stated

__all__ = ["list_text", "main"]

CATALOG = Path(__file__).parents[2] / "components" / "catalog"
LIMIT_BYTES = 1_000_000


def main(arguments: Sequence[str]) -> None:
    """Writes the files of every provider; nothing where one of them cannot be made."""
    source = Path(arguments[0])
    lists: dict[Provider, list[dict[str, Any]]] = yaml.safe_load((Path(__file__).parent / "lists.yaml").read_text())
    texts = {provider: list_text(provider, lists[provider], source) for provider in PROVIDERS}
    for provider, text in texts.items():
        assert len(text) < LIMIT_BYTES, f"{provider}: too large for a file of the repository"
        (CATALOG / provider / LISTS).write_text(text, "utf-8")


def list_text(provider: Provider, lists: Iterable[Mapping[str, Any]], source: Path) -> str:
    """The file of one provider."""
    catalog = read_catalog(CATALOG / provider, provider, MACHINE_MODELS[provider])
    head = "# Written by `python -m tools.catalog.price_lists`; prices.yaml has what no list states. - is not known."
    return f"{head}\nlists:\n" + "".join(_block(each, catalog, source) for each in lists)


def _block(about: Mapping[str, Any], catalog: Catalog, source: Path) -> str:
    reader = READERS[about["reader"]]
    files = [list(reader(source / about["name"] / name)) for name in about["files"]]
    machines = _machines(files, catalog, bool(about.get("only_offered")))
    services = _services(files[-1], catalog)
    dated = "as_of" if "as_of" in about else "read_on"
    day: date = about[dated]
    lines = [
        f'  - title: "{about["title"]}"',
        f"    url: {about['url']}",
        f"    {dated}: {day}",
        "    confidence: list-price",
    ]
    for name, columns, rows in (
        ("machines", ("machine_type", "region", *FIELDS), machines),
        ("services", ("service", "region", "usd"), services),
    ):
        lines += [f"    {name}: |", f"      # {' '.join(columns)}", *(f"      {row}" for row in rows)] if rows else []
    return "\n".join(lines) + "\n"


def _machines(files: Sequence[Sequence[Stated]], catalog: Catalog, only_offered: bool) -> list[str]:
    """Returns the newest file's prices.

    Spot is the lowest and highest over zones and files, typical the median over zones of the newest file that has one,
    as a provider's list may move for good.
    """
    fixed: dict[tuple[str, str], dict[str, float]] = defaultdict(dict)
    spot: dict[tuple[str, str], dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for number, stated in enumerate(files):
        for each in stated:
            machine = catalog.machines.get(each.item)
            if machine is None or each.region not in catalog.regions or each.usd in (0, PLACEHOLDER_USD):
                continue
            offered = machine.offered
            if offered is not None and (
                offered.excludes(each.region) or (only_offered and each.region not in offered.regions)
            ):
                continue
            if each.field == "spot":
                spot[each.item, each.region][number].append(each.usd)
            elif stated is files[-1]:
                fixed[each.item, each.region][each.field] = each.usd
    for key, by_file in spot.items():
        # A zone without spare machines asks the price on demand, rounded; never more.
        most = fixed[key].get("on_demand", inf)
        seen = [min(usd, most) for zones in by_file.values() for usd in zones]
        typical = min(median(by_file[max(by_file)]), most)
        fixed[key] |= {"spot_low": min(seen), "spot_typical": typical, "spot_high": max(seen)}
    order, regions = list(catalog.machines), list(catalog.regions)
    keys = sorted(fixed, key=lambda key: (order.index(key[0]), regions.index(key[1])))
    return [" ".join((*key, *(_number(fixed[key].get(field)) for field in FIELDS))) for key in keys]


def _services(stated: Sequence[Stated], catalog: Catalog) -> list[str]:
    """Services, and the machines without accelerators that are among them."""
    known = {price.service for price in catalog.services}
    rows = {
        (name, each.region): each.usd
        for each in stated
        for name in [each.item if each.field == "usd" else f"instance-{each.item}"]
        if name in known and each.region in catalog.regions and each.field in ("usd", "on_demand")
    }
    regions = list(catalog.regions)
    keys = sorted(rows, key=lambda key: (key[0], regions.index(key[1])))
    return [f"{service} {region} {_number(rows[service, region])}" for service, region in keys]


def _number(usd: float | None) -> str:
    return "-" if usd is None else f"{usd:.6f}".rstrip("0").rstrip(".")


if __name__ == "__main__":
    main(sys.argv[1:])
