"""Statements as they are written in this room, and as the server gets them; pure.

Rules of this file: `$S` stands for the schema and `$NOW` for the database's clock in UTC seconds;
everything else that varies is a parameter.
"""

DATABASE_TIME = "extract(epoch FROM clock_timestamp())::float8"


class Statements:
    """The statements for one schema.

    Example:
        >>> Statements("raf")["SELECT $NOW FROM $S.sessions"]
        b'SELECT extract(epoch FROM clock_timestamp())::float8 FROM "raf".sessions'
    """

    def __init__(self, schema: str) -> None:
        self.schema = schema
        self._made: dict[str, bytes] = {}

    @property
    def time(self) -> str:
        """The expression that reads the database's clock."""
        return DATABASE_TIME

    def __getitem__(self, text: str) -> bytes:
        """The statement with the schema's name and the clock in it."""
        made = self._made.get(text)
        if made is None:
            made = self._made[text] = text.replace("$S", f'"{self.schema}"').encode()
        return made.replace(b"$NOW", self.time.encode())
