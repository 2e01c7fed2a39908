# SPDX-License-Identifier: Apache-2.0
"""A private RabbitMQ for tests and benchmarks, that can be killed; not part of the wheel."""
