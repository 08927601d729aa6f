"""What a rule is: a code, how grave a breach is, what must hold, and a pure function that says where it does not.

The plan makes findings of the breaches, the policy pack makes violations of them: both run these very functions.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict, Field

from components.cost import Declared
from components.fields import PositiveNumber
from components.findings import Finding, Severity

__all__ = ["Limits", "ResourceRule", "Rule", "StackRule"]

_TOLD = 3
"""Resources that one finding names one by one."""


class Limits(BaseModel):
    """What an organisation may set differently; the plan takes the defaults.

    Attributes:
        required_tags: keys that every taggable resource carries.
        max_g_per_kwh: gCO2e per kWh of the grid, location-based, that a region may have; 450 leaves out the regions
            that run on coal for the most part (assumed: nobody's standard).
        allowed_regions: regions that are allowed whatever their grid.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, defer_build=True)

    required_tags: tuple[str, ...] = Field(default=("team", "cost_center"), min_length=1)
    max_g_per_kwh: PositiveNumber = 450
    allowed_regions: tuple[str, ...] = ()


@dataclass(frozen=True)
class Rule:
    """What every rule has.

    Attributes:
        code: stable identifier, as a finding has it.
        severity: of a breach; an error forbids `up`.
        holds: what must hold, in one sentence.
        path: the setting of a stack file that decides it.
        fix: what mends a breach.
    """

    code: str
    severity: Severity
    holds: str
    path: str
    fix: str

    def finding(self, breaches: Sequence[str]) -> Finding:
        """One finding of all breaches, of which it names the first few."""
        more = f"; and {len(breaches) - _TOLD} more" if len(breaches) > _TOLD else ""
        return Finding(self.severity, self.code, self.path, "; ".join(breaches[:_TOLD]) + more, self.fix)


@dataclass(frozen=True)
class ResourceRule(Rule):
    """A rule that one resource keeps or breaks by itself.

    Attributes:
        check: the breaches of one resource, each a sentence that names it.
        limits: the fields of `Limits` that it reads.
    """

    check: Callable[[Declared, Limits], Iterable[str]]
    limits: tuple[str, ...] = ()


@dataclass(frozen=True)
class StackRule(Rule):
    """A rule about all resources of a stack together.

    Attributes:
        check: the breaches of the whole, each a sentence.
    """

    check: Callable[[Sequence[Declared]], Iterable[str]]
