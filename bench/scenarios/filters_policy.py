"""Policy services that Debian ships, behind Postfix and behind ours: what clients hear of each recipient, and the fields that are put
before their mail, are the same, but for names and times."""

import os
import re
import shutil
import smtplib
import time

from measure import CannotHere
from recorder import Recorder
from results import Goal

from .filters_milters import DRAIN_S_MAX, Peer, write

GREY_S = 1
RECIPIENTS = ("ann@one.example", "bob@one.example")
MESSAGE = b"From: Joe <joe@elsewhere.example>\r\nTo: all@one.example\r\nDate: Sat, 21 Nov 2026 12:00:00 +0000\r\nSubject: %s\r\nMessage-ID: <%s@elsewhere.example>\r\n\r\nHello\r\n"


def senders():
    return ("joe@elsewhere.example", "", "news+tag@localhost", "joe@elsewhere.example")


def spf(folder, port):
    del port
    # 127.0.0.1 is not judged otherwise.
    write(folder, "conf", "debugLevel = 1\nHELO_reject = False\nMail_From_reject = False\nskip_addresses = 192.0.2.1\nTempError_Defer = False\n")


def peers():
    def postgrey(folder, port):
        return ["postgrey", f"--inet=127.0.0.1:{port}", f"--delay={GREY_S}", f"--dbdir={folder}", "--user=root", "--group=root",
                f"--whitelist-clients={folder}/none", f"--whitelist-recipients={folder}/none"]

    def policyd_spf(folder, port):
        return ["socat", f"TCP4-LISTEN:{port},bind=127.0.0.1,reuseaddr,fork", f"EXEC:policyd-spf {folder}/conf"]

    return [
        Peer("postgrey", "postgrey", postgrey, lambda folder, port: write(folder, "none", "") and None),
        Peer("policyd-spf", "policyd-spf", policyd_spf, spf),
    ]


def heard(port):
    """What a client hears: the codes and words of each RCPT and of the data; twice, since greylisting lets the second try pass."""
    replies = []
    for attempt in range(2):
        for n, sender in enumerate(senders()):
            with smtplib.SMTP("127.0.0.1", port, local_hostname="client.example", timeout=120) as smtp:
                smtp.ehlo()
                smtp.mail(sender)
                said = [smtp.rcpt(one) for one in RECIPIENTS]
                if any(code == 250 for code, _ in said):
                    name = b"%d-%d" % (attempt, n)
                    said.append(smtp.data(MESSAGE % (name, name)))
            # The words of what is taken are the server's own, and so are Postfix's before those of a policy: `<ann@...>: Recipient
            # address rejected: `.
            words = [re.sub(r"^(\d\.\d\.\d+ )<[^>]*>: [^:]*: ", r"\1", text.decode()) for _, text in said]
            replies.append([(code, words[at] if code >= 400 else "") for at, (code, _) in enumerate(said)])
        time.sleep(GREY_S + 1)
    return replies


def fields(recorder):
    """The copies, with what stands before their own header but for Received; names, times and delays are made equal."""
    copies = []
    for sender, to, octets in recorder.take():
        text = octets.decode()
        text = re.sub(r"(?m)^Received: .*\r\n(?:[ \t].*\r\n)*", "", text)
        text = re.sub(r"delayed \d+ seconds by (\S+) at \S+; .*", r"delayed by \1", text)
        # We leave out the blank at its end.
        text = re.sub(r"receiver=[^;\s]* ?", "receiver=HOST", text)
        copies.append((sender, to, text))
    return sorted(copies)


class PolicyServices:
    """Differences between our server and Postfix behind the same policy services."""

    name = "filters.policy"
    entries = ("",)
    smoke = {}

    def run(self, bench):
        differences, tried = [], []
        for peer in peers():
            if bench.peers and not shutil.which(peer.needs):
                raise CannotHere(f"{peer.needs} is missing: testing/install.sh")
            if not shutil.which(peer.needs):
                print(f"    {peer.name}: not installed, skipped", flush=True)
                continue
            outcomes = []
            for make in (self.ours, self.theirs):
                recorder = Recorder()
                try:
                    peer.start(bench.work)
                    server = make(bench, recorder, peer)
                    with bench.running(recorder, server):
                        replies = heard(server.port)
                        server.wait_drained(DRAIN_S_MAX)
                        outcomes.append((replies, fields(recorder)))
                finally:
                    peer.stop()
            tried.append(peer.name)
            differences += [f"{peer.name}: {one}" for one in self.compare(*outcomes)]
        if not tried:
            raise CannotHere("no policy service is installed: testing/install.sh")
        for difference in differences[:20]:
            print(f"      {difference}", flush=True)
        command = f"{2 * len(senders())} transactions of {len(RECIPIENTS)} recipients through each of {', '.join(tried)}"
        bench.results.record(
            self.name, "differences from Postfix", [[len(differences), 0]], command, Goal(most=0), peer_name="the goal",
            named=differences[:10], services=tried,
        )

    @staticmethod
    def compare(ours, theirs):
        found = [f"heard {mine} for {other}" for mine, other in zip(ours[0], theirs[0]) if mine != other]
        for mine, other, who in ((ours[1], theirs[1], "only ours"), (theirs[1], ours[1], "only Postfix")):
            found += [f"{who}: {copy!r}" for copy in mine if copy not in other]
        return found

    @staticmethod
    def ours(bench, recorder, peer):
        address = f"inet:127.0.0.1:{peer.port}"
        more = f'[policy_services.peer]\naddress = "{address}"\n[[rules]]\npolicy_service = "peer"\n'
        return bench.stentor(recorder, more=more)

    @staticmethod
    def theirs(bench, recorder, peer):
        server = bench.postfix(recorder)
        server.more_main = (
            f"smtpd_recipient_restrictions = check_policy_service inet:127.0.0.1:{peer.port}, permit_mynetworks, reject\n"
            "smtpd_delay_reject = yes\n"
        )
        return server
