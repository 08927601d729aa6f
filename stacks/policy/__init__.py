"""The policy pack: the rules of `stacks.planning.rules`, enforced by the Pulumi engine in any project.

    pulumi preview --stack aws-demo --policy-pack stacks/policy

A breach of severity error fails the preview or the update, a warning is advice; `--policy-pack-config` changes either.
Nothing in this folder may be called like a module of the standard library: the engine makes it sys.path[0].
"""
