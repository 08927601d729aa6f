"""`gangway plan`: a stack file, judged and priced offline.

`plan` makes it, with the provider's own part (stacks.providers), `checks`, `money_findings`, `ladder_costs`, `usage`,
`run_context` and `trainer_image`. `plan_output`, `show` and `show_difference` print it, `difference` compares two,
`infracost` says it in Infracost's shape. Nothing here asks a cloud.
"""
