# SPDX-License-Identifier: Apache-2.0
"""An HTTP cloud on loopback with latency, faults and an audit, driven by the real clients."""
