"""Power of a run: caps and clock limits of its GPUs, opt-in, and a start that waits for clean power. Imports nothing.

`limits` is the whole job, `node` one machine, `search` the choice of a limit (pure), `saved_limits` what has to be put
back.
"""
