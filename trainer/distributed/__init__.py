"""Many workers as one: who is who, what they send each other, and whether they still agree. Imports nothing.

`ranks` is what torchrun tells a worker, `distributed` the collectives and data parallelism, `sharding` networks that
are split, `xla` TPUs, `membership` which nodes take part, `agreement` whether all train the same networks.
"""
