"""The notes that the replicas share: one SQLite file. Replicas on several machines would share a database server."""

import sqlite3
from collections.abc import Generator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

INDEX: Final = "notes://index"
"""The URI of the collection."""

NAME: Final = "^[a-z0-9-]{1,100}$"
"""Nothing in a name that one client would write escaped and another would not: URIs are compared as strings."""


def uri_of(name: str) -> str:
    """The URI of a note: the same string where it is listed, read, watched and published."""
    return f"note://{name}"


class Notes:
    """Texts by name. Each method is a transaction of its own, and what it says has happened is there for everybody."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with self._transaction() as database:
            database.execute("CREATE TABLE IF NOT EXISTS notes (name TEXT PRIMARY KEY, text TEXT NOT NULL)")

    @contextmanager
    def _transaction(self) -> Generator[sqlite3.Connection]:
        with closing(sqlite3.connect(self._path)) as database, database:
            yield database

    def read(self, name: str) -> str | None:
        """The text of a note, or `None` where there is no such note."""
        with self._transaction() as database:
            found: tuple[str] | None = database.execute("SELECT text FROM notes WHERE name = ?", [name]).fetchone()
        return None if found is None else found[0]

    def read_all(self) -> dict[str, str]:
        """Every note, in the order of the names."""
        with self._transaction() as database:
            return dict(database.execute("SELECT name, text FROM notes ORDER BY name"))

    def create(self, name: str, text: str) -> bool:
        """Add a note; whether it was not there before."""
        return self._change("INSERT OR IGNORE INTO notes (text, name) VALUES (?, ?)", text, name)

    def edit(self, name: str, text: str) -> bool:
        """Change a note; whether it is there."""
        return self._change("UPDATE notes SET text = ? WHERE name = ?", text, name)

    def delete(self, name: str) -> bool:
        """Remove a note; whether it was there."""
        return self._change("DELETE FROM notes WHERE name = ?", name)

    def _change(self, statement: str, *values: str) -> bool:
        with self._transaction() as database:
            return database.execute(statement, values).rowcount == 1
