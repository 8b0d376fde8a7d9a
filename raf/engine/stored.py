"""Whether this code can still read what a session holds; pure.

Rules of this file:
- What is held are the payloads of messages, wherever they wait, and the values of the state.
- A class that lost or gained fields is found when it is decoded; one whose fields changed their type
  only against what the session was saved under (`raf.values.retyped`).
"""

from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any

from raf.checkpoint.snapshot import Snapshot
from raf.errors import UndecodableError
from raf.topology.fingerprint import changed_fields
from raf.topology.workflow import Workflow
from raf.values.codec import decode
from raf.values.registry import TypeTable
from raf.values.retyped import Changed, misfits


def unreadable(workflow: Workflow, snapshot: Snapshot, saved: Mapping[str, Any]) -> tuple[str, ...]:
    """What of a session this code cannot read, or could only misread, in words.

    Args:
        workflow: The code at hand.
        snapshot: The session.
        saved: The manifest that it was saved under.
    """
    faults = (_faults(payload, workflow.types, name) for name, payload in _messages(snapshot))
    return (*chain.from_iterable(faults), *retyped(workflow, snapshot, saved))


def retyped(workflow: Workflow, snapshot: Snapshot, saved: Mapping[str, Any]) -> tuple[str, ...]:
    """What is held in fields whose type changed without a version, and does not fit, in words."""
    changed, types = changed_fields(saved, workflow.manifest), workflow.types
    if not changed:
        return ()
    values = [(f"state {op.key!r} of {op.scope!r}", op.value) for op in snapshot.state.as_ops()]
    return tuple(
        why
        for name, value in (*_messages(snapshot), *values)
        for why in _misfits(value, changed, types, name)
    )


def _messages(snapshot: Snapshot) -> Iterator[tuple[str, bytes]]:
    for message in (*snapshot.pending.values(), *(s.message for s in snapshot.suspended.values())):
        for payload in message.payloads:
            yield f"message {message.number} for node {message.target!r}", payload
    for (barrier, _), slots in snapshot.barriers.items():
        for slot in slots.values():
            yield f"message {slot.number} in barrier {barrier!r}", slot.payload
    for parked in snapshot.parked.values():
        yield f"message {parked.number} of loop {parked.loop!r}", parked.payload


def _faults(payload: bytes, types: TypeTable, name: str) -> Iterator[str]:
    try:
        decode(payload, types)
    except UndecodableError as error:
        yield f"{name}: {error}"


def _misfits(payload: bytes, changed: Changed, types: TypeTable, name: str) -> Iterator[str]:
    try:
        value = decode(payload, types)
    except UndecodableError:
        return  # whoever needs it is told
    yield from misfits(value, changed, types, name)
