"""The parts of one training step, each of which the loop (trainer.run.loop) calls by name. Imports nothing.

In: `batch` (a worker's share), `rng` (random numbers), `pinned_batch` (to a GPU), `progressive_schedule` (of networks
that grow). Computed: `losses` and `augment`, in the numbers of `precision`, with `compilation`. Out: `updates`.
"""
