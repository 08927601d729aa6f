"""Guardrails: what every stack has to keep, as pure functions over what it declares and what its file says. `gangway
plan` makes findings of the breaches, the policy pack (`stacks/policy`) violations.
"""
