"""The section `regions` of stack files and job files: where a stack, a job and their data may be."""

from collections.abc import Sequence
from typing import Annotated

from pydantic import AfterValidator, Field

from gangway.components.core.findings import InputError
from gangway.components.estimate.regions import RegionLimits, check_jurisdiction, check_name
from gangway.stacks.config.section import Section

# The reader of the file adds the place.
_Name = Annotated[str, AfterValidator(lambda entry: check_name(entry, ""))]
_Jurisdiction = Annotated[str, AfterValidator(lambda word: check_jurisdiction(word, ""))]
_MOST = 200


class RegionsConfig(Section):
    """Where the stack or job and its data may be.

    Attributes:
        allow: only these regions: names, or prefixes of names.
        deny: not these regions, even if `allow` or `residency` permits them.
        residency: only these countries or groups of countries.
    """

    allow: tuple[_Name, ...] = Field(default=(), max_length=_MOST, examples=[["aws:eu-", "gcp:europe-west4"]])
    deny: tuple[_Name, ...] = Field(default=(), max_length=_MOST, examples=[["aws:eu-west-2"]])
    residency: tuple[_Jurisdiction, ...] = Field(default=(), max_length=_MOST, examples=[["EU", "CH"]])

    @property
    def limits(self) -> RegionLimits:
        """The section as planners take it."""
        return RegionLimits(self.allow, self.deny, self.residency)


def parse_limits(allow: str | None, deny: str | None, residency: str | None) -> RegionLimits:
    """Parses a command's options, each a list with commas. InputError: an unknown region or jurisdiction."""

    def words(option: str, text: str | None) -> Sequence[str]:
        found = () if text is None else tuple(word.strip() for word in text.split(","))
        if "" in found:
            raise InputError(
                option, "has an empty name", value=text, allowed="names separated by commas", fix="remove it"
            )
        return found

    return RegionLimits(
        tuple(check_name(word, "--allow") for word in words("--allow", allow)),
        tuple(check_name(word, "--deny") for word in words("--deny", deny)),
        tuple(check_jurisdiction(word, "--residency") for word in words("--residency", residency)),
    )
