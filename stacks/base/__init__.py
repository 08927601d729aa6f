"""What every provider is and shares: `provider` is the protocol, `registry` the list, `rule` what a guardrail is.

Nothing here imports a provider; the registry loads one when it is asked for.
"""
