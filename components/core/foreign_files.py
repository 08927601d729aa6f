"""Recognizes files of other tools that were passed to the wrong command, and names the command that reads them."""

import re
from pathlib import Path
from typing import NamedTuple

from gangway.components.core.findings import InputError

_HEAD = 1 << 16
"""Characters or bytes that identify a file."""


class _Kind(NamedTuple):
    """`mark`: in the beginning of the text; `name`: of the file; `command`: ours that reads it, empty for none."""

    mark: re.Pattern[str]
    name: str
    command: str
    advice: str


_JOBS = (
    "for reconcile --jobs: gangway job list --json > jobs.json; for simulate and forecast: CSV with the columns "
    "name,submit_hours,gpus,hours"
)
_BILL = "gangway reconcile --bill FILE --runs runs/"
_KINDS = (
    _Kind(
        re.compile(
            r'\A\s*\{(\s*"NextToken"\s*:\s*"[^"]*"\s*,)?\s*"SpotPriceHistory"\s*:'
            r'|\A\s*\[\s*\{(?=[^{}]*"InstanceType"\s*:)[^{}]*"SpotPrice"\s*:'
        ),
        "a list of spot prices (aws ec2 describe-spot-price-history)",
        "forecast",
        "gangway forecast FILE",
    ),
    _Kind(
        re.compile(r"\ASPOTPRICEHISTORY\t"),
        "a list of spot prices as text (aws ec2 describe-spot-price-history)",
        "",
        "ask AWS again with --output json > FILE, then: gangway forecast FILE",
    ),
    _Kind(
        re.compile(r"\A\s*JobID(?:Raw)?[ ]+\S+[^\n|]*\n[ ]*-+ "),
        "Slurm's accounting as a table (sacct without -P)",
        "",
        _JOBS,
    ),
    _Kind(
        re.compile(r"\A#![^\n]*sh\b(?:[^\n]*\n)+?#SBATCH\b"),
        "a batch script of Slurm's (#SBATCH)",
        "",
        "sbatch FILE; job submit takes a job file, as in examples/jobs, with what the script runs as its command",
    ),
    _Kind(
        re.compile(r"\A(?=[^\n]*\|)(?:[^\n]*\|)?JobID(?:Raw)?\s*(?:\||$)", re.MULTILINE),
        "Slurm's accounting (sacct -P)",
        "",
        _JOBS,
    ),
    _Kind(
        re.compile(r'^\s*"?kind"?\s*:\s*"?JobSet\b', re.MULTILINE),
        "a Kubernetes manifest (JobSet)",
        "",
        "kubectl apply -f FILE; job submit takes a job file, as in examples/jobs, and makes a JobSet of it",
    ),
    _Kind(
        re.compile(
            r'^\s*"?kind"?\s*:\s*"?(?:Job|(?:PyTorch|MPI|Ray|Train)Job|Pod|Deployment|StatefulSet)\b', re.MULTILINE
        ),
        "a Kubernetes manifest",
        "",
        "kubectl apply -f FILE; job submit takes a job file, as in examples/jobs, with that image and command",
    ),
    _Kind(
        re.compile(r"\A[^\n]*\bPreTaxCost\b"),
        "Azure's usage export of an older version, without the billing currency's cost",
        "",
        "export cost and usage details anew in Cost Management, as FOCUS or actual cost",
    ),
    _Kind(re.compile(r"\A[^\n]*\bCostInBillingCurrency\b", re.I), "Azure's export of cost", "reconcile", _BILL),
    _Kind(re.compile(r'\A[^\n]*\bBilledCost\b|\A\s*\[?\s*\{[^{}]*"BilledCost"'), "a FOCUS bill", "reconcile", _BILL),
    _Kind(re.compile(r"\A[^\n]*\bline_item_unblended_cost\b"), "AWS's Cost and Usage Report", "reconcile", _BILL),
)


def foreign_file(place: str, text: str, command: str) -> InputError | None:
    """An error for another tool's file, None if `command` may read it or it is unknown. `text`: may be partial."""
    head = text[:_HEAD].removeprefix("\ufeff")
    kind = next((each for each in _KINDS if each.mark.search(head)), None)
    if kind is None or kind.command == command:
        return None
    return InputError(place, f"is {kind.name}, which {command} does not read", fix=kind.advice)


def foreign_path(path: Path, command: str) -> InputError | None:
    """The same for a path; None also if it cannot be read, which the caller reports."""
    try:
        if not path.is_file():  # a FIFO would be waited for
            return None
        with path.open("rb") as file:
            return foreign_file(str(path), file.read(_HEAD).decode("utf-8", "replace"), command)
    except OSError:
        return None
