"""Power of a run: energy meters, opt-in limits on its GPUs, and a start that waits for clean power. `limits` acts on
the whole job, `node` on one machine; `search` chooses a limit (pure); `saved_limits` restores them.
"""
