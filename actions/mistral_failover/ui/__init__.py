# SPDX-License-Identifier: Apache-2.0
"""``failover ui``: a local web page over the actions that the command line uses.

The way of an answer: an action's JSON (``action_client``), a view model of plain dataclasses
(``groups``, ``group``, ``alarm``, ``work``, ``topology``, ``timeline``, ``plan``, ``goals``,
``history``), and a template that only shows it. Drawings are made by pure functions
(``drawing``). ``access`` decides which requests are answered.
"""
