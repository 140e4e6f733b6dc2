"""Reading logs of other MTAs: how fast, beside awk and pflogsumm on the same file; and whether the totals are awk's."""

import datetime
import json
import os
import re
import shutil
import subprocess
import time

from measure import BenchError, CannotHere
from results import Goal

FILE_MB = 400
LAB_MESSAGES = 60
LAB_MESSAGES_LARGE = 200
# Of 1 GB in well under 10 s.
GOAL_MB_PER_S = 200
MTAS = ("postfix", "sendmail", "exim")
ROOT = os.environ.get("STENTOR_FOREIGN_ROOT", "/var/cache/stentor-tests/foreign")


def foreign(bench, name):
    root = os.path.dirname(os.path.dirname(bench.folder))
    return os.path.join(root, "testing", "server", "foreign", name)


def lab_log(bench, mta, messages):
    """A log that this MTA has just written; in a smoke run, once for all scenarios."""
    path = os.path.join(bench.work, f"{mta}.log")
    if bench.smoke and path in bench.made:
        return path
    bench.made.add(path)
    if mta != "postfix" and not os.path.exists(os.path.join(ROOT, "complete")):
        raise CannotHere(f"{mta} is not in {ROOT}: testing/install.sh fetches it")
    command = ["python3", foreign(bench, "run.py"), mta, "--kit", bench.tool("stentor-kit"), "--root", ROOT, "--out", path]
    done = subprocess.run([*command, "--messages", str(messages)], capture_output=True, text=True, timeout=600)
    if done.returncode:
        raise BenchError(f"{mta}: {done.stderr[-500:]}")
    return path


def awk(bench, mta, path):
    command = ["awk", "-v", f"mta={mta}", "-f", foreign(bench, "count.awk"), path]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def mailstat(bench, path):
    command = [bench.binary, "mailstat", "--utc", "--json", "--from", path]
    total = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)["total"]
    return {
        "posts": total["messages"],
        "delivered": total["delivered"]["recipients"],
        "delivered_hosts": total["delivered"]["hosts"],
        "failed": total["failed"]["recipients"],
        "failed_hosts": total["failed"]["hosts"],
        "deferred": total["deferred"],
        "bounced": total["bounced"],
    }


class ForeignLogs:
    """What mailstat says of logs of real sendmail, Postfix and Exim runs is what awk counts."""

    name = "op.foreign_logs"
    entries = tuple(f".{mta}" for mta in MTAS)
    # The logs of all three are read in the server's tests, too.
    smoke = {"LAB_MESSAGES": 8, "MTAS": ("postfix",), "entries": (".postfix",)}

    def run(self, bench):
        for mta in MTAS:
            path = lab_log(bench, mta, LAB_MESSAGES)
            ours, theirs = mailstat(bench, path), awk(bench, mta, path)
            different = sum(1 for key in theirs if ours[key] != theirs[key])
            bench.results.record(
                f"{self.name}.{mta}", "sums that differ", [[different, 0]], f"stentor mailstat --from {mta}.log",
                Goal(most=0), peer_name="awk", ours=ours, awk=theirs, bytes=os.path.getsize(path),
            )


class LogSpeed:
    """A large Postfix log: a real one, repeated with other queue ids and times."""

    name = "op.log_speed"
    entries = ("", ".awk", ".pflogsumm")
    smoke = {"FILE_MB": 1, "LAB_MESSAGES_LARGE": 8}

    def run(self, bench):
        if not shutil.which("pflogsumm"):
            raise CannotHere("pflogsumm is missing: apt-get install pflogsumm")
        path = self.large(bench, lab_log(bench, "postfix", LAB_MESSAGES_LARGE))
        size = os.path.getsize(path) / 1e6
        contestants = {
            "stentor": [bench.binary, "mailstat", "--utc", "--json", "--from", path],
            "awk": ["awk", "-v", "mta=postfix", "-f", foreign(bench, "count.awk"), path],
            "pflogsumm": ["pflogsumm", path],
        }
        rates = {name: [] for name in contestants}
        for number in range(bench.rounds):
            for name, command in contestants.items():
                # Perl takes minutes: once is enough.
                if name == "pflogsumm" and number:
                    continue
                begin = time.monotonic()
                done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
                if done.returncode:
                    raise BenchError(f"{name}: {done.stderr[-300:]}")
                rates[name].append(size / (time.monotonic() - begin))
            print("    " + "; ".join(f"{name} {rate[-1]:.0f} MB/s" for name, rate in rates.items()), flush=True)
        if mailstat(bench, path) != awk(bench, "postfix", path):
            raise BenchError("the totals are not awk's")
        command = "stentor mailstat --json --from FILE"
        for peer in ("awk", "pflogsumm"):
            rounds = [[ours, theirs] for ours, theirs in zip(rates["stentor"], rates[peer])]
            bench.results.record(
                f"{self.name}.{peer}", "MB/s", rounds, command, Goal(ratio=2), more_is_better=True, peer_name=peer,
                megabytes=size,
            )
        rounds = [[rate, GOAL_MB_PER_S] for rate in rates["stentor"]]
        bench.results.record(
            self.name, "MB/s", rounds, command, Goal(ratio=1), more_is_better=True, peer_name="the goal", megabytes=size,
        )
        os.remove(path)

    def large(self, bench, path):
        """The log over and over, each time some seconds later with ids of its own."""
        with open(path) as file:
            text = file.read()
        stamp = re.compile(r"^(\w{3} [ \d]\d) (\d\d):(\d\d):(\d\d) ", re.M)
        ids = set(re.findall(r"\]: ([0-9A-F]{8,15}): ", text))
        pattern = re.compile(r"\b[0-9A-F]{8,15}\b")
        first = stamp.search(text)
        base = sum(int(first.group(n)) * unit for n, unit in ((2, 3600), (3, 60), (4, 1)))
        # Midnight of a day that is over, so that all copies are of one day.
        day = (datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=1)).strftime("%b %e")
        copies = int(FILE_MB * 1e6 / len(text)) + 1
        large = os.path.join(bench.work, "large.log")
        with open(large, "w") as file:
            for copy in range(copies):
                shift = copy * 86_000 // copies

                def moved(match):
                    second = sum(int(match.group(n)) * unit for n, unit in ((2, 3600), (3, 60), (4, 1)))
                    second = max(0, min(second - base, 399)) + shift
                    return f"{day} {second // 3600:02}:{second // 60 % 60:02}:{second % 60:02} "

                def named(match):
                    return f"{match.group()}{copy:04X}" if match.group() in ids else match.group()

                file.write(stamp.sub(moved, pattern.sub(named, text)))
        return large


