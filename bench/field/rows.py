"""What a case reports: one row for each input."""

from dataclasses import dataclass


@dataclass
class Row:
    kind: str
    input: str
    right: str
    got: str
    holds: bool


def row(kind, given, right, got, holds=None):
    """`holds`: whether `got` is right, if that is more than equality."""
    return Row(kind, str(given)[:200], str(right)[:200], str(got)[:400], got == right if holds is None else bool(holds))


def taken(kind, given, reply):
    return row(kind, given, "250", reply, reply.startswith("250"))
