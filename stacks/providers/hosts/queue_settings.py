"""Settings of a queue that existing machines do not support."""

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
            "gangway:cluster.nodes.min", "existing machines are always running", value=nodes.min,
            allowed=str(nodes.max), fix=f"set nodes: {{min: {nodes.max}, max: {nodes.max}}}",
        )  # fmt: skip
    for name, why in {
        "idle_minutes": "existing machines are not released",
        "accounting": "no Slurm database is set up on them",
    }.items():
        if name in engine.model_fields_set and getattr(engine, name) is not False:
            yield InputError(
                f"gangway:engine.{name}", why, value=getattr(engine, name),
                allowed="left out with provider: hosts", fix=f"leave {name} out",
            )  # fmt: skip
    if config.image.prebuilt is not None:
        yield InputError(
            "gangway:image.prebuilt", "Slurm jobs on existing machines run without a container",
            value=config.image.prebuilt, allowed="left out with engine: slurm", fix="leave image out",
        )  # fmt: skip
