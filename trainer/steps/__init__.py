"""The parts of one training step, each of which the loop (trainer.loop) calls by name.

In: `batch` (a worker's share of the images), `draws` (every random number), `order` (which images, as a digest),
`parcel` (on their way to a GPU), `phases` (what networks that grow make now). Computed: `losses`, `augment` and `ada`,
in the numbers of `precision`, `float8` and `loss_scale`, by `compiling` or without, in the `memory` there is. Out:
`updates` of the networks, and `sums`. Nothing is imported here.
"""
