"""Relay in TLS 1.3, in and out: with sessions kept, beside the same in clear; a session for each message, beside the handshakes alone;
and both beside Postfix with the same certificate, sink and source.

The handshakes alone are the same sessions without a message: CPU of the server that takes them (a full handshake each, as the source
makes them), and CPU of a client that makes them to the sink (resumed, as both servers do). The sink is a host of the lab, since
smtp-sink has no TLS; nor has smtp-source."""

import time

from bench import measured_cpu, pairs
from contestants.stentor import RECIPIENTS_PER_TRANSACTION
from encryption import Certificate, TlsSink, kit_source, metrics, source_text
from measure import BenchError, Waits
from results import Goal
from sinks import free_port

MESSAGES = 5000
# A session each costs more.
MESSAGES_EACH = 2000
KEPT = ("--tls", "starttls")
EACH = ("--tls", "starttls", "--session-each")
RATIO_TO_CLEAR = 0.8
CPU_OF_HANDSHAKES = 1.3
RATIO_TO_POSTFIX = 3
# What most who set it up have: a cache of sessions for the client, tickets for the server.
MAIN = """
smtpd_tls_security_level = may
smtpd_tls_chain_files = {both}
smtp_tls_security_level = encrypt
smtp_tls_session_cache_database = btree:$data_directory/smtp_scache
smtp_tls_connection_reuse = {reuse}
"""
# Connections in TLS are kept by tlsproxy.
SERVICES = "tlsproxy unix - - n - 0 tlsproxy\n"


class Relay:
    """Messages per second beside clear, CPU beside the handshakes alone, both beside Postfix."""

    name = "tls.relay"
    entries = (".delivered", ".postfix", ".each.cpu", ".each.postfix")
    smoke = {"MESSAGES": 100, "MESSAGES_EACH": 60}

    def run(self, bench):
        self.bench = bench
        certificate = Certificate(f"{bench.work}/tls-relay")
        secure, clear = TlsSink(bench, "tls-relay"), TlsSink(bench, "tls-relay-clear", behaviour="")
        with bench.running(secure, clear):
            self.kept(certificate, secure, clear)
            self.each(certificate, secure)

    def contestants(self, certificate, sink, name, reuse):
        more = certificate.for_stentor()
        stentor = self.bench.stentor(sink, name=f"tls-{name}", more=more, http=free_port())
        postfix = self.bench.postfix(sink)
        postfix.more_main = MAIN.format(both=certificate.both, reuse=reuse)
        postfix.more_services = SERVICES
        stentor.delivery = f'tls_ca_file = "{sink.ca}"'
        return stentor, postfix

    def kept(self, certificate, secure, clear):
        stentor, postfix = self.contestants(certificate, secure, "kept", "yes")
        plain = self.bench.stentor(clear, name="clear")
        plain.listener = '{{ address = "127.0.0.1:{port}", tls = "none" }}'
        sinks = {stentor: (secure, KEPT), postfix: (secure, KEPT), plain: (clear, ())}
        with self.bench.running(stentor, postfix, plain):
            rounds = self.bench.alternate([stentor, plain, postfix], lambda contestant: self.once(contestant, *sinks[contestant], MESSAGES))
            none_in_clear(stentor)
        command = source_text(MESSAGES, *KEPT)
        self.record(".delivered", rounds, 1, "delivered", command, Goal(ratio=RATIO_TO_CLEAR), "in clear")
        self.record(".postfix", rounds, 2, "delivered", command, Goal(ratio=RATIO_TO_POSTFIX), "postfix with the same TLS")

    def each(self, certificate, sink):
        stentor, postfix = self.contestants(certificate, sink, "each", "no")
        stentor.delivery += "\ntransactions_per_connection_max = 1"
        with self.bench.running(stentor, postfix):
            rounds = self.bench.alternate([stentor, postfix], lambda contestant: self.session_each(contestant, sink, contestant is stentor))
            none_in_clear(stentor)
            shown = metrics(stentor.http)
        sessions = sum(value for name, value in shown.items() if name.startswith("stentor_host_sessions_total"))
        resumed = shown["stentor_host_sessions_resumed_total"] / sessions
        command = source_text(MESSAGES_EACH, *EACH)
        handshakes = [[ours["cpu"], ours["in"] + ours["out"]] for ours, _ in rounds]
        self.bench.results.record(
            f"{self.name}.each.cpu", "CPU ms/message", handshakes, command, Goal(ratio=1 / CPU_OF_HANDSHAKES),
            peer_name="both handshakes alone: the same with --greet-only", resumed_out=round(resumed, 4),
            handshake_in_ms=[round(ours["in"], 4) for ours, _ in rounds], handshake_out_ms=[round(ours["out"], 4) for ours, _ in rounds],
        )
        self.record(".each.postfix", rounds, 1, "delivered", command, Goal(ratio=RATIO_TO_POSTFIX), "postfix with the same TLS")

    def record(self, entry, rounds, peer, field, command, goal, peer_name):
        both = [[measured[0], measured[peer]] for measured in rounds]
        cpu = [[round(ms, 3) for ms in pair] for pair in pairs(both, "cpu")]
        self.bench.results.record(
            self.name + entry, "messages/s", pairs(both, field), command, goal, more_is_better=True, peer_name=peer_name,
            cpu_ms_per_message=cpu, recipients_per_transaction_max=RECIPIENTS_PER_TRANSACTION,
        )

    def once(self, contestant, sink, options, messages):
        report, delivered_s, _, cpu_s = measured_cpu(
            contestant, sink, messages, lambda: kit_source(self.bench, contestant.port, messages, *options)
        )
        return {"accepted": report["accepted_per_s"], "delivered": messages / delivered_s, "cpu": cpu_s / messages * 1000}

    def session_each(self, contestant, sink, is_ours):
        measured = self.once(contestant, sink, EACH, MESSAGES_EACH)
        if is_ours:
            cpu = contestant.group.cpu_s()
            kit_source(self.bench, contestant.port, MESSAGES_EACH, *EACH, "--greet-only")
            time.sleep(Waits.settle)
            measured["in"] = (contestant.group.cpu_s() - cpu) / MESSAGES_EACH * 1000
            measured["out"] = kit_source(self.bench, sink.port, MESSAGES_EACH, *EACH, "--greet-only", "--tls-resume")["cpu_us"] / 1000
        return measured


def none_in_clear(stentor):
    """Nothing went in clear, or the figures would not be those of TLS."""
    shown = metrics(stentor.http)
    if wrong := {name: value for name, value in shown.items() if name.startswith("stentor_host_sessions_total") and value and "proven" not in name}:
        raise BenchError(f"{stentor.name}: sessions in clear: {wrong}")
