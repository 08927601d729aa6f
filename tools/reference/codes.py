"""The pages about the stack outputs and the codes of findings."""

from collections.abc import Iterable, Mapping

from gangway.stacks.base.registry import provider_names
from gangway.stacks.plan.rules.guardrails import PLAN_RULES, RESOURCE_RULES, STACK_RULES, finding_codes, job_codes
from gangway.stacks.program import OUTPUTS
from tools.reference.markdown import code, page, section, table, text
from tools.reference.source import KINDS, find_outputs, find_severities

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
        section("Job files", "`gangway job submit` checks job files.", _table(job_codes(), severities)),
    )


def _groups(codes: Mapping[str, str], severities: Mapping[str, set[str]]) -> Iterable[str]:
    """A section for each first word of the codes."""
    groups: dict[str, dict[str, str]] = {}
    for name in sorted(codes):
        groups.setdefault(name.partition(".")[0], {})[name] = codes[name]
    return (section(group, _table(members, severities)) for group, members in groups.items())


def _table(codes: Mapping[str, str], severities: Mapping[str, set[str]]) -> str:
    rows = ((code(name), ", ".join(sorted(severities[name])), text(what)) for name, what in codes.items())
    return table(("code", "severity", "what it reports"), rows)
