"""Sends each of the files named on standard input in a session of smtplib, as it is.

Arguments: port, envelope sender, recipient. Prints for each file its name and the reply, separated by a tab.
"""

import smtplib
import sys

port, sender, recipient = sys.argv[1:]
with smtplib.SMTP("127.0.0.1", int(port), local_hostname="smtplib.example") as client:
    for name in sys.stdin.read().splitlines():
        with open(name, "rb") as file:
            message = file.read()
        try:
            refused = client.sendmail(sender, [recipient], message, mail_options=["BODY=8BITMIME"])
            reply = "250 " if not refused else repr(refused)
        except smtplib.SMTPDataError as error:
            reply = f"{error.smtp_code} {error.smtp_error.decode()}"
        print(name, reply, sep="\t", flush=True)
