"""The scheduler on a simulated Internet in virtual time (testing/sim): a list's day, each strategy switched off, a million
recipients, growth, and a provider with a rate limit. There is no peer: goals stand in its place. docs/design/scheduler.md has the
worlds and what is counted."""

import json
import subprocess

from measure import BenchError
from results import Goal

# Nobody has looked at these before the strategies were as they are (docs/design/scheduler.md).
HELD_OUT_SEED = 30101
HELD_OUT_SEEDS = 20
BAD_SHARES = (2, 10, 30)
WORST_GOAL = 2
# Of 2 s, or of what 95 % of the subscribers' sites need by themselves.
SHARE_95_GOAL = 1
# Of twice the slowest alone, or of what queues up at a host whatever the scheduler does.
BOUND_GOAL = 1
RATE_SEEDS = 10
RATE_HOURS = 6
RUN_S_MAX = 900
# 1 in so many of the subscribers, sites and posts of a world.
PART = 1
ABLATION_SEEDS = 4
COST_ROUNDS = 5


class Sched:
    """The real scheduler and store among simulated sites."""

    name = "sched"
    entries = (
        *(f".list_day{bad}{figure}" for bad in ("", ".bad10", ".bad30") for figure in ("", ".bound", ".95")),
        ".rate_limit", ".rate_limit.refused", ".ablation", ".million", ".million.step", ".growth",
    )
    smoke = {"PART": 40, "HELD_OUT_SEEDS": 1, "RATE_SEEDS": 1, "RATE_HOURS": 2, "COST_ROUNDS": 1, "ABLATION_SEEDS": 1}

    def run(self, bench):
        self.bench = bench
        self.list_day()
        self.rate_limit()
        self.ablation()
        self.million()
        self.growth()

    def simulate(self, scenario, **options):
        arguments = [scenario, f"part={PART}", *(f"{key}={value}" for key, value in options.items())]
        command = " ".join(["stentor-sim", *arguments])
        program = self.bench.tool("stentor-sim")
        done = subprocess.run([program, *arguments], capture_output=True, text=True, timeout=RUN_S_MAX)
        if done.returncode:
            raise BenchError(f"{command}: {done.stderr.strip()}")
        return json.loads(done.stdout), command

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
                "queue_ms": [day["queue_ms"] for day in days],
                "worst": [day["worst"] for day in days if day["worst_100"] > WORST_GOAL],
                "median_95_ms": [day["median_95_ms"] for day in days],
            }
            self.record(f"sched.list_day{suffix}", "times the slowest alone", [worst], WORST_GOAL, command, **detail)
            bound = max(day["worst_100_of_bound"] for day in days)
            self.record(f"sched.list_day{suffix}.bound", "of what is possible", [bound], BOUND_GOAL, command)
            worst_95 = max(day["worst_95"] for day in days)
            detail = {
                "worst_95_ms": [day["worst_95_ms"] for day in days],
                "most_alone_ms": [day["most_alone_ms"] for day in days],
            }
            self.record(f"sched.list_day{suffix}.95", "of what is possible", [worst_95], SHARE_95_GOAL, command, **detail)

    def rate_limit(self):
        """Distance from the allowed rate once it has settled, and what was refused, in percent."""
        runs, command = self.simulate("rate", seed=HELD_OUT_SEED, seeds=RATE_SEEDS, hours=RATE_HOURS)
        away = [100 * max(abs(1 - share) for share in run["hours"][1:]) for run in runs]
        self.record("sched.rate_limit", "% off", [max(away)], 5, command, runs=runs)
        self.record("sched.rate_limit.refused", "%", [max(100 * run["refused_share"] for run in runs)], 1, command)

    def ablation(self):
        """Each strategy alone switched off: the worst ratio without it over the worst with all."""
        worlds, command = self.simulate("ablation", seed=HELD_OUT_SEED, seeds=ABLATION_SEEDS)
        costs = {
            world: {part: round(row["worst_100"] / rows["none"]["worst_100"], 2) for part, row in rows.items()}
            for world, rows in worlds.items()
        }
        all_on = max(rows["none"]["worst_100"] for world, rows in worlds.items() if world.startswith("list"))
        self.record("sched.ablation", "times the slowest alone", [all_on], WORST_GOAL, command, costs=costs, rows=worlds)

    def million(self):
        """CPU per delivery, the longest call, memory."""
        run, command = self.simulate("million", rounds=COST_ROUNDS)
        self.record("sched.million", "us CPU per delivery", [run["us_per_delivery"]], 5, command, run=run)
        self.record("sched.million.step", "us", [run["longest_step_us"]], 1000, command)

    def growth(self):
        """The greatest cost per delivery on any axis."""
        axes, command = self.simulate("growth", rounds=min(COST_ROUNDS, 3))
        most = max(row["us_per_delivery"] for rows in axes.values() for row in rows)
        self.record("sched.growth", "us CPU per delivery", [most], 5, command, axes=axes)