# Words for stentor-sim: none, the day of 200 posts.
DAY = ()


class DayChart:
    """A simulated day with the server down until noon and 200 posts: the picture shows the catch-up."""

    name = "op.day_chart"
    entries = ("",)
    smoke = {"DAY": ("part=40",)}
    # Simulated days begin at 08:00 UTC.
    zone = "-08:00"
    seed = 9101

    def run(self, bench):
        command = [bench.tool("stentor-sim"), "chart", f"seed={self.seed}", *DAY]
        done = subprocess.run(command, capture_output=True, text=True, timeout=900)
        if done.returncode:
            raise BenchError(done.stderr[-500:])
        day = json.loads(done.stdout)
        log = os.path.join(bench.work, "day.log")
        counts = write_day(day, log)
        stentor = [bench.binary, "batchstat", f"--zone={self.zone}", "--from", log]
        day_of = json.loads(subprocess.run([*stentor, "--json"], capture_output=True, check=True, text=True).stdout)
        bins = day_of[0]["bins"]
        for kind in ("delivered", "arrivals"):
            if sum(one[kind] for one in bins) != counts[kind]:
                raise BenchError(f"{kind}: {sum(one[kind] for one in bins)} in the picture, {counts[kind]} in the log")
        if any(one["delivered"] or one["arrivals"] for one in bins[:720]):
            raise BenchError("deliveries while the server was down")
        busiest = max(range(len(bins)), key=lambda minute: bins[minute]["delivered"])
        for theme in ("light", "dark"):
            for end in ("svg", "png"):
                out = os.path.join(bench.folder, f"day-{theme}.{end}")
                subprocess.run([*stentor, "--theme", theme, "--out", out], capture_output=True, check=True)
        # What was posted in the morning, and is with all who can be reached.
        morning = [post for post in day["posts"] if post["at"] < day["noon"] + 600_000]
        last = max(post["at"] + max(post["delays_ms"]) for post in morning) - day["noon"]
        bench.results.record(
            self.name, "minutes", [[last / 60_000, 30]], f"stentor batchstat --zone={self.zone} --from day.log",
            Goal(most=30), peer_name="the goal", posts=len(day["posts"]), of_the_morning=len(morning),
            busiest_minute=busiest, busiest_per_hour=bins[busiest]["delivered"] * 60, **counts,
        )


def write_day(day, path):
    """The simulated day as our own log says it; how many deliveries and arrivals are of the day itself."""
    end = day["start"] + 86_400_000
    lines, counts = [], {"delivered": 0, "arrivals": 0}

    def stamp(ms):
        return datetime.datetime.fromtimestamp(ms / 1000, datetime.UTC).isoformat(timespec="milliseconds")

    for number, post in enumerate(day["posts"]):
        ident = f"0CX{number:09}"
        counts["arrivals"] += 1
        fields = f"from=<l@lists.lab>, size=4096, class=-60, nrcpts={day['reachable']}, msgid=<{number}@lab>, proto=ESMTP"
        lines.append((post["at"], f"mx stentor[1]: {ident}: {fields}, relay=[192.0.2.1]"))
        for recipient, delay in enumerate(post["delays_ms"]):
            at = post["at"] + delay
            counts["delivered"] += at < end
            took = f"{delay // 3_600_000:02}:{delay // 60_000 % 60:02}:{delay // 1000 % 60:02}"
            fields = f"to=<r{recipient}@lab>, from=<l@lists.lab>, delay={took}, xdelay=00:00:00, mailer=esmtp, relay=lab."
            lines.append((at, f"mx stentor[1]: {ident}: {fields} [192.0.2.2], dsn=2.0.0, stat=Sent (250 ok)"))
    lines.sort()
    with open(path, "w") as file:
        for at, line in lines:
            if at < end:
                file.write(f"{stamp(at)} {line}\n")
    return counts
