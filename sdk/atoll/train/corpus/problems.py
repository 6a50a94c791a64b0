"""Prompts with answers that can be checked, from JSON lines to words in the store.

Rule of this file: the result follows from the options and the files' bytes alone. A prompt's ids
are what the model would read of it as a text or as a conversation; a token's text is what its
tokenizer writes for it, of which special tokens have none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tokenizers import Tokenizer

from atoll.nested import loads
from atoll.numerics.errors import DataUnusable
from atoll.numerics.problems import Problem, written
from atoll.numerics.tokens import dtype_for
from atoll.protocol.manifest import DataSpec
from atoll.protocol.task_spec import MOST_ENDS, TaskSpec
from atoll.storage.cid import Cid
from atoll.storage.local import LocalStore
from atoll.train.belongings import Belongings
from atoll.train.continue_text import ends_of
from atoll.train.corpus.collect import belongings_of
from atoll.train.corpus.encoders import Encoder, open_encoder
from atoll.train.corpus.options import DataOptions
from atoll.train.corpus.reading_report import ReadingReport
from atoll.train.corpus.streams import reading
from atoll.train.data import write_tokens
from atoll.train.tokenizer import byte_tokenizer, tokenizing

_MOST_LINE: Final = 1 << 20
PROMPT, ANSWER = "prompt", "answer"


@dataclass(frozen=True, slots=True)
class ProblemOptions:
    """Where problems are, and what is asked of their answers.

    Attributes:
        text: paths, tokenizer, end token and model, as for a text; nothing else of it is read.
        task: fields of the task that the files do not say.
    """

    text: DataOptions
    task: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class PreparedProblems:
    """What a manifest says of them; `notes` are for people."""

    data: DataSpec
    task: TaskSpec
    vocab: int
    notes: tuple[str, ...] = ()
    account: ReadingReport = field(default_factory=ReadingReport)

    def spec(self, _eval_batches: int) -> DataSpec:
        """The manifest's section: of prompts none are held out."""
        return self.data


def prepare_problems(options: ProblemOptions, store: LocalStore) -> PreparedProblems:
    """Puts rows and tokens' texts into the store.

    Raises:
        DataUnusable: a file or a row cannot be taken, the tokenizer cannot be used, or there is no
            row.
        DiskFull, StorageError: the store cannot be written.
    """
    text = options.text
    encoder = open_encoder(text)
    problems = _read_all(text, encoder)
    vocab = text.model_vocab or encoder.vocab
    belongings = belongings_of(text, encoder)
    task = TaskSpec.model_validate(
        {
            "prompts": len(problems),
            "prompt_tokens": max(len(problem.prompt) for problem in problems),
            "answer_bytes": max(len(problem.answer) for problem in problems),
            "ends": _ends(belongings, encoder, vocab),
        }
        | dict(options.task)
    )
    dtype = dtype_for(task.least_values(vocab), mask_bits=0)
    with store.holding():
        words = written(problems, token_texts(encoder, vocab), task, dtype)
        data = write_tokens(words, store)
        tokenizer = store.add_bytes(belongings.to_bytes())
        for kept in (Cid.from_bytes(data.cid), Cid.from_bytes(data.nodes_cid), tokenizer):
            store.pin(kept, "data")
    spec = DataSpec(
        cid=data.cid,
        root=data.root,
        nodes_cid=data.nodes_cid,
        dtype=dtype,
        masked=False,
        aligned=False,
        train_tokens=len(words),
        eval_cid=None,
        eval_tokens=0,
        eval_batches=0,
        tokenizer_cid=tokenizer.to_bytes(),
    )
    longest = f"{task.prompts} prompts of at most {task.prompt_tokens} tokens"
    return PreparedProblems(spec, task, vocab, (longest,))


def read_problems(text: DataOptions, *, longest: int) -> list[Problem]:
    """The rows of some files, of which no prompt may have more tokens than the longest.

    Raises:
        DataUnusable: as `prepare_problems`, or a prompt is longer.
    """
    problems = _read_all(text, open_encoder(text))
    most = max(len(problem.prompt) for problem in problems)
    if most > longest:
        raise DataUnusable(f"a prompt has {most} tokens, of at most {longest} beside its answer")
    return problems


def _read_all(text: DataOptions, encoder: Encoder) -> list[Problem]:
    problems = [problem for path in text.paths for problem in _read(path, encoder)]
    if not problems:
        raise DataUnusable("there is no prompt", next_step="name files of rows in task.prompts")
    return problems


