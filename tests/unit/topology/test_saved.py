"""A workflow from its manifest: the same graph, without the code."""

import json

import pytest

from raf.engine.engine import WorkflowEngine
from raf.errors import UndecodableError
from raf.graph.draw import mermaid
from raf.topology.saved import saved_workflow
from tests.golden.workflows import every


@pytest.mark.parametrize("name", sorted(every()))
def test_the_graph_comes_back_whole(name: str) -> None:
    """Topology, fingerprint and drawing are those of the built workflow, also through JSON."""
    built = every()[name]
    saved = saved_workflow(json.loads(json.dumps(dict(built.manifest))))
    assert saved.topology == built.topology
    assert saved.fingerprint == built.fingerprint
    assert saved.loops == built.loops
    assert mermaid(saved) == mermaid(built)


@pytest.mark.parametrize("name", sorted(every()))
async def test_an_engine_takes_it(name: str) -> None:
    """What looks after sessions works with it: an engine opens and closes."""
    async with WorkflowEngine(saved_workflow(every()[name].manifest)) as engine:
        assert engine.workflow.fingerprint == every()[name].fingerprint


@pytest.mark.parametrize(
    "manifest",
    [
        {},
        {"topology": {}},
        {
            "topology": {
                "name": "w",
                "start": "a",
                "nodes": {"a": {"shape": 1}},
                "edges": [],
                "state": [],
            }
        },
        {
            "topology": {
                "name": "w",
                "start": "a",
                "nodes": {},
                "edges": [{"kind": "?"}],
                "state": [],
            }
        },
    ],
    ids=["empty", "no graph", "unknown field", "unknown edge"],
)
def test_what_it_does_not_know_is_refused(manifest: dict[str, object]) -> None:
    """A description of another version is an error, never half a graph."""
    with pytest.raises(UndecodableError, match="description of its graph"):
        saved_workflow(manifest)
