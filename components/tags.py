"""One tag policy for every resource: who pays, for which stack and run, and how clean its power is.

Pure data. Each provider package spells the same policy in its own alphabet (AWS tags, GCP labels, Azure tags).
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from components.findings import InputError

__all__ = ["TagPolicy", "carbon_class"]

# AWS takes 50 tags a resource; components add Name to ours.
MAX_TAGS = 49
_AWS_KEY = re.compile(r"(?!aws:)[\w\s.:/=+\-@]{1,128}", re.UNICODE | re.IGNORECASE)
_AWS_VALUE = re.compile(r"[\w\s.:/=+\-@]{0,256}", re.UNICODE)


def carbon_class(intensity_g_per_kwh: float) -> str:
    """`low`, `medium` or `high` grid intensity: below 150, below 400, and above, in gCO2e per kWh."""
    return "low" if intensity_g_per_kwh < 150 else "medium" if intensity_g_per_kwh < 400 else "high"


@dataclass(frozen=True)
class TagPolicy:
    """What every taggable resource carries.

    Attributes:
        stack: Pulumi stack name.
        team: who owns it.
        cost_center: who pays for it.
        run: run the resource serves, or `shared`.
        energy_class: accelerator family, the largest single factor of the energy bill.
        carbon_class: see `carbon_class`.
        extra: the user's further tags.
    """

    stack: str
    team: str
    cost_center: str
    run: str
    energy_class: str
    carbon_class: str
    extra: Mapping[str, str]

    def aws(self) -> dict[str, str]:
        """The policy as AWS tags. Raises InputError for a tag AWS refuses and for one that Gangway sets itself."""
        own = {
            "team": self.team,
            "cost_center": self.cost_center,
            "gangway:stack": self.stack,
            "gangway:run": self.run,
            "gangway:energy-class": self.energy_class,
            "gangway:carbon-class": self.carbon_class,
        }
        for key in sorted(own.keys() & self.extra.keys()):
            raise InputError(
                f"gangway:tags.{key}",
                "Gangway sets this tag itself",
                value=self.extra[key],
                fix="give the tag another name",
            )
        tags = {**self.extra, **own}
        if len(tags) > MAX_TAGS:
            raise InputError(
                "gangway:tags",
                "too many tags",
                value=len(self.extra),
                allowed=f"{MAX_TAGS - len(own)} besides team and cost_center (AWS takes 50 a resource)",
                fix=f"remove {len(tags) - MAX_TAGS}",
            )
        for key, value in tags.items():
            if not _AWS_KEY.fullmatch(key) or not _AWS_VALUE.fullmatch(value):
                raise InputError(
                    f"gangway:tags.{key}",
                    "AWS refuses this tag",
                    value=value,
                    allowed="letters, digits, spaces, . : / = + - _ @; keys of 1 to 128, no aws:...; values up to 256",
                    fix="remove the characters outside that set",
                )
        return tags
