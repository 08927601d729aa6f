"""The trainer's command line.

    torchrun --standalone --nproc-per-node 2 -m trainer train --preset dcgan-digits --kimg 20
    python -m trainer evaluate --run-dir runs/dcgan-digits

Exit codes: 0 done, 2 bad input, 75 interrupted (start the same command again). Heavy imports wait until a command
needs them. Under torchrun every worker runs this file; local rank 0 alone reports a user's mistake.
"""

import argparse
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from trainer.config import PRESETS, TrainConfig, preset
from trainer.errors import EXIT_BAD_INPUT, TrainerError, from_validation
from trainer.ranks import Ranks

if TYPE_CHECKING:
    from trainer.record import RunContext

__all__ = ["main"]

_CONTEXT_VARIABLE = "GANGWAY_CONTEXT"


def main(argv: Sequence[str]) -> int:
    """Runs one command and returns its exit code."""
    arguments = _parser().parse_args(argv)
    try:
        code: int = arguments.run(arguments)
    except TrainerError as error:
        if Ranks.from_environment().local_rank == 0:
            print(error, file=sys.stderr, flush=True)
        return EXIT_BAD_INPUT
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m trainer", description="Trains GANs; see each command's --help.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    _add_train(commands.add_parser("train", help="train, or go on with a run, under torchrun or alone"))
    evaluate = commands.add_parser("evaluate", help="judge a run's newest checkpoint and update its run.json")
    evaluate.add_argument("--run-dir", type=Path, required=True)
    evaluate.add_argument("--data", type=Path, help="folder of shards [RUN_DIR/data]")
    evaluate.add_argument("--samples", type=int, help="fakes to draw [the run's metrics_samples]")
    evaluate.set_defaults(run=_evaluate)
    data = commands.add_parser("data", help="data sets").add_subparsers(required=True, metavar="COMMAND")
    prepare = data.add_parser("prepare", help="write a data set's shards")
    prepare.add_argument("dataset", help="digits")
    prepare.add_argument("--out", type=Path, required=True, help="folder to write")
    prepare.set_defaults(run=_prepare)
    presets = commands.add_parser("presets", help="print every preset with its values")
    presets.set_defaults(run=_presets)
    schema = commands.add_parser("schema", help="print the JSON schema of run.json")
    schema.set_defaults(run=_schema)
    return parser


def _add_train(train: argparse.ArgumentParser) -> None:
    base = train.add_mutually_exclusive_group(required=True)
    base.add_argument("--preset", help=", ".join(PRESETS))
    base.add_argument("--config", type=Path, help="a TrainConfig as JSON, such as a run directory's config.json")
    train.add_argument("--run-dir", type=Path, help="where everything is written [runs/PRESET]")
    train.add_argument("--data", type=Path, help="folder of shards, prepared there when missing [RUN_DIR/data]")
    train.add_argument("--resume", choices=("auto", "never"), default="auto", help="go on from the newest checkpoint")
    train.add_argument("--metrics-port", type=int, help="serve Prometheus metrics there, on rank 0")
    train.add_argument("--context", type=Path, help=f"the launcher's RunContext as JSON [${_CONTEXT_VARIABLE}]")
    fields = train.add_argument_group("configuration, in place of the preset's values")
    for name, text in _field_help().items():
        # Values stay text here; pydantic parses and checks them, with one kind of message for every source.
        fields.add_argument(f"--{name.replace('_', '-')}", dest=f"field_{name}", metavar="VALUE", help=text)
    train.set_defaults(run=_train)


def _field_help() -> dict[str, str]:
    """Each field's sentence in TrainConfig's docstring."""
    sentences = dict(re.findall(r"^ +(\w+): (.+)$", TrainConfig.__doc__ or "", re.MULTILINE))
    return {name: sentences.get(name, "").replace("%", "%%") for name in TrainConfig.model_fields if name != "preset"}


def _train(arguments: argparse.Namespace) -> int:
    from trainer.interruption import Interruption

    interruption = Interruption().install()  # before torch is loaded: an early signal must not kill one worker of two
    base = preset(arguments.preset) if arguments.preset else TrainConfig.from_file(arguments.config)
    given = {name.removeprefix("field_"): value for name, value in vars(arguments).items() if "field_" in name}
    config = base.replace({name: value for name, value in given.items() if value is not None})
    run_dir: Path = arguments.run_dir or Path("runs") / config.preset
    context = _context(arguments.context)
    if arguments.metrics_port is not None and not 0 < arguments.metrics_port < 65536:
        raise TrainerError(
            place="--metrics-port", problem="not a port", value=arguments.metrics_port, allowed="1 to 65535"
        )

    from trainer.loop import train

    return train(
        config,
        run_dir,
        arguments.data or run_dir / "data",
        context,
        interruption,
        resume=arguments.resume == "auto",
        metrics_port=arguments.metrics_port,
    )


def _context(path: Path | None) -> "RunContext":
    from pydantic import ValidationError

    from trainer.record import RunContext

    if path is not None:
        return RunContext.read(path)
    try:
        return RunContext.model_validate_json(os.environ.get(_CONTEXT_VARIABLE, "{}"))
    except ValidationError as error:
        raise from_validation(error, f"${_CONTEXT_VARIABLE}") from None


def _evaluate(arguments: argparse.Namespace) -> int:
    # The features are computed in parallel batch by batch; more threads inside one only wait for each other.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    from trainer.evaluate import evaluate

    record = evaluate(arguments.run_dir, arguments.data or arguments.run_dir / "data", arguments.samples)
    for quality in record.quality:
        print(
            f"{quality.name}  untrained {quality.untrained.value:.1f}  trained {quality.trained.value:.1f}  "
            f"real vs real {quality.real_vs_real.value:.1f}  ({quality.trained.note})"
        )
    return 0


def _prepare(arguments: argparse.Namespace) -> int:
    from trainer.data import PREPARERS

    if arguments.dataset not in PREPARERS:
        raise TrainerError(
            place="data prepare", problem="no such data set", value=arguments.dataset, allowed=", ".join(PREPARERS)
        )
    PREPARERS[arguments.dataset](arguments.out)
    print(f"wrote {arguments.out}")
    return 0


def _presets(_: argparse.Namespace) -> int:
    for config in PRESETS.values():
        print(config.to_json(), end="")
    return 0


def _schema(_: argparse.Namespace) -> int:
    from trainer.record import schema

    print(schema(), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
