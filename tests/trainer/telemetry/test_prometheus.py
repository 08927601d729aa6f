"""The metrics endpoint: scraped over real HTTP, on rank 0 alone, and refused before a run begins."""

import contextlib
import dataclasses
import socket
import threading
import urllib.request

import pytest

from gangway.trainer.core.errors import TrainerError
from gangway.trainer.distributed.world import start_world
from gangway.trainer.telemetry import prometheus
from gangway.trainer.telemetry.prometheus import MetricsEndpoint, check_port, serving


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _scraped(port: int, query: str = "") -> dict[str, float]:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics{query}", timeout=10) as answer:
        samples = [line.rsplit(" ", 1) for line in answer.read().decode().splitlines() if not line.startswith("#")]
    return {name: float(value) for name, value in samples}


def test_the_last_line_is_scraped_over_http() -> None:
    port = _free_port()
    endpoint = MetricsEndpoint(port, "127.0.0.1")
    try:
        endpoint.show({"images": 640, "loss_g": 1.5, "not_a_gauge": 1, "phase_sec": {"d": 0.75}})
        endpoint.show({"images": 1280, "mfu": 0.25, "checkpoint_stall_sec": 0.5, "phase_sec": {"d": 0.25, "g": 0.5}})
        found, asked_for = _scraped(port), _scraped(port, "?name[]=gangway_trainer_mfu")
    finally:
        endpoint.close()
    assert found == {
        "gangway_trainer_images_total": 1280,
        "gangway_trainer_mfu": 0.25,
        "gangway_trainer_checkpoint_stall_seconds": 0.5,
        'gangway_trainer_phase_seconds{phase="d"}': 0.25,
        'gangway_trainer_phase_seconds{phase="g"}': 0.5,
    }
    assert asked_for == {"gangway_trainer_mfu": 0.25}


def test_what_nobody_knows_has_no_sample_and_no_older_one() -> None:
    port = _free_port()
    endpoint = MetricsEndpoint(port, "127.0.0.1")
    try:
        assert _scraped(port) == {}, "no line yet"
        endpoint.show({"watts": 500.0, "noise_scale": None, "neighbour_cores": 0.0})
        assert _scraped(port) == {"gangway_trainer_watts": 500, "gangway_trainer_neighbour_cores": 0}
        endpoint.show({"watts": None, "noise_scale": 64.0, "neighbour_cores": None, "phase_sec": {}})
        assert _scraped(port) == {"gangway_trainer_noise_scale_images": 64}
    finally:
        endpoint.close()


def test_a_port_in_use_is_named_with_another() -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = int(holder.getsockname()[1])
        with pytest.raises(TrainerError, match="--metrics-port: cannot listen there") as caught:
            MetricsEndpoint(port, "127.0.0.1")
    assert caught.value.value == port
    assert f"--metrics-port {port + 1}" in caught.value.fix


@pytest.mark.parametrize("port", [-1, 0, 65536])
def test_what_is_no_port_is_refused_with_one_that_is(port: int) -> None:
    with pytest.raises(TrainerError, match="--metrics-port: not a port") as caught:
        check_port(port)
    assert caught.value.allowed == "a free port, 1 to 65535"
    check_port(int(caught.value.fix.split()[1].rstrip(",")))


@pytest.mark.parametrize("port", [1, 65535])
def test_the_first_and_the_last_port_are_ports(port: int) -> None:
    check_port(port)


def test_the_port_is_free_again_after_the_run() -> None:
    port = _free_port()
    with start_world("gloo") as world:
        for _ in range(2):
            with serving(world, port) as endpoint:
                assert endpoint is not None
        with serving(world, None) as nothing:
            assert nothing is None


def test_other_ranks_do_not_listen() -> None:
    with start_world("gloo") as world:
        second = dataclasses.replace(world, rank=1, local_rank=1)
        with serving(second, _free_port()) as endpoint:
            assert endpoint is None


@pytest.mark.slow
def test_connections_that_say_nothing_hold_few_threads_and_nobody_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """It listens on all interfaces, in the process that trains."""
    monkeypatch.setattr(prometheus._Handler, "timeout", 0.3)
    port, before = _free_port(), threading.active_count()
    endpoint = MetricsEndpoint(port, "127.0.0.1")
    endpoint.show({"images": 3})
    with contextlib.ExitStack() as held:
        for _ in range(5 * prometheus._MOST_CONNECTIONS):
            held.enter_context(socket.create_connection(("127.0.0.1", port)))
            assert threading.active_count() <= before + 1 + prometheus._MOST_CONNECTIONS
        # All stay open on this side. They are ended, and the next one is served.
        while True:
            with contextlib.suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
                text = answer.read().decode()
                break
        assert "gangway_trainer_images_total 3.0" in text
    endpoint.close()
