"""What only the launcher knows of a run: stack, machine type, prices, grid. The stack writes it, the trainer copies it
into the record. Does not import torch.
"""

from pathlib import Path
from typing import Self

from pydantic import Field, ValidationError

from trainer.errors import from_validation
from trainer.figure import Figure, Frozen
from trainer.files import read_text_input

__all__ = ["RunContext"]


class RunContext(Frozen):
    """What only the launcher knows; the trainer copies it into the record. Read from the file given by `--context`.

    Attributes:
        run_id: the record's id; empty for one the trainer makes up.
        stack: name of the stack that made the machines.
        provider: aws, azure, gcp, openstack, kubernetes, or empty.
        region: as the provider spells it.
        machine_type: as the provider spells it.
        capacity: kinds of capacity in use, such as ("spot", "on-demand").
        num_nodes: nodes the launcher started with.
        image_digest: of the container image, sha256:...
        usd_per_hour: price of one node of the first kind for one hour.
        usd_per_hour_by_kind: price of one node for one hour, by kind of capacity.
        pue: power usage effectiveness of the data centre.
        intensity_g_per_kwh: carbon intensity of its grid, gCO2e/kWh, location-based.
        accelerator_watts: board power of one accelerator, W; for the estimate where it has no meter.
        accelerator_utilisation: mean share of board power while training, 0..1.
        accelerators_per_node: accelerators in one node; 0 where the launcher does not say.
        embodied_kg_per_accelerator: emissions of making one accelerator card, kg CO2e.
        accelerator_life_hours: how long a card is in use, h; its emissions are shared out over them.
        host_watts: power of one node without its accelerators, W; for the estimate where it has no meter.
        fabric_gbps: bus bandwidth that an all-reduce over several nodes should reach, Gbit/s.
        accelerator_tflops: peak of one accelerator, TFLOP/s, by number format: fp32, tf32, bf16, fp16, fp8.
    """

    run_id: str = ""
    stack: str = ""
    provider: str = ""
    region: str = ""
    machine_type: str = ""
    capacity: tuple[str, ...] = ()
    num_nodes: int = Field(default=1, ge=1)
    image_digest: str = ""
    usd_per_hour: Figure | None = None
    usd_per_hour_by_kind: dict[str, Figure] = Field(default_factory=dict)
    pue: Figure | None = None
    intensity_g_per_kwh: Figure | None = None
    accelerator_watts: Figure | None = None
    accelerator_utilisation: Figure | None = None
    accelerators_per_node: int = Field(default=0, ge=0)
    embodied_kg_per_accelerator: Figure | None = None
    accelerator_life_hours: Figure | None = None
    host_watts: Figure | None = None
    fabric_gbps: Figure | None = None
    accelerator_tflops: dict[str, Figure] = Field(default_factory=dict)

    @classmethod
    def read(cls, path: Path) -> Self:
        """Reads a context file. TrainerError: no such file, not JSON, an unknown field or a bad value."""
        try:
            return cls.model_validate_json(read_text_input(path, "give --context an existing JSON file"))
        except ValidationError as error:
            raise from_validation(error, str(path), known=cls.model_fields) from None
