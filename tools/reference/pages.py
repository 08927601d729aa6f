"""The pages of docs/reference: files that users write, commands, components, outputs, findings and metrics."""

import argparse
import ast
import inspect
import typing
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import typer
from pydantic import BaseModel

from gangway.bench.experiment.suite import ExperimentConfig
from gangway.bench.suite import SuiteConfig
from gangway.cli.main import app
from gangway.components.core.findings import Severity
from gangway.components.core.image import TrainerImage
from gangway.sim.forecast import forecaster
from gangway.sim.schedule.scenario import ScenarioConfig
from gangway.stacks.base.registry import all_providers, provider_names
from gangway.stacks.config.engines_file import EnginesFile
from gangway.stacks.config.job_file import JobFile
from gangway.stacks.config.paths import ROOT
from gangway.stacks.loading.loader import stack_model
from gangway.stacks.plan.rules.guardrails import PLAN_RULES, RESOURCE_RULES, STACK_RULES, finding_codes, job_codes
from gangway.stacks.program import OUTPUTS
from gangway.trainer.__main__ import _parser
from gangway.trainer.config.parts.choices import ARCHITECTURES, LOSSES
from gangway.trainer.config.presets import CATALOGUE
from gangway.trainer.config.train_config import TrainConfig
from gangway.trainer.config.values.control import Bounds, ControlSettings
from gangway.trainer.config.values.schedules import LayerRate, Ramp, Schedules, Steps
from gangway.trainer.config.values.segments import Segment
from gangway.trainer.core.docstrings import summary
from gangway.trainer.core.errors import as_keys
from gangway.trainer.core.host import COMMANDS, MODULE
from gangway.trainer.telemetry import prometheus
from tools.reference.models import Keys, code, flat, page, section, table, text

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
    parts = [part for choice in (ARCHITECTURES, LOSSES) for part in choice.fields.values()]
    limits = [(name, field.narrower.allowed) for part in parts for name, field in part.items() if field.narrower]
    for name, allowed in sorted(set(limits)):
        yield code(name), text(as_keys(allowed))


_COMMANDS = f"""
Every command of `gangway` and of `{MODULE}`, with its options. The trainer's commands
{", ".join(map(code, COMMANDS))} are also commands of `gangway`, with the same options.
"""
_FLAGS = "It also takes a flag for each field of the configuration: see [training.md](training.md)."


def commands() -> str:
    """docs/reference/commands.md."""
    return page("Commands", _COMMANDS, *_gangway(typer.main.get_command(app), "gangway"), *_trainer(_parser(), MODULE))


def _gangway(command: Any, name: str) -> Iterator[str]:
    context = typer.Context(command, info_name=name)
    records = [record for param in command.params if (record := param.get_help_record(context))]
    rows = [(code(option.replace(" <list[str]>", "")), text(what)) for option, what in records]
    yield section(code(name), _prose(command.help or ""), _options(rows))
    for below, inner in getattr(command, "commands", {}).items():
        if below not in COMMANDS:
            yield from _gangway(inner, f"{name} {below}")


def _trainer(parser: argparse.ArgumentParser, name: str, about: str = "") -> Iterator[str]:
    """The same for argparse. `about`: the description of a parser without its own."""
    rows: list[tuple[str, str]] = []
    below: list[tuple[str, argparse.ArgumentParser, str]] = []
    has_fields = False
    for group in parser._action_groups:
        for action in group._group_actions:
            if isinstance(action, argparse._SubParsersAction):
                below = [(each.dest, action.choices[each.dest], each.help or "") for each in action._choices_actions]
            elif group.title == "configuration":
                has_fields = True
            elif not isinstance(action, argparse._HelpAction):
                rows.append((code(_spelling(action)), text((action.help or "").replace("%%", "%"))))
    parts = (_prose(parser.description or about), _options(rows), _FLAGS * has_fields, text(parser.epilog or ""))
    yield section(code(name), *parts)
    for word, inner, sentence in below:
        yield from _trainer(inner, f"{name} {word}", f"{sentence[:1].upper()}{sentence[1:]}.")


