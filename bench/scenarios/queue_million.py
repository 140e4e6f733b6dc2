"""A million distinct messages, one pending recipient each, at hosts that are down: memory per message and the restart.

What is counted: private memory (RssAnon) of the server's process, after all sites have been tried and found down and the
size has settled, less the same before the messages and after the recipients were made known by other mail. Message-IDs
have 50 octets, bodies 400; reading them back from the journal is not memory."""

import os

from deep import DeepStentor, Down, source
from measure import BenchError
from results import Goal
from sinks import free_port

MESSAGES = 1_000_000
SITES = 50_000
BODY_BYTES = 400
SESSIONS = 300
PER_MESSAGE_GOAL = 200
RESTART_S_GOAL = 10
RESTARTS = 3
TRIED_S_MAX = 900
# Bodies of new mail leave the cache after this.
CACHED_S = 12


class MillionMessages:
    """1,000,000 distinct messages with one recipient each, all of whose hosts are down."""

    name = "queue.million_messages"
    entries = ("", ".restart_s")
    smoke = {"MESSAGES": 1_000, "SITES": 50, "SESSIONS": 20, "RESTARTS": 1}

    def run(self, bench):
        down = Down(bench.work, SITES)
        addresses = down.addresses(MESSAGES)
        with bench.running(down):
            fresh = self.life(bench, down, addresses, is_known=False)
            known = self.life(bench, down, addresses, is_known=True)
        command = f"stentor-kit lab source --messages {MESSAGES} --size {BODY_BYTES}, one recipient each"
        bench.results.record(
            self.name, "bytes/message", [[known["bytes"], PER_MESSAGE_GOAL]], command, Goal(most=PER_MESSAGE_GOAL),
            peer_name="the goal", recipients_new=fresh["bytes"], after_restart=known["bytes_restarted"], known=known,
        )
        bench.results.record(
            f"{self.name}.restart_s", "s", [[s, RESTART_S_GOAL] for s in known["restarts_s"]],
            "kill -9, start, until the greeting", Goal(most=RESTART_S_GOAL), peer_name="the goal",
            cpu_s=known["restart_cpu_s"],
        )

    def life(self, bench, down, addresses, is_known):
        """Everything once; `is_known`: the recipients are in the book before."""
        server = DeepStentor(bench.binary, bench.work, free_port(), down)
        with bench.running(server):
            if is_known:
                # One message to all of them, taken out again: the book knows them and nothing waits.
                source(
                    bench.binary, server.port, connections=1, messages=MESSAGES // 1000, size=BODY_BYTES,
                    recipients=addresses, per_message=1000, sender="earlier@source.example",
                )
                server.wait_quiet(TRIED_S_MAX, "all sites tried")
                server.command("remove", "--all")
                if server.pending():
                    raise BenchError("the earlier mail is still there")
            before = server.settled_mib()
            report = source(
                bench.binary, server.port, connections=SESSIONS, messages=MESSAGES, size=BODY_BYTES,
                recipients=addresses,
            )
            if server.pending() != MESSAGES:
                raise BenchError(f"{server.pending()} recipients are pending")
            server.wait_quiet(max(TRIED_S_MAX, CACHED_S), "all sites tried")
            after = server.settled_mib()
            per_message = lambda mib: (mib - before) * 2**20 / MESSAGES
            life = {"before_mib": before, "after_mib": after, "bytes": per_message(after)}
            life["accepted_per_s"] = report["accepted_per_s"]
            if is_known:
                life["restarts_s"], life["restart_cpu_s"] = [], []
                for _ in range(RESTARTS):
                    cpu = server.group.cpu_s()
                    life["restarts_s"].append(server.crash_and_restart())
                    life["restart_cpu_s"].append(server.group.cpu_s() - cpu)
                server.wait_quiet(TRIED_S_MAX, "all sites tried again")
                life["bytes_restarted"] = per_message(server.settled_mib())
            print(f"    {'known' if is_known else 'new'} recipients: {life}", flush=True)
            return life
