"""The country of each region, and groups of countries such as the EU."""

from collections.abc import Mapping
from functools import cache
from pathlib import Path

from gangway.components.catalog.schema import Fact, Frozen
from gangway.components.catalog.tables import read_file, with_facts

__all__ = ["JurisdictionTable", "load_jurisdictions"]


class _Country(Frozen):
    country: Fact[str]
    regions: tuple[str, ...]


class _Group(Frozen):
    members: Fact[tuple[str, ...]]


class JurisdictionTable(Frozen):
    """Countries by provider and region; groups by name."""

    countries: Mapping[str, Mapping[str, Fact[str]]]
    groups: Mapping[str, Fact[tuple[str, ...]]]

    def regions(self, provider: str) -> Mapping[str, Fact[str]]:
        """Every region of the provider with a known country."""
        return self.countries.get(provider, {})

    @property
    def words(self) -> tuple[str, ...]:
        """The valid jurisdictions: groups first, then the countries of regions and groups."""
        of_regions = {fact.value for regions in self.countries.values() for fact in regions.values()}
        of_groups = {country for group in self.groups.values() for country in group.value}
        return (*self.groups, *sorted(of_regions | of_groups))

    def members(self, word: str) -> frozenset[str]:
        """The countries of a group; a country is its own only member."""
        return frozenset(self.groups[word].value) if word in self.groups else frozenset({word})


@cache
def load_jurisdictions() -> JurisdictionTable:
    """The table, read once per process."""
    tables, sources = read_file(Path(__file__).parent / "jurisdictions.yaml")
    countries: dict[str, dict[str, Fact[str]]] = {}
    for provider, rows in tables["countries"].items():
        for row in (_Country.model_validate(with_facts(_Country, row, sources)) for row in rows):
            countries.setdefault(provider, {}).update(dict.fromkeys(row.regions, row.country))
    groups = {
        name: _Group.model_validate(with_facts(_Group, row, sources)).members for name, row in tables["groups"].items()
    }
    return JurisdictionTable(countries=countries, groups=groups)