def _options(rows: Sequence[tuple[str, str]]) -> str:
    return table(("option", "description"), rows) if rows else ""


def _prose(words: str) -> str:
    """Paragraphs; what the command prints in columns stays in columns."""
    first, *columns = words.split("\n\n  ")
    return "\n\n".join([text(first), *(f"```text\n  {lines.rstrip()}\n```" for lines in columns)])


def _spelling(action: argparse.Action) -> str:
    value = action.metavar or ("" if action.nargs == 0 else action.dest.upper())
    return f"{', '.join(action.option_strings)} {value}".strip()


_COMPONENTS = """
The public components: `from gangway.components.PROVIDER import NAME`, and `TrainerImage` from
`gangway.components.core.image`. Each takes `(name, args, opts)`; args is a mapping, described in the class. Inputs in
brackets are optional. [Examples](../../examples/README.md) in Python, TypeScript, Go and YAML; in those other languages
names are in camelCase, and there are AWS's components only.
"""


def components() -> str:
    """docs/reference/components.md."""
    sections = []
    for provider in provider_names():
        package = import_module(f"gangway.components.{provider}")
        classes = [getattr(package, name) for name in sorted(package.__all__)]
        sections.append(section(provider, _components_table(classes)))
    return page("Components", _COMPONENTS, *sections, section("all providers", _components_table([TrainerImage])))


def _components_table(classes: list[type]) -> str:
    return table(("component", "what it is", "inputs", "outputs"), map(_component_row, classes))


def _component_row(component: type) -> tuple[str, ...]:
    args = typing.get_type_hints(component.__init__)["args"]  # type: ignore[misc]  # of the class, not of an instance
    inputs = (
        code(name) if name in args.__required_keys__ else f"[{code(name)}]" for name in sorted(args.__annotations__)
    )
    outputs = (code(name) for name in inspect.get_annotations(component))
    first = (inspect.getdoc(component) or "").split("\n\n")[0]
    return code(component.__name__), text(first), ", ".join(inputs), ", ".join(outputs)


_OUTPUTS = """
What `pulumi stack output NAME` prints, by provider and kind of stack: `job` is a stack with `gangway:job`, `slurm` and
`kubernetes` are clusters with a queue. An output that does not apply to a stack is left out.
"""
_FINDINGS = """
Every finding code. `gangway plan STACK --explain CODE` prints a finding in full. An error makes `gangway plan` exit
with 1 and stops `up`; warnings and infos do not. `trainer.FIELD` means that the trainer refuses `job.settings.FIELD`.
"""


def outputs() -> str:
    """docs/reference/outputs.md."""
    found = {name: [*find_outputs(name)] for name in provider_names()}
    rows = (
        (code(output), text(what), *(_kinds(output, outputs) for outputs in found.values()))
        for output, what in OUTPUTS.items()
    )
    return page("Stack outputs", _OUTPUTS, table(("output", "what it is", *map(code, found)), rows))


def _kinds(output: str, found: Iterable[tuple[str, str]]) -> str:
    kinds = {kind for name, kind in found if name == output}
    return "all" if output == "next_command" else ", ".join(sorted(kinds, key=KINDS.index))


def findings() -> str:
    """docs/reference/findings.md."""
    severities: dict[str, set[str]] = {}
    for folder in ("components", "stacks", "gangway/jobs"):
        for name, severity in find_severities(folder):
            severities.setdefault(name, set()).add(severity)
    for rule in (*PLAN_RULES, *RESOURCE_RULES, *STACK_RULES):
        severities.setdefault(rule.code, set()).add(rule.severity.value)
    return page(
        "Findings",
        _FINDINGS,
        *_groups(finding_codes(), severities),
        section("Job files", "`gangway job submit` checks job files.", _codes_table(job_codes(), severities)),
    )


def _groups(codes: Mapping[str, str], severities: Mapping[str, set[str]]) -> Iterable[str]:
    groups: dict[str, dict[str, str]] = {}
    for name in sorted(codes):
        groups.setdefault(name.partition(".")[0], {})[name] = codes[name]
    return (section(group, _codes_table(members, severities)) for group, members in groups.items())


