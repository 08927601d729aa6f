import json
import re
import sys
from datetime import datetime, timezone
HELD = 'held.json'
_NAME = re.compile('([0-9]{10})-([A-Za-z0-9][A-Za-z0-9.-]{0,252})')
_MAX_AHEAD_SEC = 300
_MAX_NODES, _MAX_CHARS = (50, 1000)

def recent_failures(names, now, seconds):
 found = (match for name in set(names) if (match := _NAME.fullmatch(name)))
 times = sorted(((int(match[1]), match[2]) for match in found))
 return [node for time, node in times if now - seconds < time <= now + _MAX_AHEAD_SEC]

def check_limit(names, limit, seconds, mine):
 nodes = recent_failures([*names, mine], int(mine.partition('-')[0]), seconds)
 return nodes if len(nodes) >= limit else None

def main(argv):
 limit, seconds, stack, run_id, mine, reason = argv
 names = [line.split()[-1].rpartition('/')[2] for line in sys.stdin if line.strip()]
 if HELD in names:
  return 0
 nodes = check_limit(names, int(limit), int(seconds), mine)
 if nodes is None:
  return 1
 now, _, node = mine.partition('-')
 held = {'version': 1, 'run_id': run_id, 'stack': stack, 'node': node, 'reason': reason[:_MAX_CHARS], 'given_up': len(nodes), 'within_minutes': int(seconds) // 60, 'nodes': nodes[-_MAX_NODES:], 'time': datetime.fromtimestamp(int(now), timezone.utc).isoformat()}
 print(json.dumps(held))
 return 0
if __name__ == '__main__':
 sys.exit(main(sys.argv[1:]))
