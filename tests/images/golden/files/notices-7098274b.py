import os
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
METADATA_URL = 'http://169.254.169.254'
TIMEOUT_SEC = 2.0
Poll = Callable[[], Iterable[tuple[str, str]]]

class Keeper:

 def __init__(self, file, poll):
  self._file, self._poll, self._trouble = (file, poll, '')

 def look(self):
  try:
   held = ''.join((f'{kind} {moment}'.rstrip() + '\n' for kind, moment in self._poll()))
  except Exception as error:
   said = f'cannot ask for notices, trying on: {type(error).__name__}: {error}'
   if said != self._trouble:
    print('gangway:', said, file=sys.stderr, flush=True)
   self._trouble = said
   return
  self._trouble = ''
  new = self._file.with_name(f'{self._file.name}.new')
  new.write_text(held, encoding='utf-8')
  new.replace(self._file)

def keep(file, poll, poll_sec):
 keeper, rest_sec = (Keeper(Path(file), poll), float(os.environ.get('GANGWAY_POLL_SEC', poll_sec)))
 while True:
  keeper.look()
  time.sleep(rest_sec)
