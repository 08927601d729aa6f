"""The trainer's command line.

    python -m gangway.trainer.launch --standalone --nproc-per-node 2 -m gangway.trainer train --preset dcgan-digits
    python -m gangway.trainer train --preset dcgan-digits --kimg 20
    python -m gangway.trainer evaluate --run-dir runs/dcgan-digits

Exit codes: 0 done, 1 failed with a traceback or where another session is at work, 2 bad input, 3 the fabric is too slow
to begin, 75 interrupted (start the same command again). Under torchrun every worker runs this file; local rank 0 alone
reports a user's mistake. On a TPU host `train` starts torchrun itself, a process for each chip.
"""

import signal

if __name__ == "__main__" and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    # Ctrl-C while all this is imported ends the process as a signal does, without a traceback: 130 in a shell.
    signal.signal(signal.SIGINT, signal.SIG_DFL)

import argparse
import contextlib
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, NoReturn

from gangway.trainer.commands.control import add_control_command
from gangway.trainer.commands.data import add_data
from gangway.trainer.commands.evaluate import add_evaluate
from gangway.trainer.commands.export import add_export
from gangway.trainer.commands.presets import add_memory, add_presets, memory_text
from gangway.trainer.commands.sample import add_sample
from gangway.trainer.config.arguments import Parser, add_config_flags, add_run_dir, path, positive
from gangway.trainer.config.presets import PRESETS, preset
from gangway.trainer.config.train_config import RESUMABLE_CHANGES, TrainConfig
from gangway.trainer.control.flags import add_control, parse_control, parse_reading, with_shares
from gangway.trainer.core import errors
from gangway.trainer.core.console import flush_output, output_failed, refuse, warn
from gangway.trainer.core.errors import LoneError, TrainerError, WorkerFailedError
from gangway.trainer.core.host import COMMANDS, program, wait_passively
from gangway.trainer.core.regular_files import check_creatable, check_working_directory, file_problem
from gangway.trainer.core.validation import from_validation
from gangway.trainer.distributed.ranks import Ranks
from gangway.trainer.power.limits import add_power, power_asked

if TYPE_CHECKING:
    from gangway.trainer.records.run_record import RunContext

_FABRIC_VARIABLE = "GANGWAY_FABRIC_MIN_GBPS"
_CONTEXT_VARIABLE = "GANGWAY_CONTEXT"
_EXIT_BROKEN_PIPE = 128 + 13  # What a shell makes of SIGPIPE
_OF_THE_EXTRA = ("PIL", "av", "fsspec", "numpy", "obstore", "scipy", "sklearn", "torch", "torchvision")
"""What planning does without."""


def main(argv: Sequence[str]) -> int:
    """Runs one command and returns its exit code."""
    try:
        check_working_directory()
        arguments = _parser().parse_args(argv, argparse.Namespace(argv=argv))
        code: int = arguments.run(arguments)
    except (TrainerError, WorkerFailedError) as error:
        if Ranks.speaks() or isinstance(error, LoneError):  # nobody else knows of that one
            refuse(error)
        return error.exit_code
    except OSError as error:
        if (found := file_problem(error)) is None:
            raise
        if Ranks.speaks():
            refuse(TrainerError(place=found.place, problem=found.problem, fix=found.fix))
        return errors.EXIT_BAD_INPUT
    except KeyboardInterrupt:  # train takes signals itself, and data prepare says what it keeps
        if Ranks.speaks():
            warn("interrupted: nothing is left half written, and the same command does it from the beginning")
        return errors.EXIT_INTERRUPTED
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in _OF_THE_EXTRA:
            raise
        refuse(f"extra 'train': {package} is not installed: in Gangway's checkout, pip install '.[train]'")
        return errors.EXIT_BAD_INPUT
    return code


