"""The pages about files that users write: stack files, job and suite files, the trainer's configuration."""

from collections.abc import Iterator, Mapping

from pydantic import BaseModel

from gangway.bench.experiment.suite import ExperimentConfig
from gangway.bench.suite import SuiteConfig
from gangway.sim.schedule.scenario import ScenarioConfig
from gangway.stacks.base.registry import all_providers
from gangway.stacks.config.engines_file import EnginesFile
from gangway.stacks.config.job_file import JobFile
from gangway.stacks.loading.loader import stack_model
from gangway.trainer.config.parts.choices import ARCHITECTURES, LOSSES
from gangway.trainer.config.presets import CATALOGUE
from gangway.trainer.config.train_config import TrainConfig
from gangway.trainer.config.values.control import Bounds, ControlSettings
from gangway.trainer.config.values.schedules import LayerRate, Ramp, Schedules, Steps
from gangway.trainer.config.values.segments import Segment
from gangway.trainer.core.docstrings import summary
from gangway.trainer.core.errors import as_keys
from tools.reference.markdown import code, page, section, table, text
from tools.reference.models import Keys, flat

_STACK = """
Every key of `stacks/Pulumi.STACK.yaml`, below `config:`. Top-level keys begin with `gangway:`; the paths in the tables
leave that out, as in `cluster.nodes.min` for `min` below `nodes` below `gangway:cluster`. `[]` marks the entries of a
list. An empty default means that the key is optional. `gangway plan STACK` checks a file and names the allowed values
next to each mistake.
"""
_JOB = """
Every key of the files that `gangway job`, `bench` and `simulate` read. `[]` marks the entries of a list, `NAME` a name
that you choose. An empty default means that the key is optional.
"""
_TRAINING = """
Every field of a training run. Each is a flag of `python -m gangway.trainer train` (`batch_size` is `--batch-size`), a
key of `--config` files, and a key of `job.settings` in a stack file or of `settings` in a job or suite file. A preset
sets fields without a default; `gangway presets NAME` shows all its values. Editors can use the [JSON
schema](../own-images.md#complete-and-check-settings-in-an-editor). kimg are thousands of real images.
"""


def stack_file() -> str:
    """docs/reference/stack-file.md."""
    keys = Keys(_unread(), hidden=frozenset({"stack", "stack_name"}))
    return page("Stack file", _STACK, *keys.top_level(stack_model(), "gangway:"))


def _unread() -> Mapping[str, str]:
    """By path, which providers refuse the key."""
    providers = [(provider.name, provider.settings.unsupported) for provider in all_providers()]
    paths = dict.fromkeys(path for _, unsupported in providers for path in unsupported)
    return {
        path: f"Not supported with {', '.join(code(name) for name, unsupported in providers if path in unsupported)}"
        for path in paths
    }


def job_file() -> str:
    """docs/reference/job-file.md."""
    files: dict[str, type[BaseModel]] = {
        "Job file": JobFile,
        "Engines file": EnginesFile,
        "Suite file": SuiteConfig,
        "Experiment file": ExperimentConfig,
        "Simulation file": ScenarioConfig,
    }
    sections = (part for heading, model in files.items() for part in Keys().sections(model, heading))
    return page("Job, engine, suite and simulation files", _JOB, *sections)


def training() -> str:
    """docs/reference/training.md."""
    presets = [
        (code(name), text(entry.summary), entry.config.dataset, "x".join(map(str, entry.config.image_shape)))
        for name, entry in CATALOGUE.items()
    ]
    nested: dict[str, tuple[type[BaseModel], str]] = {
        "`schedules`": (Schedules, "schedules"),
        "A ramp, for `schedules.NAME`": (Ramp, ""),
        "Steps, for `schedules.NAME`": (Steps, ""),
        "`segments[]`": (Segment, ""),
        "`layer_rates[]`": (LayerRate, ""),
        "`controller`": (ControlSettings, ""),
        "`controller.bounds`": (Bounds, ""),
    }
    limits = table(("field", "allowed"), _limits())
    return page(
        "Training configuration",
        _TRAINING,
        section("Presets", table(("preset", "what it trains", "data set", "shape"), presets)),
        section("Fields", flat(TrainConfig)),
        section("Limits by architecture and loss", limits),
        *(section(name, text(summary(model)), flat(model, path)) for name, (model, path) in nested.items()),
    )


def _limits() -> Iterator[tuple[str, str]]:
    """Field and allowed values of every limit, once."""
    parts = [part for choice in (ARCHITECTURES, LOSSES) for part in choice.fields.values()]
    limits = [(name, field.narrower.allowed) for part in parts for name, field in part.items() if field.narrower]
    for name, allowed in sorted(set(limits)):
        yield code(name), text(as_keys(allowed))
