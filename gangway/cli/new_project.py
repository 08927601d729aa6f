"""The files of a Pulumi project outside a checkout, from the answers of `gangway init`. Pure."""

import re
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from textwrap import wrap
from typing import Any

import yaml

from gangway.components.core.findings import InputError
from gangway.stacks.base.provider import Start
from gangway.stacks.base.registry import all_providers, get_provider
from gangway.stacks.config.corrections import parse_range
from gangway.stacks.config.identity import without_accents

_WIDTH = 120


@dataclass(frozen=True)
class Answers:
    """The answers to `gangway init`; an empty `machine_type` is the provider's, or any with the accelerator."""

    stack: str
    provider: str
    region: str
    accelerator: str
    machine_type: str
    nodes: str
    preset: str
    email: str
    kimg: float = 2000
    max_hours: float = 2
    monthly_usd: float = 1000
    team: str = "ml-platform"
    cost_center: str = "4711"
    settings: Mapping[str, str] = field(default_factory=dict)


def startable_providers() -> tuple[str, ...]:
    """Providers with defaults for a new project."""
    return tuple(provider.name for provider in all_providers() if provider.start is not None)


def get_start(provider: str) -> Start:
    """The defaults for a new project on one of `startable_providers`."""
    start = get_provider(provider).start
    assert start is not None, "check_names was called"
    return start


def check_names(stack: str, provider: str) -> None:
    """InputError: no such provider, or an invalid stack name."""
    if provider not in startable_providers():
        raise InputError.not_among("--provider", "no such provider", provider, startable_providers())
    if not re.fullmatch(r"[A-Za-z0-9_.-]+", stack):
        raise InputError("--stack", "invalid stack name", value=stack, allowed="a-z, 0-9 and -", fix="--stack dev")


def file_names(stack: str, *, policy: bool) -> tuple[str, ...]:
    """The paths of a project's files."""
    pack = ("policy/PulumiPolicy.yaml", "policy/__main__.py") if policy else ()
    return ("Pulumi.yaml", f"Pulumi.{stack}.yaml", "__main__.py", "requirements.txt", ".gitignore", *pack)


def _settings(answers: Answers) -> dict[str, Any]:
    start = get_start(answers.provider)
    sections = deepcopy(dict(start.sections))
    low, _, high = answers.nodes.partition("-")
    if not re.fullmatch(r"[0-9]{1,6}(-[0-9]{1,6})?", answers.nodes):
        meant = parse_range(answers.nodes) or (1, 1)
        fix = f"write --nodes {'-'.join(map(str, dict.fromkeys(meant)))}"
        raise InputError("--nodes", "invalid number of nodes", value=answers.nodes, allowed="2, or 2-4", fix=fix)
    carrier: dict[str, str] = {"machine_type": answers.machine_type or start.machine_type}
    if answers.accelerator and "site" in sections:
        sections["site"] = {**sections["site"], "accelerator": answers.accelerator}
    elif answers.accelerator and not answers.machine_type:
        carrier = {"accelerator": answers.accelerator}
    if int(high or low) > 1:
        sections.update(deepcopy(dict(start.shared)))
    later: dict[str, Any] = {name: sections.pop(name) for name in ("head", "storage", "network") if name in sections}
    settings: dict[str, Any] = {
        "provider": answers.provider,
        **sections,
        "region": answers.region,
        "cluster": {
            **carrier,
            "nodes": {"min": int(low), "max": int(high or low)},
            "capacity": [{"kind": "on-demand"}],
        },
        **later,
        "budget": {"monthly_usd": _to_int(answers.monthly_usd), "emails": [answers.email]},
        "job": {
            "preset": answers.preset,
            "kimg": _to_int(answers.kimg),
            "max_hours": _to_int(answers.max_hours),
            **start.job,
        },
        "tags": {"team": answers.team, "cost_center": answers.cost_center},
    }
    for path, text in answers.settings.items():
        _set(settings, path, text)
    return {f"gangway:{name}": value for name, value in settings.items()}


def _to_int(number: float) -> float:
    return int(number) if float(number).is_integer() else number


