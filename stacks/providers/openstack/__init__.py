"""A stack in a private cloud on OpenStack, from its StackConfig: what it means, what to know, what is declared."""
