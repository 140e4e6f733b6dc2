"""Where the mail comes from: Postfix's smtp-source for load, `stentor-kit lab source` where answers are timed, and a client of one
message whose clock is exact."""

import json
import socket
import subprocess
import time

from measure import BenchError

SENDER = "sender@source.example"
RECIPIENT = "reader@sink.example"
SOURCE_TIMEOUT_S = 600
MESSAGES_ENDLESS = 10_000_000


def smtp_source_argv(port, sessions, messages, length, kept):
    keep = ["-d"] if kept else []
    return [
        "smtp-source", *keep, "-s", str(sessions), "-m", str(messages), "-l", str(length),
        "-M", "source.example", "-f", SENDER, "-t", RECIPIENT, f"127.0.0.1:{port}",
    ]


def smtp_source(port, sessions, messages, length, kept):
    """Sends, and returns the seconds until the last message was acknowledged. One refusal is an error."""
    begin = time.monotonic()
    argv = smtp_source_argv(port, sessions, messages, length, kept)
    done = subprocess.run(argv, capture_output=True, text=True, timeout=SOURCE_TIMEOUT_S)
    elapsed = time.monotonic() - begin
    if done.returncode != 0 or done.stderr.strip():
        raise BenchError(f"smtp-source: {done.stderr.strip()[-500:]} (exit code {done.returncode})")
    return elapsed


def smtp_source_for(port, sessions, length, seconds):
    """Sends for so long; returns how many messages were acknowledged. Sessions are kept, and cut at the end: what was not
    answered then does not count."""
    argv = smtp_source_argv(port, sessions, MESSAGES_ENDLESS, length, True)
    # -c: the running number of messages acknowledged.
    source = subprocess.Popen([argv[0], "-c", *argv[1:]], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        _, errors = source.communicate(timeout=seconds)
        raise BenchError(f"smtp-source: {errors.decode(errors='replace')[-500:]} (exit code {source.returncode})")
    except subprocess.TimeoutExpired:
        source.kill()
        counter, _ = source.communicate()
    numbers = counter.split()
    return int(numbers[-1]) if numbers else 0


def command_text(sessions, messages, length, kept):
    """The command as the results name it."""
    return f"smtp-source {'-d ' if kept else ''}-s {sessions} -m {messages} -l {length}"


def lab_report(text):
    """What `stentor-kit lab source --json` printed: {"report": {accepted, recipients, accepted_per_s, errors, cpu_us}, "final_us": {p50, ...}}."""
    tables = json.loads(text)["tables"]
    # What this machine or this server cannot say is null.
    load = {name: cell["median"] for name, cell in tables["load"][0].items() if cell is not None}
    final = next((row for row in tables["steps"] if row["step"] == "end of data"), {})
    return {
        "report": {
            "accepted": round(load["accepted"]),
            "recipients": round(load["recipients"]),
            "accepted_per_s": load["overall_per_s"],
            "cpu_us": load["source_cpu_us"],
            "errors": {f"{row['code']} {row['step']}": row["count"] for row in tables.get("errors", [])},
        },
        "final_us": {name[:-3]: cell["median"] for name, cell in final.items() if name.endswith("_us") and cell is not None},
    }


class Posted:
    """Times of one post: `dot` when the end of data was about to be written, `answer` when its 250 had come (time.monotonic())."""

    def __init__(self, dot, answer):
        self.dot = dot
        self.answer = answer


def post(port, sender, recipient, content, timeout_s=120):
    """One message in one session. The end of data goes out in one write with the content."""
    with socket.create_connection(("127.0.0.1", port), timeout_s) as client:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        replies = client.makefile("rb")
        _expect(replies, "220")
        for command in ("EHLO source.example", f"MAIL FROM:<{sender}>", f"RCPT TO:<{recipient}>", "DATA"):
            client.sendall(command.encode() + b"\r\n")
            _expect(replies, "354" if command == "DATA" else "250")
        # Before the write: on loopback the server may have answered before the write returns.
        dot = time.monotonic()
        client.sendall(content + b".\r\n")
        _expect(replies, "250")
        answer = time.monotonic()
        client.sendall(b"QUIT\r\n")
        _expect(replies, "221")
        return Posted(dot, answer)


def message(length, message_id):
    """A small post: header section and `length` octets of text in lines of 78."""
    line = b"The quick brown fox jumps over the lazy dog and runs on to the end of a line\r\n"
    fields = [f"From: <{SENDER}>", "To: <news@lists.example>", "Subject: A post"]
    fields.append(f"Message-ID: <{message_id}@source.example>")
    return "".join(f"{field}\r\n" for field in (*fields, "")).encode() + line * (length // len(line))


def octets_of_message(length):
    """Octets between DATA and the dot of one of smtp-source's messages, as they pass the wire."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        argv = smtp_source_argv(server.getsockname()[1], 1, 1, length, False)
        source = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        client, _ = server.accept()
        with client, client.makefile("rwb") as stream:
            stream.write(b"220 ready\r\n")
            stream.flush()
            octets = 0
            while line := stream.readline():
                if line.upper() == b"DATA\r\n":
                    stream.write(b"354 go\r\n")
                    stream.flush()
                    octets = sum(len(line) for line in iter(stream.readline, b".\r\n"))
                stream.write(b"250 ok\r\n")
                stream.flush()
                if octets:
                    break
        source.wait(10)
    return octets


def _expect(replies, code):
    line = replies.readline()
    while line[3:4] == b"-":
        line = replies.readline()
    if not line.startswith(code.encode()):
        raise BenchError(f"expected {code}, got {line!r}")
