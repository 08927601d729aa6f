"""A report on several runs: grouped into rows, with mean and spread over seeds, beside the papers' own rows.

    members -> groups -> table -> page | Markdown | JSON, and drawings of the same groups

Not here: one run with its plan and sandbox (`stacks.report`), and whose bill it was (`stacks.finops.bill`). Nothing in
this package trains, prices or estimates: it reads records, and says of each number where the record has it from.
"""
