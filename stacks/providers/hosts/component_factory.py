"""The parts of a stack on machines that are there already: one, for everything else is there."""

from dataclasses import dataclass
from typing import cast

import pulumi

from components.core.job import JobSpec
from components.hosts.node_pool import HostArgs, HostPool, HostPoolArgs
from stacks.config.stack_config import StackConfig
from stacks.providers.hosts.plan import HostsPlan, hosts_of
from stacks.providers.hosts.settings import HostConfig
from stacks.providers.hosts.user_data import installer

__all__ = ["ComponentFactory"]


@dataclass(frozen=True)
class ComponentFactory:
    """One method for each part."""

    config: StackConfig
    planned: HostsPlan
    opts: pulumi.ResourceOptions

    def pool(self, job: JobSpec) -> HostPool:
        """The machines, each with its script."""
        own = hosts_of(self.config)
        args: HostPoolArgs = {
            "machines": [self._machine(machine, job, position) for position, machine in enumerate(own.machines)],
            "private_key": own.private_key,
        }
        return HostPool(self.config.stack, args, self.opts)

    def _machine(self, machine: HostConfig, job: JobSpec, position: int) -> HostArgs:
        args = {
            "name": machine.label,
            "address": machine.address,
            "port": machine.port,
            "user": machine.user or hosts_of(self.config).user,
            "host_key": machine.host_key,
            "installer": installer(self.config, self.planned, job, position),
        }
        return cast("HostArgs", args)
