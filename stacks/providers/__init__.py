"""One package per provider, with modules as needed: `provider` (facts that need no SDK), `settings` (its section of the
stack file), `plan`, `findings`, `user_data`, `component_factory`, and `program`, which connects them.
`gangway.stacks.base` is what they share.
"""
