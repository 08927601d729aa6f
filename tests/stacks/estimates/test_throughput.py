"""The projected band: by hand, in order, and around what is published of other people's GANs."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangway.components.catalog.loader import PROVIDERS, load, load_provider
from gangway.components.catalog.schema import MachineType
from gangway.components.core.findings import InputError
from gangway.components.estimate.scaling import Links, get_links, get_slices
from gangway.components.estimate.statistics import Band
from gangway.components.gcp.slices import plan_slice, slice_machine
from gangway.stacks.config.stack_config import StackConfig
from gangway.stacks.estimates.throughput import (
    FAST,
    SLOW,
    USUAL,
    Leg,
    Step,
    Work,
    about,
    find_course,
    get_step,
    get_train_config,
    project,
    rates,
    step_time,
    throughput,
    worker_peak,
)
from gangway.stacks.loading.loader import from_file
from gangway.stacks.program import get_program
from gangway.trainer.config.network_size import (
    discriminator_size,
    generator_size,
    least_flop,
    step_flop,
    step_operations,
)
from gangway.trainer.config.presets import PRESETS

Edited = Callable[[Callable[[dict[str, Any]], object]], StackConfig]
DIGITS, R3GAN = PRESETS["dcgan-digits"], PRESETS["r3gan-cifar10"]
# Nothing is known of what comes to a queue.
STACKS = sorted(
    path.stem.removeprefix("Pulumi.")
    for path in (Path(__file__).parents[3] / "stacks").glob("Pulumi.*.yaml")
    if "gangway:job:" in path.read_text("utf-8")
)


def stylegan2(resolution: int) -> tuple[float, int]:
    """FLOP of a step for each real image, and layers, of StyleGAN2 as its paper (arXiv:1912.04958) lays it out and
    stylegan2-ada-pytorch's `auto` sizes it: 3x3 convolutions, half the channels below 512x512; R1 every 16th step, path
    length every 4th on half the batch.
    """
    base = 16384 if resolution < 512 else 32768
    sizes = [4 << step for step in range(resolution.bit_length() - 2)]
    width = {each: min(base // each, 512) for each in sizes}
    generator = [9 * width[each] ** 2 * each**2 for each in sizes] + [3 * width[each] * each**2 for each in sizes]
    generator += [9 * width[each // 2] * width[each] * (each // 2) ** 2 for each in sizes[1:]]
    discriminator = [3 * width[resolution] * resolution**2]
    for each in sizes[1:]:
        halved = width[each] * width[each // 2] * (each // 2) ** 2
        discriminator += [9 * width[each] ** 2 * each**2, 9 * halved, halved]
    discriminator += [9 * 513 * 512 * 16, 512 * 512 * 16, 512]
    g, d = sum(generator), sum(discriminator)
    passes = (g + 6 * d) + (3 * g + 2 * d) + 6 * d / 16 + 6 * g / 4 / 2
    return 2 * passes, len(generator) + len(discriminator)


class Published(NamedTuple):
    """A speed that somebody has published. `peak`: of fp16, which these networks compute mostly in."""

    what: str
    step: Step
    peak_tflops: float
    network: Links | None
    workers: int
    images_per_second: float
    url: str


def of_stylegan2(resolution: int, gpu: str, workers: int, batch: int, sec_per_kimg: float, url: str) -> Published:
    flop, layers = stylegan2(resolution)
    step = Step((Work(1.0, flop, 20 * layers, 4 * 48e6),), batch, batch // workers, 1)
    peak, gbps = {"V100": (125.0, 1200), "A100": (312.0, 2400)}[gpu]
    network = None if workers == 1 else Links(8, gbps * 0.7, 100, 3e-6, 3e-5)
    return Published(
        f"StyleGAN2 {resolution} on {workers} x {gpu}", step, peak, network, workers, 1000 / sec_per_kimg, url
    )


ADA = "https://github.com/NVlabs/stylegan2-ada-pytorch (README, expected training time; read 2026-11-24)"
SG3 = "https://github.com/NVlabs/stylegan3 (docs/configs.md, FFHQ at 1024x1024; read 2026-11-24)"
R3 = "https://github.com/brownvc/R3GAN/issues/19 (4 days on 8 x L40 for 250,000 kimg; read 2026-11-24)"
PUBLISHED = [
    of_stylegan2(128, "V100", 1, 32, 13.25, ADA),
    of_stylegan2(128, "V100", 2, 64, 6.65, ADA),
    of_stylegan2(128, "V100", 4, 64, 4.35, ADA),
    of_stylegan2(128, "V100", 8, 64, 4.4, ADA),
    of_stylegan2(256, "V100", 1, 16, 22.9, ADA),
    of_stylegan2(256, "V100", 8, 64, 4.95, ADA),
    of_stylegan2(512, "V100", 1, 8, 73.7, ADA),
    of_stylegan2(512, "V100", 8, 64, 9.6, ADA),
    of_stylegan2(1024, "V100", 1, 4, 157.95, ADA),
    of_stylegan2(1024, "V100", 8, 32, 20.4, ADA),
    of_stylegan2(1024, "V100", 8, 32, 17.55, SG3),
    of_stylegan2(1024, "A100", 8, 32, 14.57, SG3),
    Published(
        "R3GAN's CIFAR-10, our preset's networks, on 8 x L40",
        get_step(R3GAN, 8),
        181.0,
        Links(8, 252 * 0.7, 100, 3e-6, 3e-5),
        8,
        250e6 / (4 * 86400),
        R3,
    ),
]


@pytest.mark.parametrize("published", PUBLISHED, ids=lambda one: one.what)
def test_what_is_published_lies_in_the_band(published: Published) -> None:
    band = rates([Leg(1.0, published.step, published.peak_tflops)], published.network, published.workers)
    assert band.low < published.images_per_second < band.high
    assert band.mid / 4 < published.images_per_second < 4 * band.mid, "and not at an end of it"


def test_a_step_of_one_worker_by_hand() -> None:
    """64 digits of 0.108 GFLOP on an H100's 494.5 TFLOP/s: 0.7 ms at 2 %, 47 us at 30 %; 224 to 344 launches."""
    flop, operations = step_flop(DIGITS), step_operations(DIGITS)
    assert flop == pytest.approx(108.136e6, rel=1e-3)
    assert operations == 10 * 8 * 2 + 30 * 4 / 16
    times = [step_time(get_step(DIGITS, 1), 494.5, None, 1, assumed) for assumed in (SLOW, USUAL, FAST)]
    products = [64 * flop / (494.5e12 * share) for share in (0.02, 0.08, 0.3)]
    assert [time.products_sec for time in times] == pytest.approx(products)
    assert times[0].whole_sec == pytest.approx(products[0] + 344 * 50e-6)
    assert times[1].whole_sec == pytest.approx(284 * 15e-6), "hidden behind starting them"
    assert times[2].whole_sec == pytest.approx(224 * 5e-6)


