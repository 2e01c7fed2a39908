# SPDX-License-Identifier: Apache-2.0
"""`mistral-db-manage`, run by the cloud's own Python, with Mistral's JSON schemas checked once.

Mistral checks them for each task of each workflow, which takes most of the time of `populate`.
"""

from __future__ import annotations

import sys

from mistral.db.sqlalchemy.migration.cli import main

from mistral_failover.embedded.speedups import cache_schema_validators

if __name__ == "__main__":
    cache_schema_validators()
    sys.exit(main())
