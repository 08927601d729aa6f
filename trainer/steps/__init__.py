"""The training state and the step over it: one step, compiled, recorded, pipelined or sharded."""
