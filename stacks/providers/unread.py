"""Settings that a provider does not read, by provider: each is a mistake with its reason, never silence.

Of a whole section, or of one setting; what a provider reads in another form is `stacks.providers.settings`.
"""

from collections.abc import Iterator, Mapping

from components.findings import InputError
from stacks.settings.config import StackConfig

__all__ = ["UNREAD", "unread_settings"]

_NO_BILL = "nobody bills these machines through an account, so nothing counts against the budget"
_NO_LOGS = "there is no log service: lines stay in the machines' journals"
_NO_TAGS = "no bill counts by tags here; nothing has to be activated"
UNREAD: Mapping[str, Mapping[str, str]] = {
    "hosts": {
        "storage": "the machines mount their own file systems: gangway:hosts.shared_dir and data_dir name them",
        "network": "the machines' network is there already",
        "cluster.zone": "the machines are where they are",
        "cluster.image_id": "the machines run the system that they have",
        "cluster.root_volume_gib": "the machines have the disks that they have",
        "cluster.root_device_name": "the machines have the disks that they have",
        "head.machine_type": "the store in which nodes meet is on the first machine",
        "observe.log_days": _NO_LOGS,
        "observe.no_steps_minutes": f"{_NO_LOGS}, and nobody sends alarms",
        "budget.stop_at_percent": _NO_BILL,
        "budget.activate_tag": _NO_TAGS,
        "job.terminate_when_done": "machines that are there stay when the trainer has stopped",
        "encryption": "disks are under the key of whoever set the machines up",
    },
    "openstack": {
        "network.flow_logs": "OpenStack's network has no flow log",
        "cluster.image_id": "an image of OpenStack's is gangway:openstack.image, by id or name",
        "cluster.root_device_name": "OpenStack knows an image's boot disk by itself",
        "observe.log_days": _NO_LOGS,
        "observe.no_steps_minutes": f"{_NO_LOGS}, and nobody sends alarms",
        "budget.stop_at_percent": "OpenStack knows rates, and no budget that could stop anything",
        "budget.activate_tag": _NO_TAGS,
    },
}
"""Provider -> config path -> why nothing reads it there."""


def unread_settings(config: StackConfig) -> Iterator[InputError]:
    """A mistake for each setting somebody wrote that `config.provider` does not read."""
    for path, why in UNREAD.get(config.provider, {}).items():
        for written in _written(config, path):
            yield InputError(
                f"gangway:{written}",
                f"of no effect with provider: {config.provider}: {why}",
                allowed="left out",
                fix=f"leave {written.rpartition('.')[2]} out",
            )


def _written(config: StackConfig, path: str) -> Iterator[str]:
    """The config paths at or below `path` that differ from what is there when nobody writes anything."""
    section, _, name = path.partition(".")
    value = getattr(config, section)
    default = type(config).model_fields[section].get_default()
    if name:
        # A required section has no default to compare with: what it holds beside its own defaults was written.
        own = type(value).model_fields[name].get_default() if value is not None else None
        if value is not None and name in value.model_fields_set and getattr(value, name) != own:
            yield path
    elif value != default:
        yield path
