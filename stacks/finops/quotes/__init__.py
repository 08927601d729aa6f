"""What it costs before there is a stack file: `gangway quote` over every provider, `gangway tco` of renting or buying.

`quote` and `tco` are the commands, `..._tables` what they print, `tco_inputs` what they take, `tco_plot` the picture.
The models are in components (quotes, ranking, offers, tco).
"""
