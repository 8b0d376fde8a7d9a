"""The fingerprints on record: this code still builds them."""

import json
from pathlib import Path

import pytest

from raf.topology.fingerprint import canonical, digest_of
from tests.golden.workflows import every

GOLDEN = json.loads((Path(__file__).parent / "fingerprints.json").read_text(encoding="utf-8"))


def test_every_workflow_is_on_record() -> None:
    """No workflow without a record and no record without a workflow."""
    assert every().keys() == GOLDEN.keys()


@pytest.mark.parametrize("name", sorted(GOLDEN))
def test_the_record_is_reproduced(name: str) -> None:
    """The canonical form and the fingerprint are those of the record, and belong together."""
    built = every()[name]
    assert canonical(built.topology) == GOLDEN[name]["canonical"]
    assert built.fingerprint == GOLDEN[name]["fingerprint"]
    assert digest_of(GOLDEN[name]["canonical"]) == GOLDEN[name]["fingerprint"]
