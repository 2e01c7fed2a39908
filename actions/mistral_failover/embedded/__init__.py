# SPDX-License-Identifier: Apache-2.0
"""The real Mistral (engine, executor, scheduler, cron triggers, API) in one process.

Import the modules by name: ``server`` runs Mistral, ``client`` speaks its REST API, ``validate``
checks workflow files without either. This package itself imports nothing, because
``oslo.messaging`` loads ``transport`` through it.
"""
