"""The checks: what each needs, what it compares, and by how much that may differ.

Bounds are of losses over twelve steps from the same seed (`worst_difference`). Two correct ways of computing part
step by step, for Adam makes a full step of any gradient however small: the bounds leave room for that, and none for a
wrong kernel, which shows in the first steps. What one H200 has shown stands in docs/benchmarks.md.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from gangway.trainer.power.limits import POWER_FLAG
from tools.gate.runs import DCGAN, FAMILIES, Gate, Machine, Outcome, Speed, Trained, worst_difference

_FP32, _TF32, _BF16, _FP16 = 5e-3, 3e-2, 8e-2, 3e-2
"""Rounding of 24, 11, 8 and 11 bits, grown over twelve steps."""
_OTHER_ORDER = 2e-3
"""The same numbers added up in another order: micro-batches, workers, fused kernels."""
_LONGER = 1e-2
"""The same over 28 steps."""
_PENALTY = 1e-4
"""Of the norm of a second derivative in strict float32."""
_ANYWHERE: Mapping[str, object] = MappingProxyType({})


@dataclass(frozen=True)
class Check:
    """One check. `lacking` says why a machine cannot try it, empty where it can; `about_sec` is what it may take."""

    title: str
    lacking: Callable[[Machine], str]
    run: Callable[[Gate], Outcome]
    about_sec: int = 60


def _no_device(machine: Machine) -> str:
    return "no CUDA device here" if machine.kind == "cuda" and not machine.gpus else ""


def _cuda_alone(machine: Machine) -> str:
    return "CUDA alone has it" if machine.kind == "cpu" else _no_device(machine)


def _two_workers(machine: Machine) -> str:
    """NCCL takes no two workers on one GPU."""
    if lacking := _no_device(machine):
        return lacking
    return "" if machine.workers > 1 else f"one {'GPU' if machine.kind == 'cuda' else 'core'}, and it takes two"


def _bf16(machine: Machine) -> str:
    if lacking := _no_device(machine):
        return lacking
    old = machine.kind == "cuda" and machine.capability < (8, 0)
    return f"{machine.gpus[0]} is older than bfloat16" if old else ""


def _tf32(machine: Machine) -> str:
    if lacking := _cuda_alone(machine):
        return lacking
    return f"{machine.gpus[0]} has no TF32" if machine.capability < (8, 0) else ""


def _power(machine: Machine) -> str:
    return _cuda_alone(machine) or machine.power


def _compared(found: Trained, wanted: Trained, bound: float, what: str, speed: Speed | None = None) -> Outcome:
    worst = worst_difference(found.losses, wanted.losses)
    figures = {"worst_difference": worst, "bound": bound, **(speed.figures() if speed else {})}
    return Outcome("passed" if worst <= bound else "failed", f"losses against {what}", figures)


def _penalty(gate: Gate) -> Outcome:
    """R1's gradient, a second derivative, against float64 on the CPU."""
    import torch

    from gangway.trainer.networks.factory import build
    from gangway.trainer.networks.precision import without_tf32
    from gangway.trainer.phases.losses import logits_and_squared_gradients
    from tools.gate.runs import plain_config

    gate.report("penalty")

    def gradient(device: str, dtype: torch.dtype) -> torch.Tensor:
        _, discriminator = build(plain_config())
        discriminator.to(device, dtype)
        images = torch.randn(8, 3, 32, 32, generator=torch.Generator().manual_seed(1)).to(device, dtype)
        penalty = logits_and_squared_gradients(discriminator, images, None)[1].mean()
        torch.autograd.backward(penalty)
        parts = [p.grad.double().cpu().flatten() for p in discriminator.parameters() if p.grad is not None]
        return torch.cat(parts)

    with without_tf32():
        here, exact = gradient(gate.machine.kind, torch.float32), gradient("cpu", torch.float64)
    worst = float((here - exact).norm() / exact.norm())
    figures = {"relative_error": worst, "bound": _PENALTY}
    return Outcome("passed" if worst <= _PENALTY else "failed", "R1's gradient against float64", figures)


def _fp32(gate: Gate) -> Outcome:
    found = gate.train("fp32", _ANYWHERE)
    speed = gate.speed("fp32, speed", _ANYWHERE)
    if gate.machine.kind == "cpu":
        return Outcome("passed", "the reference of all others here", speed.figures())
    return _compared(found, gate.train("fp32 on the CPU", _ANYWHERE, on_cpu=True), _FP32, "the CPU's", speed)


