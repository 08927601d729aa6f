"""Published statistics of the jobs of shared clusters, for generated traces."""

from collections.abc import Mapping
from functools import cache
from pathlib import Path

from gangway.components.catalog.schema import Fact, Frozen
from gangway.components.catalog.tables import read_file, with_facts

__all__ = ["TraceStatistics", "load_philly"]


class TraceStatistics(Frozen):
    """`log_spread`: standard deviation of log lengths; `gpus`: share by width; `ended_early`: killed or failed."""

    mean_sec: Fact[float]
    mean_gpus: Fact[float]
    log_spread: Fact[float]
    gpus: Fact[Mapping[int, float]]
    ended_early: Fact[float]

    @property
    def sources(self) -> tuple[str, ...]:
        """The distinct sources, each with its confidence."""
        facts = (self.mean_sec, self.mean_gpus, self.log_spread, self.gpus, self.ended_early)
        return tuple(dict.fromkeys(f"{fact.confidence}: {fact.source}" for fact in facts))


@cache
def load_philly() -> TraceStatistics:
    """Microsoft's Philly, 2017; read once per process."""
    tables, sources = read_file(Path(__file__).parent / "job_traces.yaml")
    return TraceStatistics.model_validate(with_facts(TraceStatistics, tables["philly"], sources))
