"""Costs before there is a stack file: `gangway quote` over every provider, `gangway tco` of renting or owning."""
