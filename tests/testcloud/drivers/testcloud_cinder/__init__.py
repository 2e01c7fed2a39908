# SPDX-License-Identifier: Apache-2.0
"""What the test cloud's Cinder needs to live without bytes."""
