"""Words between workers: they arrive as they were sent, and what was not agreed upon is refused and runs nothing."""

import math
import pickle
import struct
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangway.trainer.data.verification import Verified
from gangway.trainer.distributed.messages import decode, encode
from gangway.trainer.metrics.metric_registry import Value
from gangway.trainer.power.energy import EnergyReading, Gpu
from gangway.trainer.power.node import Report
from gangway.trainer.preemption.notices import Notice
from gangway.trainer.steps.noise_scale import Looks
from gangway.trainer.telemetry.devices import Load
from gangway.trainer.telemetry.meters import Stalls, _Own

pytestmark = pytest.mark.attack("a network neighbour", "hostile bytes as a worker's word")

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(PLAIN)
def test_plain_data_arrives_as_it_was_sent(value: object) -> None:
    arrived = decode(encode(value))
    assert (arrived, repr(arrived)) == (value, repr(value)), "an int is no float, nor -0.0 a 0.0"


@given(st.lists(st.floats(), max_size=8))
def test_floats_are_the_same_bits(values: list[float]) -> None:
    arrived = decode(encode(values, list[float]), list[float])
    for sent, got in zip(values, arrived, strict=True):
        assert struct.pack("d", sent) == struct.pack("d", got) or (math.isnan(sent) and math.isnan(got))


READING = EnergyReading(1.5, "estimated", "model")
LOAD = Load(
    rss_gib=1.0,
    gpu_gib=None,
    gpu_utilisation=0.5,
    cpu_sec=2.0,
    cores=4,
    host_memory_gib=8.0,
    cpu_wait_sec=None,
    node=1,
    host_sec=(10.0, 40.0),
    host_memory_share=0.25,
    read_bytes=4096,
)
LOOKS = Looks(0.25, 8.5, 2, 0.5)


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ((1.0, LOAD), tuple[float, Load]),
        ((0, None), tuple[int, Gpu | None]),
        ((0, Gpu("H100", "GPU-1", 3)), tuple[int, Gpu | None]),
        (Report({"GPU-1": 400.0, "GPU-2": None}, 0.5, "trouble"), Report),
        (Notice("rebalance", 1e9), Notice | None),
        (None, Notice | None),
        ((True, 1, None), tuple[bool, int, Verified | None]),
        ((True, 1, Verified(key="k", at=1.5, host="h", sec=2.0)), tuple[bool, int, Verified | None]),
        ([[Value("fid", math.inf, "lower", None)]], list[list[Value]]),
    ],
)
def test_what_workers_tell_each_other_comes_back_as_what_it_was(value: Any, kind: Any) -> None:
    arrived = decode(encode(value, kind), kind)
    assert arrived == value
    assert repr(arrived) == repr(value), "of the same types"


def test_a_loss_that_is_no_number_arrives() -> None:
    own = _Own(
        1.0, [math.nan, -math.inf], 2**63 + 1, {"cpu": READING}, LOAD, Stalls(1.0, 2.0, 3.0), {"d": 0.5}, LOOKS, None
    )
    arrived = decode(encode(own, _Own), _Own)
    assert repr(arrived) == repr(own)
    assert isinstance(arrived.stalls, Stalls)


class Pair(NamedTuple):
    name: str
    number: int


class Attack:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self.path,)


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (b"", None),
        (b"{", None),
        (b"\xff", None),
        (b"[" * 100_000, None),
        (b"[" * 100_000, Pair),
        (b'["a"]', Pair),
        (b'["a", "1"]', Pair),
        (b'["a", true]', Pair),
        (b'["a", 1, 2]', Pair),
        (b'["a", 1.5]', Pair),
        (b'{"name": "a", "number": 1, "more": 2}', Pair),
    ],
)
def test_what_was_not_agreed_upon_is_refused(content: bytes, kind: Any) -> None:
    with pytest.raises(ValueError, match=r"."):
        decode(content, kind)


@pytest.mark.parametrize("kind", [None, Pair, list[float]])
def test_a_pickle_runs_nothing(kind: Any, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"."):
        decode(pickle.dumps(Attack(tmp_path / "run")), kind)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(("value", "kind"), [({1, 2}, None), (Path("x"), None), (("a", 1.5), Pair), ("a", list[float])])
def test_what_was_not_agreed_upon_is_not_sent(value: Any, kind: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        encode(value, kind)
