"""A step whose generator is divided over two workers: torch.distributed.pipelining moves what passes between them.

The first stage makes features of latents. The second has the discriminator too, and is where reals are judged: what the
halves exchange is then features alone, forth, and their gradients, back. Both stages of a pair draw the same latents
and read the same images. Losses are the plain step's, over the second half in place of the generator, to which features
are what latents are to the whole.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch import distributed as dist
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe
from torch.distributed.pipelining.schedules import PipelineScheduleSingle

from trainer.config.train_config import TrainConfig
from trainer.distributed.world import STAGES, World
from trainer.families.gan import DiscriminatorPhase, GeneratorPhase
from trainer.networks.base import Discriminator
from trainer.networks.halves import FirstHalf, SecondHalf
from trainer.phases.batch import Micro
from trainer.phases.losses import GLoss, Inputs
from trainer.phases.phase import Phase, Terms, Update

NUM_STAGES = 2
Backward = Callable[[Tensor], None]


class Line(NamedTuple):
    """What runs between the two stages of one pair: `stage` is this worker's, `features` how many numbers an image has
    there.
    """

    stage: int
    device: torch.device
    group: dist.ProcessGroup
    features: int

    @property
    def is_first(self) -> bool:
        """Whether this worker begins."""
        return self.stage == 0

    def schedule(self, module: nn.Module, micros: Sequence[Micro[Inputs]], *, learns: bool) -> PipelineScheduleSingle:
        """Of so many micro-batches through `module`, this stage's; both stages make it together. Shapes are given: else
        torch would send them between workers as pickles.
        """
        inputs = micros[0].inputs
        size = len(inputs.latents)
        rows = torch.empty(size, self.features, device="meta", requires_grad=learns)
        if self.is_first:
            taken, made = tuple(each.to("meta") for each in _latents(inputs)), rows
        else:
            taken, made = (rows,), torch.empty(1, device="meta", requires_grad=True) if learns else rows
        stage = PipelineStage(
            module, self.stage, NUM_STAGES, self.device, input_args=taken, output_args=made, group=self.group
        )
        if not learns:
            return ScheduleGPipe(stage, len(micros), scale_grads=False)
        # One backward after each forward keeps the activations of two micro-batches, however many there are.
        kind = Schedule1F1B if len(micros) >= NUM_STAGES else ScheduleGPipe
        return kind(stage, len(micros), loss_fn=_weighted, scale_grads=False)


class Stage:
    """This worker's half of a generator, and the phases of its step. `half` computes with the weights that are here."""

    def __init__(self, line: Line, half: FirstHalf | SecondHalf, discriminator: Discriminator) -> None:
        self.half, self._line, self._discriminator = half, line, discriminator

    @classmethod
    def of(cls, world: World, half: FirstHalf | SecondHalf, discriminator: Discriminator, features: int) -> "Stage":
        """The stage of a worker, in the world of all."""
        assert world.mesh is not None, "pipelined"
        return cls(Line(world.stage, world.device, world.mesh.get_group(STAGES), features), half, discriminator)

    def phases(self, config: TrainConfig) -> Sequence[Phase[Any]]:
        """A step's, on this stage: only the second learns from the discriminator's."""
        given = config, self.half, self._discriminator, self._line
        if self._line.is_first:
            return FakesSent(*given), GeneratorFirst(*given)
        return FakesJudged(*given), GeneratorSecond(*given)

    def completed(self, value: Any) -> Any:
        """Nested dicts and lists, on the CPU, with the other stage's numbers in place of meta tensors; both stages call
        this together.
        """
        if isinstance(value, Tensor):
            return self._from_its_stage(value.detach()).cpu()
        if isinstance(value, dict):
            return {key: self.completed(item) for key, item in value.items()}
        return [self.completed(item) for item in value] if isinstance(value, list) else value

    def _from_its_stage(self, tensor: Tensor) -> Tensor:
        line, is_here = self._line, not tensor.is_meta
        owner = line.stage if is_here else 1 - line.stage
        # Adam counts its steps on the CPU, unless its kernels are fused: both stages do that alike.
        sent = torch.empty(tensor.shape, dtype=tensor.dtype, device=line.device)
        if is_here:
            sent.copy_(tensor)
        dist.broadcast(sent, group=line.group, group_src=owner)
        return tensor if is_here else sent


class _ForDiscriminator(DiscriminatorPhase):
    """The discriminator's, whose fakes come through both stages without gradients."""

    def __init__(
        self, config: TrainConfig, half: FirstHalf | SecondHalf, discriminator: Discriminator, line: Line
    ) -> None:
        super().__init__(config, half, discriminator)
        self._line = line
        self._through: nn.Module = half if line.is_first else nn.Identity()
        self._schedules: dict[tuple[int, int], PipelineScheduleSingle] = {}

    @torch.no_grad()
    def _features(self, micros: Sequence[Micro[Inputs]]) -> Sequence[Tensor]:
        """Those of each micro-batch, on the second stage; on the first it sends them, and gives none."""
        schedule = _kept(self._schedules, self._line, self._through, micros, learns=False)
        fed = [_latents(micro.inputs) for micro in micros] if self._line.is_first else None
        rows = schedule.step(arg_mbs=fed)
        return () if rows is None else rows.split(len(micros[0].inputs.latents))


