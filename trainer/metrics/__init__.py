"""Quality: how good a generator's images are, by metrics that say how they were computed. Importing it loads nothing.

`names`, `record`, `history` and `words`: which metrics there are, what they leave in run.json and say; no torch.
`features`, `inception`, `c3d`, `recognition` and `frames`: the feature networks; `weights` their files. `collect`:
features over all workers; `frechet`, `scores`, `manifold`: a score from them; `spaces`: which network and score make a
metric. `judge`: all of a run's metrics by one protocol, `evaluate` of its newest checkpoint, `in_training` as it goes
on. `speed`: against torch-fidelity's.
"""
