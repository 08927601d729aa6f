"""Power of a run: caps and clock limits of its GPUs, opt-in, and a start that waits for clean power.

`limits` is the whole job, `node` one of its machines, `search` the choice of a limit (pure), `ledger` what has to be
put back, `arguments` the flags; `carbon_start` is when a job begins, by a `forecast`. NVML's calls and joules are in
trainer.metering. Nothing is imported here.
"""