class FakesSent(_ForDiscriminator):
    """On the first stage: nothing learns here."""

    def __init__(
        self, config: TrainConfig, half: FirstHalf | SecondHalf, discriminator: Discriminator, line: Line
    ) -> None:
        super().__init__(config, half, discriminator, line)
        self.loss = nn.Identity()  # type: ignore[assignment]  # which holds what learns: nothing

    def passes(
        self,
        world: World,
        loss: nn.Module,
        micros: Iterable[Micro[Inputs]],
        backward: Backward,
        *,
        penalised: bool,
        settle: Update | None,
    ) -> Iterator[tuple[Micro[Inputs], Terms]]:
        """See `Phase`."""
        self._features(list(micros))
        return iter(())


class FakesJudged(_ForDiscriminator):
    """On the second stage: as in the plain step, but of features."""

    def passes(
        self,
        world: World,
        loss: nn.Module,
        micros: Iterable[Micro[Inputs]],
        backward: Backward,
        *,
        penalised: bool,
        settle: Update | None,
    ) -> Iterator[tuple[Micro[Inputs], Terms]]:
        """See `Phase`."""
        listed = list(micros)
        rows = self._features(listed)
        fed = [
            replace(micro, inputs=micro.inputs._replace(latents=each)) for micro, each in zip(listed, rows, strict=True)
        ]
        return super().passes(world, loss, fed, backward, penalised=penalised, settle=settle)


class _ForGenerator(GeneratorPhase):
    """The generator's: features go forth and their gradients back, micro-batch by micro-batch."""

    overlaps = False

    def __init__(
        self, config: TrainConfig, half: FirstHalf | SecondHalf, discriminator: Discriminator, line: Line
    ) -> None:
        super().__init__(config, half, discriminator)
        self._line = line
        self._schedules: dict[tuple[int, int], PipelineScheduleSingle] = {}
        # What is wrapped for data parallelism is what torch's stage calls.
        self.loss = half if line.is_first else JudgedRows(GLoss(half, discriminator, config))

    def _schedule(self, loss: nn.Module, micros: Sequence[Micro[Inputs]]) -> PipelineScheduleSingle:
        return _kept(self._schedules, self._line, loss, micros, learns=True)


class GeneratorFirst(_ForGenerator):
    """On the first stage."""

    def passes(
        self,
        world: World,
        loss: nn.Module,
        micros: Iterable[Micro[Inputs]],
        backward: Backward,
        *,
        penalised: bool,
        settle: Update | None,
    ) -> Iterator[tuple[Micro[Inputs], Terms]]:
        """See `Phase`."""
        listed = list(micros)
        self._schedule(loss, listed).step(arg_mbs=[_latents(micro.inputs) for micro in listed])
        return iter(())


class GeneratorSecond(_ForGenerator):
    """On the second stage."""

    def passes(
        self,
        world: World,
        loss: nn.Module,
        micros: Iterable[Micro[Inputs]],
        backward: Backward,
        *,
        penalised: bool,
        settle: Update | None,
    ) -> Iterator[tuple[Micro[Inputs], Terms]]:
        """See `Phase`: torch's schedule calls backward itself, on each loss times its weight."""
        listed, losses = list(micros), list[Tensor]()
        fed = [_given(micro.inputs) for micro in listed]
        weights = [torch.tensor(micro.weight, device=self._line.device) for micro in listed]
        self._schedule(loss, listed).step(kwarg_mbs=fed, target_mbs=weights, losses=losses, return_outputs=False)
        for micro, weighted in zip(listed, losses, strict=True):
            total = weighted.detach() / micro.weight
            yield micro, Terms(total, total[None])


class JudgedRows(nn.Module):
    """The generator's loss, called as torch's stage calls: features first, what the pair has read by name."""

    def __init__(self, loss: GLoss) -> None:
        super().__init__()
        self.judge = loss

    def forward(self, rows: Tensor, **given: Tensor) -> Tensor:
        """[1]."""
        loss: Tensor = self.judge(Inputs(latents=rows, **given))
        return loss[None]


def _kept(
    schedules: dict[tuple[int, int], PipelineScheduleSingle],
    line: Line,
    module: nn.Module,
    micros: Sequence[Micro[Inputs]],
    *,
    learns: bool,
) -> PipelineScheduleSingle:
    """The schedule of so many micro-batches of such a size, made at its first use: a segment may have another size."""
    kind = len(micros), len(micros[0].inputs.latents)
    if kind not in schedules:
        schedules[kind] = line.schedule(module, micros, learns=learns)
    return schedules[kind]


def _latents(inputs: Inputs) -> tuple[Tensor, ...]:
    return (inputs.latents,) if inputs.labels is None else (inputs.latents, inputs.labels)


def _given(inputs: Inputs) -> dict[str, Tensor]:
    """All but the latents, of what is there."""
    return {name: each for name, each in inputs._asdict().items() if each is not None and name != "latents"}


def _weighted(loss: Tensor, weight: Tensor) -> Tensor:
    return (loss * weight).sum()
