"""What a Postgres URL says, what is shown of it, and what the server's errors become."""

import sys

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from raf.errors import (
    ConfigurationError,
    RafError,
    StoreBusyError,
    StoreFullError,
    StoreUnavailableError,
)
from raf.store.postgres import PostgresStore
from raf.store.postgres.address import address_of
from raf.store.postgres.faults import is_passing, is_starting, translate
from raf.store.postgres.reads import least_after
from raf.store.urls import open_store


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://h/db", "postgresql://h/db"),
        ("postgres://h/db", "postgresql://h/db"),
        ("POSTGRES://h/db", "postgresql://h/db"),
        ("postgresql://u:se%40cret@h:5433/db", "postgresql://h:5433/db"),
        ("postgresql://u:secret\u2100@h/db", "postgresql://h/db"),
        ("postgresql://h/secret%20name", "postgresql://h"),
        (
            "postgresql://h/db?oauth_client_secret=secret&passfile=/p",
            "postgresql://h/db?passfile=/p",
        ),
        ("postgresql://h/db?options=-c%20a%3Dsecret&application_name=a%26b", "postgresql://h/db"),
        ("postgresql://[::1]:5/db?dbname=x", "postgresql://[::1]:5/db?dbname=x"),
        ("postgresql://u@h/db?password=secret&schema=mine", "postgresql://h/db?schema=mine"),
        ("postgresql://u:secret@h1:1,h2:2/db", "postgresql://h1:1,h2:2/db"),
        ("postgresql://u:@/db?host=/run/pg", "postgresql:///db?host=/run/pg"),
        (
            "postgresql://h/db?sslpassword=secret&sslmode=require",
            "postgresql://h/db?sslmode=require",
        ),
        ("postgresql://", "postgresql://"),
    ],
)
def test_a_url_is_shown_without_secrets(url: str, shown: str) -> None:
    """What is shown opens the same place and holds no password."""
    store = open_store(url)
    assert isinstance(store, PostgresStore)
    assert store.url == shown
    assert open_store(store.url).url == shown


def test_the_password_reaches_the_server_alone() -> None:
    """It is in what libpq gets, with what was escaped taken apart, and in nothing that is shown."""
    address = address_of("postgresql://u:se%40cr%2Fet@h:1/db?sslmode=disable&retry_s=3&schema=x1")
    given = conninfo_to_dict(address.conninfo)
    assert (given["password"], given["host"], given["port"]) == ("se@cr/et", "h", "1")
    assert (given["dbname"], given["sslmode"]) == ("db", "disable")
    assert (address.schema, address.retry_s) == ("x1", 3.0)
    assert "se@" not in address.shown


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ("schema=", "this schema"),
        ("schema=A", "small letters"),
        ("schema=a-b", "small letters"),
        ("schema=pg_raf", "nor information_schema"),
        ("schema=information_schema", "information_schema"),
        ("schema=" + "x" * 64, "schema"),
        ("retry_s=soon", "retry_s"),
        ("retry_s=-1", "retry_s"),
        ("retry_s=nan", "retry_s"),
        ("retry_s=secret", "retry_s"),
        ("connections=1", "connections"),
        ("connections=2.9", "whole number"),
        ("host=u:secret", "cannot be read"),
        ("port=secret", "port is a number"),
        ("password=%ff", "cannot be read"),
        ("nonsense", "do not read"),
        ("schema=a&schema=b", "given twice"),
        ("nonsense=1", "options of libpq"),
    ],
)
def test_wrong_options_are_refused(options: str, says: str) -> None:
    """Each is named, and no secret beside it."""
    with pytest.raises(ConfigurationError) as caught:
        open_store(f"postgresql://u:secret@h/db?{options}")
    assert says in str(caught.value)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    "rest",
    [
        "u:geh/eim@127.0.0.1/db",
        "u:geh?eim@127.0.0.1/db",
        "u:geh#eim@127.0.0.1/db",
        "u:geh eim@127.0.0.1/db",
        "u:geh?eim=geheim@127.0.0.1/db",
        "u:gehe@im@127.0.0.1/db",
        "u:geheim/db",
        "u:geheim@h\u2100/db",
        "u:gehe\udcffim@h/db",
        "u:geheim%zz@h/db",
        "u:geheim@[::1/db",
        "[::1/db",
        "h%40geheim/db",
        "h/db?dbname=postgresql://u:geheim@h/db",
        "h/db?dbname=postgresql%3A%2F%2Fu%3Ageheim%40h%2Fdb",
        "h/password%3Dgeheim",
    ],
)
def test_what_is_not_certain_is_refused(rest: str) -> None:
    """A secret may stand anywhere in it, so nothing of the URL is repeated."""
    with pytest.raises(ConfigurationError) as caught:
        open_store(f"postgresql://{rest}")
    said = f"{caught.value!r} {caught.value}"
    assert not any(part in said for part in ("geh", "eim", "127.0.0.1", "::1"))
    assert caught.value.__cause__ is None


