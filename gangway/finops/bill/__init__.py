"""Cloud bills in downloaded exports, read row by row as charges in the terms of FOCUS 1.4.

from gangway.finops.bill.reader import Bills
for charge in Bills([Path("focus.csv.gz")]).charges(): ...
"""
