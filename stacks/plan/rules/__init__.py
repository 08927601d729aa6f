"""Guardrails: rules for all stacks, as pure functions over declared resources and the stack file. `gangway plan`
reports breaches as findings, the policy pack (`stacks/policy`) as violations.
"""
