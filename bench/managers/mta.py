"""A server of a benchmark as the list managers see it: its port, and mail that people send to it."""

from field.server import Client


class Mta:
    def __init__(self, contestant):
        self.contestant, self.port = contestant, contestant.port

    def send(self, sender, recipients, content):
        """The reply after the content, or the first refusal."""
        with Client(self.port, "127.0.0.1", "client.test") as client:
            for line in (f"MAIL FROM:<{sender}>", *(f"RCPT TO:<{one}>" for one in recipients)):
                reply = client.ask(line)
                if not reply.startswith("2"):
                    return reply
            return client.data(content)
