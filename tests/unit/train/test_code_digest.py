"""The code digest: what it covers, what changes it and what does not."""

from __future__ import annotations

import ast
import shutil
from hashlib import sha256
from pathlib import Path

import pytest

from atoll.train import code

EVERYTHING = '''
"""Prose."""
from __future__ import annotations
import a.b as c, d
from e.f import g as h, i
X: int = 0x7F_FF; Y = 1e-3; Z = -0.0; W = 2.5j; B = b"\\x00" b"y"; E = ...; N = None; T = True
S = "a\\u00e9\\U0001f40d" f"{X!r:>{Y}}b{Z=}" "c" f"{f'{W}'}d{{}}" f"{B:%Y}"
class K(L, metaclass=M):
    slots: str
    @staticmethod
    def f(p, /, q: int = 1, *r, s, t=2, **u) -> int:
        global X
        nonlocal_ = lambda v, *w, y=0, **z: (yield)
        return (n := q) if p and not r or s is not None else ~t ** -n @ u[1:2, ::3, ...]
async def k(*, o):
    async with o as (p, *q), r: await s
    async for t in [u async for u in v if w]: continue
    else: pass
    return {**a, "b": {c for c in d}, "e": {f: g for f, g in h}}, (yield)
def m():
    try: assert x < y <= z != w, "why"
    except* (A, B) as e: raise C("words") from e
    else: del x[0], y.z
    finally: x += 1; x //= 2; x @= y
    while x: break
    match x:
        case {"a": 1, **r} | [2, *_] if y: pass
        case P(q=-3, s=None) | "t" as v: return
        case _: yield from x
    with (a() as b, c()): print(*d, **e)
    if TYPE_CHECKING: import never
'''
"""One of each form that Python 3.11 has."""
PACKAGE, ROOT = Path(code.__file__).parents[1], Path(__file__).parents[3]
FILES = [str(file.relative_to(PACKAGE)) for file in code.closure()]


@pytest.fixture(scope="module")
def copied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("code") / "atoll"
    ignored = shutil.ignore_patterns("__pycache__", "artifacts")
    shutil.copytree(PACKAGE, folder, ignore=ignored)
    return folder


def test_the_digest_is_of_the_files_and_not_of_where_they_lie(copied: Path) -> None:
    assert code.digest_below(copied) == code.code_digest()


def with_other_prose(text: str) -> tuple[str, int]:
    """Each string that nobody uses gets a word more, each comment goes, each line its own; and how
    many strings that are: those of modules, classes and functions, and those below attributes.
    """
    tree, count = ast.parse(text), 0
    for node in ast.walk(tree):
        said = node.value if isinstance(node, ast.Expr) else None
        if isinstance(said, ast.Constant) and isinstance(said.value, str):
            said.value += " And a word more."
            count += 1
    return ast.unparse(tree), count


def test_prose_does_not_change_the_digest(tmp_path: Path) -> None:
    """Of all files at once: a digest that stays equal says so of every one of them."""
    other, counts = tmp_path / "atoll", dict[str, int]()
    for name in FILES:
        (other / name).parent.mkdir(parents=True, exist_ok=True)
        text = (PACKAGE / name).read_text()
        if name.endswith(".py"):
            told, counts[name] = with_other_prose(text)
            # In an odd place, too: comments stand where `ast` has none to write.
            told = f"# A word.\n{told}\n# Another.\n"
        else:
            told = "/* A word\n more. */\n" + text.replace("\n", "  \n\n") + "// end\n"
        (other / name).write_text(told)
    assert all(count or not (PACKAGE / name).read_text() for name, count in counts.items())
    assert sum(counts.values()) > 800  # 85 modules alone are a tenth of it
    assert code.digest_below(other) == code.code_digest()


@pytest.mark.parametrize("word", ["__doc__", "getdoc", "get_docstring", "getsource"])
def test_no_bit_can_follow_from_prose(word: str) -> None:
    """Nothing that the probe runs asks for the words that are free, so its digest stays, too."""
    assert not [name for name in FILES if word in (PACKAGE / name).read_text()]


def test_every_python_comes_to_the_same_tree() -> None:
    """Whoever runs another version serves the same jobs: what is written here, all of them give."""
    imported, words = code._read(EVERYTHING.encode())
    assert "never" not in imported
    assert sha256(words).hexdigest()[:16] == "9001313fc662068d"


def test_a_field_of_python_3_15_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """There, every import says that it is not lazy: `Import(names=[alias('x')], is_lazy=0)`."""
    before = code._read(EVERYTHING.encode())
    for node in (ast.Import, ast.ImportFrom):
        monkeypatch.setattr(node, "_fields", tuple(dict.fromkeys((*node._fields, "is_lazy"))))
        monkeypatch.setattr(node, "is_lazy", 0, raising=False)
    assert "is_lazy=0" in ast.dump(ast.parse("import x"))
    assert code._read.__wrapped__(EVERYTHING.encode()) == before


def test_c_is_covered(copied: Path) -> None:
    sources = [copied / name for name in FILES if name.endswith(".c")]
    assert sources
    for file in sources:
        text = file.read_text()
        file.write_text(text.replace("++", "--", 1))
        assert code.digest_below(copied) != code.code_digest()
        file.write_text(text)


def test_what_an_error_says_is_prose_and_which_it_is_is_not(copied: Path) -> None:
    file = copied / "protocol" / "draws.py"
    text = file.read_text()

    def digest(line: str) -> bytes:
        file.write_text(text + f"\n\ndef f():\n    {line}\n")
        return code.digest_below(copied)

    assert digest("raise ValueError('a')") == digest("raise ValueError('b', 1)")
    assert digest("raise ValueError('a')") != digest("raise KeyError('a')")
    file.write_text(text)


def test_an_import_inside_a_function_is_followed_and_a_type_checkers_is_not(tmp_path: Path) -> None:
    shutil.copytree(PACKAGE, tmp_path / "atoll", ignore=shutil.ignore_patterns("__pycache__"))
    root = tmp_path / "atoll"
    (root / "protocol" / "late.py").write_text("X = 1\n")
    (root / "protocol" / "typed.py").write_text("Y = 1\n")
    with (root / "protocol" / "draws.py").open("a") as file:
        file.write("\n\ndef f():\n    from atoll.protocol.late import X\n    return X\n")
        file.write("\nif TYPE_CHECKING:\n    from atoll.protocol.typed import Y\n")
    names = {str(file.relative_to(root)) for file in code.closure(root)}
    assert names - set(FILES) == {"protocol/late.py"}


def test_the_seat_of_the_dither_is_covered() -> None:
    """A seat more there gave every update other bytes, under an equal digest and probe."""
    line = "return DitherKey(self.data_seed, self.seat)"
    assert (PACKAGE / "train" / "seat_task.py").read_text().count(line) == 1
    assert "train/seat_task.py" in FILES


def test_what_only_brings_and_shows_content_is_not_covered() -> None:
    rooms = {name.split("/")[0] for name in FILES}
    assert rooms == {"errors.py", "nested.py", "protocol", "numerics", "aggregation", "train"}
    assert not {"train/tokenizer.py", "train/export.py", "train/probe.py"} & set(FILES)
