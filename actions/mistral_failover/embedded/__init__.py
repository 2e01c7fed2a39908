# SPDX-License-Identifier: Apache-2.0
"""The real Mistral (engine, executor, scheduler, cron triggers, API) in one process.

Import the modules by name: ``server`` runs Mistral, ``validate`` checks workflow files without it.
``mistral.client`` speaks its REST API. This package itself imports nothing, because
``oslo.messaging`` loads ``transport`` through it.
"""
