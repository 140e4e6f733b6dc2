"""The results file: one JSON object, an entry a figure. A partial run replaces its own entries and leaves the others.

NAME: value (median of the rounds), unit, peer (its median), ratio (over 1: better than the peer), more_is_better (which
direction that is), rounds (raw pairs [value, peer]), command; beside what is asked for: peer_name, goal, met (absent if it was not
judged), load_average, time, detail.
"""

import json
import os
import time

from measure import median


class Goal:
    """What an entry must reach: at least `ratio`, or at most `most`, or at most `added` more than the peer, or the peer's
    figure `within` a share of it. Without any of them the figure is shown and not judged."""

    def __init__(self, ratio=None, most=None, added=None, within=None):
        self.ratio, self.most, self.added, self.within = ratio, most, added, within

    @property
    def is_none(self):
        return all(bound is None for bound in (self.ratio, self.most, self.added, self.within))

    def __str__(self):
        if self.is_none:
            return "none"
        if self.ratio is not None:
            return f"ratio >= {self.ratio:g}"
        if self.within is not None:
            return f"within {self.within:.0%}"
        return f"<= {self.most:g}" if self.most is not None else f"<= {self.added:g} more"

    def is_met(self, entry):
        if self.ratio is not None:
            # There is none where the worse figure is 0: then no bound is missed.
            return entry["ratio"] is None or entry["ratio"] >= self.ratio
        if self.most is not None:
            return entry["value"] <= self.most
        if self.within is not None:
            return abs(entry["value"] - entry["peer"]) <= self.within * entry["peer"]
        return entry["value"] - entry["peer"] <= self.added


SHOWN = Goal()


class Results:
    """Collects the entries of a run and writes each as soon as it is known. `judges`: of which goals an entry says whether
    it is met. Unless `is_partial`, the file holds the entries of one run alone."""

    def __init__(self, path, judges=lambda goal: True, is_partial=True):
        self.path, self.judges = path, judges
        self.names = []
        if not is_partial:
            self._store({})

    def record(self, name, unit, rounds, command, goal, more_is_better=False, peer_name="postfix", **detail):
        """`rounds`: pairs (ours, the peer's)."""
        value, peer = (median([pair[side] for pair in rounds]) for side in (0, 1))
        better, worse = (value, peer) if more_is_better else (peer, value)
        entry = {
            "value": _round(value),
            "unit": unit,
            "peer": _round(peer),
            "ratio": _round(better / worse) if worse else None,
            "more_is_better": more_is_better,
            "rounds": [[_round(x) for x in pair] for pair in rounds],
            "command": command,
            "peer_name": peer_name,
            "goal": str(goal),
            "load_average": round(os.getloadavg()[0], 1),
            "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        }
        if not goal.is_none and self.judges(goal):
            entry["met"] = goal.is_met(entry)
        if detail:
            entry["detail"] = detail
        entries = self.load()
        entries[name] = entry
        self._store(entries)
        self.names.append(name)
        print(f"    {_row(name, entry)}", flush=True)

    def load(self):
        try:
            with open(self.path) as file:
                return json.load(file)
        except FileNotFoundError:
            return {}

    def take(self, path):
        """Takes over the entries of another file, which may not be there."""
        others = Results(path, self.judges).load()
        self._store({**self.load(), **others})
        self.names += others

    def print_table(self):
        """The entries of this run; True if every goal was met."""
        entries = self.load()
        print(f"\n{'entry':28} {'stentor':>10} {'peer':>10} {'unit':22} {'ratio':>7}  goal")
        for name in self.names:
            print(_row(name, entries[name]))
        return all(entries[name].get("met", True) for name in self.names)

    def _store(self, entries):
        beside = self.path + ".new"
        with open(beside, "w") as file:
            json.dump(dict(sorted(entries.items())), file, indent=1)
            file.write("\n")
        os.replace(beside, self.path)


def _row(name, entry):
    ratio = "-" if entry["ratio"] is None else f"{entry['ratio']:.2f}"
    verdict = {True: ": met", False: ": MISSED", None: ", not judged"}[entry.get("met")]
    figures = f"{entry['value']:>10.4g} {entry['peer']:>10.4g} {entry['unit']:22} {ratio:>7}"
    return f"{name:28} {figures}  {entry['goal']}{verdict}"


def _round(number):
    return float(f"{number:.5g}")
