"""A report on several runs: grouped into rows, with mean and spread over seeds, beside the papers' own rows.

    members -> groups -> table -> page | Markdown | JSON, and drawings of the same groups

Reads records and cites the source of each number; trains, prices and estimates nothing. One run with its plan and
sandbox: `gangway.report`; bills: `gangway.finops.bill`.
"""