def _in(
    changes: Mapping[str, object], bound: float, switch: str = "", family: str = DCGAN
) -> Callable[[Gate], Outcome]:
    """Compares a way of computing with float32 on the same device, and its speed.

    `switch` is the choice that the run must have made.
    """
    prefix = "" if family == DCGAN else f"{family} "

    def run(gate: Gate) -> Outcome:
        name = prefix + ", ".join(f"{key} {value}" for key, value in changes.items())
        found = gate.train(name, changes, family=family)
        wanted = gate.train(f"{prefix}fp32", _ANYWHERE, family=family)
        if switch and not found.choices[switch].startswith("on"):
            return Outcome("failed", f"{switch} is {found.choices[switch]}")
        return _compared(found, wanted, bound, "fp32 here", gate.speed(f"{name}, speed", changes, family=family))

    return run


def _fp32_of(family: str) -> Callable[[Gate], Outcome]:
    """Compares a family in float32 on a GPU with the CPU; without a GPU, two memory layouts."""

    def run(gate: Gate) -> Outcome:
        found = gate.train(f"{family} fp32", _ANYWHERE, family=family)
        if gate.machine.kind == "cpu":
            contiguous = gate.train(f"{family} fp32 in NCHW", {"channels_last": False}, family=family)
            return _compared(found, contiguous, _FP32, "NCHW's")
        on_cpu = gate.train(f"{family} fp32 on the CPU", _ANYWHERE, family=family, on_cpu=True)
        return _compared(found, on_cpu, _FP32, "the CPU's")

    return run


def _get_checks(family: str) -> dict[str, Check]:
    """What is tried of each family but DCGAN, with which all other checks are made."""
    eager, compiled = {"precision": "bf16"}, {"precision": "bf16", "compile": "on"}
    return {
        family: Check(f"{family} in strict float32", _no_device, _fp32_of(family)),
        f"{family}-bf16": Check(f"{family} in bfloat16", _bf16, _in(eager, _BF16, family=family)),
        f"{family}-bf16-compile": Check(
            f"{family} in bfloat16, compiled", _bf16, _in(compiled, _BF16, "compile", family), 150
        ),
    }


def _step_graph(gate: Gate) -> Outcome:
    """Compares losses over enough steps for replays with and without penalties, and speed at a batch of 64."""
    changes: Mapping[str, object] = {"step_graph": "on"}
    longer: Mapping[str, object] = {"kimg": 28 * 64 / 1000}
    found, wanted = gate.train("step_graph on", {**changes, **longer}), gate.train("fp32, 28 steps", longer)
    if not found.choices["step_graph"].startswith("on"):
        return Outcome("failed", f"step_graph is {found.choices['step_graph']}")
    outcome = _compared(found, wanted, _LONGER, "fp32 here", gate.speed("step_graph on, speed", changes))
    before = gate.speed("batch of 64, speed", _ANYWHERE, batch=64)
    after = gate.speed("batch of 64 from a graph, speed", changes, batch=64)
    gained = {"images_per_sec_batch_64": after.images_per_sec}
    gained["speed_ratio_batch_64"] = after.images_per_sec / before.images_per_sec
    return Outcome(outcome.state, outcome.why, {**outcome.figures, **gained})


def _micro_batches(gate: Gate) -> Outcome:
    found, wanted = gate.train("micro-batches of 16", {"batch_gpu": 16}), gate.train("fp32", _ANYWHERE)
    return _compared(found, wanted, _OTHER_ORDER, "whole batches")


def _determinism(gate: Gate) -> Outcome:
    """The keys differ in what changes no step, so that the run is made twice."""
    exact = {"deterministic": True, "kimg": 28 * 64 / 1000}
    once = gate.train("deterministic", exact)
    runs = [gate.train("deterministic, again", {**exact, "keep_checkpoints": 4})]
    if gate.machine.kind == "cuda":
        runs.append(gate.train("deterministic, from a graph", {**exact, "step_graph": "on"}))
    parts = {part for run in runs for part, digest in once.digests.items() if run.digests[part] != digest}
    told = f"{len(runs) + 1} runs "
    told += f"differ in {', '.join(sorted(parts))}" if parts else "end in the same bits"
    return Outcome("failed" if parts else "passed", told)


def _workers(gate: Gate) -> Outcome:
    number = min(gate.machine.workers, 8)
    found = gate.train(f"{number} workers", _ANYWHERE, processes=number)
    return _compared(found, gate.train("fp32", _ANYWHERE), _OTHER_ORDER, f"one worker's; {number} workers")


def _graph_workers(gate: Gate) -> Outcome:
    """With the averages of gradients inside the graph of a step; and no slower than one worker with the same batch."""
    number = min(gate.machine.workers, 8)
    found = gate.train(f"step_graph on, {number} workers", {"step_graph": "on"}, processes=number)
    if not found.choices["step_graph"].startswith("on"):
        return Outcome("failed", f"step_graph is {found.choices['step_graph']}")
    name = f"step_graph on, {number} workers, speed"
    speed = gate.speed(name, {"step_graph": "on"}, processes=number)
    outcome = _compared(found, gate.train("fp32", _ANYWHERE), _OTHER_ORDER, f"one worker's; {number} workers", speed)
    one = gate.speed("step_graph on, speed", {"step_graph": "on"})
    ratio = speed.images_per_sec / one.images_per_sec
    figures = {**outcome.figures, "speed_ratio_to_one": ratio}
    if outcome.state == "passed" and ratio < 1:
        return Outcome("failed", f"{number} workers are slower than one ({ratio:.2f} x)", figures)
    return Outcome(outcome.state, outcome.why, figures)


