"""All that a training run is at one moment: two networks, the averaged generator, two optimisers, images seen, p.

No generator state: every random number is a function of seed and images seen (trainer.steps.rng,
trainer.data.loader).
"""

import copy
from typing import Any, Self

import torch
from torch import nn
from torch.optim.swa_utils import get_ema_multi_avg_fn

from trainer.config.train_config import TrainConfig
from trainer.distributed.sharded_modules import is_sharded, saved, whole
from trainer.networks.base import Discriminator, Generator
from trainer.networks.factory import build
from trainer.networks.layers import small_maps, use_matrix_products
from trainer.steps.augment import first_p
from trainer.steps.precision import LossScale, Precision, Products
from trainer.steps.progressive_schedule import phase_at


class TrainState:
    """The moving parts of a run. Use `create`.

    Attributes:
        ema: the generator averaged over time; the one that is judged and shown.
        images: real images shown so far.
        augment_p: share of the images that each part of the augmentation changes, see trainer.steps.augment.
        phase: what the networks make now, a function of `images`.
        scale_g: of the generator's loss, see trainer.steps.precision; `scale_d` of the discriminator's.
    """

    def __init__(
        self, config: TrainConfig, generator: Generator, discriminator: Discriminator, device: torch.device
    ) -> None:
        self._config = config
        # Copied before it is moved: on XLA the copy would share memory that the first step overwrites.
        self.ema = copy.deepcopy(generator).eval().requires_grad_(False).to(device)
        self.generator, self.discriminator = generator.to(device), discriminator.to(device)
        self.renew_optimisers()
        self.scale_g = self.scale_d = LossScale(device.type, enabled=False)
        self.images, self.augment_p = 0, first_p(config)
        self._enter_phase()

    @classmethod
    def create(cls, config: TrainConfig, device: torch.device) -> Self:
        """The state before the first step, equal on every worker and every device."""
        generator, discriminator = build(config)
        return cls(config, generator, discriminator, device)

    def renew_optimisers(self) -> None:
        """New optimisers, without moments, over the networks' present parameters."""
        betas = (self._config.beta1, self._config.beta2)
        self.opt_g = _adam(self.generator, self._config.lr_g, betas)
        self.opt_d = _adam(self.discriminator, self._config.lr_d, betas)

    def use(self, precision: Precision) -> str:
        """Trains in that precision from now on; call it before `load_state_dict`. Returns what came of it, and why."""
        networks = (self.generator, self.discriminator)
        for network in networks:
            network.precision = None if precision.dtype is None else precision
        kind, scaled = precision.device_type, precision.name == "fp16"
        self.scale_g, self.scale_d = (LossScale(kind, enabled=scaled) for _ in networks)
        layers = sum(use_matrix_products(network, precision.products) for network in networks)
        if layers > 0 and precision.products is not Products.NONE:
            return f"{precision.reason}; {small_maps(precision.products)}"
        return precision.reason

    @property
    def step(self) -> int:
        """Steps made, each with one update of the generator."""
        return self.images // self._config.step_images

    @property
    def gradient_bytes(self) -> dict[str, int]:
        """What workers average of each network after a backward; of networks that grow, all that they may become."""
        networks = {"g": self.generator, "d": self.discriminator}
        return {name: sum(p.numel() * p.element_size() for p in net.parameters()) for name, net in networks.items()}

    def passed(self, kimg: float) -> bool:
        """Whether the last step reached a further multiple of that many thousand images."""
        every = kimg * 1000
        return self.images // every > (self.images - self._config.step_images) // every

    def advance(self) -> None:
        """Counts a step: images, the networks' phase. The generator's update and `update_ema` may still be missing."""
        self.images += self._config.step_images
        self._enter_phase()

    def _enter_phase(self) -> None:
        self.phase = phase_at(self._config, self.images, next(self.generator.parameters()).device)
        for network in (self.generator, self.discriminator, self.ema):
            network.enter(self.phase)

    @torch.no_grad()
    def update_ema(self) -> None:
        """Moves the averaged generator towards the present one, with a half-life of ema_kimg; once after `advance`. The
        half-life grows with the run up to that, as StyleGAN2's does, so that a young run's average is young.
        """
        half_life = min(self._config.ema_kimg * 1000, self.images * 0.05)
        keep = 0.5 ** (self._config.step_images / half_life) if half_life else 0.0
        averaged: list[torch.Tensor] = list(self.ema.parameters())
        present: list[torch.Tensor] = list(self.generator.parameters())
        if is_sharded(self.generator):  # one after the other: gathered, all at once may not fit
            for mean, part in zip(averaged, present, strict=True):
                mean.lerp_(whole(part), 1 - keep)
        else:
            get_ema_multi_avg_fn(keep)(averaged, present, 0)  # type: ignore[no-untyped-call]  # torch's has no annotations

    def state_dict(self) -> dict[str, Any]:
        """Everything, for a checkpoint, on the CPU: no file depends on the device it was made on."""
        live: dict[str, Any] = _on_cpu(self.live())
        return live

    def live(self) -> dict[str, Any]:
        """`state_dict` without the copy: the tensors that the next step changes, where they are. Split networks are
        gathered on rank 0 alone: all workers call this together (trainer.distributed.sharding).
        """
        parts = {name: saved(part.state_dict()) for name, part in self._parts().items()}
        scales = {"scale_g": self.scale_g.state_dict(), "scale_d": self.scale_d.state_dict()}
        return {"images": self.images, "augment_p": self.augment_p, **parts, **(scales if self.scale_g.enabled else {})}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """The opposite of `state_dict`, on any device."""
        self.images, self.augment_p = state["images"], state.get("augment_p", self.augment_p)
        for name, part in self._parts().items():
            if isinstance(part, torch.optim.Optimizer):
                _load_optimiser(part, state[name])
            else:
                part.load_state_dict(state[name])
        self.scale_g.load_state_dict(state.get("scale_g", {}))
        self.scale_d.load_state_dict(state.get("scale_d", {}))
        self._enter_phase()

    def ema_on(self, device: torch.device) -> Generator:
        """The averaged generator there: itself where it is there already, else a copy."""
        if next(self.ema.parameters()).device == device:
            return self.ema
        copied, _ = build(self._config)
        copied.load_state_dict(_on_cpu(self.ema.state_dict()))
        copied.enter(phase_at(self._config, self.images, device))
        return copied.to(device).eval().requires_grad_(False)

    def _parts(self) -> dict[str, nn.Module | torch.optim.Optimizer]:
        return {
            "g": self.generator,
            "d": self.discriminator,
            "ema": self.ema,
            "opt_g": self.opt_g,
            "opt_d": self.opt_d,
        }


