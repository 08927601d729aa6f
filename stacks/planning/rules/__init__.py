"""Guardrails: what every stack has to keep, as pure functions over what it declares and what its file says.

`gangway plan` makes findings of the breaches, the policy pack (`stacks/policy`) violations: the same functions, codes
and severities. Not a scanner of what already runs: that is `gangway audit`.

- `rule`: what a rule is, and the limits that an organisation may set
- `tags`, `addresses`, `machines`, `regions`: rules about one resource
- `whole`: rules about all resources together
- `planned`: rules about the stack file; most are findings of the plan, enforced by their codes
- `guardrails`: all of them, and the findings a plan makes of them
"""
