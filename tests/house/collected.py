"""A pytest plugin that writes down what was collected: node ids and the marks on each.

Used by `test_claims.py` in a process of its own: `pytest --collect-only -p tests.house.collected`.
"""

import json
import os
from pathlib import Path

import pytest


def pytest_collection_finish(session: pytest.Session) -> None:
    """Write a JSON object, node id to names of marks, to the file that the environment names."""
    marks = {
        item.nodeid: sorted({mark.name for mark in item.iter_markers()}) for item in session.items
    }
    Path(os.environ["RAF_COLLECTED"]).write_text(json.dumps(marks), encoding="utf-8")
