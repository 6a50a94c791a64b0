"""What somebody says of the text that a job is trained on."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Final, Literal

from atoll.numerics.errors import DataUnusable

Format = Literal["auto", "text", "jsonl", "csv", "parquet", "datasets"]
BadRows = Literal["refuse", "skip"]
PUBLIC_NOTICE: Final = (
    "What is submitted becomes public: the text in tokens, the held-out part, the tokenizer with "
    "its folder's settings, the weights to start from and every model trained can be fetched by "
    "anyone, copied, and never taken back. Submit nothing that is secret, personal, or not yours "
    "to publish."
)
"""Shown before anything is paid for."""


@dataclass(frozen=True, slots=True)
class DataOptions:
    """Text, and how it becomes tokens. Constructing it raises DataUnusable on a wrong share.

    Attributes:
        paths: files, folders (searched in depth) and folders of the `datasets` library. Their order
            is the order of the tokens.
        format: of all files; `auto` goes by the name: `.jsonl`, `.ndjson` and `.json` that has
            rows, `.csv`, `.tsv`, `.parquet`, `.arrow`, a folder that `datasets` saved, and text
            otherwise. `.gz` and `.zst` may follow a name.
        field: what a row's text is under; empty is `text`, and where `chat` is set `messages`,
            ShareGPT's `conversations`, or Alpaca's `instruction` and `output`.
        chat: whether rows are conversations, of which the answers alone are learned.
        packed: tokens of a sequence that a document is not cut by where it fits in one; 0 puts
            documents one behind another.
        bad_rows: whether a row that cannot be taken is refused, or excluded and counted.
        suffixes: of the files taken from folders; None takes all.
        hidden: whether hidden files of folders are taken too.
        tokenizer: a tokenizer.json or a folder with one; None takes bytes as they are.
        end_token: what a document ends with; empty is what the tokenizer's folder says.
        held_out: the share of documents that is evaluated on, a decimal between 0 and 0.5.
        held_out_paths: as `paths`, of a text to evaluate on, all of it; no document of `paths` is
            held out then. Which of its documents are in `paths` too is not looked at.
        max_tokens: ends with the document that reaches so many tokens, held out ones included,
            but for those of `held_out_paths`.
        model_vocab: the model's vocabulary; None where it will be the tokenizer's.
        model_folder: of the model that training starts from, whose configuration goes with the
            result; None where weights are drawn.
    """

    paths: tuple[Path, ...]
    format: Format = "auto"
    field: str = ""
    chat: bool = False
    packed: int = 0
    bad_rows: BadRows = "refuse"
    suffixes: frozenset[str] | None = None
    hidden: bool = False
    tokenizer: Path | None = None
    end_token: str = ""
    held_out: str = "0.05"
    held_out_paths: tuple[Path, ...] = ()
    max_tokens: int | None = None
    model_vocab: int | None = None
    model_folder: Path | None = None

    def __post_init__(self) -> None:
        try:
            share = Decimal(self.held_out)
        except InvalidOperation:
            share = Decimal(-1)
        if not 0 < share <= Decimal("0.5"):
            raise DataUnusable(
                f"held_out = {self.held_out!r} is no share", next_step="take one in (0, 0.5]"
            )

    @property
    def is_masked(self) -> bool:
        """Whether some tokens are read and not learned."""
        return self.chat or self.packed > 0

    @property
    def column(self) -> str:
        """What a row's text is under, which is no conversation."""
        return self.field or "text"
