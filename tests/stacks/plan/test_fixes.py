"""Each fix that changes a stack file is made, and the file is planned again: its finding is gone, no other comes in its
place, and the file is not refused. So it is with the fixes of a file's mistakes.
"""

import ast
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from gangway.components.core.findings import Finding, InputError, Severity
from gangway.stacks.config.explain_errors import _setting_at, _UnsortedSchema
from gangway.stacks.loading.loader import from_file, stack_model
from gangway.stacks.plan.plan import make_plan
from tests.conftest import REPO
from tests.fixes import Change, applied, at, changes, edited

EXAMPLES: list[tuple[str, str, dict[str, Any]]] = yaml.safe_load(
    (Path(__file__).parent / "fixes.yaml").read_text("utf-8")
)
UNTRIED = {"storage.not-in-zone"}
"""Codes that no stack file has today: the list of Managed Lustre's zones is not known to be complete."""
SHIPPED = sorted(path.name.split(".")[1] for path in (REPO / "stacks").glob("Pulumi.*.yaml"))
CHANGES_FILE = re.compile(r"(set|remove|leave|write|add) ")
"""How a fix begins that changes the file, unless no `KEY: VALUE` follows on write and add."""
GRAVITY = list(Severity)


def shipped(stack: str) -> dict[str, Any]:
    """The settings of a shipped stack, without their namespace."""
    config = yaml.safe_load((REPO / f"stacks/Pulumi.{stack}.yaml").read_text("utf-8"))["config"]
    return {key.removeprefix("gangway:"): value for key, value in config.items()}


def written(folder: Path, of_stack: dict[str, Any]) -> Path:
    path = folder / "Pulumi.fixed.yaml"
    path.write_text(yaml.safe_dump({"config": {f"gangway:{key}": value for key, value in of_stack.items()}}), "utf-8")
    return path


def planned(folder: Path, of_stack: dict[str, Any]) -> Sequence[Finding]:
    return make_plan(from_file(written(folder, of_stack))).findings


def mistakes(folder: Path, of_stack: dict[str, Any], *, plans: bool = False) -> list[InputError]:
    """All that is wrong with a file; `plans`: also what only a plan refuses."""
    found: list[InputError] = []
    try:
        config = from_file(written(folder, of_stack))
        if plans:
            make_plan(config)
    except* InputError as group:
        found = [each for each in group.exceptions if isinstance(each, InputError)]
    return found


def check_gone(before: Sequence[Finding], after: Sequence[Finding], fixed: Finding) -> None:
    """The finding is gone, and what has come is less grave."""
    places = {(finding.code, finding.path) for finding in before}
    assert (fixed.code, fixed.path) not in {(finding.code, finding.path) for finding in after}
    worse = GRAVITY[: GRAVITY.index(fixed.severity) + 1]
    assert [each for each in after if (each.code, each.path) not in places and each.severity in worse] == []


@pytest.mark.parametrize(
    ("code", "stack", "edits"),
    [
        # A plan or two each: the gate makes every fourth.
        pytest.param(*example, id=f"{example[0]}-{number}", marks=[pytest.mark.slow] if number % 4 else [])
        for number, example in enumerate(EXAMPLES)
    ],
)
def test_a_fix_removes_its_finding(code: str, stack: str, edits: dict[str, Any], tmp_path: Path) -> None:
    of_stack = edited(shipped(stack), edits)
    before = planned(tmp_path, of_stack)
    found = [finding for finding in before if finding.code == code and CHANGES_FILE.match(finding.fix)]
    assert found, sorted({finding.code for finding in before})
    for finding in found:
        wanted = changes(finding.path, finding.fix, of_stack)
        assert wanted, f"no change that can be made: {finding.fix}"
        check_gone(before, planned(tmp_path, applied(of_stack, wanted)), finding)


def fixes_in_code() -> Iterator[tuple[str, str]]:
    """Code, and beginning of the fix, of each finding of a plan that the program can make."""
    for package in ("components", "stacks"):
        for path in (REPO / package).rglob("*.py"):
            if "gangway/jobs/" in path.as_posix():  # of job files
                continue
            for node in ast.walk(ast.parse(path.read_text("utf-8"))):
                if isinstance(node, ast.Call) and re.fullmatch(r"Finding\.\w+|make", ast.unparse(node.func)):
                    code, *rest = node.args
                    fixes = rest[2:] if isinstance(code, ast.Constant) else []
                    yield from ((str(code.value), word) for fix in fixes for word in beginnings(fix))  # type: ignore[attr-defined]


def beginnings(fix: ast.expr) -> Iterator[str]:
    """How an expression's text may begin, as far as the code shows it."""
    match fix:
        case ast.Constant(value=str(text)):
            yield text
        case ast.JoinedStr(values=[ast.Constant(value=str(text)), *_]):
            yield text
        case ast.IfExp(body=body, orelse=orelse):
            yield from beginnings(body)
            yield from beginnings(orelse)
        case ast.BinOp(left=left):
            yield from beginnings(left)


