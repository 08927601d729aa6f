"""Everything a run leaves behind, in one place: the run directory and, behind a flag, the metrics endpoint.

run_dir/ config.json, stats.jsonl, run.json, checkpoints/, samples/, samples.png, reals.png. Only rank 0 writes, and
what it finds damaged and writes anew it says, on stdout and as an event. The loop calls these methods on every rank,
and an error of rank 0 (a full disk) is raised on all. Decides nothing about training.
"""

import math
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from trainer import checkpoint
from trainer.config import TrainConfig
from trainer.data import Sampler, ShardedImages
from trainer.devices import device_name, gpu_of, load
from trainer.diary import StatsWriter, read_diary
from trainer.distributed import World
from trainer.energy import choose_readers, merge, read_all
from trainer.errors import TrainerError, diverged
from trainer.fabric import FabricRecord
from trainer.files import write_atomically
from trainer.identity import RunIdentity, identify
from trainer.notices import Notice
from trainer.provenance import code_sha256, versions
from trainer.record import RunContext, RunRecord
from trainer.resume import Restored
from trainer.samples import COLUMNS, ROWS, sample_grid, write_grid
from trainer.state import TrainState
from trainer.summary import summarise
from trainer.telemetry import MetricsEndpoint

__all__ = ["Reporter"]


