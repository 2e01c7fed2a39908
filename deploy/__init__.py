# SPDX-License-Identifier: Apache-2.0
"""What operators install the package with: Debian, container images, deployment tools.

Not part of the wheel.
"""