class _Version(argparse.Action):
    def __call__(self, *_: object) -> NoReturn:
        from importlib.metadata import PackageNotFoundError, version

        try:
            print(f"gangway {version('gangway-iac')}")
        except PackageNotFoundError:
            from gangway.trainer.core.host import code_sha256

            print(f"gangway's trainer, code {code_sha256()[:12]}")
        raise SystemExit(0)


def _parser() -> Parser:
    parser = Parser(prog=program(), description="Trains GANs; see each command's --help.")
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(name: str, sentence: str = "") -> Parser:
        sentence = sentence or COMMANDS[name]
        parser: Parser = commands.add_parser(name, help=sentence, description=f"{sentence[0].upper()}{sentence[1:]}.")
        return parser

    _add_train(command("train", "train, or resume a run, under torchrun or alone"))
    add_evaluate(command("evaluate"))
    record = command("record")
    add_run_dir(record)
    record.set_defaults(run=_record)
    add_data(command("data"))
    add_sample(command("sample"))
    add_export(command("export"))
    add_control_command(command("control"))
    add_presets(command("presets"))
    memory = command("memory")
    memory.usage = "%(prog)s (--preset NAME | --config FILE) [--workers N] [--nodes N] [--FLAG VALUE ...]"
    _add_base(memory)
    add_memory(memory)
    add_config_flags(memory)
    memory.set_defaults(run=_memory)
    schema = command("schema", "print the JSON schema of run.json or of configurations, for editors")
    schema.add_argument(
        "of",
        nargs="?",
        choices=("record", "config", "settings"),
        default="record",
        metavar="record|config|settings",
        help="run.json [record]; a TrainConfig in a file; settings on top of a preset, as in suites and stack files",
    )
    schema.set_defaults(run=_schema)
    return parser


def _add_train(train: Parser) -> None:
    train.usage = "%(prog)s (--preset NAME | --config FILE) [--FLAG VALUE ...]"
    train.epilog = (
        "Exit codes: 0: done; 1: failed, or the folder is in use; 2: invalid input; 3: the fabric is too slow; 75: "
        "interrupted and saved, repeat the command to resume."
    )
    _add_base(train)
    train.add_argument("--run-dir", type=path, metavar="DIR", help="folder for all output [runs/PRESET]")
    train.add_argument("--data", type=path, metavar="DIR", help="folder of shards, prepared if missing [RUN_DIR/data]")
    train.add_argument(
        "--resume",
        choices=("auto", "never"),
        default="auto",
        metavar="auto|never",
        help="auto resumes from the newest checkpoint; never refuses a folder with a run [auto]",
    )
    train.add_argument("--metrics-port", type=int, metavar="N", help="port for Prometheus metrics on rank 0 [off]")
    train.add_argument("--track", metavar="NAMES", help="where to log the run: tensorboard, mlflow, wandb, by commas")
    train.add_argument(
        "--log-format",
        choices=("text", "json"),
        default="text",
        metavar="text|json",
        help="json: the lines of stats.jsonl, with messages on stderr [text]",
    )
    train.add_argument(
        "--fabric-min-gbps",
        type=positive,
        default=os.environ.get(_FABRIC_VARIABLE),
        metavar="X",
        help=f"required all-reduce bus bandwidth, Gbit/s [${_FABRIC_VARIABLE}, or none]",
    )
    add_power(train)
    add_control(train)
    train.add_argument(
        "--context", type=path, metavar="FILE", help=f"the launcher's RunContext as JSON [${_CONTEXT_VARIABLE}]"
    )
    add_config_flags(train)
    train.set_defaults(run=_train)


def _add_base(parser: Parser) -> None:
    base = parser.add_mutually_exclusive_group(required=True)
    base.add_argument("--preset", metavar="NAME", help=", ".join(PRESETS))
    base.add_argument(
        "--config", type=path, metavar="FILE", help="a TrainConfig as JSON, such as a run directory's config.json"
    )


def _memory(arguments: argparse.Namespace) -> int:
    with _naming_flags(arguments):
        config, workers, num_nodes = _config(arguments), arguments.workers, arguments.nodes
        print(memory_text(config, workers, num_nodes, trace=arguments.trace, as_json=arguments.json), end="")
    return 0


