# SPDX-License-Identifier: Apache-2.0
"""Works traversals off, and goes on with what a crash left behind."""
