# SPDX-License-Identifier: Apache-2.0
"""Bringing a database to the schema of this version, with alembic."""

from __future__ import annotations

from pathlib import Path

import alembic.command
import alembic.config
import sqlalchemy as sa

from mistral_failover.store.database import Database

_SCRIPTS = Path(__file__).parent / "migrations"


def upgrade(database: Database, revision: str = "head") -> None:
    """Create or upgrade the tables; does nothing where they are up to date."""
    with database.engine.begin() as connection:
        alembic.command.upgrade(_config(connection), revision)


def downgrade(database: Database, revision: str) -> None:
    """Take the tables back to an earlier revision ("base": remove them)."""
    with database.engine.begin() as connection:
        alembic.command.downgrade(_config(connection), revision)


def _config(connection: sa.Connection) -> alembic.config.Config:
    config = alembic.config.Config()
    config.set_main_option("script_location", str(_SCRIPTS))
    config.attributes["connection"] = connection
    return config
