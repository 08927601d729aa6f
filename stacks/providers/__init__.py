"""A package per provider, each with the same modules where the part exists; `base` is what a provider is, `registry`
which there are. Nothing is imported here: each provider pulls in its cloud's whole SDK.

`provider`: what is known without the SDK. `settings`: its section of the stack file. `plan`: the config with the
catalogue: sizes, zones, machine types. `findings`: what is wrong or worth knowing. `user_data`: what its machines are
started with. `component_factory`: arguments of each component. `program`: the components, wired together.
"""
