"""Where a scaling study's processes run: planned from what the machine is said to be, since no GPU is here."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangway.bench.local import Hardware, Placement, _Gpu, _visible, placement
from gangway.components.core.findings import InputError


def machine(gpus: int, cores: int = 16) -> Hardware:
    return Hardware(cpu="some", cores=cores, memory_gib=64.0, gpus=["NVIDIA T4"] * gpus, system="Linux x86_64")


@pytest.mark.parametrize(
    ("asked", "largest", "gpus", "visible", "expected"),
    [
        ("auto", 2, 0, None, Placement("cpu", 1, "no GPU here")),
        ("auto", 2, 4, None, Placement("cuda", 8, "4 GPU(s) here, one for each of 2 process(es)")),
        ("auto", 4, 4, None, Placement("cuda", 4, "4 GPU(s) here, one for each of 4 process(es)")),
        (
            "auto", 5, 4, None,
            Placement("cpu", 1, "4 GPU(s) here, fewer than 5 processes: GPUs are used up to --processes 4"),
        ),
        ("cpu", 2, 4, None, Placement("cpu", 1, "requested: --device cpu")),
        ("cuda", 2, 2, None, Placement("cuda", 8, "2 GPU(s) here, one for each of 2 process(es)")),
        ("auto", 1, 0, "", Placement("cpu", 1, "no GPU here (CUDA_VISIBLE_DEVICES=)")),
        (
            "auto", 2, 2, "3,1",
            Placement("cuda", 8, "2 GPU(s) here (CUDA_VISIBLE_DEVICES=3,1), one for each of 2 process(es)"),
        ),
        (
            "auto", 1, 1, "0,-1,2",
            Placement("cuda", 16, "1 GPU(s) here (CUDA_VISIBLE_DEVICES=0,-1,2), one for each of 1 process(es)"),
        ),
        ("auto", 1, 0, "0", Placement("cpu", 1, "no GPU here (CUDA_VISIBLE_DEVICES=0)")),
    ],
)  # fmt: skip
def test_where_they_run_and_why(asked: str, largest: int, gpus: int, visible: str | None, expected: Placement) -> None:
    assert placement(asked, largest, machine(gpus), visible) == expected


@pytest.mark.parametrize(
    ("visible", "expected"),
    [
        (None, ["A", "B", "C"]), ("", []), ("2,0", ["C", "A"]), ("1,-1,0", ["B"]), ("7", []), ("0,7,1", ["A"]),
        ("GPU-b2", ["B"]), ("GPU-b2,GPU-a1", ["B", "A"]), ("GPU-", []), (" 1 ", ["B"]),
    ],
)  # fmt: skip
def test_a_hidden_gpu_is_not_counted(visible: str | None, expected: list[str]) -> None:
    gpus = [_Gpu("A", "GPU-a1"), _Gpu("B", "GPU-b2"), _Gpu("C", "GPU-b3")]
    assert _visible(gpus, visible) == expected


def test_the_collectives_go_with_the_device() -> None:
    assert placement("auto", 2, machine(2), None).backend == "nccl"
    assert placement("auto", 2, machine(0), None).backend == "gloo"


def test_more_processes_than_cores_have_a_thread_each() -> None:
    assert placement("cuda", 8, machine(8, cores=4), None).threads == 1


@pytest.mark.parametrize(
    ("asked", "gpus", "message"),
    [
        ("cuda", 0, r"--device: no GPU here\n[^$]*auto or cpu here"),
        ("cuda", 2, r"--processes: 2 GPU\(s\) here, and each process needs one\n[^$]*1 to 2 with --device cuda"),
        ("cdua", 2, r"--device: no such device\n[^$]*did you mean 'cuda'\?"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused(asked: str, gpus: int, message: str) -> None:
    with pytest.raises(InputError, match=message):
        placement(asked, 4, machine(gpus), None)


@given(st.integers(1, 64), st.integers(0, 16), st.integers(1, 256))
def test_auto_never_fails_and_never_shares_a_gpu(largest: int, gpus: int, cores: int) -> None:
    found = placement("auto", largest, machine(gpus, cores), None)
    assert (found.device == "cuda") == (gpus >= largest)
    assert found.threads * largest <= max(cores, largest)
