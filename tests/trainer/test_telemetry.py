"""stats.jsonl survives torn lines and full disks; the metrics endpoint is scraped over real HTTP."""

import socket
import urllib.request
from pathlib import Path

import pytest

from trainer.errors import TrainerError
from trainer.telemetry import MetricsEndpoint, StatsWriter, read_stats


def test_lines_are_read_back_as_written(tmp_path: Path) -> None:
    path = tmp_path / "stats.jsonl"
    StatsWriter(path).write({"images": 1, "r1": None})
    StatsWriter(path).event("start", 1, 0, world_size=2)
    statistics, event = read_stats(path)
    assert statistics == {"images": 1, "r1": None}
    assert event["event"] == "start"
    assert event["world_size"] == 2
    assert event["time"] > 1e9
    assert list(read_stats(tmp_path / "none")) == []


def test_a_line_torn_by_a_killed_session_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "stats.jsonl"
    path.write_text('{"images": 1}\n{"images": 2, "lo')
    StatsWriter(path).write({"images": 3})
    assert list(read_stats(path)) == [{"images": 1}, {"images": 3}]


def test_a_full_disk_is_a_user_error(tmp_path: Path) -> None:
    path = tmp_path / "stats.jsonl"
    path.symlink_to("/dev/full")
    with pytest.raises(TrainerError, match=r"stats\.jsonl: cannot be written: No space left on device"):
        StatsWriter(path).write({"images": 1})


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_the_last_line_is_scraped_over_http() -> None:
    port = _free_port()
    endpoint = MetricsEndpoint(port, "127.0.0.1")
    try:
        endpoint.show({"images": 640, "loss_g": 1.5, "energy_joules": None, "not_a_gauge": 1})
        endpoint.show({"images": 1280})
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
            lines = answer.read().decode().splitlines()
    finally:
        endpoint.close()
    assert "gangway_trainer_images_total 1280.0" in lines
    assert "gangway_trainer_loss_g 1.5" in lines


def test_a_port_in_use_is_named_with_another() -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = int(holder.getsockname()[1])
        with pytest.raises(TrainerError, match="--metrics-port: cannot listen there") as caught:
            MetricsEndpoint(port, "127.0.0.1")
    assert caught.value.value == port
    assert f"--metrics-port {port + 1}" in caught.value.fix
