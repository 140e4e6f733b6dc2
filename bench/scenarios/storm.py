"""Storm: 200 parallel clients with 100 messages each. smtp-source fails at the first refusal, so that a result means that
none was refused."""

from bench import measured_cpu, pairs
from results import Goal
from sinks import SmtpSink, free_port
from sources import command_text, smtp_source

CLIENTS = 200
MESSAGES = CLIENTS * 100
LENGTH = 4096


class Storm:
    """All at once."""

    name = "path.storm"
    entries = (".time",)
    smoke = {"MESSAGES": 600}

    def run(self, bench):
        sink = SmtpSink(bench.work, free_port())
        stentor, postfix = bench.stentor(sink), bench.postfix(sink)
        with bench.running(sink, stentor, postfix):
            rounds = bench.alternate([stentor, postfix], lambda contestant: self.once(contestant, sink))
        command = command_text(CLIENTS, MESSAGES, LENGTH, True)
        detail = {"delivered_s": pairs(rounds, "delivered_s")}
        bench.results.record("path.storm.time", "s", pairs(rounds, "time"), command, Goal(ratio=3), **detail)

    def once(self, contestant, sink):
        accepted_s, delivered_s, _, _ = measured_cpu(
            contestant, sink, MESSAGES, lambda: smtp_source(contestant.port, CLIENTS, MESSAGES, LENGTH, True)
        )
        return {"time": accepted_s, "delivered_s": delivered_s}
