"""The GAN trainer that Gangway puts on a cluster: data, networks, DDP loop, exact resume, run record.

It knows nothing of clouds: what the launcher knows (price, region, machine) enters as one JSON file, `--context`.
Only `trainer.config`, `trainer.errors` and `trainer.record` are meant to be imported from outside; they do not
import torch.
"""
