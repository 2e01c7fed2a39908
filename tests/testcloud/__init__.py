# SPDX-License-Identifier: Apache-2.0
"""A real, miniature OpenStack on loopback, for tests and benchmarks: see docs/testcloud.md."""
