"""Local names are free in the code digest, and nothing else is that a name may decide."""

from __future__ import annotations

from pathlib import Path

import pytest

from atoll.train import code

PACKAGE = Path(code.__file__).parents[1]
FILES = [str(f.relative_to(PACKAGE)) for f in code.closure() if f.suffix == ".py"]


def words(text: str) -> bytes:
    return code._read(text.encode())[1]


SAME = [
    "def f(p):\n A = p\n return A",
    "def f():\n def g(): return A\n A = 1\n return g",
    "x = [A for A in y]",
    "x = lambda y: [A + y for A in y]",
    "def f(p):\n try: p()\n except E as A: return A",
    "def f(p):\n match p:\n  case [A, *B]: return A, B",
    "def f(p):\n match p:\n  case {1: A, **B}: return A, B",
    "def f(p):\n if (A := p): return A",
    "def f(p):\n [(A := B) for B in p]\n return A",
    "class K:\n def m(self):\n  with self as A: A += 1\n  return A",
    "def f():\n A = 1\n raise E(f'{A}')",
]
"""`A` and `B` are variables of the function."""
DIFFERENT = [
    # what can be seen from outside
    ("def f(a): return a", "def f(b): return b"),
    ("def f(*a): return a", "def f(*b): return b"),
    ("f = lambda a: a", "f = lambda b: b"),
    ("a = 1", "b = 1"),
    ("class K:\n a = 1", "class K:\n b = 1"),
    ("def f():\n global a\n a = 1", "def f():\n global b\n b = 1"),
    ("def f():\n from m import a\n return a", "def f():\n from m import b\n return b"),
    ("def f():\n def a(): pass\n return a", "def f():\n def b(): pass\n return b"),
    ("def f():\n class K:\n  a = 1\n return K", "def f():\n class K:\n  b = 1\n return K"),
    ("[(a := q) for q in p]", "[(b := q) for q in p]"),
    # what can be asked for
    *[
        (f"def f():\n a = 1\n return {asks}", f"def f():\n b = 1\n return {asks}")
        for asks in ("locals()", "vars()", "dir()", "eval('a')", "sys._getframe()", "h(locals)")
    ],
    ("def f():\n a = 1\n exec('b = a')", "def f():\n b = 1\n exec('b = a')"),
    ("@jit\ndef f():\n a = 1\n return a", "@jit\ndef f():\n b = 1\n return b"),
    ("def f():\n a = 1\n return f'{a=}'", "def f():\n b = 1\n return f'{b=}'"),
    # one variable is not another
    ("def f():\n a = g()\n return a", "def f():\n a = g()\n return b"),
    ("def f():\n a = b = g()\n a = h()\n return a", "def f():\n a = b = g()\n a = h()\n return b"),
    ("def f():\n a, b = g()\n return a", "def f():\n b, a = g()\n return a"),
    ("def f():\n from m import a, b\n return a", "def f():\n from m import a, b\n return b"),
    ("def f():\n a = 1\n return [a for b in g()]", "def f():\n a = 1\n return [a for a in g()]"),
    ("def f(a):\n return [a for a in a]", "def f(a):\n return [b for b in b]"),
    ("def f():\n a = 1\n return lambda: a", "def f():\n a = 1\n return lambda a: a"),
    ("def f():\n a = 1\n return lambda b=a: b", "def f():\n a = 1\n return lambda b=b: b"),
    ("def f():\n a = 1\n def g():\n  a = 2\n g()\n return a",
     "def f():\n a = 1\n def g():\n  nonlocal a\n  a = 2\n g()\n return a"),
    ("def f():\n a = 1\n def g():\n  a = 2\n  return a\n return a",
     "def f():\n a = 1\n def g():\n  b = 2\n  return a\n return a"),
    ("def f():\n x = 0\n [(x := i) for i in r]\n return x",
     "def f():\n x = 0\n [(y := i) for i in r]\n return x"),
    ("def f():\n len = 1\n return len", "def f():\n a = 1\n return len"),
    ("class K:\n def m(self):\n  __a = 1\n  _K__a = 2\n  return __a",
     "class K:\n def m(self):\n  __a = 1\n  b = 2\n  return __a"),
    # what a class makes of a name with two underscores, wherever it stands
    ("class K:\n def m(self):\n  global __a\n  _K__a = 2",
     "class K:\n def m(self):\n  global __a\n  b = 2"),
    ("class K:\n def m(self, __a):\n  _K__a = 2\n  return __a",
     "class K:\n def m(self, __a):\n  b = 2\n  return __a"),
    ("class K:\n def m(self):\n  import q as __a\n  _K__a = 2\n  return __a",
     "class K:\n def m(self):\n  import q as __a\n  b = 2\n  return __a"),
    # `super()` without arguments looks for a variable of this name
    ("class K:\n def m(self):\n  __class__ = D\n  return lambda: super().n()",
     "class K:\n def m(self):\n  other = D\n  return lambda: super().n()"),
]  # fmt: skip


@pytest.mark.parametrize("text", SAME)
def test_a_variable_may_be_called_anything(text: str) -> None:
    one, other = (
        text.replace("A", name).replace("B", second) for name, second in (("a", "b"), ("z", "a"))
    )
    assert words(one) == words(other)


@pytest.mark.parametrize(("one", "other"), DIFFERENT)
def test_what_a_name_may_decide_is_in_the_digest(one: str, other: str) -> None:
    assert words(one) != words(other)


@pytest.mark.parametrize(
    "word", ["f_locals", "co_varnames", "_getframe", "currentframe", "gi_frame", "import locals"]
)
def test_no_file_asks_what_anothers_variables_are_called(word: str) -> None:
    assert not [name for name in FILES if word in (PACKAGE / name).read_text()]
