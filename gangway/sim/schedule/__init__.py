"""Many jobs on one cluster, simulated: capacity that comes and goes, policies that share it out, and what each comes
to in time, money, energy and carbon. Pure and replayable: the same jobs, cluster, seed and policy give the same result.
"""
