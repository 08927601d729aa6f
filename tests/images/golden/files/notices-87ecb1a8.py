import os
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
METADATA_URL = 'http://169.254.169.254'
TIMEOUT_SEC = 2.0
Poll = Callable[[], Iterable[tuple[str, str]]]

class NoticeFile:

 def __init__(self, file, poll):
  self._file, self._poll, self._error = (file, poll, '')

 def update(self):
  try:
   notices = ''.join((f'{kind} {moment}'.rstrip() + '\n' for kind, moment in self._poll()))
  except Exception as error:
   message = f'cannot read interruption notices, will retry: {type(error).__name__}: {error}'
   if message != self._error:
    print('gangway:', message, file=sys.stderr, flush=True)
   self._error = message
   return
  self._error = ''
  new = self._file.with_name(f'{self._file.name}.new')
  new.write_text(notices, encoding='utf-8')
  new.replace(self._file)

def write_notices(file, poll, poll_sec):
 notice_file, rest_sec = (NoticeFile(Path(file), poll), float(os.environ.get('GANGWAY_POLL_SEC', poll_sec)))
 while True:
  notice_file.update()
  time.sleep(rest_sec)
