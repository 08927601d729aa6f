"""Data parallelism inside a compiled loss: its own backward averages gradients, some while others are still to come.

torch.compile makes one operation of a whole backward. DistributedDataParallel around it hears of gradients when all are
there, so that nothing computes while they travel. Inside, a message leaves as soon as its gradients are there
(`averages_first`), and the compiler waits for it as late as it can; all workers send in one order, compiled or not.
"""

from itertools import accumulate
from typing import Any

import torch
from torch import Tensor, nn
from torch import distributed as dist
from torch.func import functional_call
from torch.fx import Graph, Node

from trainer.core.torch_private import all_reduce_in_graphs


class InGraphAverage(nn.Module):
    """A loss whose gradients are averaged plainly over the default group when its backward ends, compiled or not; each
    backward does so, and all workers make the same ones.
    """

    def __init__(self, loss: nn.Module) -> None:
        super().__init__()
        self.loss = loss
        self._messages = _in_halves(loss)

    def forward(self, *inputs: Any) -> Any:
        """See the loss."""
        parameters: dict[str, Tensor] = dict(self.loss.named_parameters())
        for names in self._messages:
            sent = _Averaged.apply(*(parameters[name] for name in names))
            parameters.update(zip(names, sent, strict=True))
        return functional_call(self.loss, parameters, inputs)


def _in_halves(module: nn.Module) -> list[list[str]]:
    """The names of what learns, in two messages of about as many bytes. The gradients of the latter layers come first:
    theirs travels while the rest is computed. A third would wait for its turn behind the second.
    """
    learning = [(name, p.numel() * p.element_size()) for name, p in module.named_parameters() if p.requires_grad]
    ends = list(accumulate(size for _, size in learning))
    halves: list[list[str]] = [[], []]
    for (name, size), end in zip(learning, ends, strict=True):
        halves[end - size / 2 > ends[-1] / 2].append(name)
    return [names for names in halves if names]


def averages_first(graph: Graph) -> None:
    """Orders a graph, in place: what its first average needs, that average, what the next one needs besides, and so on;
    then the rest. Autograd calls `_Averaged` last, since parameters come before all that is made of them.
    """
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
    """Parameters as they are, their gradients averaged in one message."""

    @staticmethod
    def forward(ctx: Any, *parameters: Tensor) -> tuple[Tensor, ...]:
        return tuple(parameter.view_as(parameter) for parameter in parameters)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, ...]:
        message = torch.cat([gradient.flatten() for gradient in gradients]) / dist.get_world_size()
        dist.all_reduce(message)
        parts = torch.split(message, [gradient.numel() for gradient in gradients])
        return tuple(part.view_as(gradient) for part, gradient in zip(parts, gradients, strict=True))
