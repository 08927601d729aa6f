"""`python -m gangway.trainer memory --preset NAME`: what a step takes of a worker's device, part by part, before it is
trained.

    python -m gangway.trainer memory --preset r3gan-imagenet64 --workers 8 --nodes 2 --shard fsdp2
    python -m gangway.trainer memory --preset dcgan-cifar10 --trace

Estimated without torch; `--trace` follows a step on torch's meta device besides, which allocates nothing.
"""

import json
from typing import TYPE_CHECKING

from gangway.trainer.config.arguments import count
from gangway.trainer.config.step_memory import StepMemory, estimate, get_parts, images_at_once, least_gib
from gangway.trainer.config.train_config import TrainConfig
from gangway.trainer.core.errors import TrainerError

if TYPE_CHECKING:
    from gangway.trainer.config.arguments import Parser

_NOT_COUNTED = "not counted: libraries' work space, the CUDA context, what the allocator keeps in reserve"


def add_memory(parser: "Parser") -> None:
    """Adds the command's own arguments, beside those that say what is trained."""
    parser.add_argument("--workers", type=count, default=1, metavar="N", help="workers per node [1]")
    parser.add_argument("--nodes", type=count, default=1, metavar="N", help="number of nodes [1]")
    parser.add_argument("--trace", action="store_true", help="also trace a step's tensors, on torch's meta device")
    parser.add_argument("--json", action="store_true", help="print JSON, in GiB")


def memory_text(config: TrainConfig, workers: int, num_nodes: int, *, trace: bool, as_json: bool) -> str:
    """Returns a line for each part, or JSON.

    Raises TrainerError: fewer images than workers, or a trace of split networks.
    """
    config.check_workers(workers * num_nodes)
    parts = get_parts(config, workers, num_nodes)
    if trace and parts > 1:
        raise TrainerError(
            place="--trace",
            problem="follows a worker that has whole networks",
            value=f"{config.shard}, pipeline_stages {config.pipeline_stages}, over {workers * num_nodes} workers",
            allowed="ddp without pipeline stages, or one worker",
            fix="leave --trace out, or --shard ddp --pipeline-stages 1",
        )
    at_once = images_at_once(config, workers * num_nodes)
    found = {"estimated": estimate(config, workers, num_nodes)}
    if trace:
        from gangway.trainer.steps.step_trace import trace_step

        found["traced"] = trace_step(config, workers * num_nodes)
    least = least_gib(config, workers, num_nodes)
    if as_json:
        figures = {name: {**each._asdict(), "total": each.total} for name, each in found.items()}
        return json.dumps({**figures, "least": least, "images_at_once": at_once, "unit": "GiB"}, indent=2) + "\n"
    many = f"{workers * num_nodes} workers" if workers * num_nodes > 1 else "one worker"
    title = f"{config.preset}, {many}, {at_once} image{'s' if at_once > 1 else ''} at once, GiB on each:"
    return "\n".join([title, *_table(found), f"at least {least:.3g}: what a step cannot do without", _NOT_COUNTED, ""])


def _table(found: dict[str, StepMemory]) -> list[str]:
    lines = [" " * 14 + "".join(f"{name:>12}" for name in found)]
    for part in (*StepMemory._fields, "total"):
        lines.append(f"  {part:<12}" + "".join(f"{getattr(each, part):>12.3f}" for each in found.values()))
    return lines
