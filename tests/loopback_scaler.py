"""Slurm's scaler where all machines are this one: run as Slurm runs it, in a process of its own."""

import socket
import sys

from gangway.images.node.aws import slurm_scaler


class LoopbackSlurm(slurm_scaler.Slurm):
    """Every node's address is this machine's."""

    def update(self, node: str, *words: str) -> None:
        here = {"nodeaddr": "127.0.0.1", "nodehostname": socket.gethostname().split(".")[0]}
        pairs = (word.split("=", 1) for word in words)
        super().update(node, *(f"{name}={here.get(name, value)}" for name, value in pairs))


if __name__ == "__main__":
    slurm_scaler.main(sys.argv[1:], LoopbackSlurm())
