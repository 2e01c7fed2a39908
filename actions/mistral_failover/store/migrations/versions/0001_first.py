# SPDX-License-Identifier: Apache-2.0
"""The schema of the first release. `store.schema` makes the tables of a new store."""

revision = "0001_first"
down_revision = None


def upgrade() -> None:
    """Do nothing: a store with fewer tables than these does not exist."""
