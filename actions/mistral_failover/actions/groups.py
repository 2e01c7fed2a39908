# SPDX-License-Identifier: Apache-2.0
"""Actions that define and delete groups."""

from __future__ import annotations

from typing import Any

from mistral_failover.actions.base import FailoverAction
from mistral_failover.orders import adopt_stack, define_group, delete_group, forget_resource
from mistral_failover.runtime.inputs import Flag, OptionalText, Text
from mistral_failover.runtime.request import Request


class Define(FailoverAction):
    """Define a group, or change its definition; nothing else happens until it gets a goal.

    ``definition`` is a group file (text or parsed), ``types`` a list of type files. With
    ``stack_exists`` a file is refused whose stack does not exist, or not yet.
    """

    def answer(
        self,
        request: Request,
        definition: Any,
        name: OptionalText = None,
        types: Any = None,
        dry_run: Flag = False,
        stack_exists: Flag = False,
    ) -> Any:
        return define_group.define(
            request, definition, name, types, dry_run=dry_run, stack_exists=stack_exists
        )


class Undefine(FailoverAction):
    """Delete a group: its definition, its goals, its history. It must have nothing left in the
    cloud, unless it is released: then that stays as it is."""

    def answer(self, request: Request, group: Text, release: Flag = False) -> Any:
        return delete_group.undefine(request, group, release=release)


class AdoptStack(FailoverAction):
    """Let a group take the stack that has the name of its own now, because its own was deleted;
    nothing in the cloud is changed."""

    def answer(self, request: Request, group: Text) -> Any:
        return adopt_stack.adopt(request, group)


class Forget(FailoverAction):
    """Mark a resource as gone that is gone for good; nothing in the cloud is changed."""

    def answer(self, request: Request, group: Text, resource: Text, because: Text) -> Any:
        return forget_resource.forget(request, group, resource, because)
