"""`--explain` knows every code that the program can produce."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from gangway.stacks.plan.finding_codes import TRAINER, finding_codes, job_codes, meaning
from gangway.stacks.plan.plan import Plan
from gangway.stacks.plan.rules.guardrails import PLAN_RULES, RESOURCE_RULES, STACK_RULES
from tests.conftest import REPO

CODE = re.compile(r"[a-z]+(\.[a-z0-9_-]+)?")
IN_JOBS = REPO / "gangway" / "jobs"


def calls(path: Path) -> Iterator[str]:
    """The codes of the findings that a file makes, where the code is a literal."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Call):
            name = ast.unparse(node.func)
            if re.fullmatch(r"Finding\.(error|warning|info)|make", name):
                code = node.args[:1]
            elif name == "Finding":
                code = node.args[1:2]
            else:
                continue
            yield from (
                str(each.value) for each in code if isinstance(each, ast.Constant) and CODE.fullmatch(str(each.value))
            )
        elif isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(node.value, ast.Constant):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if [ast.unparse(target) for target in targets] == ["CODE"]:
                yield str(node.value.value)


def codes(*folders: Path) -> set[str]:
    return {code for folder in folders for path in folder.rglob("*.py") for code in calls(path)}


def test_every_code_has_a_sentence_and_no_sentence_lacks_a_code() -> None:
    rules = {rule.code for rule in (*PLAN_RULES, *RESOURCE_RULES, *STACK_RULES)}
    assert set(finding_codes()) == codes(REPO / "components", REPO / "stacks") | rules
    assert codes(IN_JOBS) <= set(job_codes()) | set(finding_codes())
    assert set(job_codes()) <= codes(IN_JOBS)
    assert all(text.endswith(".") for text in (*finding_codes().values(), *job_codes().values()))


def test_each_finding_of_a_plan_is_known(demo_plan: Plan) -> None:
    for finding in demo_plan.findings:
        assert finding.code in finding_codes() or finding.code.startswith(TRAINER)


def test_a_code_without_a_finding_says_what_it_reports() -> None:
    rule = meaning("data.protection-order", compared=False)
    assert "What protects or decrypts retained data is not deleted before it." in rule
    assert "Nothing found" in rule
    assert "add --against" in meaning("data.lost", compared=False)
    assert "Nothing found" in meaning("data.lost", compared=True)
    assert "gangway job submit" in meaning("job.claim", compared=False)
    assert "job.settings.batch_gpu" in meaning("trainer.batch-gpu", compared=False)
    assert meaning("trainer.nothing", compared=False) == meaning("no.such-code", compared=False) == ""
