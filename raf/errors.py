"""Every error of `raf`, in one tree.

* RafError
  x UsageError            change the code
    + GraphError            the workflow cannot be built; lists every problem
    + ConfigurationError    an option or a URL is wrong
    + InvalidSessionIdError the session id cannot be used
    + ReadOnlyError         a value handed out by state was changed in place
    + UnsavedChangeError    a model handed out by state was changed and not assigned
    + StateConflictError    two invocations wrote one key in one step
    + StateValueError       a state operation does not fit what the key holds or declares
    + NotSerializableError  a value cannot be stored
    + PayloadTypeError      a value does not fit the declared type
    + UndeclaredTargetError `send(to=...)` along an edge that is not declared
    + DuplicateEffectKeyError, EffectChangedError, EffectNotAwaitedError
  x RunError              look at the run
    + RunFailedError        carries the result of a failed run
    + NodeFailedError, NodeTimeoutError, NodePoisonedError
    + ConditionError, ReducerError
    + BarrierConflictError, BarrierUnfilledError, DeadLetterError
    + EffectInDoubtError    an effect was begun and its result is unknown
  x ResumeError           choose how to go on
    + SessionNotFoundError, CheckpointNotFoundError, NothingToResumeError
    + SessionExistsError, RunInputMismatchError, RunUnfinishedError
    + WorkflowMismatchError, TopologyChangedError
    + MigrationRefusedError something held has no place in the new graph
    + SessionBusyError      another owner runs the session
  x CheckpointError       restore, repair or upgrade
    + CorruptRecordError, FormatVersionError, UndecodableError
    + SealedRecordError     an encrypted record does not open where it stands
    + MissingKeyError       a record is encrypted, and its key is not at hand
    + ExportFileError       an export file is damaged, cut off, or no export
    + CommitError           a commit failed; the run stopped, the session is resumable
  x StoreError            wait, or make room
    + StoreUnavailableError, StoreBusyError, StoreFullError, StoreClosedError
    + StoreReplacedError    the server came back as another store; open it anew
    + LeaseLostError        this owner was replaced; its write was refused
    + CommitOrderError      a commit does not continue the session's numbers
    + EventsGoneError       the events asked for were pruned

A message says what happened, to which session and step, and what to do next.  Pausing, waiting and
cancelling are outcomes, not errors.
"""

from inspect import get_annotations
from typing import Any, ClassVar, dataclass_transform


@dataclass_transform(eq_default=False)
class RafError(Exception):
    """The root of the tree: catch this to catch everything `raf` raises on purpose.

    The annotated names of a class are its fields, in order, and its parameters, as in a dataclass;
    fifty real dataclasses would make up a good part of the time of an import.
    """

    says: ClassVar[str] = "raf failed"
    _fields: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls) -> None:
        """Collect the fields of a new class."""
        own = [name for name in get_annotations(cls) if name != "says"]
        cls._fields = (*cls._fields, *own)

    def __init__(self, *args: Any, **fields: Any) -> None:
        """Take the fields by place or by name."""
        super().__init__(*args, *fields.values())
        given = dict(zip(self._fields, args, strict=False)) | fields
        unknown = [*args[len(self._fields) :], *(given.keys() - set(self._fields))]
        missing = [name for name in self._fields if name not in given and not hasattr(self, name)]
        if unknown or missing:
            name = type(self).__name__
            raise TypeError(f"{name}: missing {missing}, unknown {unknown}")
        self.__dict__.update(given)

    def __str__(self) -> str:
        """The sentence for a person, made from the error's fields."""
        fields = {name: getattr(self, name) for name in self._fields}
        return self.says.format(**fields)

    @property
    def code(self) -> str:
        """A stable name for machines, such as `session_busy`."""
        name = type(self).__name__.removesuffix("Error")
        return "".join(f"_{c.lower()}" if c.isupper() else c for c in name).lstrip("_")


# -- change the code ---------------------------------------------------------------------------


class UsageError(RafError):
    """The calling code must change."""


class GraphError(UsageError):
    """The workflow cannot be built; `problems` names each fault with its remedy."""

    workflow: str
    problems: tuple[str, ...]

    def __str__(self) -> str:
        """All problems, one a line."""
        lines = "\n".join(f"  - {problem}" for problem in self.problems)
        return f"workflow {self.workflow!r} cannot be built:\n{lines}"


class ConfigurationError(UsageError):
    """An option, a URL or a combination of them is wrong."""

    what: str
    says: ClassVar[str] = "{what}"


class InvalidSessionIdError(UsageError):
    """The session id cannot be used; nothing was read or written."""

    session_id: str
    why: str
    says: ClassVar[str] = "session id {session_id!r} cannot be used: {why}"