def _adam(network: nn.Module, lr: float, betas: tuple[float, float]) -> torch.optim.Adam:
    """Adam in the form that is fast on the network's device."""
    # Without fused kernels the number of steps must be a tensor (capturable): as a Python number it would be a new
    # constant, and on XLA a new program, in every step.
    on_xla = next(network.parameters()).device.type == "xla"
    return torch.optim.Adam(network.parameters(), lr, betas, fused=not on_xla, capturable=on_xla)


def _load_optimiser(optimiser: torch.optim.Optimizer, saved: dict[str, Any]) -> None:
    """Loads the moments and counts of steps; all else is of the configuration and of this device.

    Moments take their parameters' memory layout: a checkpoint from XLA has only the usual one, and the fused kernels
    pair numbers by place in memory, so another layout would silently mix them up.
    """
    parameters = [parameter for group in optimiser.param_groups for parameter in group["params"]]
    state = {
        number: {name: _laid_out_like(parameters[number], value) for name, value in entry.items()}
        for number, entry in saved["state"].items()
    }
    optimiser.load_state_dict({"state": state, "param_groups": optimiser.state_dict()["param_groups"]})


def _laid_out_like(parameter: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    same_shape = value.shape == parameter.shape
    return torch.empty_like(parameter, device=value.device).copy_(value) if same_shape else value


def _on_cpu(value: Any) -> Any:
    """The same nested dicts and lists, their tensors on the CPU; those that are there already are not copied."""
    if isinstance(value, torch.Tensor):
        return value.detach().cpu()
    if isinstance(value, dict):
        return {key: _on_cpu(item) for key, item in value.items()}
    return [_on_cpu(item) for item in value] if isinstance(value, list) else value
