"""The GAN trainer that Gangway puts on a cluster; what the launcher knows (price, region, machine) enters by
`--context`.

From outside import only `trainer.config`, `trainer.errors` and `trainer.record`, which do not import torch.
"""
