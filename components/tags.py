"""One tag policy for every resource: who pays, for which stack and run, and how clean its power is.

Pure data. Each provider package spells the same policy in its own alphabet (AWS tags, GCP labels, Azure tags).
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from components.findings import InputError

__all__ = ["TagPolicy", "carbon_class"]

_AWS_TAG = re.compile(r"[\w\s.:/=+\-@]{0,256}", re.UNICODE)


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
        """The policy as AWS tags. Raises InputError for a value AWS refuses."""
        tags = {
            **self.extra,
            "team": self.team,
            "cost_center": self.cost_center,
            "gangway:stack": self.stack,
            "gangway:run": self.run,
            "gangway:energy-class": self.energy_class,
            "gangway:carbon-class": self.carbon_class,
        }
        for key, value in tags.items():
            if not _AWS_TAG.fullmatch(value) or key.lower().startswith("aws:") or len(key) > 128:
                raise InputError(
                    f"gangway:tags.{key}",
                    "AWS refuses this tag",
                    value=value,
                    allowed="up to 256 letters, digits, spaces and . : / = + - _ @; no key aws:...",
                    fix="remove the characters outside that set",
                )
        return tags
