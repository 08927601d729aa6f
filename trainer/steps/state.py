"""A training run's whole state: networks by role, averages, optimisers, images, steps; no random generator."""

import copy
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Self

import torch
from torch import nn
from torch.optim.swa_utils import get_ema_multi_avg_fn

from gangway.trainer.config.train_config import TrainConfig
from gangway.trainer.distributed.sharded_modules import is_sharded, local, map_tensors, placed, whole
from gangway.trainer.families import get_family
from gangway.trainer.networks.base import Discriminator, Generator, Network, recompute
from gangway.trainer.networks.layers import small_maps, use_matrix_products
from gangway.trainer.networks.precision import LossScale, Precision, Products
from gangway.trainer.networks.progressive_schedule import phase_at
from gangway.trainer.phases import optimisers
from gangway.trainer.phases.augment import first_p
from gangway.trainer.phases.phase import Role, RoleSpec, ema_parts
from gangway.trainer.steps.pipeline import Stage


class TrainState:
    """A run's state. Use `create`."""

    def __init__(self, config: TrainConfig, specs: Sequence[RoleSpec], device: torch.device) -> None:
        self.config = config  # of the run; once it has begun, of its current segment
        # Averages are copied before the networks are moved: on XLA they would share memory that the first step
        # overwrites.
        self.roles: Mapping[str, Role] = MappingProxyType({spec.name: _role(spec, device) for spec in specs})
        for role in self.roles.values() if config.activation_checkpointing else ():
            recompute(role.network)
        for name, frozen in optimisers.frozen_by_role(config, specs).items():
            self.roles[name].network.frozen = frozen
            self.roles[name].network.learn(on=True)
        self.renew_optimisers()
        self.stage: Stage | None = None  # of a pipeline
        self.images, self.step = 0, 0  # real images shown, and steps made
        # Share of the images that each augmentation changes; once adapted, a scalar on the device, as likewise the sum
        # of the signs of the last `sign_images` reals: only readers wait for it.
        self.augment_p: torch.Tensor | float = first_p(config)
        self.sign_sum, self.sign_images = torch.zeros((), dtype=torch.int64, device=device), 0
        self._saved_scales: dict[str, dict[str, Any]] = {}
        self._enter_phase()

    @classmethod
    def create(cls, config: TrainConfig, device: torch.device) -> Self:
        """Returns the state before the first step, equal on every worker and device."""
        return cls(config, get_family(config).roles(config), device)

    @property
    def generator(self) -> Generator:
        """The generator, in a family with a role of that name."""
        network = self.roles["generator"].network
        assert isinstance(network, Generator), "its family says so"
        return network

    @property
    def discriminator(self) -> Discriminator:
        """The discriminator, likewise."""
        network = self.roles["discriminator"].network
        assert isinstance(network, Discriminator), "its family says so"
        return network

    @property
    def ema(self) -> Generator:
        """The generator averaged over time, which metrics and samples use."""
        network = ema_parts(self.roles.values())["ema"]
        assert isinstance(network, Generator), "what is averaged makes images"
        return network

    @property
    def learners(self) -> Sequence[Role]:
        """The roles that learn."""
        return [role for role in self.roles.values() if role.optimizer is not None]

    def renew_optimisers(self) -> None:
        """Creates optimisers without moments for the networks' current parameters."""
        betas = (self.config.beta1, self.config.beta2)
        scheduled = not self.config.schedules.given.keys().isdisjoint(("lr_g", "lr_d", "beta2"))
        for role in self.roles.values():
            if role.lr is not None:
                groups = optimisers.get_groups(role, self.config)
                role.optimizer = optimisers.adam(groups, getattr(self.config, role.lr), betas, scheduled=scheduled)

    def enter(self, config: TrainConfig) -> None:
        """Enters a segment, with its batch and step sizes; `use` sets its precision."""
        self.config = config
        for role in self.learners:
            for group in role.learner.param_groups:
                lr: float = getattr(config, role.lr or "lr_g")
                group["lr"] = optimisers.like_current(group["lr"], lr * group.get(optimisers.FACTOR, 1.0))

    def follow_schedules(self) -> None:
        """Set the learning rates, decays and augmentation that the schedules have for the next step."""
        config, given = self.config, self.config.schedules.given
        for role in self.learners:
            assert role.lr is not None, "a learner has one"
            if role.lr in given or "beta2" in given:
                lr, beta2 = config.at(role.lr, self.images), config.at("beta2", self.images)
                for group in role.learner.param_groups:
                    group["lr"] = optimisers.like_current(group["lr"], lr * group.get(optimisers.FACTOR, 1.0))
                    group["betas"] = (group["betas"][0], optimisers.like_current(group["betas"][1], beta2))
        if config.schedules.augment_p is not None:
            self.augment_p = config.schedules.augment_p.at(self.images)

    def use(self, precision: Precision) -> str:
        """Sets the precision, with loaded or new loss scales; returns the choice with its reason."""
        layers = 0
        for role in self.roles.values():
            role.network.precision = None if precision.dtype is None else precision
            role.scale = LossScale(precision.device_type, enabled=precision.name == "fp16")
            role.scale.load_state_dict(self._saved_scales.pop(role.key, {}))
            layers += use_matrix_products(role.network, precision.products)
        if layers > 0 and precision.products is not Products.NONE:
            return f"{precision.reason}; {small_maps(precision.products)}"
        return precision.reason

    @property
    def gradient_bytes(self) -> dict[str, int]:
        """Bytes that workers average per network after a backward; for growing networks, at their full size."""
        return {
            role.key: sum(p.numel() * p.element_size() for p in role.network.parameters() if p.requires_grad)
            for role in self.learners
        }

    def passed(self, kimg: float) -> bool:
        """Whether the last step reached another multiple of `kimg` thousand images."""
        every = kimg * 1000
        return self.images // every > (self.images - self.config.step_images) // every

    def advance(self) -> None:
        """Counts a step and enters the networks' phase. Updates and `update_ema` may still be missing."""
        self.images += self.config.step_images
        self.step += 1
        self._enter_phase()

    def _enter_phase(self) -> None:
        device = next(next(iter(self.roles.values())).network.parameters()).device
        self.phase = phase_at(self.config, self.images, device)
        for role in self.roles.values():
            for network in (role.network, role.ema):
                if network is not None:
                    network.enter(self.phase)

    @torch.no_grad()
    def update_ema(self) -> None:
        """Moves the averages with a half-life of ema_kimg, shortened initially by ema_rampup; once after `advance`."""
        config = self.config
        half_life = config.at("ema_kimg", self.images - config.step_images) * 1000
        if config.ema_rampup:
            half_life = min(half_life, self.images * config.ema_rampup)
        keep = 0.5 ** (config.step_images / half_life) if half_life else 0.0
        for role in self.roles.values():
            if role.ema is not None:
                # In a pipeline, meta tensors are the other stage's.
                averaged, present = (
                    [local(each) for each in network.parameters() if self.stage is None or not each.is_meta]
                    for network in (role.ema, role.network)
                )
                get_ema_multi_avg_fn(keep)(averaged, present, 0)  # type: ignore[no-untyped-call]  # torch's is bare

    def state_dict(self) -> dict[str, Any]:
        """Returns the whole state on the CPU, for a checkpoint; collective where networks are split."""
        live: dict[str, Any] = self._whole(self.live())
        return live

    def to_digest(self) -> dict[str, Any]:
        """Returns the input of `state_digests`, which gathers split tensors one by one. Collective where `is_split`."""
        return self.live() if self.is_split and self.stage is None else self.state_dict()

    def _whole(self, value: Any) -> Any:
        if self.stage is not None:
            return self.stage.to_complete(value)
        return map_tensors(value, lambda tensor: whole(tensor).detach().cpu())

    def live(self) -> dict[str, Any]:
        """Returns `state_dict` without a copy: the tensors that the next step changes, on their device and split."""
        parts = {
            name: optimisers.saved_moments(part) if isinstance(part, torch.optim.Optimizer) else part.state_dict()
            for name, part in self._parts()
        }
        scales = {f"scale_{role.key}": role.scale.state_dict() for role in self.learners if role.scale.enabled}
        counters: dict[str, Any] = {"images": self.images, "step": self.step, "augment_p": float(self.augment_p)}
        if self.config.ada_target:
            counters["signs"] = [int(self.sign_sum), self.sign_images]
        return {**counters, **parts, **scales}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Loads what `state_dict` returned, on any device."""
        self.images, self.augment_p = state["images"], state.get("augment_p", self.augment_p)
        signs, self.sign_images = state.get("signs", (0, 0))  # older checkpoints have none
        self.sign_sum = torch.full_like(self.sign_sum, signs)
        # Older checkpoints are of runs with one batch size.
        self.step = state.get("step", self.images // self.config.step_images)
        for name, part in self._parts():
            here = placed(state[name], _like(part))
            if isinstance(part, torch.optim.Optimizer):
                optimisers.load_moments(part, here)
            else:
                part.load_state_dict(here)
        self._saved_scales = {role.key: state.get(f"scale_{role.key}", {}) for role in self.learners}
        for role in self.learners:
            role.scale.load_state_dict(self._saved_scales[role.key])
        self._enter_phase()

    def room_for(self, empty: dict[str, Any]) -> dict[str, Any]:
        """Allocates a state from one that has only shapes, split as the networks here are."""
        return {**empty, **{name: placed(empty[name], _like(part)) for name, part in self._parts()}}

    def ema_on(self, device: torch.device, *, alone: bool = False) -> Generator:
        """Returns the averaged generator on a device, see `averages_on`."""
        network = next(iter(self.averages_on(device, alone=alone).values()))
        assert isinstance(network, Generator), "as `ema`"
        return network

    @property
    def is_split(self) -> bool:
        """Whether each worker keeps a part of the networks, so that all must use the averages together."""
        return self.stage is not None or any(is_sharded(role.network) for role in self.roles.values())

    def averages_on(self, device: torch.device, *, alone: bool = False) -> Mapping[str, Network]:
        """Returns every average on a device by role; `alone`: whole ones for each worker, asked for by all together."""
        here = {role.name: role.ema for role in self.roles.values() if role.ema is not None}
        there = all(next(network.parameters()).device == device for network in here.values())
        if there and self.stage is None and not (alone and self.is_split):
            return here
        networks = {spec.name: spec.network for spec in get_family(self.config).roles(self.config) if spec.averaged}
        for name, network in networks.items():
            network.load_state_dict(self._whole(dict(here[name].state_dict())))
            network.enter(phase_at(self.config, self.images, device))
            network.to(device).eval().requires_grad_(False)
        return networks

    def _parts(self) -> Iterator[tuple[str, nn.Module | torch.optim.Optimizer]]:
        yield from ((role.key, role.network) for role in self.roles.values())
        yield from ema_parts(self.roles.values()).items()
        yield from ((f"opt_{role.key}", role.learner) for role in self.learners)


def _like(part: nn.Module | torch.optim.Optimizer) -> Mapping[Any, torch.Tensor]:
    if isinstance(part, nn.Module):
        return part.state_dict()
    return dict(enumerate(parameter for group in part.param_groups for parameter in group["params"]))


def _role(spec: RoleSpec, device: torch.device) -> Role:
    ema = copy.deepcopy(spec.network).eval().requires_grad_(False).to(device) if spec.averaged else None
    scale = LossScale(device.type, enabled=False)
    return Role(spec.name, spec.key, spec.network.to(device), spec.lr, None, ema, scale)
