"""What became of every file and row that a job's data names: read, or excluded and why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from atoll.train.corpus.folders import Excluded
from atoll.train.corpus.source_files import SourceFiles, names_told, told

_MOST_NAMES: Final = 1000
"""Of files in a document; their number is always told."""


@dataclass(frozen=True, slots=True)
class ReadingReport:
    """Files and rows of a preparation.

    Attributes:
        train, held_out: files that were read, in their order.
        unread: how many more there are, behind the last that was needed (`max_tokens`).
        excluded: files of folders that are not text to use.
        skipped: by reason, rows that were excluded.
    """

    train: tuple[Path, ...] = ()
    held_out: tuple[Path, ...] = ()
    unread: int = 0
    excluded: tuple[Excluded, ...] = ()
    skipped: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, sources: SourceFiles, last: int, skipped: Mapping[str, int]) -> ReadingReport:
        """The account of files that were read up to the one with index `last`, held out first."""
        held_out = tuple(file.path for file in sources.held_out)
        train = tuple(file.path for file in sources.train)
        read = train[: max(last + 1 - len(held_out), 0)]
        excluded = tuple(sources.excluded)
        return cls(read, held_out, len(train) - len(read), excluded, dict(sorted(skipped.items())))

    def lines(self) -> list[str]:
        """For a person."""
        lines = [f"files      {_files(self.train)} to train on{self._beside()}"]
        if self.held_out:
            lines.append(f"           {_files(self.held_out)} to evaluate on")
        count = len(self.excluded)
        left = f"{count:,} of the folders: {told(self.excluded)}" if count else "no file"
        lines.append(f"excluded   {left}")
        if self.skipped:
            lines.append(f"skipped    {skipped_told(self.skipped)}")
        return lines

    def _beside(self) -> str:
        return f"; {self.unread:,} more behind data.max_tokens" if self.unread else ""

    def to_json_value(self) -> dict[str, Any]:
        """For JSON; of many files the first."""
        return {
            "files_to_train_on": len(self.train),
            "files_to_evaluate_on": len(self.held_out),
            "files_unread": self.unread,
            "files_excluded": len(self.excluded),
            "train": [str(path) for path in self.train[:_MOST_NAMES]],
            "held_out": [str(path) for path in self.held_out[:_MOST_NAMES]],
            "excluded": [
                {"path": str(item.path), "reason": item.reason}
                for item in self.excluded[:_MOST_NAMES]
            ],
            "skipped_rows": dict(self.skipped),
        }


def _files(paths: Sequence[Path]) -> str:
    what = "1 file" if len(paths) == 1 else f"{len(paths):,} files"
    return f"{what} ({names_told([path.name for path in paths])})"


def skipped_told(skipped: Mapping[str, int]) -> str:
    """Rows that were excluded, by reason."""
    total = sum(skipped.values())
    rows = "1 row" if total == 1 else f"{total:,} rows"
    return f"{rows}: " + ", ".join(f"{count:,} {reason}" for reason, count in skipped.items())
