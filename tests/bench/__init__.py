# SPDX-License-Identifier: Apache-2.0
"""Benchmarks: ratios within one run, since no two machines are equally fast or quiet."""
