"""The parts of one training step, each of which the loop (trainer.run.loop) calls by name. Imports nothing.

In: `batch` (a worker's share), `draws` (random numbers), `order` (a digest of which images), `parcel` (to a GPU),
`phases` (of networks that grow). Computed: `losses`, `augment` and `ada`, in the numbers of `precision`, `float8` and
`loss_scale`, with `compiling` and `memory`. Out: `updates` and `sums`.
"""