class Reporter:
    """One session's outputs. Use `begin`, then the rest.

    Args:
        run_dir: of the run.
        config: of the run.
        world: this worker's place.
        context: what the launcher knows.
        endpoint: for Prometheus; None for none.
        log_json: print the lines of stats.jsonl instead of sentences about them.
    """

    def __init__(
        self,
        run_dir: Path,
        config: TrainConfig,
        world: World,
        context: RunContext,
        endpoint: MetricsEndpoint | None,
        *,
        log_json: bool = False,
    ) -> None:
        self._dir, self._config, self._world, self._context = run_dir, config, world, context
        self._stats: StatsWriter | None = None
        self._identity: RunIdentity | None = None
        self._endpoint, self._log_json = endpoint, log_json
        self._saved_images = -1
        self._readers = choose_readers(world.local_rank, gpu_of(world), context)

    def begin(
        self, state: TrainState, data: ShardedImages, restored: Restored, allocator: str, fabric: FabricRecord
    ) -> None:
        """Writes the first event, the real images and the first samples; the clock starts after that.

        Args:
            state: as restored.
            data: the shards.
            restored: what the state was restored from.
            allocator: what was done to the C library's.
            fabric: its acceptance test.

        Raises:
            TrainerError: the directory cannot be written, or holds parts of two runs; on every rank.
        """
        world = self._world
        self._saved_images = state.images if state.images else -1

        def write() -> None:
            self._open(state, data, restored)
            shown = data.take(Sampler(len(data), self._config.seed).indices(0, COLUMNS * ROWS))
            write_grid(self._dir / "reals.png", torch.from_numpy(shown))
            if not state.images:
                self._write_samples(state, self._sample_path(0))
            self._event(
                "resume" if self._me.session else "start",
                state.images,
                run_id=self._me.run_id,
                world_size=world.world_size,
                num_nodes=world.num_nodes,
                backend=f"{world.backend} ({world.backend_reason})",
                device=device_name(world),
                allocator=allocator,
                dataset={"name": data.index.dataset, "sha256": data.index.sha256, "images": len(data)},
                context=self._context.model_dump(mode="json"),
                fabric=fabric.model_dump(mode="json"),
                code_sha256=code_sha256(),
                versions=versions(),
            )

        world.first(write)
        self._began = self._last_time = time.monotonic()
        self._last_images = state.images

    def _open(self, state: TrainState, data: ShardedImages, restored: Restored) -> None:
        """Finds out which session this is and opens the diary, then tells what was found damaged."""
        diary = read_diary(self._dir)
        self._identity = identify(
            self._dir, diary, restored.identity, self._context.run_id, self._config.preset, data.index.sha256
        )
        repairs = _repairs(self._dir)
        write_atomically(self._dir / "config.json", self._config.to_json().encode())
        self._stats = StatsWriter(self._dir, echo=self._log_json)
        for sentence in restored.passed_over:
            print(f"passed over a checkpoint: {sentence}", flush=True)
            self._event("checkpoint-skipped", state.images, why=sentence)
        losses = diary.losses(self._me.session)
        if losses and losses not in [line.get("losses") for line in diary.lines]:
            print(f"stats.jsonl is damaged: {losses}; run {self._me.run_id} goes on, its record says so", flush=True)
            self._event("stats-damaged", state.images, losses=losses, unreadable_lines=diary.unreadable)
        for file, found, done in repairs:
            print(f"{file} was damaged ({found}); {done}", flush=True)
            self._event("repaired", state.images, file=file, found=found, done=done)

    def tick(self, state: TrainState, sums: Tensor, networks: tuple[nn.Module, nn.Module]) -> None:
        """Writes a statistics line.

        Args:
            state: after a step.
            sums: this worker's [loss_g, loss_d, r1, steps with r1] times its weight, summed since the last line.
            networks: generator and discriminator, their gradients those of the last step.

        Raises:
            TrainerError: a loss is no longer finite, or the disk is full; on every rank.
        """
        steps = (state.images - self._last_images) // self._config.batch_size
        now = time.monotonic()
        energy_here = read_all(self._readers, self._world.node_rank)
        everyone = self._world.gather((sums.tolist(), energy_here, load(self._world)))
        workers = len(everyone)
        loss_g, loss_d, r1, r1_steps = (sum(row[0][column] for row in everyone) / workers for column in range(4))
        energy = merge([row[1] for row in everyone])
        known = [reading.joules for reading in energy.values() if reading.joules is not None]
        gpu_gib = [row[2].gpu_gib for row in everyone if row[2].gpu_gib is not None]
        busy = [row[2].gpu_utilisation for row in everyone if row[2].gpu_utilisation is not None]
        line: dict[str, Any] = {
            "images": state.images,
            "step": state.step,
            "kimg": state.images / 1000,
            "time": time.time(),
            "wall_sec": now - self._began,
            "images_per_sec": (state.images - self._last_images) / (now - self._last_time),
            "loss_g": loss_g / steps,
            "loss_d": loss_d / steps,
            "r1": r1 / r1_steps if r1_steps else None,
            "grad_norm_g": _grad_norm(networks[0]),
            "grad_norm_d": _grad_norm(networks[1]),
            "rss_gib": sum(row[2].rss_gib for row in everyone),
            "gpu_gib": sum(gpu_gib) if gpu_gib else None,
            "gpu_utilisation": sum(busy) / len(busy) if busy else None,
            "world_size": workers,
            "energy_joules": sum(known) if known else None,
            "energy": {device: list(reading) for device, reading in energy.items()},
        }
        self._last_time, self._last_images = now, state.images
        _check_finite(line)
        self._world.first(lambda: self._show(line))

    def _show(self, line: dict[str, Any]) -> None:
        assert self._stats is not None, "only rank 0 comes here, after _open"
        self._stats.write({**line, "session": self._me.session})
        if self._endpoint is not None:
            self._endpoint.show(line)
        if self._log_json:
            return
        total = self._config.total_images / 1000
        print(
            f"kimg {line['kimg']:8.2f} / {total:g}  images/s {line['images_per_sec']:7.0f}  "
            f"loss_g {line['loss_g']:6.3f}  loss_d {line['loss_d']:6.3f}",
            flush=True,
        )

    def samples(self, state: TrainState) -> None:
        """Writes a grid of the averaged generator under the name of its kimg."""
        self._world.first(lambda: self._write_samples(state, self._sample_path(state.images)))

    def checkpoint(self, state: TrainState, notices: Sequence[Notice | None] = ()) -> None:
        """Saves the state unless this very state is saved already.

        Args:
            state: after a step.
            notices: every worker's, of those that asked for it.
        """
        if state.images != self._saved_images:
            why = next((notice.kind for notice in notices if notice is not None), "")
            self._world.first(lambda: self._save(state, why))
            self._saved_images = state.images

    def _save(self, state: TrainState, why: str) -> None:
        began = time.monotonic()
        folder = self._dir / "checkpoints"
        path = checkpoint.save(folder, state.state_dict(), self._config, state.images, self._me)
        noticed = {"why": why} if why else {}
        self._event("checkpoint", state.images, file=path.name, sec=time.monotonic() - began, **noticed)

    def end(self, state: TrainState, cause: str) -> None:
        """Writes the last event and the record.

        Args:
            state: already saved by `checkpoint`.
            cause: a notice's kind or a signal's name; empty when the run is done.
        """

        def write() -> None:
            if cause:
                self._event("interrupt", state.images, cause=cause)
                print(
                    f"interrupted by {cause} at {state.images} images; the same command goes on from there", flush=True
                )
            else:
                digests = checkpoint.state_digests(state.state_dict())
                self._event("done", state.images, state_sha256=digests)
            self._write_samples(state, self._dir / "samples.png")
            summarise(self._dir).write(self._dir / "run.json")

        self._world.first(write)

    def _event(self, event: str, images: int, **details: object) -> None:
        assert self._stats is not None, "only rank 0 comes here, after _open"
        self._stats.event(event, images, self._me.session, **details)

    @property
    def _me(self) -> RunIdentity:
        assert self._identity is not None, "only rank 0 asks, after _open"
        return self._identity

    def _write_samples(self, state: TrainState, path: Path) -> None:
        device = self._world.own_device
        write_grid(path, sample_grid(state.ema_on(device), self._config, device))

    def _sample_path(self, images: int) -> Path:
        return self._dir / "samples" / f"{images // 1000:06d}kimg.png"


def _repairs(run_dir: Path) -> list[tuple[str, str, str]]:
    """For each file of an earlier session that cannot be read: its name, what is wrong, and what is done about it."""
    readers: dict[str, tuple[Callable[[Path], object], str]] = {
        "config.json": (TrainConfig.from_file, "written anew from this command's configuration"),
        "run.json": (RunRecord.read, "written anew from stats.jsonl when this session ends"),
    }
    repairs = []
    for name, (read, done) in readers.items():
        if (run_dir / name).exists():
            try:
                read(run_dir / name)
            except TrainerError as error:
                repairs.append((name, error.headline, done))
    return repairs


def _check_finite(line: dict[str, Any]) -> None:
    for key in ("loss_g", "loss_d", "grad_norm_g", "grad_norm_d"):
        if not math.isfinite(line[key]):
            raise diverged(f"{key} at {line['images']} images", str(line[key]))


def _grad_norm(network: nn.Module) -> float:
    gradients = [parameter.grad for parameter in network.parameters() if parameter.grad is not None]
    return float(torch.nn.utils.get_total_norm(gradients))