def _read(path: Path, encoder: Encoder) -> Iterator[Problem]:
    with reading(path), path.open("rb") as lines:
        for number, line in enumerate(iter(lambda: lines.readline(_MOST_LINE + 1), b""), start=1):
            name = f"{path}, line {number}"
            if len(line) > _MOST_LINE:
                raise DataUnusable(f"{name}: a row of more than {_MOST_LINE} bytes")
            if line.strip():
                yield _problem(line, encoder, name)


def _problem(line: bytes, encoder: Encoder, name: str) -> Problem:
    try:
        row = loads(line.decode())
    except ValueError as error:
        raise DataUnusable(f"{name}: no JSON: {error}", next_step="correct the row") from error
    prompt = row.get(PROMPT) if isinstance(row, dict) else None
    answer = row.get(ANSWER) if isinstance(row, dict) else None
    if not isinstance(answer, str) or not answer:
        raise DataUnusable(f"{name}: no text under {ANSWER!r}", next_step="correct the row")
    if isinstance(prompt, list) and all(_is_message(each) for each in prompt) and prompt:
        ids = _ids(encoder, _rendered(encoder, prompt, name), name, is_special=True)
    elif isinstance(prompt, str) and prompt:
        ids = _ids(encoder, prompt, name, is_special=False)
    else:
        raise DataUnusable(
            f"{name}: {PROMPT!r} is neither text nor messages", next_step="correct the row"
        )
    return Problem(ids, answer.encode())


def _is_message(value: object) -> bool:
    return isinstance(value, dict) and {"role", "content"} == {
        key for key, text in value.items() if isinstance(text, str)
    } == set(value)


def _rendered(encoder: Encoder, messages: list[dict[str, str]], name: str) -> str:
    try:
        return encoder.render(messages, True)
    # A template is somebody's program: whatever it raises is about this row.
    except Exception as error:
        raise DataUnusable(f"{name}: the chat template refuses the messages: {error}") from error


def _ids(encoder: Encoder, text: str, name: str, *, is_special: bool) -> tuple[int, ...]:
    if encoder.wholes is None:
        return tuple(text.encode())
    tokenizer = encoder.wholes.first
    tokenizer.encode_special_tokens = not is_special
    try:
        with tokenizing():
            ids = tokenizer.encode(text, add_special_tokens=False).ids
    except ValueError as error:
        raise DataUnusable(f"{name}: the tokenizer fails: {error}") from error
    if not ids or encoder.wholes.gone in ids:
        raise DataUnusable(f"{name}: the tokenizer has no tokens for all of the prompt")
    return tuple(ids)


def _ends(belongings: Belongings, encoder: Encoder, vocab: int) -> list[int]:
    ends = {encoder.end, *ends_of(belongings)}
    return sorted(end for end in ends if end < vocab)[:MOST_ENDS]


def token_texts(encoder: Encoder, vocab: int) -> list[bytes]:
    """What each token adds to a text; nothing for special ones, and for ids that are no token's."""
    if encoder.wholes is None:
        return [bytes([token]) if token < 256 else b"" for token in range(vocab)]
    tokenizer = encoder.wholes.tokenizer
    special = {id_ for id_, added in tokenizer.get_added_tokens_decoder().items() if added.special}
    plain = set(tokenizer.get_added_tokens_decoder())
    text_of = _letters(tokenizer)
    texts = []
    for token in range(vocab):
        piece = None if token in special else tokenizer.id_to_token(token)
        if piece is None:
            texts.append(b"")
        else:
            texts.append(piece.encode() if token in plain else text_of(piece))
    return texts


class _ByteLetters:
    """Pieces of a byte-level tokenizer: a letter of each is a byte."""

    def __init__(self) -> None:
        letters = byte_tokenizer().get_vocab()
        self._bytes = {ord(letter): byte for letter, byte in letters.items()}

    def __call__(self, piece: str) -> bytes:
        known = [self._bytes.get(ord(letter)) for letter in piece]
        return bytes(byte for byte in known if byte is not None)


def _sentence_piece(piece: str) -> bytes:
    """A piece whose spaces are ▁, or a byte as <0x0A>."""
    if len(piece) == 6 and piece.startswith("<0x") and piece.endswith(">"):
        try:
            return bytes([int(piece[3:5], 16)])
        except ValueError:
            pass
    return piece.replace("▁", " ").encode()


def _letters(tokenizer: Tokenizer) -> Callable[[str], bytes]:
    decoder: Any = loads(tokenizer.to_str()).get("decoder") or {}
    steps = decoder.get("decoders", [decoder])
    is_bytes = any(step.get("type") == "ByteLevel" for step in steps)
    return _ByteLetters() if is_bytes else _sentence_piece
