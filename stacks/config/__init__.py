"""What a person writes in a stack file, read and checked where it enters.

`stack_file` and `loader` find and read it, `config` is the whole of it, `sections`, `provider_settings`,
`openstack_section`, `estimate_section` and `job_settings` its parts, `config_errors` the words in which a mistake is
told. Nothing here knows of a cloud's resources.
"""
