# SPDX-License-Identifier: Apache-2.0
"""Cinder's own fake backend, which also makes volumes of images: without bytes there is nothing to
copy, and without root no image can be looked at."""

from typing import Any

from cinder.tests import fake_driver


class Clones(fake_driver.FakeLoggingVolumeDriver):  # type: ignore[misc]  # Cinder has no types
    """Says of each image that it is cloned."""

    def clone_image(self, *asked: Any) -> tuple[dict[str, Any], bool]:
        """Return what changes of the volume, and that nothing is to be downloaded."""
        del asked
        return {}, True
