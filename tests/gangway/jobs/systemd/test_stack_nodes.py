"""A stack's own job over the nodes of its group, beyond what every engine does (tests/gangway/jobs/test_contract.py):
capacity that is taken, and nodes of which none is fit.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from gangway.jobs.base import Phase
from tests.gangway.jobs.test_contract import end_processes, job, over, until
from tests.systemd_nodes import StackNodes

SAVES = "trap 'cp \"$GANGWAY_NOTICES\" notices; exit 75' TERM; echo begun; while :; do sleep 0.1; done"


@pytest.fixture
def stacks(tmp_path: Path) -> Iterator[StackNodes]:
    made = StackNodes(tmp_path / "stacks")
    yield made
    end_processes(made)


@pytest.mark.slow
def test_a_node_that_the_cloud_takes_is_told_and_another_goes_on(stacks: StackNodes, tmp_path: Path) -> None:
    job_id = stacks.submit(job(f"test -e notices || {{ {SAVES}; }}", max_restarts=0))
    until(stacks, job_id, lambda found, log: "begun" in log)
    (first,) = stacks.status(job_id).nodes
    stacks.take_node(job_id)
    found = over(stacks, job_id)
    assert (found.phase, found.starts) == (Phase.DONE, 2)
    assert found.nodes != (first,)
    (notices,) = (tmp_path / "stacks").rglob("notices")
    kinds = [json.loads(line)["kind"] for line in notices.read_text().splitlines()]
    assert kinds == ["spot-interruption", "stop"]


@pytest.mark.slow
def test_where_no_node_is_fit_nothing_more_is_launched(stacks: StackNodes, tmp_path: Path) -> None:
    job_id = stacks.submit(job("exit 4"))
    found = over(stacks, job_id)
    (held,) = (tmp_path / "stacks").rglob("breaker/held.json")
    why = json.loads(held.read_text())
    assert (found.phase, found.starts) == (Phase.FAILED, why["given_up"])
    assert found.nodes == (why["node"],)
    assert why["stack"] == job_id
