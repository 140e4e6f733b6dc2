"""The MTAs of run.py: configuration, start, queue, stop. Each expires mail after a few seconds."""

import os
import shutil
import socket
import subprocess
import threading
import time

USERS = """\
root:x:0:0:root:/root:/bin/sh
nobody:x:65534:65534:nobody:/nonexistent:/bin/false
smmsp:x:991:991:sendmail:/:/bin/false
smmta:x:992:992:sendmail:/:/bin/false
Debian-exim:x:993:993:exim:/:/bin/false
"""
GROUPS = """\
root:x:0:
mail:x:8:
adm:x:4:
nogroup:x:65534:
smmsp:x:991:
smmta:x:992:
Debian-exim:x:993:
"""


class Mta:
    def __init__(self, run):
        self.run = run
        self.folder = run.folder
        self.process = None

    def path(self, *parts):
        return os.path.join(self.folder, *parts)

    def write(self, name, text):
        path = self.path(name)
        with open(path, "w") as file:
            file.write(text)
        return path

    def log_path(self):
        return self.run.log

    def work(self):
        """Something that makes it try again."""

    def stop(self):
        self.process.terminate()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()

    def unpacked(self):
        """The environment and the users of a program that is not installed."""
        for name, text in (("passwd", USERS), ("group", GROUPS)):
            subprocess.run(["mount", "--bind", self.write(name, text), f"/etc/{name}"], check=True)
        # Names are not to be asked for: the machine may have no DNS.
        hosts = self.write("hosts", f"127.0.0.1 mta.lab {socket.gethostname()} localhost source.lab\n")
        subprocess.run(["mount", "--bind", hosts, "/etc/hosts"], check=True)
        libraries = [os.path.join(self.run.options.root, place) for place in
                     ("usr/lib/x86_64-linux-gnu", "lib/x86_64-linux-gnu", "usr/lib/aarch64-linux-gnu")]
        return dict(os.environ, LD_LIBRARY_PATH=":".join(libraries))


class Syslog:
    """/dev/log for this namespace alone: lines as a syslog daemon writes them."""

    def __init__(self, mta):
        self.path = mta.log_path()
        dev = mta.path("dev")
        os.makedirs(dev)
        subprocess.run(["mount", "-t", "tmpfs", "none", dev], check=True)
        for name in ("null", "zero", "random", "urandom", "tty"):
            if os.path.exists(f"/dev/{name}"):
                open(os.path.join(dev, name), "w").close()
                subprocess.run(["mount", "--bind", f"/dev/{name}", os.path.join(dev, name)], check=True)
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(os.path.join(dev, "log"))
        os.chmod(os.path.join(dev, "log"), 0o666)
        subprocess.run(["mount", "--rbind", dev, "/dev"], check=True)
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        with open(self.path, "wb", buffering=0) as file:
            while True:
                line = self.socket.recv(65536).rstrip(b"\n\0")
                # <22>Nov 22 03:00:00 sm-mta[1]: text
                line = line.split(b">", 1)[-1]
                file.write(line[:16] + b"mta.lab " + line[16:] + b"\n")


