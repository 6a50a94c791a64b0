"""Jobs as a person submits them: a file and `atoll job submit`, started again when it is killed."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from atoll.job.spec import JobSpec
from atoll.job.toml_files import to_toml
from atoll.protocol.types import JobId
from atoll_devnet.processes.cluster import Cluster
from atoll_devnet.processes.warm import MemberProcess

MAX_SPEND = "100000"


@dataclass
class Submission:
    """One file's job and the process that submits and serves it."""

    file: Path
    process: MemberProcess
    _job: JobId | None = field(default=None)

    @property
    def name(self) -> str:
        return f"submitter of {self.file.stem}"

    @property
    def job(self) -> JobId | None:
        """The job's number, once the process has said it."""
        if self._job is None:
            self._job = _told_job(self.process.log_file)
        return self._job

    @property
    def has_ended(self) -> bool:
        """Whether the process ended with code 0, which it does when its job has."""
        return self.process.exit_code == 0


def submission(cluster: Cluster, spec: JobSpec, number: int) -> Submission:
    """A job's file in a folder of its own, and its process, not started."""
    folder = cluster.folder / "submissions"
    folder.mkdir(exist_ok=True)
    file = folder / f"job-{number}.toml"
    file.write_text(to_toml(spec.but({"init.seed": number})), encoding="utf-8")
    keystore = next((cluster.submitter_folder / "keys").glob("*.json"))
    arguments = [
        *("job", "submit", str(file), "--max-spend", MAX_SPEND, "--yes", "--json"),
        *("--rpc", cluster.chain.rpc_url, "--home", str(cluster.folder / "home")),
        *("--deployment", str(cluster.submitter_folder / "deployment.json")),
        *("--keystore", str(keystore)),
        *("--password-file", str(cluster.submitter_folder / "password")),
    ]
    module = "atoll_devnet.processes.command"
    process = MemberProcess(file.stem, module, arguments, file.with_suffix(".log"))
    return Submission(file, process)


def _told_job(log: Path) -> JobId | None:
    if not log.exists():
        return None
    for line in log.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            document: Any = json.loads(line)
        except ValueError:
            continue
        if isinstance(document, dict) and "handle" in document:
            return JobId(int(document["job"]))
    return None
