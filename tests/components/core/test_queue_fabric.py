"""What a queued job is told of its nodes' network."""

import pytest

from gangway.components.core.queue_fabric import FABRIC_MIN_GBPS, fabric_variables
from gangway.trainer.__main__ import _parser


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
