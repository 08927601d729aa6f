"""What is sent arrives as it was, and packed things in one copy that nobody waits for."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from gangway.trainer.data.pinned_batch import PinnedBatch, to_device

CPU = torch.device("cpu")


def _contents() -> dict[str, Tensor]:
    drawn = torch.Generator().manual_seed(0)
    return {
        "pixels": torch.randint(0, 256, (5, 3, 7, 7), generator=drawn, dtype=torch.uint8),
        "labels": torch.arange(5),
        "latents": torch.randn(9, 3, generator=drawn)[2:7],
        "one": torch.tensor(0.5),
    }


class Copies(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch publishes no types for it
    """Notes the copies between devices, and whether they are waited for."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # likewise
        self.waited: list[bool] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten._to_copy.default:
            self.waited.append(not (kwargs or {}).get("non_blocking", False))
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("pack", [False, True])
def test_what_arrives_is_what_was_sent(pack: bool) -> None:
    contents = _contents()
    pinned = PinnedBatch(contents, pack=pack)
    for found in (pinned.contents, pinned.to(CPU)):
        assert list(found) == list(contents)
        for name, tensor in contents.items():
            assert found[name].dtype == tensor.dtype
            assert torch.equal(found[name], tensor)


def test_packed_it_is_one_copy_that_nobody_waits_for() -> None:
    pinned = PinnedBatch(_contents(), pack=True)
    with Copies() as copies:
        arrived = pinned.to(torch.device("meta"))
    assert copies.waited == [False]
    assert {name: tensor.shape for name, tensor in arrived.items()} == {
        name: tensor.shape for name, tensor in _contents().items()
    }


def test_what_is_there_already_is_not_copied() -> None:
    contents = _contents()
    assert all(here is contents[name] for name, here in PinnedBatch(contents).to(CPU).items())
    assert to_device(contents["one"], CPU) is contents["one"]
