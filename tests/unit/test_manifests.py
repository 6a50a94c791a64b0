"""What tests change of a manifest is changed, and nothing beside it."""

from __future__ import annotations

import pytest
from tests.support.manifests import BASES, Base, make_manifest, plain_manifest, whole_manifest

from atoll.protocol.manifest import Manifest


@pytest.mark.parametrize("base", BASES)
def test_every_base_is_valid_as_it_is_written(base: Base) -> None:
    manifest = make_manifest(base=base)
    assert Manifest.from_bytes(manifest.to_bytes()) == manifest
    followed = whole_manifest(base=base)
    assert followed.model_copy(update={"tables": manifest.tables}) == manifest


def test_a_path_changes_one_field_and_a_group_those_that_it_names() -> None:
    plain, changed = (
        plain_manifest(),
        plain_manifest({"inner.steps": 80, "codec": {"kind": "sign"}}),
    )
    assert (changed["inner"].pop("steps"), plain["inner"].pop("steps")) == (80, 40)
    assert (changed["codec"].pop("kind"), plain["codec"].pop("kind")) == ("sign", "grid8")
    assert changed == plain


@pytest.mark.parametrize("path", ["inner.stepz", "noise", "codec.exponents.bias"])
def test_a_path_that_there_is_not_is_refused(path: str) -> None:
    with pytest.raises(KeyError):
        plain_manifest({path: 1})


def test_what_follows_from_a_change_follows() -> None:
    changes = {"inner.steps": 20, "codec.feedback": "1", "model.seq": 32}
    manifest = whole_manifest(changes)
    assert (manifest.terms.steps, manifest.terms.tokens_per_step) == (20, 8 * 32)
    assert (manifest.reset_period, manifest.tables != make_manifest().tables) == (4, True)
    assert whole_manifest({"robust.rule": "mean"}).terms.f == 0
