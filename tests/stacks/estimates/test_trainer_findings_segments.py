"""A plan tells of segments whose workers are not those of the stack's nodes, before a paid cluster comes to them."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from gangway.components.core.findings import Severity
from gangway.stacks.config.stack_config import StackConfig
from gangway.stacks.plan.plan import make_plan
from gangway.stacks.providers.gcp.plan import plan as plan_gcp

Edited = Callable[[Callable[[dict[str, Any]], object]], StackConfig]


def _found(edited: Edited, nodes: tuple[int, int], *segments: dict[str, Any]) -> list[tuple[Severity, str, str]]:
    """Of the demo's nodes, of 8 workers each."""

    def edit(values: dict[str, Any]) -> None:
        values["gangway:cluster"]["nodes"] = {"min": nodes[0], "max": nodes[1]}
        values["gangway:job"]["settings"] = {"segments": json.dumps(segments)}
        values["gangway:budget"]["monthly_usd"] = 10_000_000

    plan = make_plan(edited(edit))
    told = [(f.severity, f.message, f.fix) for f in plan.findings if f.code == "trainer.segments"]
    assert plan.has_errors == any(severity == Severity.ERROR for severity, _, _ in told)
    return told


@pytest.mark.slow
def test_planned_workers_that_the_stack_does_not_run_are_an_error(edited: Edited) -> None:
    told = _found(edited, (2, 2), {"from_image": 1000, "workers": 4}, {"from_image": 5000, "precision": "bf16"})
    assert told == [
        (
            Severity.ERROR,
            "the trainer refuses segments.0.workers 4: the stack's nodes run 16 workers, and the run would end at "
            "image 1,024; allowed: 16, or 0 for any number",
            '"workers": 16 or 0 in segments.0 of job.settings',
        )
    ], "told once, of the segment that says it"
    for workers in (16, 0):
        assert _found(edited, (2, 2), {"from_image": 1000, "workers": workers}) == []


@pytest.mark.slow
def test_planned_workers_are_compared_with_all_that_the_nodes_may_be(edited: Edited) -> None:
    ((severity, message, fix),) = _found(edited, (1, 3), {"from_image": 1000, "workers": 12})
    assert (severity, fix) == (Severity.ERROR, '"workers": 8 or 0 in segments.0 of job.settings')
    assert "run 8 to 24 workers" in message
    assert message.endswith("allowed: a multiple of 8 from 8 to 24, or 0 for any number")
    ((severity, message, fix),) = _found(edited, (1, 3), {"from_image": 1000, "workers": 16})
    assert severity == Severity.WARNING
    assert "may run 8 to 24 workers, and from image 1,024 on the trainer refuses any other number" in message
    assert fix == 'set gangway:cluster.nodes: {min: 2, max: 2}, or "workers": 0 in segments.0 of job.settings'


@pytest.mark.slow
def test_a_segment_whose_batch_is_too_small_for_the_workers_is_an_error(edited: Edited) -> None:
    ((severity, message, fix),) = _found(edited, (1, 2), {"from_image": 1000, "batch_size": 8})
    assert severity == Severity.ERROR
    assert message.startswith("the trainer refuses segments.0, whose batch_size is 8: fewer images in a step than")
    assert message.endswith("allowed: at least 16 with 16 workers")
    assert fix.startswith('"batch_size": 16 in segments.0')
    assert _found(edited, (1, 2), {"from_image": 1000, "batch_size": 16}) == []


def test_a_segment_after_the_end_is_a_warning(edited: Edited) -> None:
    ((severity, message, fix),) = _found(edited, (1, 1), {"from_image": 100_000_000, "workers": 3})
    assert severity == Severity.WARNING
    assert message.startswith("segments.0 (from_image 100,000,000) has no step: the run ends after")
    assert "kimg" in fix


@pytest.mark.slow
@pytest.mark.parametrize("planned", [True, False])
def test_on_tpus_a_segments_batch_has_to_divide(gcp_edited: Callable[..., StackConfig], *, planned: bool) -> None:
    stack = gcp_edited("gcp-v5e-pod")
    workers = stack.cluster.nodes.max * plan_gcp(stack).machine.num_accelerators.value

    def told(batch_size: int) -> list[str]:
        segment = {"from_image": 1000, "batch_size": batch_size, **({"workers": workers} if planned else {})}
        found = make_plan(gcp_edited("gcp-v5e-pod", job={"settings": {"segments": json.dumps([segment])}})).findings
        return [each.fix for each in found if each.code == "trainer.segments"]

    (fix,) = told(workers + 1)
    assert f'"batch_size": {2 * workers} in segments.0' in fix
    assert told(2 * workers) == []
