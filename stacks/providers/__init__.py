"""One package per provider, each with the same modules where the part exists; `stacks.base` is what they share.

`provider`: facts that need no SDK. `settings`: its section of the stack file. `plan`: the config with the catalogue:
sizes, zones, machine types. `findings`: what is wrong or worth knowing. `user_data`: what its machines start with.
`component_factory`: arguments of each component. `program`: the components, wired together.
"""
