"""What a server's settings promise for commits; pure.

Rules of this file: what may be lost is said exactly, with the setting that mends it; what could not
be looked at is said too.  A server that may drop live data by itself is no store.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from raf.errors import StoreUnavailableError
from raf.store.redis.address import Durability

SETTINGS = ("appendfsync", "no-appendfsync-on-rewrite")


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """What the server says of itself: `INFO`, and `CONFIG` where it is allowed."""

    info: Mapping[str, str]
    config: Mapping[str, str]


def refusal(server: Server) -> str:
    """Why this server cannot be a store, with the remedy; empty when it can."""
    info = server.info
    if info.get("cluster_enabled") == "1":
        return "it is a node of a cluster, and this store needs one server: use one without"
    if info.get("role", "master") != "master":
        return "it is a replica and takes no writes: name its primary"
    policy = info.get("maxmemory_policy", "noeviction")
    if info.get("maxmemory", "0") != "0" and policy != "noeviction":
        return (
            f"its maxmemory-policy {policy} lets it drop live sessions when memory is short: "
            "CONFIG SET maxmemory-policy noeviction"
        )
    return ""


def risk(server: Server) -> str:
    """What a fault of the server may cost and how to mend it; empty when nothing committed."""
    if server.info.get("aof_enabled") is None:
        return (
            "whether commits survive a fault of the server could not be checked, for INFO is not "
            "allowed here: it should run with appendonly yes and appendfsync always"
        )
    if server.info["aof_enabled"] != "1":
        return (
            "the server keeps no append-only file: if it stops or is killed, everything since its "
            "last save is lost; mend it by appendonly yes and appendfsync always"
        )
    if "appendfsync" not in server.config:
        return (
            "whether a commit is on disk when it returns could not be checked, for CONFIG is not "
            "allowed here: with appendfsync always it is; with everysec a fault may take the last "
            "second or two"
        )
    return _risk_of_file(server.config)


def _risk_of_file(config: Mapping[str, str]) -> str:
    if config["appendfsync"] == "everysec":
        return (
            "the server syncs its file once a second: a power cut or a kill of the server may take "
            "the commits of the last second or two; mend it by CONFIG SET appendfsync always"
        )
    if config["appendfsync"] != "always":
        return (
            "the server leaves it to the system when its file is synced: a power cut may take the "
            "commits of the last half minute; mend it by CONFIG SET appendfsync always"
        )
    if config.get("no-appendfsync-on-rewrite", "no") == "yes":
        return (
            "the server does not sync while it rewrites its file: a power cut may take the commits "
            "since then; mend it by CONFIG SET no-appendfsync-on-rewrite no"
        )
    return ""


def check(server: Server, durability: Durability, url: str) -> str:
    """What to warn of; empty for nothing.

    Raises:
        StoreUnavailableError: The server cannot be a store, or not one as durable as was asked.
    """
    if why := refusal(server):
        raise StoreUnavailableError(url, f"this server is refused: {why}")
    warning = risk(server)
    if warning and durability == "strict":
        raise StoreUnavailableError(url, f"durability=strict refuses this server: {warning}")
    return warning