def _compiled_workers(gate: Gate) -> Outcome:
    found, wanted = gate.train("compile, 2 workers", {"compile": "on"}, processes=2), gate.train("fp32", _ANYWHERE)
    if not found.choices["compile"].endswith("averages between workers included"):
        return Outcome("failed", f"compile is {found.choices['compile']}")
    return _compared(found, wanted, _OTHER_ORDER, "one worker's, uncompiled; 2 workers")


def _sharded(gate: Gate) -> Outcome:
    found = gate.train("FSDP2, 2 workers", {"shard": "fsdp2"}, processes=2)
    whole = gate.train("DDP, 2 workers", _ANYWHERE, processes=2)
    return _compared(found, whole, _OTHER_ORDER, "DDP's, 2 workers")


def _power_limit(gate: Gate) -> Outcome:
    """Draws less under a limit of four fifths of what it drew, and has its own limit back afterwards."""
    import pynvml

    pynvml.nvmlInit()
    board = pynvml.nvmlDeviceGetHandleByIndex(0)
    lowest_watts = pynvml.nvmlDeviceGetPowerManagementLimitConstraints(board)[0] / 1000
    before = pynvml.nvmlDeviceGetPowerManagementLimit(board)
    free = gate.speed("without a power limit", {"precision": "bf16"})
    if free.watts is None:
        return Outcome("not tried", "this GPU counts no energy")
    watts = max(lowest_watts, round(0.8 * free.watts))
    try:
        capped = gate.speed("with a power limit", {"precision": "bf16"}, flags=(POWER_FLAG, f"{watts:g}"))
    except RuntimeError as error:
        if "permission" in str(error).lower():
            return Outcome("not tried", "power limits may not be set here: root's right, and a container's to be given")
        raise
    after = pynvml.nvmlDeviceGetPowerManagementLimit(board)
    figures = {"limit_watts": watts, "watts": capped.watts or 0.0, "watts_before": free.watts}
    figures["speed_ratio"] = capped.images_per_sec / free.images_per_sec
    if after != before:
        return Outcome("failed", f"the limit was {before / 1000:g} W, and is {after / 1000:g} W afterwards", figures)
    kept = capped.watts is not None and capped.watts <= watts * 1.05
    return Outcome("passed" if kept else "failed", "keeps below its limit, and gives it back", figures)


CHECKS: Mapping[str, Check] = MappingProxyType(
    {
        "penalty": Check("R1's second derivative", _no_device, _penalty, 20),
        "fp32": Check("strict float32", _no_device, _fp32),
        "tf32": Check("TF32", _tf32, _in({"tf32": True}, _TF32)),
        "bf16": Check("bfloat16", _bf16, _in({"precision": "bf16"}, _BF16)),
        "fp16": Check("float16 with scaled losses", _no_device, _in({"precision": "fp16"}, _FP16)),
        "micro-batches": Check("gradients added up", _no_device, _micro_batches, 30),
        "compile": Check("torch.compile", _no_device, _in({"compile": "on"}, _OTHER_ORDER, "compile"), 150),
        "graphs": Check(
            "CUDA graphs of passes",
            _cuda_alone,
            _in({"compile": "on", "cuda_graphs": True}, _OTHER_ORDER, "compile"),
            150,
        ),
        "step-graph": Check("a CUDA graph of the step", _cuda_alone, _step_graph),
        "determinism": Check("the same bits twice", _no_device, _determinism, 40),
        "workers": Check("as many workers as devices", _two_workers, _workers, 40),
        "step-graph-workers": Check(
            "averages in the graph of a step",
            lambda machine: _cuda_alone(machine) or _two_workers(machine),
            _graph_workers,
            60,
        ),
        "compile-workers": Check("averages in compiled losses", _two_workers, _compiled_workers, 150),
        "fsdp2": Check("FSDP2", _two_workers, _sharded),
        "power": Check("a power limit", _power, _power_limit),
        "bf16-compile": Check(
            "bfloat16, compiled", _bf16, _in({"precision": "bf16", "compile": "on"}, _BF16, "compile"), 150
        ),
        **{name: check for family in FAMILIES if family != DCGAN for name, check in _get_checks(family).items()},
    }
)
"""By the name that `--only` takes, in the order in which they are tried."""