def test_each_finding_with_such_a_fix_has_an_example() -> None:
    changing = re.compile(r"set |remove |leave |(?:write|add) [\w.:]+: ")
    needed = {code for code, fix in fixes_in_code() if changing.match(fix)}
    assert len(needed) > 60
    assert needed - {code for code, _, _ in EXAMPLES} == UNTRIED


def test_advice_does_not_begin_as_a_change_does() -> None:
    """`set zone where ...` would be read as one."""
    told = [
        fix for _, fix in fixes_in_code() if re.match(r"set ", fix) and not re.match(r"set [\w.:\[\]\"]*(: |$)", fix)
    ]
    assert told == []


WRONG: list[Any] = [None, True, -1, 0, 0.5, 10**12, "48h", "$28", "60%", "yes", "2-4", "nonsense", "s3://", [], {}]


def leaves(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    yield path
    for key, item in inner:
        yield from leaves(item, (*path, key))


@settings(
    max_examples=settings().max_examples // 2,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(stack=st.sampled_from(SHIPPED), data=st.data())
def test_a_fix_removes_its_mistake(stack: str, data: st.DataObject, tmp_path: Path) -> None:
    """Of a shipped stack with one wrong value or a key with a letter too many. Others may show that it hid, such as the
    next key that a new section has to have.
    """
    of_stack = shipped(stack)
    path = data.draw(st.sampled_from([each for each in leaves(of_stack) if each]))
    if data.draw(st.integers(0, 4)) == 0 and isinstance(path[-1], str):
        wrong = applied(of_stack, [Change(path, name=f"{path[-1]}s")])
    else:
        wrong = applied(of_stack, [Change(path, data.draw(st.sampled_from(WRONG)))])
    before = mistakes(tmp_path, wrong)
    assume(before)
    for mistake in before:
        place = mistake.place.partition("gangway:")[2]
        wanted = changes(place, mistake.fix, wrong, is_key=mistake.problem == "unknown key")
        if place and wanted:
            after = mistakes(tmp_path, applied(wrong, wanted))
            assert (mistake.place, mistake.problem) not in {(each.place, each.problem) for each in after}, mistake


STEPS = 3
"""So many fixes are applied one after another."""
ENGINES: list[dict[str, Any]] = [
    {"kind": kind, **more}
    for kind in ("slurm", "kubernetes")
    for more in (
        {},
        {"accounting": True},
        {"teams": [{"name": "vision", "nodes": 1}]},
        {"teams": [{"name": "vision", "nodes": 1, "users": {"ann": 20001}}]},
    )
]


def additions(of_stack: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The settings with one key more that the models know at that place, and with each engine."""
    schema = stack_model().model_json_schema(schema_generator=_UnsortedSchema)
    for path in leaves(of_stack):
        here = at(of_stack, path)
        if isinstance(here, dict):
            for key in sorted(_setting_at(schema, path).keys() - here.keys()):
                examples = _setting_at(schema, (*path, key)).examples or (True, 5, "x")
                yield from (applied(of_stack, [Change((*path, key), value)]) for value in examples[:3])
    yield from ({**of_stack, "engine": engine} for engine in ENGINES)
    yield from ({**{key: value for key, value in of_stack.items() if key != "job"}, "engine": e} for e in ENGINES)


def follow_fixes(
    folder: Path, of_stack: dict[str, Any], steps: int = STEPS, earlier: tuple[Change, ...] = ()
) -> Iterator[str]:
    """Fixes that undo what an earlier one changed."""
    for mistake in mistakes(folder, of_stack) if steps else ():
        place = mistake.place.partition("gangway:")[2]
        is_key = mistake.problem == "unknown key"
        wanted = changes(place, mistake.fix, of_stack, is_key=is_key) if place else []
        for change in wanted:
            removes = change.value is None and not change.name
            undone = (each for each in earlier if (each.value is None) != removes and not each.name)
            if any(each.path[: len(change.path)] == change.path for each in undone):
                yield f"{mistake}\n  undoes: {earlier}"
        if wanted:
            yield from follow_fixes(folder, applied(of_stack, wanted), steps - 1, (*earlier, *wanted))


@pytest.mark.parametrize(
    "stack",
    [
        "hosts-slurm",
        *(pytest.param(each, marks=pytest.mark.slow) for each in ("aws-p5-spot", "eks-p5-kueue", "gcp-a3-spot",
                                                                  "azure-ndv5-spot", "openstack-gpu")),
    ],
)  # fmt: skip
def test_no_fix_proposes_or_undoes_what_is_refused(stack: str, tmp_path: Path) -> None:
    """A key of another kind of a union is not proposed; no fix undoes what an earlier one changed."""
    for wrong in additions(shipped(stack)):
        assert list(follow_fixes(tmp_path, wrong)) == []
        for mistake in mistakes(tmp_path, wrong):
            if mistake.problem == "unknown key":
                assert str(mistake.value) not in mistake.allowed.split(", "), mistake
                assert repr(mistake.value) not in mistake.fix, mistake
