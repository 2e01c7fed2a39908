# SPDX-License-Identifier: Apache-2.0
"""The ways to bring a lost member back, one module each; ``group_member`` tries them in order."""
