"""What only the user can know about a run and the estimate needs: measured rates, and how much data passes.

Declares nothing: whatever stands here changes figures and findings, and no resource. A value left out is one that
nobody knows, and the plan says what it leaves out of its estimate.
"""

from pydantic import Field

from components.fields import Amount, Number, PercentBelow100, PositiveNumber
from components.spot import RESTART_SEC, SAVE_SEC
from stacks.settings.sections import Section

__all__ = ["EstimateConfig"]


class EstimateConfig(Section):
    """Figures of a run, as an earlier one has shown them.

    Attributes:
        taken_percent_per_month: of spot nodes, how many the provider takes within 720 hours; else the catalogue's.
        images_per_second: of the whole job; else the pace that ends just within job.max_hours.
        checkpoint_sec: training stands still for so long at each.
        restart_sec: from the end of a spot node until training goes on.
        source_gib: size of storage.source, for its transfer from another region.
        source_region: where storage.source is; the stack's own region when left out.
        nat_gib: what a run brings in through the NAT gateway: packages, images.
        log_gib: what a run logs.
        download_gib: results of a run that leave the cloud.
    """

    taken_percent_per_month: PercentBelow100 | None = Field(default=None, examples=[8])
    images_per_second: PositiveNumber | None = Field(default=None, examples=[1200])
    checkpoint_sec: Number = Field(default=SAVE_SEC, gt=0, examples=[3])
    restart_sec: Number = Field(default=RESTART_SEC, ge=0, examples=[420])
    source_gib: Amount | None = Field(default=None, examples=[40])
    source_region: str | None = Field(default=None, min_length=1, examples=["us-east-1"])
    nat_gib: Amount | None = Field(default=None, examples=[60])
    log_gib: Amount | None = Field(default=None, examples=[1])
    download_gib: Amount | None = Field(default=None, examples=[5])
