"""Many workers as one: who is who, what they send each other, and whether they still agree.

`ranks` is what torchrun tells a worker, `distributed` the collectives and data parallelism, `sharding` networks that
are split, `xla` TPUs, `devices` what each computes on. `membership` is which nodes take part, `fabric` how fast the
network between them is, `agreement` whether all train the same networks. Starting them is trainer.launch. Nothing is
imported here.
"""
