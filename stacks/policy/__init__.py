"""The policy pack: `pulumi preview --stack aws-demo --policy-pack stacks/policy` enforces the rules of
`gangway.stacks.plan.rules`.

An error fails the preview or the update, a warning is advice; `--policy-pack-config` changes either. The engine makes
this folder sys.path[0]: no module here may have the name of a standard-library module.
"""