class Postfix(Mta):
    def start(self):
        for name in ("conf", "queue", "data"):
            os.makedirs(self.path(name))
        shutil.chown(self.path("data"), "postfix", "postfix")
        routes = ", ".join(f"{{{domain} = smtp:[{host}]:{self.run.sink_port}}}" for domain, host in routes_of())
        self.write("conf/main.cf", f"""\
compatibility_level = 3.6
queue_directory = {self.path("queue")}
data_directory = {self.path("data")}
command_directory = /usr/sbin
daemon_directory = /usr/lib/postfix/sbin
mail_owner = postfix
setgid_group = postdrop
maillog_file = {self.path("maillog")}
maillog_file_prefixes = {self.folder}
myhostname = mta.lab
mydestination =
mynetworks = 127.0.0.0/8
inet_interfaces = 127.0.0.1
inet_protocols = ipv4
smtp_bind_address = 127.0.0.1
transport_maps = inline:{{ {routes} }}
smtpd_recipient_restrictions = check_recipient_access inline:{{ {{refused@ok.lab = REJECT}} }}, permit_mynetworks, reject
alias_maps =
alias_database =
biff = no
smtp_tls_security_level = none
smtpd_tls_security_level = none
default_destination_recipient_limit = 3
queue_run_delay = 1s
minimal_backoff_time = 1s
maximal_backoff_time = 2s
maximal_queue_lifetime = 6s
bounce_queue_lifetime = 6s
""")
        self.write("conf/master.cf", MASTER_CF.format(port=self.run.port))
        self.process = self.run.spawn(["postfix", "-c", self.path("conf"), "start-fg"])

    def log_path(self):
        return self.path("maillog")

    def work(self):
        # A message that is due while it is still under way is left in incoming, which nothing looks at before the next arrives.
        subprocess.run(["postkick", "-c", self.path("conf"), "public", "qmgr", "I"], timeout=60)

    def queue_is_empty(self):
        for queue in ("maildrop", "incoming", "active", "deferred"):
            for _, _, files in os.walk(self.path("queue", queue)):
                if files:
                    return False
        return True

    def stop(self):
        subprocess.run(["postfix", "-c", self.path("conf"), "stop"], capture_output=True, timeout=60)
        self.process.wait(60)


MASTER_CF = """\
127.0.0.1:{port} inet n - n - - smtpd
cleanup   unix  n - n - 0 cleanup
qmgr      unix  n - n 300 1 qmgr
rewrite   unix  - - n - - trivial-rewrite
bounce    unix  - - n - 0 bounce
defer     unix  - - n - 0 bounce
trace     unix  - - n - 0 bounce
flush     unix  n - n 1000? 0 flush
proxymap  unix  - - n - - proxymap
smtp      unix  - - n - - smtp
relay     unix  - - n - - smtp
showq     unix  n - n - - showq
error     unix  - - n - - error
retry     unix  - - n - - error
discard   unix  - - n - - discard
anvil     unix  - - n - 1 anvil
scache    unix  - - n - 1 scache
tlsmgr    unix  - - n 1000? 1 tlsmgr
postlog   unix-dgram n - n - 1 postlogd
"""


class Sendmail(Mta):
    def start(self):
        environment = self.unpacked()
        self.syslog = Syslog(self)
        os.makedirs(self.path("queue"), mode=0o700)
        self.write("switch", "hosts files\naliases files\npasswd files\n")
        routes = "".join(
            f"R$* < @ {domain} > $*\t$#esmtp $@ [{host}] $: $1 < @ {domain} > $2\n" for domain, host in routes_of()
        )
        cf = self.write("sendmail.cf", SENDMAIL_CF.format(
            folder=self.folder, port=self.run.port, sink_port=self.run.sink_port, routes=routes))
        program = os.path.join(self.run.options.root, "usr/libexec/sendmail/sendmail")
        # Debian's name for the daemon, which the log shows.
        self.command = [program, f"-C{cf}", "-L", "sm-mta"]
        self.environment = environment
        self.process = self.run.spawn([*self.command, "-bD"], env=environment)
        self.tried = time.monotonic()

    def work(self):
        # Not before: younger mail is left alone for a second (MinQueueAge).
        if time.monotonic() - self.tried > 1.5:
            subprocess.run([*self.command, "-q"], env=self.environment, timeout=120)
            self.tried = time.monotonic()

    def queue_is_empty(self):
        return not [name for name in os.listdir(self.path("queue")) if name[:2] in ("qf", "df", "tf", "Qf")]


