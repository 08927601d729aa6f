"""`python -m gangway.trainer evaluate --run-dir DIR`: judges a run's newest checkpoint, alone or under torchrun."""

import argparse
import os
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic_core import PydanticCustomError

from gangway.trainer.config.arguments import Parser, add_run_dir, path
from gangway.trainer.config.values.metric_names import METRICS, parse
from gangway.trainer.core.errors import TrainerError, from_rule
from gangway.trainer.core.host import program
from gangway.trainer.distributed.ranks import Ranks

if TYPE_CHECKING:
    from gangway.trainer.records.quality import QualityRecord


def add_evaluate(parser: Parser) -> None:
    """Adds the command's arguments."""
    metrics_help = "\n".join(f"  {name:<22} {text}" for name, text in METRICS.items())
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.description = f"Judges a run's newest checkpoint and updates its run.json. Metrics:\n\n{metrics_help}"
    add_run_dir(parser)
    parser.add_argument("--data", type=path, help="folder of shards [RUN_DIR/data]")
    parser.add_argument(
        "--samples", help="images to generate [the run's metrics_samples]; fewer than 10,000 give a proxy"
    )
    parser.add_argument("--metrics", help="comma-separated names [the run's metrics, or fd-enl0]")
    parser.add_argument("--weights", type=path, help="TF-2015 Inception [$GANGWAY_INCEPTION_WEIGHTS]; never downloaded")
    parser.add_argument("--video-weights", type=path, help="C3D for UCF101 [$GANGWAY_C3D_WEIGHTS]; never downloaded")
    parser.set_defaults(run=_evaluate)


def _evaluate(arguments: argparse.Namespace) -> int:
    names = _names(arguments.metrics)
    # The features are computed in parallel batch by batch; more threads inside one only wait for each other.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    from gangway.trainer.metrics.evaluate import evaluate_newest
    from gangway.trainer.metrics.metric_registry import WeightsPaths

    paths = WeightsPaths(arguments.weights, arguments.video_weights)
    data_dir = arguments.data or arguments.run_dir / "data"
    try:
        judged = evaluate_newest(arguments.run_dir, data_dir, arguments.samples, names, paths)
    except TrainerError as error:
        raise error.at("--samples") if error.place == "TrainConfig.metrics_samples" else error from None
    if Ranks.from_environment().rank == 0:
        _print_values(arguments.run_dir, judged)
    return 0


def _names(text: str | None) -> tuple[str, ...]:
    try:
        return () if text is None else parse(text)
    except PydanticCustomError as error:
        raise from_rule(error, "--metrics", value=text, fix=f"`{program()} evaluate --help` lists them") from None


def _print_values(run_dir: Path, judged: Sequence["QualityRecord"]) -> None:
    from gangway.trainer.records.quality import latest_judgements, sentence
    from gangway.trainer.records.stats_log import read_stats_log

    print(f"{run_dir}, its checkpoint after {judged[0].protocol.kimg:g} kimg:")
    for quality in judged:
        print(sentence(quality))
    now = {quality.name for quality in judged}
    older = [each for each in latest_judgements(read_stats_log(run_dir).lines) if each.quality.name not in now]
    if older:
        print("not judged now, from before:")
    for time, quality in older:
        when = f"{datetime.fromtimestamp(time, UTC):%Y-%m-%d %H:%M} UTC"
        print(sentence(quality, of=f"after {quality.protocol.kimg:g} kimg, judged {when}"))