class ReadOnlyError(UsageError, TypeError):
    """A container handed out by state was changed in place; the state is as it was."""

    container: str
    method: str
    says: ClassVar[str] = (
        "a {container} from state is read-only ({method}): write through the scope with append, "
        "extend, update or an assignment, or copy it first"
    )


class UnsavedChangeError(UsageError):
    """A model read from state was changed in place and not assigned; the node's step left nothing."""

    node: str
    scope: str
    key: str
    says: ClassVar[str] = (
        "node {node!r} changed the value of {scope}[{key!r}] in place and did not assign it: "
        "assign the changed value to the key, or change a copy"
    )


class StateConflictError(UsageError):
    """Two invocations wrote one key in one step; nothing of the step was committed."""

    scope: str
    key: str
    first: str
    second: str
    says: ClassVar[str] = (
        "{first} and {second} both wrote {scope}[{key!r}] in one step: declare a reducer for the "
        "key with with_state(), or let one node write it"
    )


class StateValueError(UsageError, ValueError):
    """A state operation does not fit what the key holds or declares; the write was not taken."""

    scope: str
    key: str
    why: str
    says: ClassVar[str] = "{scope}[{key!r}]: {why}"


class NotSerializableError(UsageError, TypeError):
    """A value cannot be stored; it was refused before anything was written."""

    path: str
    type_name: str
    why: str = ""

    def __str__(self) -> str:
        """Names the field path, the type and the remedy."""
        why = self.why or "use plain data, or declare the class by annotation or register_type()"
        return f"{self.path} of type {self.type_name} cannot be stored: {why}"


class PayloadTypeError(UsageError, TypeError):
    """A value does not fit the type that its receiver, key or question declares."""

    path: str
    expected: str
    got: str
    says: ClassVar[str] = "{path}: expected {expected}, got {got}"


class UndeclaredTargetError(UsageError):
    """A node sent to a target that no declared edge of it reaches."""

    node: str
    target: str
    declared: tuple[str, ...]
    says: ClassVar[str] = (
        "node {node!r} sent to {target!r}, but its edges lead to {declared}: declare the edge"
    )


class DuplicateEffectKeyError(UsageError):
    """One attempt used an effect key twice; the second effect was not run."""

    node: str
    key: str
    says: ClassVar[str] = (
        "node {node!r} used the effect key {key!r} twice in one attempt: give each effect its own key"
    )


class EffectChangedError(UsageError):
    """A recorded effect was asked for with other arguments; it was neither run nor returned."""

    node: str
    key: str
    says: ClassVar[str] = (
        "effect {key!r} of node {node!r} is recorded with other arguments: use another key for "
        "another effect, or make the arguments equal"
    )


class EffectNotAwaitedError(UsageError):
    """A node ended while an effect of it was still running; the attempt failed."""

    node: str
    keys: tuple[str, ...]
    says: ClassVar[str] = "node {node!r} ended before its effects {keys} did: await each effect"


# -- look at the run ---------------------------------------------------------------------------


class RunError(RafError):
    """Something in the run itself went wrong; committed steps are kept."""


class RunFailedError(RunError):
    """A run ended as `failed`; `result` tells how, and `resume` goes on from the last step."""

    session_id: str
    run_id: str
    step: int
    reason: str
    result: Any = None
    says: ClassVar[str] = (
        "run {run_id!r} of session {session_id!r} failed in step {step}: {reason}; mend the cause "
        "and call resume({session_id!r})"
    )


class NodeFailedError(RunError):
    """A node raised on its last allowed attempt; siblings that finished are kept."""

    node: str
    step: int
    attempt: int
    error_type: str
    error: str
    says: ClassVar[str] = (
        "node {node!r} failed in step {step}, attempt {attempt}: {error_type}: {error}"
    )


class NodeTimeoutError(RunError):
    """An attempt of a node took longer than its limit and was cancelled."""

    node: str
    seconds: float
    idle: bool = False

    def __str__(self) -> str:
        """Names the limit that was passed."""
        kind = "without a heartbeat" if self.idle else "in one attempt"
        return f"node {self.node!r} ran longer than {self.seconds} s {kind}"


class NodePoisonedError(RunError):
    """A node was given up, since its owner vanished each time it ran."""

    node: str
    step: int
    losses: int
    says: ClassVar[str] = (
        "node {node!r} in step {step} was given up: its process vanished {losses} times while it "
        "ran; mend the node, then resume"
    )


class ConditionError(RunError):
    """A condition, case or chooser raised or answered nonsense; the step was not committed."""

    condition: str
    node: str
    error: str
    says: ClassVar[str] = "condition {condition!r} after node {node!r} failed: {error}"


