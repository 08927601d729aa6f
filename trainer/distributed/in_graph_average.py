"""Data parallelism inside a compiled loss, whose backward averages some gradients while it computes others.

torch.compile makes one operation of a whole backward, so DistributedDataParallel around it sees gradients only at its
end. Inside, a message leaves as soon as its gradients exist (`averages_first`), and the compiler waits for it as late
as it can; all workers send in the same order, compiled or not.
"""

from itertools import accumulate
from typing import Any

import torch
from torch import Tensor, nn
from torch import distributed as dist
from torch.func import functional_call
from torch.fx import Graph, Node

from gangway.trainer.core.torch_private import all_reduce_in_graphs


class InGraphAverage(nn.Module):
    """A loss whose backwards average gradients over the default group, compiled or not; all workers make the same."""

    def __init__(self, loss: nn.Module) -> None:
        super().__init__()
        self.loss = loss
        self._messages = _split_names(loss)

    def forward(self, *inputs: Any) -> Any:
        """Compute the loss."""
        parameters: dict[str, Tensor] = dict(self.loss.named_parameters())
        for names in self._messages:
            averaged = _Averaged.apply(*(parameters[name] for name in names))
            parameters.update(zip(names, averaged, strict=True))
        return functional_call(self.loss, parameters, inputs)


def _split_names(module: nn.Module) -> list[list[str]]:
    """Names of trainable parameters in two messages of about equal size. Gradients of later layers come first: they are
    sent while the rest is computed. A third message would queue behind the second.
    """
    trainable = [(name, p.numel() * p.element_size()) for name, p in module.named_parameters() if p.requires_grad]
    ends = list(accumulate(size for _, size in trainable))
    halves: list[list[str]] = [[], []]
    for (name, size), end in zip(trainable, ends, strict=True):
        halves[end - size / 2 > ends[-1] / 2].append(name)
    return [names for names in halves if names]


def averages_first(graph: Graph) -> None:
    """Reorder a graph in place: each average directly after what it needs, then the rest."""
    # Autograd calls `_Averaged` last, since parameters precede everything computed from them.
    nodes = list(graph.nodes)
    all_reduce = all_reduce_in_graphs()
    averages = [node for node in nodes if node.target is all_reduce]
    place = {node: number for number, node in enumerate(nodes)}
    first: dict[Node, None] = {}
    for average in averages:
        needed, ahead = {average}, [average]
        while ahead:
            found = [node for node in ahead.pop().all_input_nodes if node not in needed and node not in first]
            needed.update(found)
            ahead += found
        first |= dict.fromkeys(sorted(needed, key=place.__getitem__))
    last = next((node for node in reversed(nodes) if node.op == "placeholder"), None)
    if last is None or not averages:
        return
    for node in first:
        if node.op != "placeholder":
            last.append(node)
            last = node


class _Averaged(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *parameters: Tensor) -> tuple[Tensor, ...]:
        return tuple(parameter.view_as(parameter) for parameter in parameters)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, ...]:
        message = torch.cat([gradient.flatten() for gradient in gradients]) / dist.get_world_size()
        dist.all_reduce(message)
        parts = torch.split(message, [gradient.numel() for gradient in gradients])
        return tuple(part.view_as(gradient) for part, gradient in zip(parts, gradients, strict=True))
