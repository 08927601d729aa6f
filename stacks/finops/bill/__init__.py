"""Bills of the clouds, read row by row: FOCUS, AWS's Cost and Usage Report, Google Cloud's billing export.

    from stacks.finops.bill.reader import Bills
    for charge in Bills([Path("focus.csv.gz")]).charges(): ...

Whatever the file, a row becomes a `Charge` in the words of FOCUS 1.4. Nothing is fetched: exports are files that a
person has downloaded. What is made of charges and run records is `stacks.finops.bill.cost_allocation`.
"""
