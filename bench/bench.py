"""What a scenario is given: the options of the run, a place for files, and contestants that are stopped in any case."""

import contextlib
import os
import time

from contestants.postfix import Postfix
from contestants.stentor import Stentor
from measure import BenchError, Waits
from results import Results


class Bench:
    """One run of `run.py`. `smoke`: everything once and small, to see that it works; the figures mean nothing. `peers`: as small,
    but every difference from a program of others counts, and each of these has to be there. `tools`: the folder of the workspace's
    other programs, if they are not beside the server."""

    def __init__(self, root, binary, rounds, smoke=False, peers=False, tools=None):
        self.root = root
        self.binary = binary
        self.tools = tools or os.path.dirname(binary)
        self.peers = peers
        smoke = smoke or peers
        self.smoke = smoke
        self.rounds = 1 if smoke else rounds
        # Turns that are not counted.
        self.warm_ups = 0 if smoke else 1
        self.folder = os.path.join(root, "target", "bench")
        self.work = os.path.join(self.folder, "work")
        os.makedirs(self.work, exist_ok=True)
        # Files that this run has made and a later scenario may use.
        self.made = set()
        name = "peers.json" if peers else "smoke.json" if smoke else "latest.json"
        self.results = self._results(os.path.join(self.folder, name))

    def _results(self, path):
        judges = (lambda goal: goal.most == 0) if self.peers else lambda _: not self.smoke
        return Results(path, judges, is_partial=not self.smoke)

    def move(self, work, figures):
        """Goes on with another work folder and another file of figures."""
        self.work, self.results = work, self._results(figures)

    @contextlib.contextmanager
    def running(self, *things):
        """Starts sinks and contestants in this order, stops them in the other."""
        with contextlib.ExitStack() as stack:
            for thing in things:
                stack.callback(thing.stop)
                thing.start()
            yield

    def tool(self, name):
        """The path of another program of the workspace."""
        path = os.path.join(self.tools, name)
        if not os.access(path, os.X_OK):
            raise BenchError(f"{path} is missing: cargo build --bin {name}, with --release for figures that count")
        return path

    def stentor(self, sink, **options):
        return Stentor(self.binary, self.work, sink.port, **options)

    def postfix(self, sink, **options):
        return Postfix(self.work, sink.port, **options)

    def alternate(self, contestants, run, times=None):
        """`run(contestant)` for each in turn, once to warm up and then `times` (default: the run's rounds); who begins
        changes every time. Returns per time what each run returned, in the order of `contestants`."""
        for contestant in contestants * self.warm_ups:
            self._one(contestant, run)
        rounds = []
        for number in range(times or self.rounds):
            order = contestants if number % 2 == 0 else contestants[::-1]
            measured = {contestant: self._one(contestant, run) for contestant in order}
            rounds.append([measured[contestant] for contestant in contestants])
            briefs = "; ".join(f"{c.name} {_brief(measured[c])}" for c in contestants)
            print(f"    round {number + 1}: {briefs}", flush=True)
        return rounds

    def _one(self, contestant, run):
        # What an earlier run left to be written back must not be paid for by this one.
        os.sync()
        measured = run(contestant)
        contestant.wait_drained()
        return measured


def measured_cpu(contestant, sink, copies, send):
    """Runs `send()` and waits for so many more copies. Returns (what send returned, seconds from the call to the last
    copy, its time.monotonic(), CPU seconds of the contestant including what it does just after)."""
    total = sink.counts()["copies"] + copies
    cpu = contestant.group.cpu_s()
    begin = time.monotonic()
    sent = send()
    end = sink.wait(total, 300)
    time.sleep(Waits.settle)
    if sink.counts()["copies"] != total:
        raise BenchError(f"{contestant.name} delivered {sink.counts()['copies'] - total} copies too many")
    return sent, end - begin, end, contestant.group.cpu_s() - cpu


def pairs(rounds, field):
    """[[ours, peer's], ...] of one field."""
    return [[measured[field] for measured in both] for both in rounds]


def _brief(measured):
    return ", ".join(f"{name} {value:.4g}" for name, value in measured.items())
