"""Facts that only the source has: the severities of findings and the outputs of each provider."""

import ast
from collections.abc import Iterator
from pathlib import Path

from gangway.components.core.findings import Severity
from gangway.stacks.config.paths import ROOT

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
    """Name of each output of a provider's stacks, and the kind of stack: job, slurm or kubernetes."""
    for path in sorted((ROOT / "stacks" / "providers" / provider).glob("*.py")):
        for function in (node for node in _nodes(path) if isinstance(node, ast.FunctionDef)):
            if function.returns is None or ast.unparse(function.returns) != "Mapping[str, pulumi.Input[Any]]":
                continue
            for made in (node.value for node in ast.walk(function) if isinstance(node, ast.Return)):
                if isinstance(made, ast.Dict):
                    for key, value in zip(made.keys, made.values, strict=True):
                        if isinstance(key, ast.Constant) and ast.unparse(value) != "None":
                            yield str(key.value), _BY_MODULE.get(path.stem, "job")
