# SPDX-License-Identifier: Apache-2.0
"""Actions that define and delete groups."""

from __future__ import annotations

from typing import Any

from mistral_failover.actions.base import FailoverAction
from mistral_failover.orders import adopt_stack, define_group, delete_group, forget_resource
from mistral_failover.runtime.inputs import flag, optional_text, text
from mistral_failover.runtime.request import Request


class Define(FailoverAction):
    """Define a group, or change its definition; nothing else happens until it gets a goal.

    ``definition`` is a group file (text or parsed), ``types`` a list of type files.
    """

    def __init__(
        self, definition: Any, name: Any = None, types: Any = None, dry_run: Any = False
    ) -> None:
        super().__init__()
        self.definition = definition
        self.name = name
        self.types = types
        self.dry_run = dry_run

    def answer(self, request: Request) -> Any:
        return define_group.define(
            request,
            self.definition,
            optional_text("name", self.name),
            self.types,
            dry_run=flag("dry_run", self.dry_run),
        )


class Undefine(FailoverAction):
    """Delete a group: its definition, its goals, its history. It must have nothing left in the
    cloud, unless it is released: then that stays as it is."""

    def __init__(self, group: Any, release: Any = False) -> None:
        super().__init__()
        self.group = group
        self.release = release

    def answer(self, request: Request) -> Any:
        release = flag("release", self.release)
        return delete_group.undefine(request, text("group", self.group), release=release)


class AdoptStack(FailoverAction):
    """Let a group take the stack that has the name of its own now, because its own was deleted;
    nothing in the cloud is changed."""

    def __init__(self, group: Any) -> None:
        super().__init__()
        self.group = group

    def answer(self, request: Request) -> Any:
        return adopt_stack.adopt(request, text("group", self.group))


class Forget(FailoverAction):
    """Mark a resource as gone that is gone for good; nothing in the cloud is changed."""

    def __init__(self, group: Any, resource: Any, because: Any) -> None:
        super().__init__()
        self.group = group
        self.resource = resource
        self.because = because

    def answer(self, request: Request) -> Any:
        return forget_resource.forget(
            request,
            text("group", self.group),
            text("resource", self.resource),
            text("because", self.because),
        )
