"""public-inbox 1.9 as the archive of a list: `public-inbox-watch` reads a Maildir that `stentor-deliver` writes, and `public-inbox-httpd`
shows the posts."""

import os
import shutil
import subprocess

from field.server import free_port, wait_for
from managers.world import USER, run

PROGRAMS = ("public-inbox-init", "public-inbox-watch", "public-inbox-httpd")
START_S_MAX = 30
STOP_S_MAX = 30


class PublicInbox:
    """An inbox `news` in a folder, and the service `inbox` that feeds it."""

    def __init__(self, bench, folder, address):
        self.program, self.folder, self.address = bench.tool("stentor-deliver"), folder, address
        self.socket, self.maildir = f"{folder}/run/inbox.sock", f"{folder}/maildir"
        self.port, self.processes = free_port(), []
        self.url = f"http://127.0.0.1:{self.port}/news/"
        self.environment = {**os.environ, "PI_CONFIG": f"{folder}/config", "HOME": folder}

    @staticmethod
    def is_there():
        return all(shutil.which(program) for program in PROGRAMS)

    def keys(self):
        """Keys of the list."""
        return f'archive_to = "lmtp:unix:{self.socket}"\narchived_at = "{self.url}{{message_id}}/"\n'

    def start(self):
        for name in ("", "/cur", "/new", "/tmp"):
            os.mkdir(self.maildir + name)
            shutil.chown(self.maildir + name, USER)
        service = f'[services.inbox]\nkind = "maildir"\npath = "{self.maildir}"\nuser = "{USER}"\n'
        with open(f"{self.folder}/deliver.toml", "w") as file:
            file.write(f'sockets = "{self.folder}/run"\nclient = "root"\nhostname = "mx.stentor.test"\n{service}')
        run(["public-inbox-init", "-V2", "news", f"{self.folder}/news", self.url, self.address], env=self.environment)
        run(["git", "config", "--file", f"{self.folder}/config", "publicinbox.news.watch", f"maildir:{self.maildir}"])
        for argv in (
            [self.program, "--config", f"{self.folder}/deliver.toml"],
            ["public-inbox-watch"],
            ["public-inbox-httpd", "-l", f"http://127.0.0.1:{self.port}/"],
        ):
            log = open(f"{self.folder}/{os.path.basename(argv[0])}.log", "wb")
            self.processes.append(subprocess.Popen(argv, env=self.environment, cwd=self.folder, stdout=log, stderr=log, stdin=subprocess.DEVNULL))
        if not wait_for(lambda: os.path.exists(self.socket), START_S_MAX):
            raise RuntimeError(f"no start of stentor-deliver: see {self.folder}")

    def stored(self):
        """Messages in the inbox."""
        repository = f"{self.folder}/news/git/0.git"
        done = subprocess.run(["git", "--git-dir", repository, "rev-list", "--count", "HEAD"], capture_output=True, text=True, env=self.environment)
        return int(done.stdout) if done.returncode == 0 else 0

    def stop(self):
        for process in reversed(self.processes):
            process.terminate()
        for process in self.processes:
            try:
                process.wait(STOP_S_MAX)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(STOP_S_MAX)