def _train(arguments: argparse.Namespace) -> int:
    from gangway.trainer.preemption.notices import Interruption
    from gangway.trainer.telemetry.prometheus import check_port

    interruption = Interruption().install()  # before torch is loaded: an early signal must not kill one worker of two
    control = parse_control(arguments)
    power = with_shares(power_asked(arguments), control)
    with _naming_flags(arguments):
        config = _config(arguments)
        run_dir: Path = arguments.run_dir or Path("runs") / config.preset
        data_dir: Path = arguments.data or run_dir / "data"
        config = _sized(config, arguments, data_dir)
        context = _context(arguments.context)
        if config.backend == "xla" and (launcher := _xla_launcher()):
            from gangway.trainer.launch import launcher as launch

            return launch.main([*launcher, "-m", "gangway.trainer", *arguments.argv])
        if arguments.metrics_port is not None:
            check_port(arguments.metrics_port)

        from gangway.trainer.run.session_setup import RunOptions

        options = RunOptions(
            resume=arguments.resume == "auto",
            metrics_port=arguments.metrics_port,
            fabric_min_gbps=arguments.fabric_min_gbps,
            track=tuple(arguments.track.split(",")) if arguments.track is not None else (),
            log_json=arguments.log_format == "json",
            power=power,
            reading=parse_reading(arguments),
            control=control,
        )
        check_creatable(run_dir)
        if Ranks.speaks():
            size = f" at {config.resolution}x{config.resolution}" if config.dataset == "folder" else ""
            options.say(f"{run_dir}: {config.preset}{size}, getting ready")
        from gangway.trainer.run.loop import train  # with torch, which takes seconds

        return train(config, run_dir, data_dir, context, interruption, options)


def data_mistake(config: TrainConfig, data_dir: Path) -> TrainerError | None:
    """Returns the error that `train` would raise for its data, except for damage, or None. Loads torch."""
    from gangway.trainer.data.shards import check_data

    try:
        check_data(config, data_dir)
    except TrainerError as error:
        return error
    return None


def _config(arguments: argparse.Namespace) -> TrainConfig:
    base = preset(arguments.preset) if arguments.preset is not None else _from_file(arguments.config)
    return base.replace(_given(arguments))


def _from_file(path: Path) -> TrainConfig:
    try:
        return TrainConfig.from_file(path)
    except TrainerError as error:
        field = error.place.removeprefix(f"{path}: ").partition(".")[0]
        if not (path.parent / "checkpoints").is_dir() or field in RESUMABLE_CHANGES or field == str(path):
            raise
        fix = f"{error.fix}, in another --run-dir; the run in {path.parent} goes on with the version that wrote it"
        raise TrainerError(**{**error.fields(), "fix": fix}) from None


def _sized(config: TrainConfig, arguments: argparse.Namespace, data_dir: Path) -> TrainConfig:
    if arguments.preset is None or config.dataset != "folder":
        return config
    from gangway.trainer.data.index import picture_size

    return config.replace(picture_size(config, _given(arguments), data_dir))


def _given(arguments: argparse.Namespace) -> dict[str, str]:
    values = {name.removeprefix("field_"): value for name, value in vars(arguments).items() if "field_" in name}
    return {name: value for name, value in values.items() if value is not None}


def _xla_launcher() -> list[str]:
    """Returns the launcher's arguments to start this command once per chip; empty where one process is enough."""
    if Ranks.under_torchrun():
        return []
    from gangway.trainer.distributed.world import require_xla

    require_xla()
    from gangway.trainer.distributed import xla

    return xla.launcher_argv()


