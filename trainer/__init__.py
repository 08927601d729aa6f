"""The GAN trainer that Gangway puts on a cluster; what the launcher knows (price, region, machine) enters by
`--context`. From outside import only `gangway.trainer.config` and `gangway.trainer.records`, which do not import torch.
"""
