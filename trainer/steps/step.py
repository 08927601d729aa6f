"""One training step of networks, a batch and a world, without reporter, run directory, lock or notices."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from gangway.trainer.config.train_config import TrainConfig
from gangway.trainer.distributed.world import World
from gangway.trainer.families import get_family
from gangway.trainer.networks.base import Network
from gangway.trainer.phases import augment
from gangway.trainer.phases.batch import Batch, Micro
from gangway.trainer.phases.phase import BatchPass, Phase, Update
from gangway.trainer.phases.updates import Accumulator, get_update
from gangway.trainer.steps.state import TrainState

Feed = Callable[[Phase[Any], int], Iterable[Micro[Any]]]  # Returns a phase's micro-batches of the batch after `images`


class Game(NamedTuple):
    """The phases of a step, and their losses wrapped by `World.wrap`, by key."""

    config: TrainConfig
    world: World
    phases: Sequence[Phase[Any]]
    losses: Mapping[str, nn.Module]
    # Whether every update follows its gradients at once, evaluated in each phase. Otherwise an update whose averages
    # still travel waits until the next phase needs it.
    at_once: Callable[[], bool] = lambda: True


def get_phases(state: TrainState) -> Sequence[Phase[Any]]:
    """Returns the phases of a step of this state's family, in order, with its networks."""
    if state.stage is not None:
        return state.stage.phases(state.config)
    networks = {name: role.network for name, role in state.roles.items()}
    return get_family(state.config).phases(state.config, networks)


def new_game(
    phases: Sequence[Phase[Any]], config: TrainConfig, world: World, at_once: Callable[[], bool] = lambda: True
) -> Game:
    """Creates the game of these phases; all workers call it together."""
    return Game(config, world, phases, {phase.key: world.wrap(phase.loss) for phase in phases}, at_once)


def step(
    state: TrainState, batch: Batch, game: Game, sums: Accumulator, meanwhile: Callable[[], object] = lambda: None
) -> None:
    """Makes one on the global batch after `state.images`; `meanwhile` is called before its last phase. Collective."""
    penalised, missing = is_penalised(state), list[Update]()
    state.follow_schedules()

    def feed(phase: Phase[Any], images: int) -> Iterable[Micro[Any]]:
        if phase.batches:
            sums.saw(batch.order(images))
        return phase.inputs(batch, state, images)

    signs = play(state, feed, game, sums, missing, penalised=penalised, meanwhile=meanwhile)

    # Count images and enter the networks' phase, then average, which needs the last update.
    sums.close_step(penalised=penalised)
    state.advance()
    make(missing)
    sums.clock.leave()
    state.update_ema()
    game.world.flush()
    adapt(state, game, signs)


def is_penalised(state: TrainState) -> bool:
    """Whether the next step includes the penalties."""
    return state.step % state.config.r1_interval == 0


def play(
    state: TrainState,
    feed: Feed,
    game: Game,
    sums: Accumulator,
    missing: list[Update],
    *,
    penalised: bool,
    meanwhile: Callable[[], object],
) -> Tensor:
    """Makes all phases of a step; returns the sum of the reals' signs. `missing` then holds the deferred updates."""
    world, signs = game.world, torch.zeros((), device=game.world.device)
    for phase in game.phases:
        last_phase = phase is game.phases[-1]
        if last_phase:
            meanwhile()
        if not phase.overlaps:
            make(missing)
        sums.clock.enter(phase.key)
        loss, roles = game.losses[phase.key], [state.roles[name] for name in phase.roles]
        is_late = last_phase or (world.is_late(loss) and not game.at_once())
        with resting([state.roles[name].network for name in phase.resting]):
            # One update per batch.
            positions = phase.positions(game.config, state.images)
            for images in positions:
                for role in roles:
                    role.learner.zero_grad()
                settle = (lambda: make(missing)) if missing else None
                micros, backward = feed(phase, images), roles[0].scale.backward
                for micro, terms in phase.passes(BatchPass(world, loss, micros, backward, penalised, settle)):
                    sums.add(phase, micro.weight, terms)
                    if "real_sign" in phase.means:
                        signs += terms.means[phase.means.index("real_sign")] * micro.images
                update = get_update(world, loss, roles)
                if is_late and images == positions[-1]:
                    missing.append(update)
                else:
                    update()
    return signs


def adapt(state: TrainState, game: Game, signs: Tensor) -> None:
    """Adapts the augmentation; all workers count the same signs at every step, so that checkpoints have them."""
    if not game.config.ada_target:
        return
    state.sign_sum = state.sign_sum + game.world.total(signs.round().long())
    state.sign_images += game.config.step_images
    if augment.is_due(game.config, state.step):
        p = torch.as_tensor(state.augment_p, dtype=torch.float64, device=state.sign_sum.device)
        state.augment_p = augment.adapt_p(p, state.sign_sum, state.sign_images, game.config)
        state.sign_sum, state.sign_images = torch.zeros_like(state.sign_sum), 0


def make(missing: list[Update]) -> None:
    """Makes the deferred updates, in order."""
    while missing:
        missing.pop(0)()


@contextmanager
def resting(networks: Sequence[Network]) -> Iterator[None]:
    """A block in which networks are used without gradients."""
    for network in networks:
        network.learn(on=False)
    try:
        yield
    finally:
        for network in networks:
            network.learn(on=True)


def first_failure(own: str, world: World) -> str:
    """Returns the first worker's failure on all workers; empty where none failed."""
    return next(filter(None, world.gather(own)), "")
