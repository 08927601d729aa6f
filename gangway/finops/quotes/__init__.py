"""What it costs before there is a stack file: `gangway quote` over every provider, `gangway tco` of rent or own."""
