# SPDX-License-Identifier: Apache-2.0
"""No handler of all exceptions hides one: it raises again, hands the error to what raises it, or
records it as a defect (``mistral_failover.defects``). Nor does one of all errors of the store."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from support.pages import MODULES

BROAD = frozenset({"Exception", "BaseException", "SQLAlchemyError"})
"""The last one too: most errors of the state store are no outage but a mistake in a statement."""
RECORDING = frozenset({"caught", "defect", "is_away", "set_exception", "throw"})


def hidden(source: str) -> Iterator[int]:
    """Yield the lines of a program's broad handlers that hide what they catch."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ExceptHandler) and _is_broad(node.type) and not _is_honest(node):
            yield node.lineno
        if (
            isinstance(node, ast.Call)
            and _name(node.func) == "suppress"
            and any(_is_broad(each) for each in node.args)
        ):
            yield node.lineno


def _is_broad(kind: ast.expr | None) -> bool:
    if isinstance(kind, ast.Tuple):
        return any(_is_broad(each) for each in kind.elts)
    return kind is None or _name(kind) in BROAD


def _is_honest(handler: ast.ExceptHandler) -> bool:
    if isinstance(handler.body[-1], ast.Raise):  # on every way through it
        return True
    calls = (node for each in handler.body for node in ast.walk(each) if isinstance(node, ast.Call))
    return any(_name(each.func) in RECORDING for each in calls)


def _name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


@pytest.mark.parametrize(
    ("body", "is_hidden"),
    [
        ("except Exception:\n    pass", True),
        ("except:\n    pass", True),
        ("except (ValueError, BaseException):\n    LOG.exception('odd')", True),
        ("except Exception as error:\n    if odd(error):\n        raise", True),
        ("except Exception:\n    clean()\n    raise", False),
        ("except Exception as error:\n    raise Failed from error", False),
        ("except Exception as error:\n    facts = request.caught(error, 'x')", False),
        ("except Exception as error:\n    defect(error, 'x')", False),
        ("except BaseException as error:\n    answer.set_exception(error)", False),
        ("except ValueError:\n    pass", False),
        ("except sa.exc.SQLAlchemyError:\n    continue", True),
        ("except SQLAlchemyError as error:\n    if not is_away(error):\n        raise", False),
    ],
)
def test_which_handlers_hide_an_error(body: str, is_hidden: bool) -> None:
    assert bool(list(hidden(f"try:\n    work()\n{body}\n"))) == is_hidden


def test_no_handler_of_the_product_hides_an_error() -> None:
    found = [
        f"{name}:{line}" for name, path in MODULES.items() for line in hidden(path.read_text())
    ]

    assert found == []
