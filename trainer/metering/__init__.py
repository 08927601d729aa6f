"""What is measured while a run goes on: the line of statistics and what stands in it.

`meters` makes the line; `energy` and `nvml` are joules, `flops` and `peaks` the share of a device's peak; `telemetry`
shows the last line to Prometheus. Where lines are kept is trainer.records.diary. Nothing is imported here.
"""