def _codes_table(codes: Mapping[str, str], severities: Mapping[str, set[str]]) -> str:
    rows = ((code(name), ", ".join(sorted(severities[name])), text(what)) for name, what in codes.items())
    return table(("code", "severity", "what it reports"), rows)


_METRICS = """
Every Prometheus gauge that Gangway exports. A missing figure has no sample.
"""
_TRAINER_METRICS = """
Served by `python -m gangway.trainer train --metrics-port N` on rank 0, over all workers, from the latest line of
`stats.jsonl`.
"""
_FORECAST_METRICS = """
Written by `gangway forecast --gauges FILE` for a textfile collector: see [forecast.md](../forecast.md).
"""


def metrics() -> str:
    """docs/reference/metrics.md."""
    gauges = [
        (code(prometheus.PREFIX + gauge.name), code(key), text(gauge.help)) for key, gauge in prometheus.GAUGES.items()
    ]
    phases = prometheus.PHASE_GAUGE
    gauges.append((code(f"{prometheus.PREFIX}{phases.name}{{phase}}"), code("phase_sec"), text(phases.help)))
    forecasts = [
        (code(forecaster.PREFIX + name), _labels(*forecaster.LABELS.get(name, ())), text(what))
        for name, what in forecaster.GAUGES.items()
    ]
    return page(
        "Metrics",
        _METRICS,
        section("Training", _TRAINER_METRICS, table(("gauge", "key in stats.jsonl", "what it is"), gauges)),
        section("Forecasts", _FORECAST_METRICS, table(("gauge", "labels", "what it is"), forecasts)),
    )


def _labels(*further: str) -> str:
    return ", ".join(map(code, ("series", "of", *further)))


KINDS = ("job", "slurm", "kubernetes")
"""Kinds of stacks."""
_BY_MODULE = {"slurm": "slurm", "slurm_program": "slurm", "kubernetes": "kubernetes", "eks_program": "kubernetes"}
_BY_CHOICE = "make"
"""A variable that holds Finding.warning or Finding.error."""


def _nodes(path: Path) -> Iterator[ast.AST]:
    return ast.walk(ast.parse(path.read_text("utf-8")))


def find_severities(folder: str) -> Iterator[tuple[str, str]]:
    """Code and severity of each finding in a folder's code. A code may have several severities."""
    for path in sorted((ROOT / folder).rglob("*.py")):
        assigned = (node for node in _nodes(path) if isinstance(node, ast.Assign | ast.AnnAssign))
        constants = {
            ast.unparse(node.targets[0] if isinstance(node, ast.Assign) else node.target): node.value
            for node in assigned
        }
        for call in (node for node in _nodes(path) if isinstance(node, ast.Call)):
            made_by, arguments = ast.unparse(call.func), call.args
            if made_by == "Finding" and len(arguments) > 1:
                made_by, arguments = ast.unparse(arguments[0]), arguments[1:]
            elif made_by == _BY_CHOICE:
                made_by = "Severity.WARNING, Severity.ERROR"
            elif not made_by.startswith("Finding."):
                continue
            name = constants.get(ast.unparse(arguments[0]), arguments[0])
            if isinstance(name, ast.Constant):
                yield from ((str(name.value), each.value) for each in Severity if each.value in made_by.lower())


def find_outputs(provider: str) -> Iterator[tuple[str, str]]:
    """Name of each output of a provider's stacks, and the kind of stack, by the name of the function or its module."""
    for path in sorted((ROOT / "stacks" / "providers" / provider).glob("*.py")):
        by_module = _BY_MODULE.get(path.stem, "job")
        for function in (node for node in _nodes(path) if isinstance(node, ast.FunctionDef)):
            if function.returns is None or ast.unparse(function.returns) != "Mapping[str, pulumi.Input[Any]]":
                continue
            for made in (node.value for node in ast.walk(function) if isinstance(node, ast.Return)):
                if isinstance(made, ast.Dict):
                    for key, value in zip(made.keys, made.values, strict=True):
                        if isinstance(key, ast.Constant) and ast.unparse(value) != "None":
                            yield str(key.value), next((k for k in KINDS if k in function.name), by_module)
