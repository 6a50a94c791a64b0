"""`python -m atoll_verifier --config FILE`."""

from __future__ import annotations

import sys

from atoll.service.main import main
from atoll_verifier.service import serve

if __name__ == "__main__":
    sys.exit(main("atoll_verifier", serve))
