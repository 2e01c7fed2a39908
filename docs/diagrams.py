# SPDX-License-Identifier: Apache-2.0
"""Draw the diagrams of the documentation as SVG files, beside this script.

``python docs/diagrams.py`` writes them. They refer to no font and no other file, so a browser shows
them without a network.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from math import hypot
from pathlib import Path

LINE = 18
"""Height of a line of text, in pixels."""

FILL = {"box": "#eef3fa", "end": "#e6f4e6", "ask": "#fff6df", "label": "none"}
STROKE = {"box": "#3b5b8c", "end": "#3f7d3f", "ask": "#9a7414", "label": "none"}


@dataclass(frozen=True, slots=True)
class Box:
    """A box around lines of text; ``x`` and ``y`` are its centre, in pixels."""

    x: int
    y: int
    text: str
    kind: str = "box"
    width: int = 130

    @property
    def height(self) -> int:
        """The height that its lines need."""
        return LINE * (self.text.count("\n") + 1) + 16

    def side(self, name: str) -> tuple[int, int]:
        """Return the middle of a side: ``l``, ``r``, ``t`` or ``b``."""
        dx, dy = {"l": (-1, 0), "r": (1, 0), "t": (0, -1), "b": (0, 1)}[name]
        return self.x + dx * self.width // 2, self.y + dy * self.height // 2


@dataclass(frozen=True, slots=True)
class Arrow:
    """An arrow from a side of a box to a side of another one, past some points."""

    start: str
    start_side: str
    end: str
    end_side: str
    label: str = ""
    past: Sequence[tuple[int, int]] = ()


@dataclass(frozen=True, slots=True)
class Diagram:
    """Boxes by name, and the arrows between them."""

    title: str
    width: int
    height: int
    boxes: dict[str, Box]
    arrows: Sequence[Arrow]

    def svg(self) -> str:
        """Return the diagram as an SVG document."""
        lines = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} {self.height}"'
            f' width="{self.width}" height="{self.height}" role="img">',
            f"<title>{escape(self.title)}</title>",
            '<rect width="100%" height="100%" fill="#fff"/>',
        ]
        for arrow in self.arrows:
            lines += self._arrow(arrow)
        for box in self.boxes.values():
            lines += _box(box)
        return "\n".join([*lines, "</svg>", ""])

    def _arrow(self, arrow: Arrow) -> list[str]:
        points = [
            self.boxes[arrow.start].side(arrow.start_side),
            *arrow.past,
            self.boxes[arrow.end].side(arrow.end_side),
        ]
        path = " ".join(f"{x},{y}" for x, y in points)
        lines = [f'<polyline points="{path}" fill="none" stroke="#444"/>', _head(*points[-2:])]
        if arrow.label:
            (x0, y0), (x1, y1) = points[0], points[1]
            x, y = (x0 + x1) // 2, (y0 + y1) // 2
            beside = (x, y - 6, "middle") if y0 == y1 else (x + 7, y + 4, "start")
            lines.append(_text(*beside, arrow.label))
        return lines


def _head(before: tuple[int, int], tip: tuple[int, int]) -> str:
    """Return the head of an arrow that comes from ``before`` and ends at ``tip``."""
    length = hypot(tip[0] - before[0], tip[1] - before[1])
    dx, dy = (tip[0] - before[0]) / length, (tip[1] - before[1]) / length
    corners = [
        tip,
        *((tip[0] - 9 * dx + side * 4 * dy, tip[1] - 9 * dy - side * 4 * dx) for side in (1, -1)),
    ]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in corners)
    return f'<polygon points="{path}" fill="#444"/>'


def _text(x: int, y: int, anchor: str, text: str) -> str:
    look = f'font-family="sans-serif" font-size="13" text-anchor="{anchor}"'
    return f'<text x="{x}" y="{y}" {look} fill="#222">{escape(text)}</text>'


def _box(box: Box) -> list[str]:
    left, top = box.x - box.width // 2, box.y - box.height // 2
    lines = [
        f'<rect x="{left}" y="{top}" width="{box.width}" height="{box.height}" rx="6"'
        f' fill="{FILL[box.kind]}" stroke="{STROKE[box.kind]}"/>'
    ]
    for i, line in enumerate(box.text.split("\n")):
        y = top + 8 + LINE * i + 13
        lines.append(_text(box.x, y, "middle", line))
    return lines


def failover() -> Diagram:
    """The failover of the README's group."""
    steps = {
        "fence": "fence\ndb_a",
        "quiesce": "quiesce\ndatabase on db_a",
        "detach": "detach data\nfrom db_a",
        "attach": "attach data\nto db_b",
        "activate": "activate\ndatabase on db_b",
        "update": "update stack:\nactive = db_b",
    }
    stages = ("fence", "quiesce", "move_volumes", "move_volumes", "activate", "update_stack")
    boxes = {
        name: Box(80 + 150 * i, 80, text, width=124) for i, (name, text) in enumerate(steps.items())
    }
    boxes |= {f"stage {i}": Box(80 + 150 * i, 20, stage, "label") for i, stage in enumerate(stages)}
    names = list(steps)
    arrows = [Arrow(a, "r", b, "l") for a, b in zip(names, names[1:], strict=False)]
    arrows.append(Arrow("fence", "b", "detach", "b", past=((80, 130), (380, 130))))
    arrows.append(Arrow("quiesce", "b", "activate", "b", past=((230, 145), (680, 145))))
    return Diagram("A failover of db_a to db_b, by stage", 910, 160, boxes, arrows)


