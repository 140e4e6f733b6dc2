"""The scheduler on a simulated Internet in virtual time (crates/sim): a list's day, each strategy switched off, a million
recipients, growth, and a provider with a rate limit. There is no peer: goals stand in its place. docs/scheduler.md has the
worlds and what is counted."""

import json
import os
import subprocess

from measure import BenchError
from results import Goal

HELD_OUT_SEED = 9101
HELD_OUT_SEEDS = 20
BAD_SHARES = (2, 10, 30)
WORST_GOAL = 2
SHARE_95_MS_GOAL = 2000
RATE_SEEDS = 10
RUN_S_MAX = 900


class Sched:
    """The real scheduler and store among simulated sites."""

    name = "sched"

    def run(self, bench):
        self.bench = bench
        self.list_day()
        self.rate_limit()
        self.ablation()
        self.million()
        self.growth()

    def simulate(self, scenario, **options):
        arguments = [scenario, *(f"{key}={value}" for key, value in options.items())]
        command = ["cargo", "run", "--quiet", "--release", "-p", "stentor-sim", "--", *arguments]
        root = os.path.dirname(os.path.dirname(self.bench.folder))
        done = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=RUN_S_MAX)
        if done.returncode:
            raise BenchError(f"{' '.join(command)}: {done.stderr.strip()}")
        return json.loads(done.stdout), " ".join(command)

    def record(self, name, unit, values, goal, command, **detail):
        rounds = [[value, goal] for value in values]
        self.bench.results.record(name, unit, rounds, command, Goal(most=goal), peer_name="the goal", **detail)

    def list_day(self):
        """Worst post's time to all reachable subscribers over what the slowest good site needs alone."""
        for bad in BAD_SHARES:
            days, command = self.simulate("day", seed=HELD_OUT_SEED, seeds=HELD_OUT_SEEDS, bad=bad)
            suffix = "" if bad == BAD_SHARES[0] else f".bad{bad}"
            worst = max(day["worst_100"] for day in days)
            detail = {
                "seeds": [HELD_OUT_SEED, HELD_OUT_SEED + HELD_OUT_SEEDS - 1],
                "unserved": sum(day["unserved"] for day in days),
                "by_seed": [round(day["worst_100"], 3) for day in days],
                "median_100": [round(day["median_100"], 3) for day in days],
                "worst_95_ms": [day["worst_95_ms"] for day in days],
                "median_95_ms": [day["median_95_ms"] for day in days],
            }
            self.record(f"sched.list_day{suffix}", "times the slowest alone", [worst], WORST_GOAL, command, **detail)
            worst_95 = max(day["worst_95_ms"] for day in days)
            self.record(f"sched.list_day{suffix}.95", "ms", [worst_95], SHARE_95_MS_GOAL, command)

    def rate_limit(self):
        """Distance from the allowed rate once it has settled, and what was refused, in percent."""
        runs, command = self.simulate("rate", seed=HELD_OUT_SEED, seeds=RATE_SEEDS)
        away = [100 * max(abs(1 - share) for share in run["hours"][1:]) for run in runs]
        self.record("sched.rate_limit", "% off", [max(away)], 5, command, runs=runs)
        self.record("sched.rate_limit.refused", "%", [max(100 * run["refused_share"] for run in runs)], 1, command)

    def ablation(self):
        """Each strategy alone switched off: the worst ratio without it over the worst with all."""
        worlds, command = self.simulate("ablation", seed=HELD_OUT_SEED, seeds=4)
        costs = {
            world: {part: round(row["worst_100"] / rows["none"]["worst_100"], 2) for part, row in rows.items()}
            for world, rows in worlds.items()
        }
        all_on = max(rows["none"]["worst_100"] for world, rows in worlds.items() if world.startswith("list"))
        self.record("sched.ablation", "times the slowest alone", [all_on], WORST_GOAL, command, costs=costs, rows=worlds)

    def million(self):
        """CPU per delivery, the longest call, memory."""
        run, command = self.simulate("million", rounds=5)
        self.record("sched.million", "us CPU per delivery", [run["us_per_delivery"]], 5, command, run=run)
        self.record("sched.million.step", "us", [run["longest_step_us"]], 1000, command)

    def growth(self):
        """The greatest cost per delivery on any axis."""
        axes, command = self.simulate("growth", rounds=3)
        most = max(row["us_per_delivery"] for rows in axes.values() for row in rows)
        self.record("sched.growth", "us CPU per delivery", [most], 5, command, axes=axes)
