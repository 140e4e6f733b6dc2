"""A day of bots: early talkers, names in HELO that cannot be, addresses that a DNS list has; and good senders among them. Ours stops them
by rules, Postfix by postscreen and smtpd's restrictions. A day takes minutes: the wait for the greeting is a second."""

import json
import os
import subprocess
import sys
import time

from bots import listed
from measure import BenchError, CannotHere, Waits
from results import Goal
from sinks import LabInternet, SmtpSink, free_port

PROGRAM = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "bots.py")
BOTS = 100_000
GOOD = 2_000
# Parts of the day in which the two servers take turns.
TURNS = 5
SESSIONS = 500
DAY_S_MAX = 1_200
DRAIN_S_MAX = 120
GREET_S = 1
# Whoever is greylisted may come back after this time, and does a second later.
GREY_S = 2
# glibc knows no other port of a name server.
DNS_PORT = 53
SCORE = 5

RULES = f"""
[domains]
relay = ["sink.example"]
[dns]
servers = ["127.0.0.1:{DNS_PORT}"]
[dns_lists.bl]
zone = "bl.example"
weight = {SCORE}
[[rules]]
name = "helo"
helo_is = ["invalid", "not-fqdn"]
do = "reject 550 5.7.1 Say EHLO with your own name"
[[rules]]
name = "lists"
dns_score_min = {SCORE}
do = "reject 554 5.7.1 {{client}} is listed by {{lists}}"
"""
GREYLIST = f"""
[[rules]]
name = "greylist"
greylisted = true
do = "defer 450 4.2.0 Greylisted"
[greylist]
delay_s = {GREY_S}
"""
# What the rules above say, as postscreen(8) and smtpd(8) have it: who talks early is sent away at once, the others are refused at RCPT.
# The limits are those of servers that many connect to: with the defaults postscreen turns clients away when 100 wait.
MAIN = f"""
mynetworks = 127.0.0.1/32
relay_domains = sink.example
postscreen_greet_wait = {GREET_S}s
postscreen_greet_action = drop
postscreen_dnsbl_sites = bl.example*{SCORE}
postscreen_dnsbl_threshold = {SCORE}
postscreen_dnsbl_action = enforce
postscreen_pre_queue_limit = 4000
postscreen_post_queue_limit = 4000
default_process_limit = 400
smtpd_helo_required = yes
smtpd_helo_restrictions = permit_mynetworks, reject_invalid_helo_hostname, reject_non_fqdn_helo_hostname
"""


class Day(LabInternet):
    """The DNS of the lab with a list that has the bots that are listed."""

    def __init__(self, bench, bots):
        scenario = os.path.join(bench.work, "strangers-day.toml")
        with open(scenario, "w") as file:
            file.write(f"dns_port = {DNS_PORT}\n[[site]]\nname = 'source.example'\n")
            for address in listed(0, bots):
                name = ".".join(reversed(address.split(".")))
                file.write(f"[[record]]\nname = '{name}.bl.example'\ntype = 'A'\nvalue = '127.0.0.2'\n")
        super().__init__(bench.work, free_port(), bench.binary, scenario, record="counters")

    def argv(self):
        return [word if word != "0" else str(DNS_PORT) for word in super().argv()]

    def start(self):
        try:
            return super().start()
        except BenchError as error:
            raise CannotHere(f"port {DNS_PORT} of 127.0.0.1 is not free: {error}") from error


