# SPDX-License-Identifier: Apache-2.0
"""Run by alembic, on the connection that ``store.schema`` hands over."""

from alembic import context

from mistral_failover.store.schema import VERSION_TABLE
from mistral_failover.store.tables import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    version_table=VERSION_TABLE,
    render_as_batch=True,
)
with context.begin_transaction():
    context.run_migrations()
