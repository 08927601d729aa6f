"""The project of an item: what the suite adds to a stack's settings, on each provider, and what stays the file's."""

from collections.abc import Callable
from pathlib import Path

import pytest

from gangway.bench.pulumi_cli import read_project, write_project
from gangway.bench.suite import SuiteConfig, get_items
from gangway.stacks.config.stack_config import StackConfig

Written = Callable[..., StackConfig]


@pytest.fixture
def written(tmp_path: Path, make_suite: Callable[..., SuiteConfig], repo: Path) -> Written:
    """The settings of an item on this stack, as the program will read them."""

    def write(stack: str, **changes: object) -> StackConfig:
        suite = make_suite(stacks=[{"stack": stack, "set": changes}], seeds=[0])
        (item,) = get_items(suite, local=False)
        write_project(tmp_path / stack, item, suite, "dcgan-digits", "20260101-000000-abcd", repo / "stacks")
        return read_project(tmp_path / stack, item, "suite.yaml")

    return write


@pytest.mark.parametrize("stack", ["aws-p4d-block", "gcp-v5e-pod", "azure-ndv4", "openstack-gpu"])
def test_nodes_go_by_themselves_should_nobody_be_left_to_destroy_them(written: Written, stack: str) -> None:
    job = written(stack).work
    assert (job.terminate_when_done, job.max_hours) == (True, 4.0)


def test_machines_of_ones_own_stay_and_stop_training(written: Written) -> None:
    job = written("hosts-lab").work
    assert (job.terminate_when_done, job.max_hours) == (False, 4.0)


def test_who_wants_nodes_to_stay_is_heeded(written: Written) -> None:
    assert written("aws-g5-dev", **{"job.terminate_when_done": False}).work.terminate_when_done is False


def test_a_provider_that_nobody_knows_is_a_mistake_with_its_place(written: Written) -> None:
    with pytest.raises(ExceptionGroup) as caught:
        written("aws-g5-dev", **{"provider": "asw"})
    assert "gangway:provider: not one of the allowed words" in str(caught.value.exceptions[0])
