"""What is measured while a run goes on: the line of statistics and what stands in it. Imports nothing.

`meters` makes the line; `energy` and `nvml` are joules, `flops` and `peaks` the MFU; `telemetry` is for Prometheus.
"""
