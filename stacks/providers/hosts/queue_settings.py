"""Settings of a queue that machines which are there already have no use for."""

from collections.abc import Iterator

from components.core.findings import InputError
from stacks.config.engine_settings import SlurmConfig
from stacks.config.stack_config import StackConfig

__all__ = ["slurm_mistakes"]


def slurm_mistakes(config: StackConfig) -> Iterator[InputError]:
    """One InputError for each."""
    engine, nodes = config.engine, config.cluster.nodes
    if not isinstance(engine, SlurmConfig):
        return
    if nodes.min != nodes.max:
        yield InputError(
            "gangway:cluster.nodes.min", "machines that are there already are up, used or not", value=nodes.min,
            allowed=str(nodes.max), fix=f"set nodes: {{min: {nodes.max}, max: {nodes.max}}}",
        )  # fmt: skip
    for name, why in {
        "idle_minutes": "nobody gives machines back that are there already",
        "accounting": "no database of Slurm's is set up on them so far",
    }.items():
        if name in engine.model_fields_set and getattr(engine, name) is not False:
            yield InputError(
                f"gangway:engine.{name}", why, value=getattr(engine, name),
                allowed="left out with provider: hosts", fix=f"leave {name} out",
            )  # fmt: skip
    if config.image.prebuilt is not None:
        yield InputError(
            "gangway:image.prebuilt", "jobs of this Slurm run in the machines' own environment",
            value=config.image.prebuilt, allowed="left out beside engine: slurm", fix="leave image out",
        )  # fmt: skip
