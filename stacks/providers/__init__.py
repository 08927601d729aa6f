"""A package per provider: from a StackConfig to that provider's components, and what the catalogue has to say first.

Each has the same modules where the part exists: `plan` (the config with the catalogue: sizes, zones, machine types),
`findings` (what is wrong or worth knowing), `boot` (what its machines are started with), `parts` (arguments of each
component) and `program` (the components, wired together). `settings` is what only one of them has. Nothing is imported
here: each provider pulls in its cloud's whole SDK.
"""
