"""Machines that are there already: what is put on them over SSH, and how it is taken away again. What other providers
have beside it does not exist here: no network, identity, registry or budget is made, and the machines mount their
own file systems. Nothing is imported here: a plan must not load what it does not need.
"""
