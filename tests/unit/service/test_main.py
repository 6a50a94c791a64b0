"""What a service does to its process before it starts."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

TRY = """
import json, resource
from atoll.service.main import raise_open_files
resource.setrlimit(resource.RLIMIT_NOFILE, (64, {hard}))
raise_open_files()
print(json.dumps(resource.getrlimit(resource.RLIMIT_NOFILE)))
"""


@pytest.mark.parametrize("hard", [64, 256])
def test_a_service_takes_the_open_files_that_it_may(hard: int) -> None:
    done = subprocess.run(
        [sys.executable, "-c", TRY.format(hard=hard)], capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout) == [hard, hard]
