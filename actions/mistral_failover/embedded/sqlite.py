# SPDX-License-Identifier: Apache-2.0
"""Mistral's connections to a SQLite file: a plugin of SQLAlchemy, for a database of one process.

With a write-ahead log and ``synchronous=NORMAL`` a commit does not wait for the disk. A killed
process loses nothing; a power cut may lose the last commits, never the file's integrity
(https://www.sqlite.org/pragma.html#pragma_synchronous).

oslo.db gives SQLite no connection pool, so each transaction opens the file, and closing the last
connection folds the write-ahead log back. Here a few connections are kept; Mistral serialises its
transactions anyway.
"""

from typing import Any

import sqlalchemy

PLUGIN = "failover-sqlite"
"""Its entry point, which the connection's URL names."""
_KEPT = 4


class KeptConnections(sqlalchemy.CreateEnginePlugin):
    """Keeps connections open, and sets the pragmas on each."""

    def __init__(self, url: sqlalchemy.URL, kwargs: dict[str, Any]) -> None:
        super().__init__(url, kwargs)
        kwargs |= {
            "poolclass": sqlalchemy.pool.QueuePool,
            "pool_size": _KEPT,
            "max_overflow": -1,
        }

    def update_url(self, url: sqlalchemy.URL) -> sqlalchemy.URL:
        """Return the URL as it is: nothing in it is meant for this plugin."""
        return url

    def engine_created(self, engine: sqlalchemy.Engine) -> None:
        """Have each new connection set its pragmas."""
        sqlalchemy.event.listen(engine, "connect", _set_pragmas)


def _set_pragmas(connection: Any, _record: Any) -> None:
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=NORMAL")


def used_by(database: str) -> bool:
    """Whether the plugin is meant for a database: a SQLite file, by its URL."""
    url = sqlalchemy.make_url(database)
    return url.get_backend_name() == "sqlite" and url.database not in (None, "", ":memory:")