class Strangers:
    """filters.strangers: bots that are not stopped, CPU of each that is, good senders that wait."""

    name = "filters.strangers"
    entries = (".through", ".cpu", ".delayed", ".greylisted")
    smoke = {"BOTS": 240, "GOOD": 12, "TURNS": 1, "SESSIONS": 120}

    def run(self, bench):
        resolv_conf = os.path.join(bench.work, "strangers.resolv.conf")
        with open(resolv_conf, "w") as file:
            file.write("nameserver 127.0.0.1\n")
        sink, day = SmtpSink(bench.work, free_port()), Day(bench, BOTS + BOTS // TURNS)
        top, listen = 'client_networks = ["127.0.0.1"]', f"greet_delay_s = {GREET_S}"
        ours, grey = (
            bench.stentor(sink, name=name, top=top, listen=listen, more=more)
            for name, more in (("strangers", RULES), ("greylisting", RULES + GREYLIST))
        )
        postfix = bench.postfix(sink)
        postfix.is_screened, postfix.resolv_conf, postfix.more_main = True, resolv_conf, MAIN
        with bench.running(sink, day, ours, postfix):
            rounds = self.alone(bench, ours, postfix)
            open_day = self.day(ours, sink)
        with bench.running(sink, day, grey):
            grey_day = self.day(grey, sink)
        self.record(bench, rounds, open_day, grey_day)

    def alone(self, bench, ours, postfix):
        """Bots alone, whom the servers stop by turns; each turn has bots that neither has seen."""
        turn, part, self.found = {ours: 0, postfix: 0}, BOTS // TURNS, []

        def once(contestant):
            cpu = contestant.group.cpu_s()
            found = clients(contestant.port, bots=part, first=turn[contestant] * part)
            turn[contestant] += 1
            time.sleep(Waits.settle)
            stopped = total(found).get("stopped", 0)
            if not stopped:
                raise BenchError(f"{contestant.name} stops nobody: {found}")
            self.found.append({"server": contestant.name, **found})
            return {"cpu": (contestant.group.cpu_s() - cpu) / stopped * 1000, "missed": part - stopped}

        return bench.alternate([ours, postfix], once, TURNS)

    def day(self, server, sink):
        """All bots, and the good among them."""
        before = sink.counts()["copies"]
        found = clients(server.port, bots=BOTS, good=GOOD)
        taken = sum(found["good"].values())
        sink.wait(before + taken, DRAIN_S_MAX)
        time.sleep(Waits.settle)
        through = total(found).get("through", 0)
        if (copies := sink.counts()["copies"] - before) != taken + through:
            raise BenchError(f"{server.name} delivered {copies} copies of {taken + through} messages that it took")
        print(f"    {server.name}: {json.dumps(found)}", flush=True)
        return found

    def record(self, bench, rounds, open_day, grey_day):
        command = f"python3 bench/bots.py PORT --bots {BOTS} --good {GOOD} --sessions {SESSIONS}"
        # A bot that got something else than a refusal was not stopped either.
        missed = [BOTS - total(day).get("stopped", 0) for day in (open_day, grey_day)]
        missed += [ours["missed"] for ours, _ in rounds]
        bench.results.record(
            f"{self.name}.through", "bots not stopped", [[sum(missed), 0]], command, Goal(most=0), peer_name="the goal",
            days=[open_day, grey_day], of_postfix=sum(theirs["missed"] for _, theirs in rounds),
        )
        bench.results.record(
            f"{self.name}.cpu", "CPU ms per stopped connection", [[ours["cpu"], theirs["cpu"]] for ours, theirs in rounds],
            f"python3 bench/bots.py PORT --bots {BOTS // TURNS} --sessions {SESSIONS}", Goal(ratio=5), peer_name="postfix with postscreen",
            turns=self.found,
        )
        for entry, day, times in ((".delayed", open_day, 0), (".greylisted", grey_day, 1)):
            others = GOOD - day["good"].get(f"deferred {times} times", 0)
            bench.results.record(
                self.name + entry, f"good senders not deferred {times} times", [[others, 0]], command, Goal(most=0), peer_name="the goal",
                good=day["good"], lost=day["lost"],
            )


def total(found):
    """{fate: bots} of all kinds."""
    fates = {}
    for counts in found["bots"].values():
        for fate, count in counts.items():
            fates[fate] = fates.get(fate, 0) + count
    return fates


def clients(port, bots=0, first=0, good=0):
    argv = [sys.executable, PROGRAM, str(port), "--bots", str(bots), "--first", str(first), "--good", str(good)]
    argv += ["--retry", str(GREY_S + 1), "--sessions", str(SESSIONS)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=DAY_S_MAX)
    if done.returncode != 0:
        raise BenchError(f"the bots: {done.stderr[-500:]}")
    return json.loads(done.stdout)
