"""A package per provider: from a StackConfig to that provider's components, and what the catalogue has to say first.

`base` is what a provider is, `registry` which there are. Each has the same modules where the part exists: `provider`
(what is known without the SDK), `settings` (its section of the stack file, which `stacks.config` reads for all),
`plan` (the config with the catalogue: sizes, zones, machine types), `findings` (what is wrong or worth knowing),
`user_data` (what its machines are started with), `component_factory` (arguments of each component) and `program` (the
components, wired together). Nothing is imported here: each provider pulls in its cloud's whole SDK.
"""
