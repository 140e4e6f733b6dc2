"""A disk that is honestly slow: a file system on a loop device on a loop device that the kernel lets through so many
writes a second (blkio throttle of the root group, cgroup v1). What lies on it sees the time that a device takes, from the
request's issue to its completion; nothing else on the machine is slowed.

States: made, mounted, throttled; `remove` undoes all of it, as far as it had come. Failure: CannotHere with the remedy.
"""

import os
import subprocess

from measure import CGROUP_ROOT, CannotHere

THROTTLE = f"{CGROUP_ROOT}/blkio/blkio.throttle.write_iops_device"
SBIN = {**os.environ, "PATH": f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"}


class SlowDisk:
    """A mounted file system of so many MiB; `limit(200)` slows it to so many writes a second, `limit(0)` not any more."""

    def __init__(self, folder, mib=1024, kind="ext4"):
        self.image = os.path.join(folder, "slow.image")
        self.point = os.path.join(folder, "slow")
        self.loops, self.mounted, self.number = [], False, None
        try:
            self._make(mib, kind)
        except (OSError, subprocess.CalledProcessError) as error:
            self.remove()
            said = getattr(error, "stderr", "") or error
            raise CannotHere(f"no slow disk: {said}; needs root, loop devices and cgroup v1 with blkio") from error

    def _make(self, mib, kind):
        if not os.path.exists(THROTTLE):
            raise OSError(f"{THROTTLE} is not there")
        with open(self.image, "wb") as image:
            os.posix_fallocate(image.fileno(), 0, mib << 20)
        self.loops.append(_run("losetup", "--find", "--show", "--direct-io=on", self.image))
        self.loops.append(_run("losetup", "--find", "--show", "--direct-io=on", self.loops[0]))
        with open(f"/sys/block/{os.path.basename(self.loops[0])}/dev") as number:
            self.number = number.read().strip()
        _run(f"mkfs.{kind}", "-q", self.loops[1])
        os.makedirs(self.point, exist_ok=True)
        _run("mount", self.loops[1], self.point)
        self.mounted = True

    def limit(self, writes_per_s):
        with open(THROTTLE, "w") as throttle:
            throttle.write(f"{self.number} {writes_per_s}")

    def writes(self):
        """Writes that the slow device has completed."""
        with open(f"/sys/dev/block/{self.number}/stat") as stat:
            return int(stat.read().split()[4])

    def remove(self):
        if self.number:
            self.limit(0)
        if self.mounted:
            _run("umount", self.point)
        for loop in reversed(self.loops):
            _run("losetup", "--detach", loop)
        self.loops, self.mounted, self.number = [], False, None
        if os.path.exists(self.image):
            os.remove(self.image)


def _run(*argv):
    done = subprocess.run(argv, env=SBIN, capture_output=True, text=True, check=True)
    return done.stdout.strip()
