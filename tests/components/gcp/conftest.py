"""The stand-in of the TPU API, running, and arguments that fit it."""

import sys
from collections.abc import Iterator
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest


def _load_standin() -> Any:
    """The module beside this file: with pytest's import mode there is no package to import it from."""
    name = "gangway_tpu_standin"
    if name not in sys.modules:
        spec = spec_from_file_location(name, Path(__file__).with_name("tpu_standin.py"))
        assert spec is not None
        assert spec.loader is not None
        sys.modules[name] = module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


@pytest.fixture
def standin() -> Iterator[Any]:
    """A TpuStandin of its own for each test."""
    with _load_standin().TpuStandin() as running:
        yield running


@pytest.fixture
def tpu_args() -> dict[str, Any]:
    """The least that QueuedTpu takes, its name included."""
    return {
        "project": "lab",
        "zone": "us-east5-a",
        "queued_resource_id": "gan-tpu",
        "accelerator_type": "v5p-256",
        "runtime_version": "v2-alpha-tpuv5",
        "tier": "spot",
        "service_account": "nodes@lab.iam.gserviceaccount.com",
        "labels": {"team": "ml"},
    }


@pytest.fixture
def full_tpu_args(tpu_args: dict[str, Any]) -> dict[str, Any]:
    """Every input that reaches the API."""
    shape = {"accelerator_config": {"type": "V5P", "topology": "4x4x8"}}
    return {
        **{key: value for key, value in tpu_args.items() if key != "accelerator_type"},
        **shape,
        "tier": "guaranteed",
        "num_slices": 3,
        "min_duration_sec": 3600,
        "reservation_name": "projects/lab/locations/us-east5-a/reservations/r1",
        "valid_until": "2026-03-01T12:00:00Z",
        "network": "projects/lab/global/networks/train",
        "subnetwork": "projects/lab/regions/us-east5/subnetworks/train",
        "network_tags": ["train"],
        "startup_script": "#!/bin/sh\n",
        "metadata": {"job": "x"},
        "data_disks": [{"source_disk": "projects/lab/zones/us-east5-a/disks/data"}],
        "kms_key_name": "projects/lab/locations/us-east5/keyRings/r/cryptoKeys/k",
        "secure_boot": True,
    }


@pytest.fixture
def props(standin: Any, tpu_args: dict[str, Any]) -> dict[str, Any]:
    """What the engine hands the provider: arguments, the stand-in's address, and no time to lose."""
    quick = {"accept_sec": 5.0, "active_sec": 5.0, "delete_sec": 5.0, "poll_sec": 0.005}
    return {**tpu_args, "api_url": standin.url, "timeouts": quick, "__provider": "serialised"}
