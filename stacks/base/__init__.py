"""What all providers share: the protocol in `provider`, the list in `registry`, guardrails in `rule`."""