def test_gradients_travel_over_the_machines_links() -> None:
    """Ring all-reduces of 16 H100s in two nodes: by the model's own formula, nothing hidden at the slow end."""
    machine = load().machine("p5.48xlarge")
    links, step = get_links(machine), get_step(DIGITS, 16)
    gradients = 4 * (generator_size(DIGITS).parameters + discriminator_size(DIGITS).parameters)
    alone, together = (step_time(step, 494.5, network, 16, SLOW).whole_sec for network in (None, links))
    assert together - alone == pytest.approx(links.all_reduce_sec(16, gradients))


def test_micro_batches_start_operations_anew_and_graphs_replay_them() -> None:
    whole, parts = (get_step(DIGITS.replace({"batch_gpu": size}), 1).starts for size in (0, 16))
    assert (whole, parts) == (1, 4)
    assert get_step(DIGITS.replace({"cuda_graphs": True, "compile": "on"}), 1).starts == pytest.approx(0.2)


@given(
    name=st.sampled_from(sorted(PRESETS)),
    batch=st.integers(1, 512),
    nodes=st.integers(1, 63),
    tflops=st.floats(1, 3000),
)
def test_bands_are_in_order_and_more_nodes_are_slower_by_their_links_alone(
    name: str, batch: int, nodes: int, tflops: float
) -> None:
    config, links = (
        PRESETS[name].replace({"batch_size": batch, "batch_gpu": 0, "minibatch_std": 0}),
        get_links(load().machine("p4d.24xlarge")),
    )
    found = [rates([Leg(1.0, get_step(config, 8 * n), tflops)], links, 8 * n) for n in (nodes, nodes + 1)]
    for band in found:
        assert 0 < band.low <= band.mid <= band.high
    for assumed in (SLOW, USUAL, FAST):
        less, more = (
            step_time(get_step(config, 8 * n), tflops, network, 8 * n, assumed)
            for n, network in ((nodes, None), (nodes + 1, None))
        )
        assert more.whole_sec <= less.whole_sec
        assert more.products_sec <= less.products_sec
        travel = step_time(get_step(config, 8 * nodes + 8), tflops, links, 8 * nodes + 8, assumed)
        assert travel.whole_sec >= more.whole_sec


