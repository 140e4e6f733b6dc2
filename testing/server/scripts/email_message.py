"""Builds a message with Python's email package and sends it with send_message. Arguments: port, recipient."""

import smtplib
import sys
from email.message import EmailMessage

message = EmailMessage()
message["From"] = "Jörg <me@home.example>"
message["To"] = sys.argv[2]
message["Subject"] = "Grüße"
message["Message-ID"] = "<python@test>"
message.set_content("Schöne Grüße\n.\n..\nEnde\n")
message.add_attachment(bytes(range(256)) * 20, maintype="application", subtype="octet-stream", filename="x.bin")
with smtplib.SMTP("127.0.0.1", int(sys.argv[1]), local_hostname="smtplib.example") as client:
    client.ehlo()
    assert client.has_extn("pipelining") and client.has_extn("smtputf8"), client.esmtp_features
    assert client.verify("me@home.example")[0] == 252
    client.send_message(message)
    # Errors leave the session usable.
    try:
        client.sendmail("me@home.example", ["nobody@lists.test"], b"Subject: x\r\n\r\nx\r\n")
        raise SystemExit("an unknown recipient was taken")
    except smtplib.SMTPRecipientsRefused as refused:
        assert refused.recipients["nobody@lists.test"][0] == 550, refused.recipients
    assert client.noop()[0] == 250
