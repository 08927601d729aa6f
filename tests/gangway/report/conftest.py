"""A plan, a sandbox, a run and its statistics as the demo makes them, written once as a report; and an HTML reader."""

import math
from collections.abc import Callable
from enum import StrEnum
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from PIL import Image

from gangway.report.page import write_report
from gangway.trainer.config.presets import preset
from gangway.trainer.records.run_record import RunRecord

HOSTILE = "<script>alert('x')</script> & \"$\\frac$\""
VOID = {"br", "img", "meta"}
INLINE = {"a", "b", "code", "span", "strong"}


class Status(StrEnum):
    EQUAL = "read back equal"
    ACCEPTED = "accepted"
    DIFFERENT = "different"


class Row(NamedTuple):
    type: str
    name: str
    status: Status
    calls: tuple[str, ...]
    note: str = ""


class Element(NamedTuple):
    tag: str
    attrs: dict[str, str]
    parts: list[str]

    @property
    def text(self) -> str:
        return " ".join("".join(self.parts).split())


class Page(HTMLParser):
    """Elements with their attributes and text; fails on an end tag that does not match."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[Element] = []
        self.elements: list[Element] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append(Element(tag, {key: value or "" for key, value in attrs}, []))
        if tag not in INLINE:
            self.handle_data(" ")
        if tag not in VOID:
            self.open.append(self.elements[-1])

    def handle_endtag(self, tag: str) -> None:
        assert self.open[-1].tag == tag, f"</{tag}> closes <{self.open[-1].tag}> at {self.getpos()}"
        self.open.pop()

    def handle_data(self, data: str) -> None:
        for element in self.open:
            element.parts.append(data)

    def find(self, tag: str, **attrs: str) -> list[Element]:
        wanted = {key.rstrip("_"): value for key, value in attrs.items()}
        return [element for element in self.elements if element.tag == tag and wanted.items() <= element.attrs.items()]

    def section(self, name: str) -> str:
        return self.find("section", **{"aria-labelledby": name})[0].text


def measured(value: float, unit: str, source: str) -> dict[str, Any]:
    return {"value": value, "unit": unit, "provenance": "measured", "source": source}


def absent(unit: str, why: str) -> dict[str, Any]:
    return {"value": None, "unit": unit, "provenance": "absent", "source": why}


def other(value: float, unit: str, provenance: str, source: str, as_of: str | None = None) -> dict[str, Any]:
    return {"value": value, "unit": unit, "provenance": provenance, "source": source, "as_of": as_of}


def session(start: str, world_size: int, first: int, last: int, ended_by: str) -> dict[str, Any]:
    at = f"2026-03-01T{start}+00:00"
    where = {"backend": "gloo: no CUDA device", "device": "cpu: AMD EPYC 9R14, 2 threads", "num_nodes": 1}
    progress = {"images_from": first, "images_to": last, "wall_sec": (last - first) / 1180}
    return {"start": at, "end": at, "world_size": world_size, "ended_by": ended_by, **progress, **where}


def build_record() -> RunRecord:
    lines = {"loss_g": (1.0312, 0.9471), "loss_d": (1.2214, 1.2806), "r1": (0.0183, 0.0249), "grad_norm_g": (0.4, 0.53)}
    joules = other(9135.5, "J", "estimated", "CPU time x 4.5 W per core, assumed")
    lost = {**measured(9.84, "s", "clock of rank 0"), "note": "stopping, restarting and loading"}
    protocol = {
        "extractor": "EfficientNet-Lite0, ImageNet", "weights_sha256": "e0" * 32, "dim": 1280,
        "resizer": "bilinear, antialias, 224", "num_reals": 1797, "num_fakes": 1797, "num_real_halves": 898,
        "split": "all", "seed": 0, "kimg": 150.016,
    }  # fmt: skip
    return RunRecord.model_validate(
        {
            "id": "aws-demo-20260301-081500",
            "status": "done",
            **{"stack": "aws-demo", "provider": "", "region": "", "machine_type": "", "image_digest": ""},
            "capacity": (),
            "num_nodes": 1,
            "sessions": [
                session("08:15:00.125", 2, 0, 60_032, "interrupt"),
                session("08:16:02", 1, 60_032, 150_016, "done"),
            ],
            "interruptions": [
                {"at": "2026-03-01T08:15:51+00:00", "images": 60_032, "cause": "SIGTERM", "lost_sec": lost}
            ],
            "code_sha256": "c0" * 32,
            "seed": 7,
            "dataset": {"name": "digits", "sha256": "da" * 32, "images": 1797},
            "config": preset("dcgan-digits"),
            "images": 150_016,
            "wall_sec": measured(127.31, "s", "monotonic clock of rank 0"),
            "images_per_sec": measured(1178.4, "images/s", "images / wall_sec"),
            "sec_per_kimg": measured(0.8486, "s/kimg", "wall_sec / kimg"),
            "scaling_efficiency": absent("", "no run with one process to compare with"),
            "summaries": {
                name: {"last": measured(last, "", f"{name}, last line"), "mean": measured(mean, "", f"{name}, mean")}
                for name, (last, mean) in lines.items()
            },
            "quality": [
                {
                    "name": "FD-ENL0",
                    "untrained": measured(412.61, "", "gangway.trainer.metrics.collect"),
                    "trained": measured(58.317, "", "gangway.trainer.metrics.collect"),
                    "real_vs_real": measured(11.902, "", "gangway.trainer.metrics.collect"),
                    "protocol": protocol,
                }
            ],
            "energy": {
                "devices": {"node0/cpu": joules, "node0/gpu": absent("J", "no GPU on this machine")},
                "it_joules": joules,
                "pue": other(1.15, "", "assumed", "region table", "2026-09-06"),
                "facility_joules": other(10505.8, "J", "estimated", "it_joules x pue"),
            },
            "carbon": {
                "gco2e": other(1.2023, "gCO2e", "estimated", "facility energy x intensity"),
                "intensity_g_per_kwh": other(412, "gCO2e/kWh", "assumed", "grid table", "2024-12-31"),
                "method": "location-based annual mean",
            },
            "cost": {
                "components": {"node-hours": other(0.0312, "USD", "list-price", "price list", "2026-09-06")},
                "total_usd": absent("USD", "no price for the disk"),
            },
            "peak_memory_gib": measured(1.284, "GiB", "ru_maxrss, all ranks"),
            "state_sha256": {"g": "ab" * 32, "d": "cd" * 32},
            "versions": {"torch": "2.15.0", "python": "3.11.7"},
        }
    )


def data_line(kimg: int, world_size: int, session: int) -> dict[str, Any]:
    wave = math.sin(kimg * 1.7) * math.exp(-kimg / 80)
    return {
        **{"images": kimg * 1000, "step": kimg * 16, "kimg": float(kimg), "wall_sec": kimg / 1.18, "rss_gib": 1.2},
        "time": 1772352900.125 + kimg / 1.18,  # 2026-03-01T08:15:00.125Z, when the record's first session began
        "images_per_sec": (1178 if world_size == 2 else 702) * (1 + 0.03 * math.sin(kimg * 2.3)),
        "loss_g": 0.9 + 0.4 * wave,
        "loss_d": 1.28 - 0.5 * math.exp(-kimg / 30) + 0.1 * wave,
        "r1": None if kimg % 3 else 0.02,
        "grad_norm_g": None if kimg == 5 else 0.5 + 0.2 * abs(wave),
        "grad_norm_d": 0.9 + 0.3 * abs(wave),
        "world_size": world_size,
        "session": session,
    }


def event(name: str, images: int) -> dict[str, Any]:
    return {"event": name, "images": images, "time": "2026-03-01T08:15:51+00:00"}


def build_stats() -> list[dict[str, Any]]:
    return [
        event("start", 0),
        *(data_line(kimg, 2, 0) for kimg in range(1, 61)),
        *(event("interrupt", 60_032), event("resume", 60_032)),
        *(data_line(kimg, 1, 1) for kimg in range(63, 151)),
        event("done", 150_016),
    ]


def component(name: str, quantity: float, price: float | None, hourly: float | None, **more: Any) -> dict[str, Any]:
    origin = {"source": "price list, us-east-1", "as_of": "2026-09-06", "confidence": "list-price"}
    return {"name": name, "unit": "hours", "quantity": quantity, "price": price, "hourly": hourly, **origin, **more}


def build_plan() -> dict[str, Any]:
    urn = "urn:pulumi:aws-demo::gangway::"
    inputs = {"userData": HOSTILE, "instanceType": "p5.48xlarge"}
    return {
        **{"stack": "aws-demo", "provider": "aws", "region": "us-east-2"},
        "resources": [
            {"urn": f"{urn}pool", "type": "gangway:aws:Pool", "name": "aws-demo", "parent": "", "inputs": {"n": 2}},
            {"urn": f"{urn}t", "type": "aws:ec2:Template", "name": HOSTILE, "parent": f"{urn}pool", "inputs": inputs},
            {"urn": f"{urn}vpc", "type": "aws:ec2/vpc:Vpc", "name": "vpc", "parent": None, "inputs": None},
        ],
        "findings": [
            {"severity": "info", "code": "capacity.rung", "path": "gangway:cluster", "message": "spot", "fix": ""},
            {"severity": "error", "code": "cost.budget", "path": "gangway:budget", "message": HOSTILE, "fix": "raise"},
        ],
        "cost": {
            **{"currency": "USD", "hourly": 50.43, "monthly": None, "run": None},
            "components": [
                component("nodes, spot", 2, 22.98, 45.96),
                component(HOSTILE, 9600, 0.34, 4.47, confidence="recalled"),
                component("head node", 1, None, None, source="", confidence="assumed"),
                component("nodes, on-demand", 2, 55.04, 110.08, standby=True),
            ],
        },
        "energy": {
            "kwh": 13.7,
            "it_kwh": 12.07,
            "pue": 1.135,
            "kwh_low": 8.9,
            "kwh_high": 18.5,
            "kwh_most": 41.5,
            "source": "8 x 700 W",
            "pue_source": "region table",
            "pue_as_of": "2024-12-31",
            "pue_confidence": "documented",
        },
        "carbon": {
            "gco2e": None,
            "intensity_g_per_kwh": 412,
            "method": "location-based",
            "source": "grid table",
            "sci": {"g_per_kimg": 0.25, "g_per_kimg_low": 0.16, "g_per_kimg_high": 0.36, "g_per_kimg_most": 9.5},
        },
        "job": {"name": "aws-demo", "module": "gangway.trainer", "env": {"NOTE": HOSTILE}},
        "versions": {"pulumi": "3.272.0", "python": "3.11.7"},
    }


def build_inputs(folder: Path) -> dict[str, Any]:
    grid = folder / "grid.png"
    Image.effect_noise((160, 96), 60).save(grid)
    rows = [
        Row("aws:ec2/vpc:Vpc", "aws-demo", Status.EQUAL, ("ec2:CreateVpc", "ec2:DescribeVpcs")),
        Row("aws:ec2/subnet:Subnet", "aws-demo-a", Status.EQUAL, ("ec2:CreateSubnet",)),
        Row("aws:budgets/budget:Budget", HOSTILE, Status.DIFFERENT, (), "moto drops the filter"),
    ]
    return {
        **{"plan": build_plan(), "sandbox": rows, "record": build_record(), "stats": build_stats()},
        "samples_png": grid,
        "reals_png": grid,
    }


@pytest.fixture
def hostile() -> str:
    return HOSTILE


@pytest.fixture
def record() -> RunRecord:
    return build_record()


@pytest.fixture
def stats() -> list[dict[str, Any]]:
    return build_stats()


@pytest.fixture
def plan() -> dict[str, Any]:
    return build_plan()


@pytest.fixture
def inputs(tmp_path: Path) -> dict[str, Any]:
    """The arguments of write_report after the directory, free to change."""
    return build_inputs(tmp_path)


@pytest.fixture
def make_event() -> Callable[[str, int], dict[str, Any]]:
    return event


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out"


@pytest.fixture(scope="session")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the report; look, do not touch."""
    folder = tmp_path_factory.mktemp("report")
    path = write_report(folder / "out", **build_inputs(folder))
    assert path == folder / "out" / "report.html"
    return path.parent


@pytest.fixture
def html(written: Path) -> str:
    return (written / "report.html").read_text()


@pytest.fixture(scope="session")
def parse() -> Callable[[str], Page]:
    return Page


@pytest.fixture
def page(html: str) -> Page:
    return Page(html)


@pytest.fixture
def page_of(out: Path) -> Callable[[dict[str, Any]], Page]:
    """Writes a report from these arguments and reads it."""
    return lambda inputs: Page(write_report(out, **inputs).read_text())