@pytest.mark.parametrize("num_nodes", [1, 2])
def test_a_run_takes_as_long_as_its_segments(num_nodes: int) -> None:
    """Each at its own batch, micro-batch and precision, as if the whole run were like that."""
    h100 = load().machine("p5.48xlarge")
    base = PRESETS["dcgan-cifar10"].replace({"kimg": 1000, "batch_size": 128})
    third = base.total_images // 3 // 4096 * 4096
    changes: list[dict[str, Any]] = [
        {},
        {"batch_size": 4096, "batch_gpu": 64},
        {"batch_size": 4096, "batch_gpu": 0, "precision": "bf16"},
    ]
    changing = base.replace(
        {"segments": [{"from_image": number * third, **each} for number, each in enumerate(changes) if each]}
    )
    shares = [third, third, changing.total_images - 2 * third]
    expected = [0.0] * 3
    for share, each in zip(shares, changes, strict=True):
        band = project(base.replace(each), h100, num_nodes).images_per_second
        assert band is not None
        expected = [sec + share / rate for sec, rate in zip(expected, (band.low, band.mid, band.high), strict=True)]
    found = project(changing, h100, num_nodes)
    assert found.images_per_second is not None
    rate = found.images_per_second
    assert [changing.total_images / each for each in (rate.low, rate.mid, rate.high)] == pytest.approx(expected)
    workers = 8 * num_nodes
    assert f"{128 // workers} of 128, then {4096 // workers} of 4096 images on each of {workers}" in found.source
    assert "494.5 TFLOP/s (tf32, the vendor's data sheet), then 989.5 TFLOP/s (bf16" in found.source
    course = find_course(changing, h100, workers)
    assert course is not None
    assert course.least_sec * 1e12 == pytest.approx(
        least_flop(base) * (2 * third / 494.5 + (changing.total_images - 2 * third) / 989.5) / changing.total_images
    )


def test_sizes_and_segments_that_come_together_are_as_each_alone() -> None:
    """A progressive run whose batch changes where its networks grow."""
    h100, config = load().machine("p5.48xlarge"), PRESETS["progan-celebahq512"]
    course = find_course(config, h100, 8)
    assert course is not None
    assert [leg.step.images for leg in course.legs] == [512, 256, 128, 64, 32]
    assert sum(leg.share for leg in course.legs) == pytest.approx(1)
    for leg in course.legs:
        assert sum(work.share for work in leg.step.work) == pytest.approx(1)
    sizes = [[work.flop for work in leg.step.work] for leg in course.legs]
    assert [len(each) for each in sizes] == [1, 1, 1, 1, 4], "4x4; 8x8; 16x16; 32x32; from 64x64 on all of 32"
    assert [each for one in sizes for each in one] == sorted(each for one in sizes for each in one)


def test_a_precision_without_a_known_peak_in_one_segment_leaves_the_run_unknown() -> None:
    t4 = load().machine("g4dn.xlarge")
    later = DIGITS.replace({"segments": [{"from_image": 6400, "precision": "bf16"}]})
    assert project(DIGITS, t4, 1).provenance == "projected"
    assert project(later, t4, 1).images_per_second is None