@contextlib.contextmanager
def _naming_flags(arguments: argparse.Namespace) -> Iterator[None]:
    otherwise = f"--preset {arguments.preset}" if arguments.config is None else str(arguments.config)
    flags = {name: f"--{name.replace('_', '-')}" for name in _given(arguments)}
    try:
        yield
    except TrainerError as error:
        owner, _, field = error.place.partition(".")
        if owner != TrainConfig.__name__:
            raise
        head, _, inside = field.partition(".")
        raise error.at(
            ": ".join(filter(None, (flags[head], inside))) if head in flags else f"{otherwise}: {field}"
        ) from None


def _context(path: Path | None) -> "RunContext":
    from pydantic import ValidationError

    from gangway.trainer.records.run_record import RunContext

    if path is not None:
        return RunContext.read(path)
    try:
        return RunContext.model_validate_json(os.environ.get(_CONTEXT_VARIABLE, "{}"))
    except ValidationError as error:
        raise from_validation(error, f"${_CONTEXT_VARIABLE}", known=RunContext.model_fields) from None


def _record(arguments: argparse.Namespace) -> int:
    from gangway.trainer.records.stats_log import STATS_FILE, require_run
    from gangway.trainer.records.summary import summarise

    require_run(arguments.run_dir, (STATS_FILE,))
    record = summarise(arguments.run_dir)
    record.write(arguments.run_dir / "run.json")
    print(f"{arguments.run_dir / 'run.json'}: {record.status}, {record.images:,} images")
    for note in record.notes:
        print(f"note: {note}")
    return 0


def _schema(arguments: argparse.Namespace) -> int:
    from gangway.trainer.config.editor_schema import config_schema, settings_schema
    from gangway.trainer.records.run_record import schema

    texts = {"record": schema, "config": config_schema, "settings": settings_schema}
    print(texts[arguments.of](), end="")
    return 0


def run(argv: Sequence[str]) -> NoReturn:
    """Runs `main`, then ends the process at once: all is written, and all our threads have ended. During Python's
    shutdown a torch thread that is still ending aborts the process: of some forty complete runs of two workers on a
    busy machine two ended with 134, "terminate called without an active exception".
    """
    wait_passively(os.environ)
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:  # as a background job has it
        signal.signal(signal.SIGINT, _interrupt)
    try:
        code = main(argv)
    except SystemExit as leaving:  # argparse's, of --help or a mistake
        code = leaving.code if isinstance(leaving.code, int) else 0 if leaving.code is None else errors.EXIT_FAILED
    except BrokenPipeError:  # of `... | head`, say
        code = _EXIT_BROKEN_PIPE
    except OSError as error:
        code = output_failed(error) or _failed(error)
    except Exception as error:
        code = _failed(error)
    lost = flush_output()
    code = code or output_failed(lost)
    os._exit(code)


def _failed(error: Exception) -> int:
    sys.excepthook(type(error), error, error.__traceback__)  # torch's, which tells the rank
    return errors.EXIT_PEERS_LOST if _lost_peers(error) else errors.EXIT_FAILED


def _interrupt(number: int, frame: FrameType | None) -> None:
    """While torch loads, a KeyboardInterrupt would be swallowed and leave a broken NumPy: end the process instead."""
    if getattr(getattr(sys.modules.get("torch"), "__spec__", None), "_initializing", False):
        signal.signal(number, signal.SIG_DFL)
        signal.raise_signal(number)
    raise KeyboardInterrupt


def _lost_peers(error: BaseException) -> bool:
    """NCCL's lost peers have a type in torch; gloo's are known by a place in its source."""
    if "torch.distributed" not in sys.modules or not Ranks.under_torchrun():
        return False
    from torch.distributed import DistError

    return any(
        isinstance(each, DistError) or (isinstance(each, RuntimeError) and "gloo/transport/" in str(each))
        for each in _causes(error)
    )


def _causes(error: BaseException) -> Iterator[BaseException]:
    cause: BaseException | None = error
    seen = set[int]()
    while cause is not None and id(cause) not in seen:  # `raise ... from` can close a circle
        seen.add(id(cause))
        yield cause
        cause = cause.__cause__ or cause.__context__


if __name__ == "__main__":
    run(sys.argv[1:])
