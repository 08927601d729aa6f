"""What all providers share: the protocol in `provider`, the list in `registry`, guardrails in `rule`.

Nothing here imports a provider; the registry loads one on demand.
"""
