"""A step's phases: which roles learn, from what loss, with what data, how often. A family declares them in order."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

from torch import Tensor, nn

from trainer.config.train_config import TrainConfig
from trainer.distributed.world import World
from trainer.phases.batch import Batch, Micro, Moment

T = TypeVar("T")
Update = Callable[[], None]
"""Does something at its first call alone."""


class Terms(NamedTuple):
    """What a phase's loss gives for one micro-batch: `total`, to call backward on, and `means`, [n] detached, of the
    phase's own `means`.
    """

    total: Tensor
    means: Tensor


class Phase(ABC, Generic[T]):
    """One phase; T is what a micro-batch of it is fed with.

    Attributes:
        key: in statistics, such as d.
        label: of its loss, in sentences.
        roles: names of those that learn in it.
        resting: of those that are used without gathering gradients of their own.
        means: names of what `Terms.means` holds, the loss first; `real_sign` is what ADA goes by.
        overlaps: whether `run` may begin before the updates of the phase before are made; it then calls `settle` when
            it needs them.
        variants: what `penalised` may be, for whoever tries each pass.
        loss: one module that holds exactly what learns, which is wrapped for data parallelism.
        batches: updates in a step, each on a batch of real images of its own; else one, on the batch shown last.
        penalties: weights of those means that are computed in penalised steps alone.
    """

    key: ClassVar[str]
    label: ClassVar[str]
    roles: ClassVar[tuple[str, ...]]
    resting: ClassVar[tuple[str, ...]] = ()
    means: ClassVar[tuple[str, ...]]
    overlaps: ClassVar[bool] = False
    variants: ClassVar[Mapping[bool, str]] = MappingProxyType({False: ""})
    loss: nn.Module
    batches: int = 0
    penalties: Mapping[str, float] = MappingProxyType({})

    def positions(self, config: TrainConfig, images: int) -> Sequence[int]:
        """Images shown before each of its batches, in the step that begins after `images`."""
        if not self.batches:
            return (images + config.step_images - config.batch_size,)
        return range(images, images + self.batches * config.batch_size, config.batch_size)

    @abstractmethod
    def inputs(self, batch: Batch, moment: Moment, images: int) -> Iterator[Micro[T]]:
        """This worker's micro-batches of the batch at one of `positions`; `moment` is the step's beginning."""

    @abstractmethod
    def run(self, loss: Callable[..., Any], inputs: T, *, penalised: bool, settle: Update | None) -> Terms:
        """The loss of one micro-batch. `loss` is the phase's own, wrapped; `settle`, where there is one, makes the
        updates that are still missing.
        """

    def passes(
        self,
        world: World,
        loss: nn.Module,
        micros: Iterable[Micro[T]],
        backward: Callable[[Tensor], None],
        *,
        penalised: bool,
        settle: Update | None,
    ) -> Iterator[tuple[Micro[T], Terms]]:
        """Makes `run` and backward for each micro-batch of one batch, and gives what each came to."""
        for micro in micros:
            with world.accumulating(loss, last=micro.last):
                terms = self.run(loss, micro.inputs, penalised=penalised, settle=settle)
                backward(micro.weight * terms.total)
            yield micro, terms

    def differentiate_inside(self, *, on: bool) -> None:
        """Has the loss differentiate its penalties in a way that a compiled graph takes in, or as ever."""
