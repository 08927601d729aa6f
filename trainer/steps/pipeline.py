"""A step whose generator is divided over two workers, with torch.distributed.pipelining between them.

The first stage turns latents into features. The second also has the discriminator and judges the reals, so that the
halves exchange only features and their gradients; both draw the same latents and read the same images.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch import distributed as dist
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe
from torch.distributed.pipelining.schedules import PipelineScheduleSingle

from gangway.trainer.config.train_config import TrainConfig
from gangway.trainer.distributed.sharded_modules import map_tensors
from gangway.trainer.distributed.world import STAGES, World
from gangway.trainer.families.gan import DiscriminatorPhase, GeneratorPhase
from gangway.trainer.networks.base import Discriminator, Generator
from gangway.trainer.networks.precision import Precision
from gangway.trainer.phases.batch import Micro
from gangway.trainer.phases.losses import GLoss, Inputs, Terms
from gangway.trainer.phases.phase import BatchPass, Phase


def first_units(generator: Generator) -> int:
    """Returns the first half's number of units that balances the halves' weights; each half has at least one."""
    units = generator.units()
    outside = _count(generator) - sum(map(_count, units))
    ending = sum(_count(getattr(generator, name)) for name in generator.finishing)
    before, after = outside - ending, ending + sum(map(_count, units))
    sizes = {}
    for number, unit in enumerate(units[:-1], 1):
        before, after = before + _count(unit), after - _count(unit)
        sizes[number] = max(before, after)
    return min(sizes, key=lambda number: sizes[number])


def parts_of_half(generator: Generator, half: int) -> list[nn.Parameter]:
    """Returns the weights of the first half (0) or the second (1)."""
    units, cut = generator.units(), first_units(generator)
    ending = [getattr(generator, name) for name in generator.finishing]
    second_ids = {id(each) for part in (*units[cut:], *ending) for each in part.parameters()}
    return [each for each in generator.parameters() if (id(each) in second_ids) == bool(half)]


class _Half(Generator):
    """Part of a generator. Halves exchange float32 rows, whose memory order depends on no layout of feature maps."""

    def __init__(self, whole: Generator, half: int) -> None:
        super().__init__()
        self._whole = (whole,)  # in a tuple, so that it is not a submodule: half of its weights are elsewhere
        self.weights = nn.ParameterList(parts_of_half(whole, half))

    def _run(self, *inputs: Tensor | None, twice: bool) -> Tensor:
        self.precision: Precision | None = self._whole[0].precision
        return super()._run(*inputs, twice=twice)


class FirstHalf(_Half):
    """Latents and labels to rows of features, the second half's input."""

    def __init__(self, whole: Generator) -> None:
        super().__init__(whole, 0)
        self._units = (*whole.units()[: first_units(whole)],)

    def forward(self, latents: Tensor, labels: Tensor | None = None) -> Tensor:
        """[N, z_dim] and [N] to [N, C * H * W]."""
        return self.features(latents, labels).flatten(1)

    def features(self, latents: Tensor, labels: Tensor | None = None) -> Tensor:
        """Returns the features as maps."""
        features = self._whole[0].begin(latents, labels)
        for unit in self._units:
            features = unit(features)
        return features


class SecondHalf(_Half):
    """Rows of features of the given shape to images."""

    def __init__(self, whole: Generator, shape: Sequence[int]) -> None:
        super().__init__(whole, 1)
        self._units = (*whole.units()[first_units(whole) :],)
        self._shape = tuple(shape)

    def forward(self, latents: Tensor, labels: Tensor | None = None) -> Tensor:
        """Returns images; `latents` are the rows."""
        features = self._whole[0].arrange(latents.reshape(len(latents), *self._shape))
        for unit in self._units:
            features = unit(features)
        return self._whole[0].finish(features)


def feature_shape(generator: Generator, z_dim: int, num_classes: int) -> tuple[int, ...]:
    """Returns one image's shape between the halves of a generator on meta."""
    labels = torch.zeros(1, dtype=torch.int64, device="meta") if num_classes else None
    return tuple(FirstHalf(generator).features(torch.empty(1, z_dim, device="meta"), labels).shape[1:])


