"""JobSpec and the torchrun command line it stands for."""

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from gangway.components.core.job import (
    FABRIC_MIN_GBPS,
    Backend,
    JobSpec,
    Rendezvous,
    Training,
    Volume,
    fabric_variables,
)
from gangway.trainer.__main__ import _parser


def test_a_cluster_job_meets_at_the_head_node_and_never_hosts_the_store() -> None:
    job = JobSpec(
        name="celeba",
        backend="nccl",
        num_nodes_min=2,
        num_nodes_max=4,
        processes_per_node=8,
        rendezvous=Rendezvous(host="head.gangway.internal", port=29400),
        training=Training(config={"kimg": 25000}, run_dir="/runs/celeba"),
    )
    assert job.torchrun_argv() == [
        "--nnodes=2:4",
        "--rdzv-backend=gangway",
        "--rdzv-endpoint=head.gangway.internal:29400",
        "--rdzv-id=celeba",
        "--rdzv-conf=is_host=0,last_call_timeout=3,keep_alive_interval=3",
        "--nproc-per-node=8",
        "--max-restarts=3",
        "--shutdown-timeout=25",
        "-m",
        "gangway.trainer",
        "train",
        "--config",
        "/etc/gangway/train.json",
        "--run-dir",
        "/runs/celeba",
    ]
    assert job.num_nodes_max * job.processes_per_node == 32


def test_a_job_on_one_machine_is_standalone() -> None:
    job = JobSpec(
        name="here",
        backend="gloo",
        num_nodes_min=1,
        num_nodes_max=1,
        processes_per_node=2,
        rendezvous=Rendezvous(standalone=True),
        max_restarts=0,
        shutdown_timeout_sec=5,
    )
    assert job.torchrun_argv() == [
        "--standalone", "--nnodes=1", "--nproc-per-node=2", "--max-restarts=0", "--shutdown-timeout=5",
        "-m", "gangway.trainer",
    ]  # fmt: skip


def test_torchrun_itself_understands_the_arguments() -> None:
    from torch.distributed.run import get_args_parser

    training = Training(config={}, run_dir="r")
    job = JobSpec(name="j", backend="nccl", num_nodes_min=1, num_nodes_max=3, processes_per_node=8, training=training)
    parsed = get_args_parser().parse_args(job.torchrun_argv())
    assert (parsed.nnodes, parsed.nproc_per_node, parsed.max_restarts) == ("1:3", "8", 3)
    assert (parsed.rdzv_id, parsed.module, parsed.training_script) == ("j", True, "gangway.trainer")
    assert parsed.training_script_args == training.argv


@given(st.integers(1, 512), st.integers(0, 512), st.integers(1, 16), st.sampled_from(get_args(Backend)))
def test_a_job_survives_json(nodes: int, more: int, processes: int, backend: Backend) -> None:
    job = JobSpec(
        name="j",
        backend=backend,
        num_nodes_min=nodes,
        num_nodes_max=nodes + more,
        processes_per_node=processes,
        volumes=(Volume(source="/a", target="/b"),),
        env={"A": "b"},
        training=Training(
            config={"kimg": 1.5, "segments": [{"from_image": 8}]}, run_dir="r", controller={"mode": "act"}
        ),
    )
    assert JobSpec.model_validate_json(job.model_dump_json()) == job
    assert job.num_nodes_max * job.processes_per_node == (nodes + more) * processes


@pytest.mark.parametrize("change", [{"processes_per_node": 0}, {"num_nodes_min": 0}, {"backend": "mpi"}, {"nodes": 2}])
def test_a_job_nobody_can_run_is_refused(change: dict[str, object]) -> None:
    values = {"name": "j", "backend": "gloo", "num_nodes_min": 1, "num_nodes_max": 1, "processes_per_node": 1}
    with pytest.raises(ValidationError):
        JobSpec.model_validate({**values, **change})


def test_min_above_max_is_our_own_bug() -> None:
    with pytest.raises(ValidationError, match=r"StackConfig has checked nodes.min <= nodes.max"):
        JobSpec(name="j", backend="gloo", num_nodes_min=2, num_nodes_max=1, processes_per_node=1)


@pytest.mark.parametrize("words", [[], ["--fabric-min-gbps", "7"]])
def test_the_trainer_demands_what_the_variable_says_unless_its_words_do(
    words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in fabric_variables({"NCCL_NET": "IB"}, 800.0).items():
        monkeypatch.setenv(name, value)
    asked = _parser().parse_args(["train", "--preset", "dcgan-digits", "--run-dir", "run", *words])
    assert asked.fabric_min_gbps == (7 if words else 800)


def test_without_a_named_network_or_a_demand_nothing_is_measured() -> None:
    assert fabric_variables({"NCCL_SOCKET_IFNAME": "eth0"}, 800.0) == {}
    assert FABRIC_MIN_GBPS not in fabric_variables({"NCCL_NET": "IB"}, None)