class ReducerError(RunError):
    """A reducer raised or gave a value that cannot be kept; the step was not committed."""

    reducer: str
    scope: str
    key: str
    error: str
    says: ClassVar[str] = "reducer {reducer!r} of {scope}[{key!r}] failed: {error}"


class BarrierConflictError(RunError):
    """A second message from one source reached a barrier before it fired."""

    barrier: str
    source: str
    first: int
    second: int
    says: ClassVar[str] = (
        "barrier {barrier} holds message {first} from {source!r} and got message {second} from it "
        "before it fired: use add_map() to collect several results of one node"
    )


class BarrierUnfilledError(RunError):
    """The run ended while a barrier still waited for messages."""

    barrier: str
    missing: tuple[str, ...]
    says: ClassVar[str] = (
        "nothing is left to run, and barrier {barrier} still waits for {missing}: let each source "
        'send, or use wait="quiescent" or a quorum'
    )


class DeadLetterError(RunError):
    """Under `strict=True` a message that no edge takes fails the run."""

    node: str
    number: int
    says: ClassVar[str] = (
        "message {number} of node {node!r} is taken by no edge and is no output: add an edge or a "
        "default, or run without strict=True"
    )


class EffectInDoubtError(RunError):
    """An effect declared on_doubt="fail" was begun before a crash, and its result is unknown."""

    node: str
    key: str
    idempotency_key: str
    says: ClassVar[str] = (
        "effect {key!r} of node {node!r} was begun and its result is unknown: look outside for the "
        "idempotency key {idempotency_key}, then fork or resume with on_doubt allowed"
    )


# -- choose how to go on -----------------------------------------------------------------------


class ResumeError(RafError):
    """The session cannot go on in the way that was asked; nothing was written."""


class SessionNotFoundError(ResumeError, LookupError):
    """There is no such session in the store."""

    session_id: str
    says: ClassVar[str] = (
        "there is no session {session_id!r} in this store: check the id and the store's URL "
        "(`raf sessions` lists what is there)"
    )


class CheckpointNotFoundError(ResumeError, LookupError):
    """There is no such checkpoint, or it belongs to another session."""

    session_id: str
    checkpoint_id: str
    why: str = "it was never made, or it was pruned"
    says: ClassVar[str] = (
        "session {session_id!r} has no checkpoint {checkpoint_id!r}: {why} (`raf history` lists them)"
    )


class NothingToResumeError(ResumeError):
    """The session's last run is finished."""

    session_id: str
    run_id: str
    status: str
    says: ClassVar[str] = (
        "session {session_id!r} has nothing to continue: run {run_id!r} is {status}; start another "
        "run with its own run_id, or fork"
    )


class SessionExistsError(ResumeError):
    """A session of that name is already there; it is untouched."""

    session_id: str
    says: ClassVar[str] = "session {session_id!r} already exists: choose another id or delete it"


class RunInputMismatchError(ResumeError):
    """The run was started with another input; nothing ran."""

    session_id: str
    run_id: str
    says: ClassVar[str] = (
        "run {run_id!r} of session {session_id!r} was started with another input: pass the same "
        "input to continue, resume() to go on with the old one, or another run_id for a new run"
    )


class RunUnfinishedError(ResumeError):
    """Another run of the session is not finished."""

    session_id: str
    run_id: str
    unfinished: str
    status: str
    says: ClassVar[str] = (
        "run {run_id!r} cannot start: run {unfinished!r} of session {session_id!r} is {status}; "
        "resume or cancel it first"
    )


class WorkflowMismatchError(ResumeError):
    """The session belongs to a workflow of another name; it is untouched."""

    session_id: str
    saved: str
    current: str
    says: ClassVar[str] = (
        "session {session_id!r} belongs to workflow {saved!r}, not to {current!r}: use another "
        "session id, or the engine of {saved!r}"
    )


class TopologyChangedError(ResumeError):
    """The graph is not the one that the session was saved under; nothing was written.

    `compatible` tells that nothing which the session holds can meet the change.
    """

    session_id: str
    saved: str
    current: str
    differences: tuple[str, ...]
    compatible: bool = False

    def __str__(self) -> str:
        """Names each difference and the remedies."""
        lines = "\n".join(f"  - {difference}" for difference in self.differences)
        allowed = 'allow it (on_change="compatible"): nothing held can meet the change; or '
        return (
            f"session {self.session_id!r} was saved under graph {self.saved}, this code builds "
            f"{self.current}:\n{lines}\n{allowed if self.compatible else ''}run the old code, migrate "
            "the session, or fork it onto the new graph"
        )


