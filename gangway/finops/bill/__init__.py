"""Bills of the clouds, exports that a person has downloaded, read row by row as charges in the words of FOCUS 1.4.

from gangway.finops.bill.reader import Bills
for charge in Bills([Path("focus.csv.gz")]).charges(): ...
"""
