"""A post to 2,000 subscribers at 700 sites of a simulated Internet, in real time, through both servers by turns: seconds
from the final dot until 95 % and 100 % of the subscribers who can be reached have their copy. One post, and ten at once.

Round trips of 20 to 300 ms; 2 % of the sites refuse connections, accept and never greet, or never answer the SYN. Each
round has a seed of its own, and both servers start anew: neither knows anything of the sites.
"""

import os
import threading
import time

from bench import pairs
from measure import BenchError, wait_until
from results import Goal
from sinks import LabInternet, free_port
from sources import SENDER, message, post

SUBSCRIBERS = 2_000
SITES = 700
LENGTH = 4096
SCENARIO = """\
seed = {seed}

[[generate]]
sites = {sites}
zipf = 1.0
rtt_ms = [20, 300]
faulty_share = 0.02
faults = [
    {{ behaviour = {{ connect = "refuse" }} }},
    {{ behaviour = {{ at_greeting = "hang" }} }},
    {{ behaviour = {{ connect = "never_accept" }} }},
]
"""
FIRST_SEED = 1_001
POSTS = (1, 10)
# Connections out at a time: Stentor's default, given to Postfix too (its own is 100).
CONNECTIONS = 800
TIMEOUT_S = 900


class VsPostfix:
    """The list day's post in real time, beside Postfix."""

    name = "sched.vs_postfix"
    entries = (".1.95", ".1.100", ".10.95", ".10.100")
    smoke = {"SUBSCRIBERS": 60, "SITES": 30, "POSTS": (1,), "entries": (".1.95", ".1.100")}

    def run(self, bench):
        for posts in POSTS:
            rounds = []
            for number in range(bench.rounds):
                order = ("stentor", "postfix") if number % 2 == 0 else ("postfix", "stentor")
                measured = {who: self.once(bench, who, FIRST_SEED + number, posts) for who in order}
                rounds.append([measured["stentor"], measured["postfix"]])
                print(f"    {posts} post(s), round {number + 1}: {measured}", flush=True)
            command = f"{posts} post(s) of {LENGTH} octets to {SUBSCRIBERS} at {SITES} sites, 2 % dead or hanging, stentor-kit lab run"
            for share in ("95", "100"):
                name = f"{self.name}.{posts}.{share}"
                bench.results.record(name, "s", pairs(rounds, share), command, Goal(ratio=1))

    def once(self, bench, who, seed, posts):
        os.sync()
        scenario = os.path.join(bench.work, "vs_postfix.toml")
        with open(scenario, "w") as file:
            file.write(SCENARIO.format(seed=seed, sites=SITES))
        sink = LabInternet(bench.work, free_port(), bench.binary, scenario)
        subscribers = os.path.join(bench.work, "vs_postfix.subscribers")
        with open(subscribers, "w") as file:
            file.writelines(f"{address}\n" for address in sink.subscribers(SUBSCRIBERS))
        reachable = len(sink.subscribers(SUBSCRIBERS, reachable=True)) * posts
        options = {"subscribers": subscribers, "routes": sink.routes()}
        if who == "postfix":
            contestant = bench.postfix(sink, processes=CONNECTIONS, **options)
        else:
            contestant = bench.stentor(sink, **options)
        with bench.running(sink, contestant):
            dot = send(contestant.port, posts, seed)
            times = {"95": wait_copies(sink, -(-reachable * 95 // 100)) - dot, "100": wait_copies(sink, reachable) - dot}
            time.sleep(0.5)
            counts = sink.counts()
            if counts["copies"] != reachable or counts["duplicates"]:
                raise BenchError(f"{who}: {counts} instead of {reachable} copies")
        return times


def send(port, posts, seed):
    """Hands in so many posts at once; the time.monotonic() of the first final dot."""
    dots, errors = [], []

    def one(number):
        try:
            content = message(LENGTH, f"post{seed}-{number}")
            dots.append(post(port, SENDER, "news@lists.example", content).dot)
        except (OSError, BenchError) as error:
            errors.append(error)

    threads = [threading.Thread(target=one, args=(number,)) for number in range(posts)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise BenchError(f"a post was not taken: {errors[0]}")
    return min(dots)


def wait_copies(sink, copies):
    return wait_until(lambda: sink.counts()["copies"] >= copies, TIMEOUT_S, f"{copies} copies ({sink.counts()} there)")