def _set(settings: dict[str, Any], path: str, text: str) -> None:
    *parents, last = path.split(".")
    place: Any = settings
    for parent in parents:
        try:
            place = place[int(parent)] if isinstance(place, list) else place.setdefault(parent, {})
        except (ValueError, IndexError):
            place = None
        if not isinstance(place, dict | list):
            raise InputError(
                f"--set {path}",
                f"{parent} cannot contain {last}",
                value=text,
                allowed="SECTION.KEY=VALUE, such as storage.capacity_gib=2400",
                fix="name a key of the stack file, without gangway:",
            )
    try:
        value = yaml.safe_load(text)
    except yaml.YAMLError:
        value = text
    # Dates and times stay text.
    place[int(last) if isinstance(place, list) else last] = (
        value if isinstance(value, bool | int | float | list | dict) else text
    )


def project_files(answers: Answers, name: str, source: str, *, policy: bool) -> dict[str, str]:
    """The text of each file. `source`: the URL to install Gangway from; `policy`: add the policy pack."""
    stack, extras = answers.stack, [answers.provider, *(["policy"] if policy else [])]
    texts = (
        _PULUMI_YAML.format(name=re.sub(r"[^A-Za-z0-9_.-]+", "-", without_accents(name)).strip("-") or "gangway")
        + (_REFRESH if get_start(answers.provider).refreshes else ""),
        stack_file(answers),
        _PROGRAM.format(stack=stack),
        f"gangway-iac[{','.join(extras)}] @ {source}\n",
        "/.venv/\n/runs/\n__pycache__/\n",
        *((_POLICY_YAML, _POLICY.format(stack=stack)) if policy else ()),
    )
    return dict(zip(file_names(stack, policy=policy), texts, strict=True))


_PULUMI_YAML = """\
name: {name}
description: A GPU cluster by Gangway, described by the stack files in this folder.
runtime:
  name: python
  options:
    toolchain: pip
    virtualenv: .venv # `pulumi install` creates it from requirements.txt
"""
_REFRESH = """\
options:
  refresh: always # `up` must first read the scale sets' sizes, which the head node changes
"""
_PROGRAM = '''\
"""Gangway's program: `pulumi up --stack {stack}` builds what Pulumi.{stack}.yaml describes."""

from runpy import run_module

run_module("gangway.stacks", run_name="__main__")
'''
_POLICY_YAML = """\
description: "The findings of `gangway plan`, enforced by the engine."
version: 0.1.0
runtime:
  name: python
  options:
    toolchain: pip
    virtualenv: ../.venv
"""
_POLICY = '''\
"""Gangway's guardrails: `pulumi preview --stack {stack} --policy-pack policy`."""

from runpy import run_module

run_module("gangway.stacks.policy", run_name="__main__")
'''


def stack_file(answers: Answers) -> str:
    """The text of the stack file: short sections on one line, in the order of the shipped files."""
    start = get_start(answers.provider)
    examples = [path for path in start.questions if path not in answers.settings]
    if "site" in start.sections:
        examples.append("everything under site")
    head = [f"# `gangway plan {answers.stack}` checks and prices it, `pulumi up --stack {answers.stack}` builds it."]
    if examples:
        head.extend(
            wrap(f"Replace with yours: {', '.join(examples)}.", 118, initial_indent="# ", subsequent_indent="# ")
        )
    lines = [line for name, value in _settings(answers).items() for line in _lines(name, value, "  ")]
    return "\n".join([*head, "config:", *lines, ""])


def _lines(name: str, value: Any, indent: str) -> list[str]:
    flow = yaml.safe_dump(value, default_flow_style=True, sort_keys=False, allow_unicode=True, width=10_000)
    one_line = f"{indent}{name}: {flow.removesuffix(chr(10)).removesuffix(chr(10) + '...')}"
    if not isinstance(value, dict) or (len(one_line) <= _WIDTH and name != "gangway:cluster"):
        return [one_line]
    return [f"{indent}{name}:", *(line for key, item in value.items() for line in _lines(key, item, indent + "  "))]
