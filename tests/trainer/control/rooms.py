"""What tests of controllers read: lines of stats.jsonl, rooms, starts that are wrong or right, and any history."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, get_args

from hypothesis import strategies as st

from gangway.trainer.config.values.control import Bounds, ControlSettings, Objective
from gangway.trainer.control.interval import Allowed, Decision, Interval, Knobs, Room, Value
from tests.trainer.control.closed_loop import Loop, Plant, turned

KNOBS = Knobs(batch_size=32, loader_threads=1)


def line(wall_sec: float, images: int, **more: Any) -> dict[str, Any]:
    return {
        "time": 1.8e9 + wall_sec,
        "images": images,
        "session": 0,
        "wall_sec": wall_sec,
        "metrics_sec": 0.0,
        "telemetry_sec": 0.0,
        "loader_stall_sec": 0.0,
        "checkpoint_stall_sec": 0.0,
        "world_size": 1,
        "cpu_utilisation": 0.5,
        "cpu_wait_share": 0.0,
        "gpu_utilisation": None,
        "energy_joules": None,
        "knobs": KNOBS._asdict(),
        **dict.fromkeys(("loss_g", "loss_d", "grad_norm_g", "grad_norm_d", "rss_gib", "gpu_gib"), 0.0),
        "energy": {},
        **more,
    }


BOUNDS = Bounds(batch_size=(32, 512), loader_threads=(1, 4), prefetch=(1, 4), threads=(1, 4))
ALLOWED: Mapping[str, Sequence[Value]] = {
    "batch_size": (32, 64, 128, 256, 512),
    "loader_threads": (1, 2, 3, 4),
    "prefetch": (1, 2, 4),
    "threads": (1, 2, 3, 4),
}
"""What these bounds leave on a machine of four cores."""


def room(
    start: Knobs, objective: Objective = "time", seed: int = 0, allowed: Allowed = ALLOWED, *, on_cpu: bool = True
) -> Room:
    return Room(allowed, objective, start, on_cpu, seed)


def _machine(noise_scale: float, read_sec: float = 0.002) -> Plant:
    return Plant(read_sec=read_sec, compute_sec=0.009, serial=1 / 9, step_sec=0.05, noise_scale=noise_scale)


Start = tuple[Plant, Knobs]
DATA_BOUND: Start = _machine(2000.0, read_sec=0.01), Knobs(batch_size=128, loader_threads=1, threads=4)
BATCH_TOO_SMALL: Start = _machine(2000.0), Knobs(batch_size=32, loader_threads=2, threads=4)
BATCH_TOO_LARGE: Start = _machine(60.0), Knobs(batch_size=512, loader_threads=2, threads=4)
RIGHT: Start = _machine(1000.0), Knobs(batch_size=128, loader_threads=2, threads=4)
WRONG = (DATA_BOUND, BATCH_TOO_SMALL, BATCH_TOO_LARGE)


def loop_of(
    policy: Literal["learned", "model"],
    start: Start,
    intervals: int,
    objective: Objective = "time",
    seed: int = 0,
    **more: float,
) -> Loop:
    """With these bounds, and decisions as often as a policy likes."""
    asked = {"policy": policy, "objective": objective, "bounds": BOUNDS, "decisions_per_hour": 10_000, **more}
    return Loop(*start, ControlSettings.model_validate(asked), intervals, seed=seed)


EVERY_KNOB: Mapping[str, Sequence[Value]] = {
    "batch_size": (32, 64, 128),
    "batch_gpu": (16, 32, 0),
    "precision": ("bf16", "fp16", "fp32"),
    "loader_threads": (1, 2, 3),
    "prefetch": (1, 2, 4),
    "threads": (1, 2),
    "power_share": (0.6, 0.8, 1.0),
    "nodes": (1, 2, 3),
}

Shown = tuple[list[Interval], Room]


def _share() -> st.SearchStrategy[float]:
    return st.floats(0.0, 1.0)


@st.composite
def _intervals(draw: st.DrawFn, knobs: Knobs, number: int, on_cpu: bool) -> Interval:
    maybe = st.none() | st.floats(0.1, 1e4)
    return Interval(
        images=1000 * (number + 1),
        seconds=draw(st.floats(1.0, 100.0)),
        images_per_sec=draw(st.just(0.0) | st.floats(1e-3, 1e5)),
        knobs=knobs,
        workers=knobs.nodes,
        loader_share=draw(_share()),
        on_cpu=on_cpu,
        device_use=None if on_cpu else draw(st.none() | _share()),
        cpu_wait_share=draw(_share()),
        neighbour_cores=draw(st.none() | st.floats(0.0, 8.0)),
        cores=4 * knobs.nodes,
        watts=draw(maybe),
        noise_scale=draw(maybe),
        usd_per_hour=draw(maybe),
        g_per_kwh=draw(maybe),
        told=draw(st.sampled_from([(), (), (), ("a meter is frozen",)])),
    )


@st.composite
def shown(draw: st.DrawFn) -> Shown:
    """Any history, with changes that somebody made, and a room that leaves some of the values out."""
    knobs = start = turned(Knobs(64), {name: draw(st.sampled_from(values)) for name, values in EVERY_KNOB.items()})
    history: list[Interval] = []
    on_cpu = draw(st.booleans())
    for number in range(draw(st.integers(1, 12))):
        now = draw(_intervals(knobs, number, on_cpu))
        knob = draw(st.none() | st.sampled_from(sorted(EVERY_KNOB)))
        if knob is not None:
            value, by = draw(st.sampled_from(EVERY_KNOB[knob])), draw(st.sampled_from(["learned", "judge"]))
            now = now._replace(decision=Decision(knob, value, getattr(knobs, knob), by, "a test", 0.1, "nothing"))
        history.append(now)
        knobs = now.after
    history[-1] = history[-1]._replace(decision=None)
    knobs = history[-1].knobs
    allowed = {
        name: tuple(each for each in values if each == getattr(knobs, name) or draw(st.booleans()))
        for name, values in EVERY_KNOB.items()
        if draw(st.booleans())
    }
    objective = draw(st.sampled_from(get_args(Objective)))
    return history, Room(allowed, objective, start, on_cpu, draw(st.integers(0, 9)))
