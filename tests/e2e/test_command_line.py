"""Bad input: one clear line, the next command, a documented exit code; and nothing else happens."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.patience import PATIENCE

from atoll.chain.keys import create_key
from atoll.job.presets import preset
from atoll.job.toml_files import to_toml
from atoll_devnet.processes.cluster import Cluster
from atoll_devnet.processes.process import free_port

PASSWORD = "correct horse battery"
SPEND = ("--max-spend", "1000", "--yes")


def atoll(*arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Runs the command as a person would, without a terminal."""
    return subprocess.run(
        [sys.executable, "-m", "atoll.cli.main", *arguments],
        capture_output=True,
        text=True,
        timeout=PATIENCE,  # no limit of the command: it ends a test that hangs
        check=False,
        stdin=subprocess.DEVNULL,
        env={**os.environ, "NO_COLOR": "1", **env},
    )


def assert_refused(done: subprocess.CompletedProcess[str], code: int, *words: str) -> None:
    """One error line with these words, a next step, this exit code, and nothing on stdout."""
    assert done.returncode == code, done.stderr
    lines = done.stderr.strip().splitlines()
    assert lines[-2].startswith("error: "), done.stderr
    assert lines[-1].startswith("next: "), done.stderr
    assert all(word in done.stderr for word in words), done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


@pytest.fixture
def key(tmp_path: Path) -> tuple[str, ...]:
    """Options that name a key without a coin."""
    password = tmp_path / "password"
    password.write_text(PASSWORD)
    info = create_key(tmp_path / "keys", PASSWORD, devnet=True)
    return ("--keystore", str(info.path), "--password-file", str(password))


def job_file(folder: Path, text: Path) -> str:
    """A job file of the demo's preset over that text."""
    path = folder / "job.toml"
    path.write_text(to_toml(preset("demo").but({"data.paths": [str(text)]})))
    return str(path)


def _net(cluster: Cluster) -> tuple[str, ...]:
    deployment = str(cluster.submitter_folder / "deployment.json")
    home = str(cluster.folder / "home")
    return ("--rpc", cluster.chain.rpc_url, "--deployment", deployment, "--home", home)


def test_help_is_fast_and_loads_no_torch() -> None:
    code = "import sys; sys.argv = ['atoll', '--help']\nfrom atoll.cli.main import main\n"
    code += "try:\n    main()\nexcept SystemExit:\n    pass\n"
    code += "sys.exit(3 if 'torch' in sys.modules else 0)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr


def test_keys_are_made_listed_and_verified(tmp_path: Path) -> None:
    password = tmp_path / "password"
    password.write_text(PASSWORD)
    options = ("--password-file", str(password), "--json")
    made = json.loads(atoll("keys", "new", "--folder", str(tmp_path / "k"), *options).stdout)
    listed = json.loads(atoll("keys", "list", "--folder", str(tmp_path / "k"), "--json").stdout)
    assert listed == [made]
    assert json.loads(atoll("keys", "verify", made["keystore"], *options).stdout)["ok"] is True


def test_a_missing_key(tmp_path: Path) -> None:
    done = atoll("keys", "verify", str(tmp_path / "none.json"), "--password-file", "/dev/null")
    assert done.returncode == 2
    assert done.stderr.startswith("error: ")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--cheat", "2-lazy"], ("2-lazy", "--cheat 2:lazy")),
        (["--cheat", "2:lasy"], ("lasy", "sign-flip")),
        (["--cheat", "9:lazy"], ("no seat 9",)),
        (["--cheat", "2:lazy+hollow"], ("lazy", "hollow", "same thing")),
        (["--verifier-cheat", "1:lazy"], ("no verifier cheat",)),
        (["--data", "/no/such/place"], ("/no/such/place",)),
        (["--chain", "geth"], ("geth",)),
        (["--set", "method.codec=int3"], ("int3", "grid4")),
        (["--set", "inner.lrr=1"], ("inner.lrr", "inner.lr?")),
        (["--preset", "huge"], ("huge", "nano")),
        (["--job", "/no/such/job.toml"], ("/no/such/job.toml",)),
    ],
)
def test_a_run_that_cannot_be(arguments: list[str], words: tuple[str, ...], tmp_path: Path) -> None:
    done = atoll("devnet", "run", "--folder", str(tmp_path / "run"), *arguments)
    assert_refused(done, 2, *words)
    assert not (tmp_path / "run").exists()


def test_a_missing_anvil(tmp_path: Path) -> None:
    done = atoll("devnet", "run", "--folder", str(tmp_path / "run"), ATOLL_ANVIL="/no/anvil")
    assert_refused(done, 2, "/no/anvil", "ATOLL_ANVIL")


def test_a_port_in_use(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        done = atoll("devnet", "up", "--port", port, "--folder", str(tmp_path / "net"))
    assert_refused(done, 2, port, "in use")


async def test_a_job_nobody_pays_for(
    network: Cluster, key: tuple[str, ...], tmp_path: Path
) -> None:
    text = tmp_path / "text"
    text.write_text("to be or not to be\n" * 4000)
    job = job_file(tmp_path, text)
    done = atoll("job", "submit", job, *_net(network), *key, *SPEND)
    assert_refused(done, 3, "tokens")


async def test_bad_jobs_paths_and_keys(
    network: Cluster, key: tuple[str, ...], tmp_path: Path
) -> None:
    bad = tmp_path / "bad.toml"
    bad.write_text("rounds = 0\n")
    net = _net(network)
    assert_refused(atoll("job", "submit", str(bad), *net, *key, *SPEND), 2, "rounds", str(bad))
    nowhere = tmp_path / "nowhere"
    assert_refused(atoll("job", "submit", str(nowhere), *net, *key, *SPEND), 2, str(nowhere))
    assert_refused(
        atoll("job", "submit", job_file(tmp_path, nowhere), *net, *key, *SPEND), 2, str(nowhere)
    )
    assert_refused(atoll("job", "submit", job_file(tmp_path, bad), *net, *SPEND), 2, "key")


async def test_the_wrong_chain_and_no_chain(network: Cluster, tmp_path: Path) -> None:
    deployment = json.loads((network.submitter_folder / "deployment.json").read_text())
    deployment["chain_id"] = 1
    other = tmp_path / "other.json"
    other.write_text(json.dumps(deployment))
    net = list(_net(network))
    gone = [*net]
    gone[1] = f"http://127.0.0.1:{free_port()}"
    net[3] = str(other)
    assert_refused(atoll("job", "status", "1", *net), 3, "chain")
    assert_refused(atoll("job", "status", "1", *gone), 3, gone[1])
