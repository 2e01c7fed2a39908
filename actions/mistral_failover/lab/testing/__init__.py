# SPDX-License-Identifier: Apache-2.0
"""Unit tests of workflows on the real engine; see ``plugin`` for how to use it."""