def parts() -> Diagram:
    """Where everything runs."""
    boxes = {
        "alarms": Box(100, 60, "alarms:\nAodh, Alertmanager,\nMasakari, yours", width=170),
        "operator": Box(100, 170, "operator:\nfailover, openstack", width=170),
        "mistral": Box(350, 115, "Mistral\nworkflows: the stages\nactions: the engine", "ask", 190),
        "store": Box(350, 240, "state store\n(MariaDB or SQLite)", "end", 190),
        "cloud": Box(620, 40, "Nova, Cinder, Heat,\nKeystone", width=170),
        "broker": Box(620, 150, "broker (RabbitMQ)", width=170),
        "a": Box(560, 240, "agent on db_a", "end", 110),
        "b": Box(690, 240, "agent on db_b", "end", 110),
    }
    arrows = [
        Arrow("alarms", "r", "mistral", "l"),
        Arrow("operator", "r", "mistral", "l"),
        Arrow("mistral", "b", "store", "t", "goals, locks, outcomes"),
        Arrow("mistral", "r", "cloud", "l"),
        Arrow("mistral", "r", "broker", "l"),
        Arrow("broker", "b", "a", "t"),
        Arrow("broker", "b", "b", "t"),
    ]
    return Diagram("The parts, and the way of an order", 770, 290, boxes, arrows)


def node() -> Diagram:
    """What happens to one ready node."""
    boxes = {
        "ready": Box(330, 30, "a node is ready", width=160),
        "current": Box(330, 100, "is its traversal current?", "ask", 180),
        "nothing": Box(620, 100, "nothing to do", "end", 170),
        "lock": Box(330, 175, "lock of the record", "ask", 180),
        "leave": Box(620, 175, "leave it: the owner's\nconclusion triggers the node", "end", 210),
        "break": Box(90, 175, "break the lock;\noutcome unknown", width=140),
        "decide": Box(330, 255, "decide", "ask", 180),
        "replace": Box(620, 255, "condemn the record;\nnew traversal, same goal", "end", 210),
        "operate": Box(330, 335, "take the lock, write\nthe intent, carry out", width=180),
        "ours": Box(330, 420, "is the lock still ours?", "ask", 180),
        "late": Box(620, 420, "late result: ignored", "end", 170),
        "report": Box(330, 500, "report to the dependents", width=190),
    }
    arrows = [
        Arrow("ready", "b", "current", "t"),
        Arrow("current", "r", "nothing", "l", "no"),
        Arrow("current", "b", "lock", "t", "yes"),
        Arrow("lock", "r", "leave", "l", "live owner"),
        Arrow("lock", "l", "break", "r", "dead owner"),
        Arrow("break", "t", "current", "l", past=((90, 100),)),
        Arrow("lock", "b", "decide", "t", "free"),
        Arrow("decide", "r", "replace", "l", "replace"),
        Arrow("decide", "b", "operate", "t", "create, update, delete"),
        Arrow("decide", "l", "report", "l", "as wanted", past=((90, 255), (90, 500))),
        Arrow("operate", "b", "ours", "t"),
        Arrow("ours", "r", "late", "l", "no"),
        Arrow("ours", "b", "report", "t", "yes"),
        Arrow("report", "r", "ready", "r", past=((750, 500), (750, 30))),
    ]
    return Diagram("The life of a node in a traversal", 770, 530, boxes, arrows)


DIAGRAMS = {"failover": failover, "parts": parts, "node": node}
"""By the name of the file without its ending."""


def main() -> None:
    """Write the files."""
    for name, draw in DIAGRAMS.items():
        (Path(__file__).parent / f"{name}.svg").write_text(draw().svg(), encoding="utf-8")


if __name__ == "__main__":
    main()
