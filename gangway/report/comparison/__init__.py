"""A report on several runs: grouped into rows, with mean and spread over seeds, beside the papers' own rows.

    members -> groups -> table -> page | Markdown | JSON, and drawings of the same groups

Elsewhere: one run with its plan and sandbox (`gangway.report`), and whose bill it was (`gangway.finops.bill`). Nothing
here trains, prices or estimates: it reads records and gives each number with its source in the record.
"""
