"""One package per provider, with these modules as needed; `gangway.stacks.base` is what they share.

`provider`: facts that need no SDK. `settings`: its section of the stack file. `plan`: sizes, zones and machine types,
from config and catalogue. `findings`: problems and notes. `user_data`: boot files of the machines. `component_factory`:
the components. `program`: connects them.
"""