SENDMAIL_CF = """\
V10/Berkeley
Djmta.lab
DnMAILER-DAEMON
Cwmta.lab localhost
Troot
O QueueDirectory={folder}/queue
O PidFile={folder}/pid
O ServiceSwitchFile={folder}/switch
O DaemonPortOptions=Port={port}, Addr=127.0.0.1, Name=MTA
O DeliveryMode=background
O LogLevel=9
O SuperSafe=True
O CheckAliases=False
O MaxRecipientsPerMessage=0
O MinQueueAge=1s
O Timeout.queuereturn=6s
O Timeout.queuewarn=1d
O Timeout.ident=0
O QueueLA=10000
O RefuseLA=10000
O DefaultUser=65534:65534
O DontBlameSendmail=GroupWritableDirPathSafe
O ConnectionCacheSize=2
HReceived: by $j id $i
H?D?Date: $a
H?F?From: $g
H?M?Message-Id: <$t.$i@$j>
Scanonify=3
R$+ < @ $+ >\t$@ $1 < @ $2 >
R$* < $* > $*\t$: $2
R$+ @ $+\t$: $1 < @ $2 >
Sfinal=4
R$* < @ $+ > $*\t$: $1 @ $2 $3
Sparse=0
{routes}R$*\t$#error $@ 5.1.2 $: "550 no such place"
Scheck_rcpt
R$* refused@ok.lab $*\t$#error $@ 5.7.1 $: "550 refused by rule"
Mlocal, P=/bin/true, F=lsDFMAw5:/|@q, T=DNS/RFC822/X-Unix, A=true $u
Mprog, P=/bin/sh, F=lsDFMoqeu9, T=X-Unix/X-Unix/X-Unix, A=sh -c $u
Mesmtp, P=[IPC], F=mDFMuXa, E=\\r\\n, L=990, r=3, T=DNS/RFC822/SMTP, A=TCP $h {sink_port}
"""


class Exim(Mta):
    def start(self):
        environment = self.unpacked()
        os.makedirs(self.path("spool"))
        shutil.chown(self.path("spool"), 993, 993)
        program = os.path.join(self.run.options.root, "usr/sbin/exim4")
        routes = " ; ".join(f"{domain} {host} byname" for domain, host in routes_of())
        conf = self.write("exim.conf", EXIM_CONF.format(
            folder=self.folder, port=self.run.port, sink_port=self.run.sink_port, routes=routes, program=program))
        self.command = [program, "-C", conf]
        self.environment = environment
        self.process = self.run.spawn([*self.command, "-bdf"], env=environment)

    def log_path(self):
        return self.path("spool", "mainlog")

    def work(self):
        subprocess.run([*self.command, "-q"], env=self.environment, timeout=120)

    def queue_is_empty(self):
        return not [name for _, _, files in os.walk(self.path("spool", "input")) for name in files]


EXIM_CONF = """\
primary_hostname = mta.lab
exim_path = {program}
spool_directory = {folder}/spool
log_file_path = {folder}/spool/%slog
log_selector = +received_recipients +delivery_size +queue_time +deliver_time +millisec
daemon_smtp_ports = {port}
local_interfaces = 127.0.0.1
host_lookup =
rfc1413_query_timeout = 0s
keep_environment = LD_LIBRARY_PATH
disable_ipv6
tls_advertise_hosts =
acl_smtp_rcpt = rcpt
acl_smtp_data = accept
ignore_bounce_errors_after = 0s
deliver_drop_privilege
begin acl
rcpt:
  deny local_parts = refused
       message = refused by rule
  accept
begin routers
lab:
  driver = manualroute
  transport = remote_smtp
  route_list = {routes}
  self = send
begin transports
remote_smtp:
  driver = smtp
  port = {sink_port}
  allow_localhost
  hosts_avoid_tls = *
  max_rcpt = 3
begin retry
* * F,6s,1s
"""


def routes_of():
    from run import ROUTES

    return list(ROUTES.items())


MTAS = {"postfix": Postfix, "sendmail": Sendmail, "exim": Exim}
