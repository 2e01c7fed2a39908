# SPDX-License-Identifier: Apache-2.0
"""What every process of a drill imports, imported: see ``support.forked``."""

import gc
from importlib import import_module
from importlib.metadata import entry_points

from mistral_failover.embedded import boot

boot.init()  # before anything of Mistral's is imported

with boot.quick_imports():
    for name in (
        "mistral.config",  # first, as a Mistral that starts does it
        "mistral.db.v2.api",
        "mistral.api.controllers.root",
        "mistral.api.service",
        "mistral.engine.engine_server",
        "mistral.executors.executor_server",
        "mistral.rpc.oslo",
        "mistral.services.periodic_server",
        "mistral_failover.embedded.definitions",
        "mistral_failover.embedded.services",
        "faults.child",
        "broker.agent",
        "broker.executor",
    ):
        import_module(name)

    for action in entry_points(group="mistral.actions"):
        action.load()

# All of it stays. A child's garbage collections would also copy its memory pages.
gc.collect()
gc.freeze()
