"""Injects a post as list managers do with VERP (Mailman's way): one session of smtplib, a message per recipient, each with
a return path of its own. Arguments: port, number of copies."""

import smtplib
import sys

port, copies = map(int, sys.argv[1:])
with smtplib.SMTP("127.0.0.1", port, local_hostname="manager.example") as client:
    for n in range(copies):
        sender = f"dev-bounces+u{n}=one.example@lists.example"
        message = f"From: <ann@home.example>\r\nTo: <dev@lists.example>\r\nMessage-ID: <post-{n}@test>\r\n\r\nHello.\r\n"
        client.sendmail(sender, [f"u{n}@one.example"], message.encode())
