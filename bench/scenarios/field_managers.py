"""List managers of others behind the server: a post to 50 members, of whom ten are refused by their host, and the bounces that each manager counts."""

import os
import shutil
import tempfile
import time

from field.server import Server, wait_for
from managers.mailman import Mailman
from managers.majordomo import Majordomo
from managers.mlmmj import Mlmmj, MlmmjByPipe
from managers.sympa import Sympa, SympaInBulk
from managers.world import POSTER, Members, message
from measure import CannotHere
from results import Goal

MEMBERS, GONE = 50, 10
WAIT_S_MAX = 90
MANAGERS = (Mailman, Mlmmj, MlmmjByPipe, Sympa, SympaInBulk, Majordomo)


class Managers:
    """Sympa, Mailman, mlmmj and Majordomo-like aliases, as their pages configure them: each counts every bounce of a post, and unknown lists are refused."""

    name = "field.managers"
    entries = ("",)
    # All of them take minutes.
    smoke = {"MANAGERS": (Mlmmj, Majordomo)}

    def run(self, bench):
        # All must be installed: a skipped manager would count as having missed nothing.
        missing = [manager.name for manager in MANAGERS if not manager.is_there()]
        if missing:
            raise CannotHere(f"not installed: {', '.join(missing)}; run testing/install.sh --peers")
        if os.geteuid() != 0:
            raise CannotHere("programs of aliases need root")
        missed, detail = 0, {}
        for manager in MANAGERS:
            found = one(bench, manager)
            detail[manager.name] = found
            missed += found["missed"]
            print(f"    {manager.name}: {found}", flush=True)
        command = "python3 bench/run.py --only field.managers"
        bench.results.record(self.name, "bounces missed", [(missed, 0)], command, Goal(most=0), peer_name="none", managers=detail)


def one(bench, manager):
    """What a manager makes of a post: copies, and bounces that it has counted or missed."""
    folder = tempfile.mkdtemp(prefix=f"managers-{manager.name}-")
    os.chmod(folder, 0o755)
    members = Members(MEMBERS - GONE, GONE)
    with_list = manager(bench, folder)
    subject = f"{manager.name}-post"
    begin = time.monotonic()
    try:
        with Server(bench.binary, members.names.address, members.host.port, sections=with_list.sections()) as server:
            with_list.start(server, members)
            taken = with_list.post(server, subject)
            wait_for(lambda: with_list.counted() >= set(members.gone) and members.served(subject.encode()) >= set(members.good), WAIT_S_MAX)
            if os.environ.get("STENTOR_KEEP"):
                shutil.copy(os.path.join(server.folder, "mail.log"), folder)
            copies, counted = members.served(subject.encode()), with_list.counted()
            unknown = f"unknown@{with_list.address.split('@')[1]}"
            explained = not hasattr(with_list, "explained") or with_list.explained(server)
            refused = server.send(POSTER, [unknown], message(POSTER, unknown, "x"), source="127.0.0.9")
            return {
                "taken": bool(taken),
                "unknown": refused[:9],
                "explained": explained,
                "copies": len(copies),
                "counted": len(counted & set(members.gone)),
                "missed": len(set(members.gone) - counted) + len(counted - set(members.gone)) + len(set(members.good) - copies)
                + (not refused.startswith("550 5.1.1"))
                + (not explained),
                "seconds": round(time.monotonic() - begin, 1),
            }
    finally:
        with_list.stop()
        members.stop()
        if not os.environ.get("STENTOR_KEEP"):
            shutil.rmtree(folder, ignore_errors=True)