def test_a_plus_in_a_password_is_a_plus() -> None:
    """As libpq reads it; the address shows it nowhere."""
    address = address_of("postgresql://h/db?password=a+b")
    assert conninfo_to_dict(address.conninfo)["password"] == "a+b"
    assert "a+b" not in repr(address)


def test_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without psycopg the error says what to install."""
    for name in list(sys.modules):
        if name.startswith("raf.store.postgres"):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(ConfigurationError, match=r"raf-engine\[postgres\]"):
        open_store("postgresql://h/db")


@pytest.mark.parametrize(
    ("state", "kind", "passing"),
    [
        ("57P01", StoreUnavailableError, True),
        ("57P03", StoreUnavailableError, True),
        ("08006", StoreUnavailableError, True),
        ("40P01", StoreUnavailableError, True),
        ("40001", StoreUnavailableError, True),
        ("53100", StoreFullError, False),
        ("54000", StoreFullError, False),
        ("55P03", StoreBusyError, False),
        ("25006", StoreUnavailableError, False),
        ("28P01", StoreUnavailableError, False),
        ("3D000", StoreUnavailableError, False),
        ("42501", StoreUnavailableError, False),
        ("XX001", StoreUnavailableError, False),
    ],
)
def test_what_the_servers_errors_become(state: str, kind: type[RafError], passing: bool) -> None:
    """The SQLSTATE decides what a caller gets, and whether it is tried again."""
    error = psycopg.errors.lookup(state)("said the server")
    assert is_passing(error) is passing
    told = translate(error, "postgresql://h/db")
    assert type(told) is kind
    assert "postgresql://h/db" in str(told)


def test_an_error_without_a_state() -> None:
    """A broken connection passes; a mistake of the caller does not."""
    assert is_passing(psycopg.OperationalError("server closed the connection"))
    assert not is_passing(psycopg.ProgrammingError("bad"))
    told = translate(psycopg.OperationalError("Connection refused\n\tIs it running?\n"), "u")
    assert "Connection refused; Is it running?: check that the server runs" in str(told)
    assert not is_passing(psycopg.DataError("bad"))
    assert is_starting(psycopg.OperationalError("FATAL:  the database system is starting up"))
    assert not is_starting(psycopg.OperationalError("Connection refused"))


@pytest.mark.parametrize(
    "after", ["", "a", "a\0b", "a\ud800b", "a\udfff", "\ud7ff", "\ue000", "\0"]
)
def test_the_least_id_above_a_text(after: str) -> None:
    """Whatever text a list goes on from, exactly the ids above it in code point order come."""
    ids = ["\x01", "a", "a\x01", "ab", "a\ud7ff", "a\ue000", "b", "\ud7ff", "\ue000", "\U0001f600"]
    least = least_after(after)
    assert [name for name in ids if name >= least] == [name for name in ids if name > after]
