"""An image classifier of one's own, in the shape of PyTorch's public examples: argparse, DistributedDataParallel under
torchrun, a checkpoint after each epoch. It knows nothing of Gangway.

    torchrun --standalone --nproc-per-node 2 train.py --epochs 20 --dir runs

Told by SIGTERM it saves within a step and ends with 75; started again it goes on from there, to the bit.
"""

import argparse
import os
import signal
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel


def main() -> int:
    """0: done, 2: a mistake in the arguments, 75: stopped and saved."""
    parser = argparse.ArgumentParser(description="Digits of 8 x 8, classified.")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--dir", type=Path, default=Path(os.environ.get("GANGWAY_RUN_DIR", "runs")))
    options = parser.parse_args()
    if options.epochs < 1:
        print("--epochs: at least 1", file=sys.stderr)
        return 2

    told = torch.zeros(())
    signal.signal(signal.SIGTERM, lambda *_: told.fill_(1))
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    try:
        return train(options, told)
    finally:
        dist.destroy_process_group()


def train(options: argparse.Namespace, told: Tensor) -> int:
    """From the checkpoint, if there is one, to the last epoch or until `told`."""
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(options.seed)
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16
    labels = torch.tensor(digits.target)
    held_out = len(labels) // 5
    model = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Dropout(0.1), nn.Linear(256, 10)
    )
    ddp = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=options.lr, momentum=0.9)
    epoch, step = load(options.dir / "checkpoint.pt", model, optimizer)
    per_rank = options.batch_size // world
    steps = (len(labels) - held_out) // options.batch_size

    while epoch < options.epochs:
        order = held_out + torch.randperm(len(labels) - held_out, generator=torch.Generator().manual_seed(epoch))
        ddp.train()
        while step < steps:
            at = step * options.batch_size + rank * per_rank
            batch = order[at : at + per_rank]
            torch.manual_seed(1_000_000 * epoch + 1_000 * step + rank)  # what dropout draws is the step's own
            optimizer.zero_grad()
            nn.functional.cross_entropy(ddp(images[batch]), labels[batch]).backward()
            optimizer.step()
            step += 1
            anyone = told.clone()
            dist.all_reduce(anyone, op=dist.ReduceOp.MAX)
            if anyone:
                save(options.dir / "checkpoint.pt", model, optimizer, epoch, step)
                return 75
        epoch, step = epoch + 1, 0
        ddp.eval()
        with torch.no_grad():
            right = (model(images[:held_out]).argmax(1) == labels[:held_out]).float().mean()
        if rank == 0:
            print(f"epoch {epoch}: {right:.1%} right", flush=True)
        save(options.dir / "checkpoint.pt", model, optimizer, epoch, step)
    return 0


def save(path: Path, model: nn.Module, optimizer: torch.optim.Optimizer, epoch: int, step: int) -> None:
    """In one step, by the first process; the others wait until it is there."""
    if dist.get_rank() == 0:
        path.parent.mkdir(parents=True, exist_ok=True)
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch, "step": step}
        torch.save(state, path.with_suffix(".new"))
        path.with_suffix(".new").replace(path)
    dist.barrier()


def load(path: Path, model: nn.Module, optimizer: torch.optim.Optimizer) -> tuple[int, int]:
    """The epoch and step to go on with."""
    if not path.exists():
        return 0, 0
    state = torch.load(path, weights_only=True)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    return state["epoch"], state["step"]


if __name__ == "__main__":
    sys.exit(main())
