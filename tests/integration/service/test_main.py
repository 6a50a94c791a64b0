"""What a service does to its process before it starts."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from atoll.errors import of_disk
from atoll.service import main as main_module
from atoll.service.main import main


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (PermissionError(errno.EACCES, "Permission denied", "/data"), "/data: Permission denied"),
        (FileNotFoundError(errno.ENOENT, "No such file or directory", "/x"), "/x: No such file"),
        (OSError(errno.ENOSPC, "No space left on device", "/data"), "the disk is full: /data"),
        (OSError(errno.ENOSPC, "No space left on device"), "the disk is full: "),
    ],
)
def test_what_the_file_system_refuses_is_one_line(
    error: OSError, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    config = tmp_path / "config.toml"
    lines = ("deployment", "keystore", "password_file", "data_dir")
    config.write_text('rpc_urls = ["http://x"]\n' + "".join(f'{n} = "{n}"\n' for n in lines))

    async def run(config: Any) -> None:
        raise error

    monkeypatch.setattr(main_module, "raise_open_files", lambda: None)
    # Both are of the whole process, and of every test after this one.
    monkeypatch.setattr(os, "umask", lambda mask: mask)
    monkeypatch.setattr(main_module, "logs_configured", lambda config, speaks: nullcontext())
    assert main("atoll node run", run, ["--config", str(config)]) == 4
    first, second = capsys.readouterr().err.splitlines()
    assert first.startswith(f"error: {text}")
    assert second.startswith("next: ")


def test_an_error_that_names_no_file_is_no_users_mistake() -> None:
    with pytest.raises(OSError, match="Bad file descriptor"):
        of_disk(OSError(errno.EBADF, "Bad file descriptor"))


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
