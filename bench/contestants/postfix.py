"""Postfix as Debian ships it, with sensible concurrency: a private instance with its own configuration, queue, data and
port, on the disk that Stentor uses. README.md says why each setting is there. Must run as root, as Postfix's master must.
"""

import os
import shutil
import subprocess

from contestants.base import Contestant
from measure import BenchError

DAEMONS = "/usr/lib/postfix/sbin"

MAIN_CF = """\
compatibility_level = 3.6
queue_directory = {folder}/queue
data_directory = {folder}/data
command_directory = /usr/sbin
daemon_directory = {daemons}
mail_owner = postfix
setgid_group = postdrop
maillog_file = {folder}/maillog
maillog_file_prefixes = {folder}
myhostname = postfix.example
mydestination = lists.example
mynetworks = 127.0.0.0/8
inet_interfaces = 127.0.0.1
inet_protocols = ipv4
relayhost = [127.0.0.1]:{sink_port}
alias_maps = {alias_maps}
transport_maps = {transport_maps}
alias_database =
biff = no
smtp_tls_security_level = none
smtpd_tls_security_level = none

# Concurrency (README.md)
initial_destination_concurrency = 20
default_destination_concurrency_limit = 20
in_flow_delay = 0
"""

MASTER_CF = """\
127.0.0.1:{port} inet n - n - - smtpd
cleanup   unix  n - n - 0 cleanup
qmgr      unix  n - n 300 1 qmgr
rewrite   unix  - - n - - trivial-rewrite
bounce    unix  - - n - 0 bounce
defer     unix  - - n - 0 bounce
trace     unix  - - n - 0 bounce
verify    unix  - - n - 1 verify
flush     unix  n - n 1000? 0 flush
proxymap  unix  - - n - - proxymap
smtp      unix  - - n - {processes} smtp
relay     unix  - - n - - smtp
showq     unix  n - n - - showq
error     unix  - - n - - error
retry     unix  - - n - - error
discard   unix  - - n - - discard
local     unix  - n n - - local
anvil     unix  - - n - 1 anvil
scache    unix  - - n - 1 scache
tlsmgr    unix  - - n 1000? 1 tlsmgr
postlog   unix-dgram n - n - 1 postlogd
"""

# postscreen in front of smtpd, and what it needs. It does not work in more than one process.
SCREEN_CF = """\
127.0.0.1:{port} inet n - n - 1 postscreen
smtpd     pass  - - n - - smtpd
dnsblog   unix  - - n - 0 dnsblog
tlsproxy  unix  - - n - 0 tlsproxy
"""

# Where a message is as long as it has not been finished with.
QUEUES = ("maildrop", "incoming", "active", "deferred")


class Postfix(Contestant):
    """The peer."""

    name = "postfix"
    log_name = "maillog"

    def __init__(self, *args, processes="-", **kwargs):
        """`processes`: most connections out at a time; `-` is the default (100)."""
        super().__init__(*args, **kwargs)
        self.processes = processes
        # Further lines of master.cf, and the transports of domains that are not a host's.
        self.more_services, self.transports = "", {}
        # Further lines of main.cf.
        self.more_main = ""
        # Whether postscreen stands in front; a file that takes the place of /etc/resolv.conf.
        self.is_screened, self.resolv_conf = False, None
        if not shutil.which("postfix"):
            raise BenchError("postfix is not installed: apt-get install postfix")
        self.configuration = os.path.join(self.folder, "conf")

    def launch(self):
        for name in ("conf", "queue", "data"):
            os.makedirs(os.path.join(self.folder, name))
        shutil.chown(os.path.join(self.folder, "data"), "postfix", "postfix")
        alias_maps = f"hash:{self.configuration}/aliases" if self.subscribers else ""
        transport_maps = f"hash:{self.configuration}/transport" if self.routes or self.transports else ""
        values = {"folder": self.folder, "daemons": DAEMONS, "sink_port": self.sink_port}
        values |= {"alias_maps": alias_maps, "transport_maps": transport_maps}
        own = {line.partition("=")[0].strip() for line in self.more_main.splitlines()}
        lines = MAIN_CF.format(**values).splitlines(keepends=True)
        self._write("main.cf", "".join(line for line in lines if line.partition("=")[0].strip() not in own) + self.more_main)
        services = MASTER_CF.format(port=self.port, processes=self.processes)
        if self.is_screened:
            services = SCREEN_CF.format(port=self.port) + services.split("\n", 1)[1]
        self._write("master.cf", services + self.more_services)
        hosts = [(domain, *host.rsplit(":", 1)) for domain, host in self.routes.items()]
        transports = self.transports | {domain: f"smtp:[{host}]:{port}" for domain, host, port in hosts}
        if transports:
            self._write("transport", "".join(f"{domain} {transport}\n" for domain, transport in transports.items()))
            subprocess.run(["postmap", "-c", self.configuration, transport_maps], check=True)
        if self.subscribers:
            # The owner- alias makes local(8) send the post on as one message of its own, with its own envelope sender.
            self._write("aliases", f'news: ":include:{self.subscribers}"\nowner-news: owner@elsewhere.example\n')
            subprocess.run(["postalias", "-c", self.configuration, f"hash:{self.configuration}/aliases"], check=True)
        argv = ["postfix", "-c", self.configuration, "start-fg"]
        if self.resolv_conf:
            mounts = 'mount --make-rprivate / && mount --bind "$0" /etc/resolv.conf && exec "$@"'
            argv = ["unshare", "-m", "sh", "-ec", mounts, self.resolv_conf, *argv]
        self.process = self.spawn(argv, "start.out")

    def shut_down(self):
        if self.group.pids():
            subprocess.run(["postfix", "-c", self.configuration, "stop"], capture_output=True, timeout=60)
        if self.process:
            self.process.wait(60)

    def queue_is_empty(self):
        for queue in QUEUES:
            for _, _, files in os.walk(os.path.join(self.folder, "queue", queue)):
                if files:
                    return False
        return True

    def _write(self, name, text):
        with open(os.path.join(self.configuration, name), "w") as file:
            file.write(text)