class MigrationRefusedError(TopologyChangedError):
    """Something that the session holds has no place in the new graph; nothing was written.

    `differences` name each such thing, and how to give it up.
    """

    def __str__(self) -> str:
        """Names what has no place and the remedies."""
        lines = "\n".join(f"  - {difference}" for difference in self.differences)
        return (
            f"session {self.session_id!r} cannot move from graph {self.saved} to {self.current}:\n"
            f"{lines}\nlead old names to new ones (mapping=), give things up (drop=), or run the old code"
        )


class SessionBusyError(ResumeError):
    """Another owner runs the session; it was not disturbed."""

    session_id: str
    owner: str
    until: str
    says: ClassVar[str] = (
        "session {session_id!r} is run by {owner} until {until} or longer: wait (wait_s=), or stop "
        "that process"
    )


# -- restore, repair or upgrade ----------------------------------------------------------------


class CheckpointError(RafError):
    """A checkpoint could not be written or read."""


class CorruptRecordError(CheckpointError):
    """A stored record is damaged, missing, cyclic or another session's; it was not used."""

    session_id: str
    record: str
    why: str
    says: ClassVar[str] = (
        "session {session_id!r}: record {record} cannot be trusted: {why}; `raf verify` lists what "
        "is damaged, and `raf repair` shows what can be saved"
    )


class SealedRecordError(CorruptRecordError):
    """A record of an encrypted store is not sealed, was changed or moved; it was not used."""

    says: ClassVar[str] = (
        "session {session_id!r}: record {record} is refused: {why}; `raf verify` lists all of them, "
        "and a session from before encryption is copied into the encrypted store"
    )


class MissingKeyError(CheckpointError):
    """A record is encrypted and its key is not at hand; nothing was read."""

    session_id: str
    record: str
    key: str
    says: ClassVar[str] = (
        "session {session_id!r}: record {record} is encrypted with key {key!r}, which is not at hand: "
        "open the store with a KeyRing that holds it, or set RAF_KEYS or RAF_KEY_FILE"
    )


class FormatVersionError(CheckpointError):
    """A record or an export file was written by a newer format than this code reads."""

    found: int
    known: int
    what: str = "record"
    says: ClassVar[str] = "{what} format {found} is newer than {known}: upgrade raf to read it"


class ExportFileError(CheckpointError):
    """An export file is damaged, cut off, or no export; nothing of it was imported."""

    file: str
    where: str
    why: str
    says: ClassVar[str] = (
        "export file {file}: {where} cannot be trusted: {why}; nothing was imported, so export the "
        "sessions again"
    )


class UndecodableError(CheckpointError):
    """Stored bytes are not a value that this code can rebuild."""

    why: str
    says: ClassVar[str] = "stored bytes cannot be decoded: {why}"


class CommitError(CheckpointError):
    """A commit failed: the run stopped, and the session stands at its last commit."""

    session_id: str
    step: int
    reason: str
    says: ClassVar[str] = (
        "the commit of step {step} of session {session_id!r} failed: {reason}; the session stands "
        "at its last commit and can be resumed"
    )


# -- wait, or make room ------------------------------------------------------------------------


class StoreError(RafError):
    """The store could not do what was asked."""


class StoreUnavailableError(StoreError):
    """The store cannot be reached or answered with an input/output error."""

    store: str
    reason: str
    says: ClassVar[str] = "store {store} is not available: {reason}"


class StoreReplacedError(StoreUnavailableError):
    """The server lost this store's data, or another took its place; only opening it anew helps."""


class StoreBusyError(StoreError):
    """Another process holds the store's file for too long."""

    store: str
    seconds: float
    says: ClassVar[str] = (
        "store {store} was locked by another process for {seconds} s: look for a stopped process"
    )


class StoreFullError(StoreError):
    """There is no room left; what was stored before is intact."""

    store: str
    reason: str
    says: ClassVar[str] = "store {store} is full: {reason}; make room, then resume"


class StoreClosedError(StoreError):
    """The store was used before it was opened or after it was closed."""

    store: str
    says: ClassVar[str] = "store {store} is not open: use it inside `async with`"


class LeaseLostError(StoreError):
    """A write of a former owner was refused; the session belongs to another owner now."""

    session_id: str
    epoch: int
    says: ClassVar[str] = (
        "session {session_id!r} was taken over: epoch {epoch} may write no more, and its late work "
        "was refused"
    )


class CommitOrderError(StoreError):
    """A commit does not continue the numbers of its session; nothing was written."""

    session_id: str
    why: str
    says: ClassVar[str] = (
        "session {session_id!r}: the commit was refused, {why}: read the head and go on from there"
    )


class EventsGoneError(StoreError):
    """The events asked for were pruned; `first` is the oldest that is left."""

    session_id: str
    after: int
    first: int
    says: ClassVar[str] = (
        "session {session_id!r}: events after {after} were pruned; the oldest left is {first}"
    )