def _count(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


NUM_STAGES = 2


class _StageLink(NamedTuple):
    """The connection of a pair's two stages: `stage` is this worker's, `features` an image's numbers between them."""

    stage: int
    device: torch.device
    group: dist.ProcessGroup
    features: int

    @property
    def is_first(self) -> bool:
        return self.stage == 0

    def schedule(self, module: nn.Module, micros: Sequence[Micro[Inputs]], *, learns: bool) -> PipelineScheduleSingle:
        """Returns the schedule of micro-batches through `module`, with shapes, which torch would send as pickles."""
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
        # One backward after each forward keeps the activations of only two micro-batches.
        kind = Schedule1F1B if len(micros) >= NUM_STAGES else ScheduleGPipe
        return kind(stage, len(micros), loss_fn=lambda loss, weight: (loss * weight).sum(), scale_grads=False)


class Stage:
    """This worker's half of a generator, and the phases of its step."""

    def __init__(self, world: World, half: FirstHalf | SecondHalf, discriminator: Discriminator, features: int) -> None:
        assert world.mesh is not None, "pipelined"
        self.half, self._discriminator = half, discriminator
        self._link = _StageLink(world.stage, world.device, world.mesh.get_group(STAGES), features)

    def phases(self, config: TrainConfig) -> Sequence[Phase[Any]]:
        """Returns the phases of a step on this stage; only the second one learns from the discriminator's."""
        given = config, self.half, self._discriminator, self._link
        return _DiscriminatorStage(*given), _GeneratorStage(*given)

    def to_complete(self, value: Any) -> Any:
        """Moves nested dicts and lists to the CPU and fills meta tensors from the other stage. Collective."""
        link = self._link

        def complete(tensor: Tensor) -> Tensor:
            is_here = not tensor.is_meta
            # Adam counts its steps on the CPU, unless its kernels are fused; both stages agree on that.
            sent = torch.empty(tensor.shape, dtype=tensor.dtype, device=link.device)
            if is_here:
                sent.copy_(tensor.detach())
            dist.broadcast(sent, group=link.group, group_src=link.stage if is_here else 1 - link.stage)
            return (tensor.detach() if is_here else sent).cpu()

        return map_tensors(value, complete)


class _DiscriminatorStage(DiscriminatorPhase):
    """The discriminator's phase, whose fakes pass both stages without gradients; nothing learns on the first."""

    def __init__(
        self, config: TrainConfig, half: FirstHalf | SecondHalf, discriminator: Discriminator, link: _StageLink
    ) -> None:
        super().__init__(config, half, discriminator)
        self._link = link
        self._schedules: dict[tuple[int, int], PipelineScheduleSingle] = {}
        self._through: nn.Module = nn.Identity()
        if link.is_first:
            self._through, self.loss = half, nn.Identity()  # type: ignore[assignment]  # nothing learns here

    @torch.no_grad()
    def _features(self, micros: Sequence[Micro[Inputs]]) -> Sequence[Tensor]:
        schedule = _get_schedule(self._schedules, self._link, self._through, micros, learns=False)
        fed = [_latents(micro.inputs) for micro in micros] if self._link.is_first else None
        rows = schedule.step(arg_mbs=fed)
        return () if rows is None else rows.split(len(micros[0].inputs.latents))

    def passes(self, batch: BatchPass[Inputs]) -> Iterator[tuple[Micro[Inputs], Terms]]:
        """See `Phase`: on the second stage the plain step's, on features."""
        listed = list(batch.micros)
        rows = self._features(listed)
        if self._link.is_first:
            return iter(())
        fed = [
            replace(micro, inputs=micro.inputs._replace(latents=each)) for micro, each in zip(listed, rows, strict=True)
        ]
        return super().passes(replace(batch, micros=fed))


class _GeneratorStage(GeneratorPhase):
    """The generator's phase: features go forward and gradients back, per micro-batch."""

    overlaps = False

    def __init__(
        self, config: TrainConfig, half: FirstHalf | SecondHalf, discriminator: Discriminator, link: _StageLink
    ) -> None:
        super().__init__(config, half, discriminator)
        self._link = link
        self._schedules: dict[tuple[int, int], PipelineScheduleSingle] = {}
        # torch's stage calls what data parallelism wraps.
        self.loss = half if link.is_first else _JudgedRows(GLoss(half, discriminator, config))

    def passes(self, batch: BatchPass[Inputs]) -> Iterator[tuple[Micro[Inputs], Terms]]:
        """See `Phase`: torch's schedule calls backward itself, on the second stage on each loss times its weight."""
        listed, losses = list(batch.micros), list[Tensor]()
        schedule = _get_schedule(self._schedules, self._link, batch.loss, listed, learns=True)
        if self._link.is_first:
            schedule.step(arg_mbs=[_latents(micro.inputs) for micro in listed])
            return
        given = (
            [(name, each) for name, each in micro.inputs._asdict().items() if each is not None] for micro in listed
        )
        fed = [{name: each for name, each in named if name != "latents"} for named in given]
        weights = [torch.tensor(micro.weight, device=self._link.device) for micro in listed]
        schedule.step(kwarg_mbs=fed, target_mbs=weights, losses=losses, return_outputs=False)
        for micro, weighted in zip(listed, losses, strict=True):
            total = weighted.detach() / micro.weight
            yield micro, Terms(total, total[None])


class _JudgedRows(nn.Module):
    """The generator's loss in the form that torch's stage calls: features first, the batch by name."""

    def __init__(self, loss: GLoss) -> None:
        super().__init__()
        self.judge = loss

    def forward(self, rows: Tensor, **given: Tensor) -> Tensor:
        loss: Tensor = self.judge(Inputs(latents=rows, **given))
        return loss[None]


def _get_schedule(
    schedules: dict[tuple[int, int], PipelineScheduleSingle],
    link: _StageLink,
    module: nn.Module,
    micros: Sequence[Micro[Inputs]],
    *,
    learns: bool,
) -> PipelineScheduleSingle:
    kind = len(micros), len(micros[0].inputs.latents)
    if kind not in schedules:
        schedules[kind] = link.schedule(module, micros, learns=learns)
    return schedules[kind]


def _latents(inputs: Inputs) -> tuple[Tensor, ...]:
    return (inputs.latents,) if inputs.labels is None else (inputs.latents, inputs.labels)
