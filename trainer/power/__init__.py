"""Power caps and clock limits of a job's GPUs, opt-in: asked for, searched for on the live job, and undone at the end.

`limits` is the whole job, `node` one of its machines, `search` the choice of a limit (pure), `ledger` what has to be
put back, `arguments` the flags. NVML's calls are in trainer.nvml, energy as such in trainer.energy. Nothing is imported
here.
"""
