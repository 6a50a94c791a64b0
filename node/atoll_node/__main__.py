"""`python -m atoll_node --config FILE`."""

from __future__ import annotations

import sys

from atoll.service.main import main
from atoll_node.service import serve

if __name__ == "__main__":
    sys.exit(main("atoll_node", serve))