def test_what_was_measured_wins(edited: Edited) -> None:
    config = edited(lambda values: values.update({"gangway:estimate": {"images_per_second": 900}}))
    found = throughput(config, load().machine("p5.48xlarge"))
    assert (found.images_per_second, found.provenance) == (Band(900, 900, 900), "measured")
    assert (found.source, found.waiting) == ("gangway:estimate.images_per_second", None)


def test_what_nobody_can_project_is_unknown_with_the_reason(edited: Edited) -> None:
    demo, h100 = edited(lambda values: None), load().machine("p5.48xlarge")
    assert throughput(demo, h100).provenance == "projected"
    on_cpu = edited(lambda values: values["gangway:job"].update(settings={"backend": "gloo"}))
    habana = load().machine("dl1.24xlarge")
    no_links = h100.model_copy(update={"network_gbps": h100.network_gbps.model_copy(update={"value": None})})
    v4 = slice_machine(plan_slice(accelerator_type="v4-32"))
    for config, machine, why in (
        (on_cpu, h100, "workers compute on CPUs"),
        (demo, habana, "its peak is not known"),
        (demo, no_links, "no bandwidth of its network_gbps"),
        (demo, v4, "between its slices (DCN)"),
    ):
        found = throughput(config, machine)
        assert (found.images_per_second, found.provenance, found.waiting) == (None, "unknown", None)
        assert why in found.source


def test_slices_average_inside_and_then_between(edited: Edited) -> None:
    """Two of v5p-64, 32 chips of 50 Gbit/s each to the other slice, 0.7 of that."""
    two, one = (get_slices("v5p", plan_slice(accelerator_type="v5p-64").topology, 32, n) for n in (2, 1))
    assert one.all_reduce_sec(32, 1e9) == one.torus.all_reduce_sec(32, 1e9)
    assert two.all_reduce_sec(64, 1e9) - one.all_reduce_sec(32, 1e9) == pytest.approx(
        8 / (50 * 32 * 0.7) + 2 * two.between_latency_sec
    )
    with pytest.raises(InputError, match="no bandwidth of the network between its slices"):
        get_slices("v4", "2x2x4", 16, 2)


def test_a_tpu_multiplies_in_bf16_and_an_h100_in_what_is_asked_for() -> None:
    slice_, h100 = slice_machine(plan_slice(accelerator_type="v5litepod-16")), load().machine("p5.48xlarge")
    t4 = load().machine("g4dn.xlarge")

    def peak(machine: MachineType, **changes: Any) -> tuple[float, str]:
        found = worker_peak(DIGITS.replace(changes), machine)
        assert found is not None
        return found.tflops, found.numbers

    assert peak(slice_) == (197, "bf16")
    assert peak(h100) == (494.5, "tf32")
    assert peak(h100, tf32=False) == (67, "fp32")
    assert peak(h100, precision="bf16") == (989.5, "bf16")
    assert peak(t4) == (8.1, "fp32"), "which has no TF32"


@pytest.mark.parametrize("stack", STACKS)
def test_every_shipped_stack_has_a_band(repo: Path, stack: str) -> None:
    config = from_file(repo / "stacks" / f"Pulumi.{stack}.yaml")
    machine = get_program(config.provider).plan(config).machine
    found = throughput(config, machine)
    assert found.provenance == "projected"
    assert found.images_per_second is not None
    assert found.images_per_second.high * config.work.max_hours * 3600 > config.training.kimg * 1000
    assert get_train_config(config, machine).backend == ("xla" if machine.backend == "xla" else "auto")


def test_every_accelerator_with_a_peak_is_projected_alone() -> None:
    for provider in PROVIDERS:
        for machine in load_provider(provider).machines.values():
            if (course := find_course(DIGITS, machine, 1)) is not None:
                band = rates(course.legs, None, 1)
                assert 500 < band.low < band.mid < band.high < 1e6, machine.name


@pytest.mark.parametrize(
    ("number", "text"),
    [(25473, "25,000"), (99.6, "100"), (6.04, "6"), (6.16, "6.2"), (0.234, "0.2"), (1234567, "1,200,000")],
)
def test_a_projection_has_two_digits(number: float, text: str) -> None:
    assert about(number) == text
