//! Temporary file systems in files on loop devices, and devices that are slowed down.
//!
//! Promise: [`LoopFs`] unmounts, detaches and removes everything it made when it is dropped, in reverse order; after a
//! kill the [`Guardian`] does. The file is written completely beforehand, so that no write to the device has to
//! allocate space in the file system below.
//!
//! It is not a separate disk. All loop files share the disk below them, and a flush of the loop device is an `fsync` of
//! its file, which costs that file system a commit; so the figures compare file systems with each other, not with a
//! bare disk.
//!
//! With a limit of writes (`writes_per_s_max`) there are two devices: A on the file, limited in the root control group,
//! and B on A with the file system. B is then as slow as a slow disk; the limit applies to everyone who writes to A,
//! and that is only B. This needs control groups version 1 with the blkio controller: version 2's limit (`io.max`)
//! cannot be set on the root group, which the kernel's threads belong to.
//!
//! Needs root; without it, refuses with a clear message.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use crate::guardian::{Guarded, Guardian, quoted, search_path};
use crate::output::MeasureError;
use crate::stop::Stop;

/// Where the root group's limits are, in version 1.
const ROOT_GROUP: &str = "/sys/fs/cgroup/blkio";
const LIMIT_FILE: &str = "blkio.throttle.write_iops_device";
/// xfs is not made smaller, btrfs behaves oddly below.
pub const SIZE_MIB_MIN: u64 = 320;
const UNMOUNT_TRIES: u32 = 20;
const UNMOUNT_WAIT: Duration = Duration::from_millis(100);
const CHUNK_BYTES: usize = 1 << 20;

#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum Kind {
    Ext4,
    Xfs,
    Btrfs,
    Tmpfs,
}

impl Kind {
    pub const ALL: [Kind; 4] = [Kind::Ext4, Kind::Xfs, Kind::Btrfs, Kind::Tmpfs];

    pub fn name(self) -> &'static str {
        match self {
            Kind::Ext4 => "ext4",
            Kind::Xfs => "xfs",
            Kind::Btrfs => "btrfs",
            Kind::Tmpfs => "tmpfs",
        }
    }

    /// The program that makes it, and the Debian package of that.
    fn maker(self) -> Option<(&'static str, &'static [&'static str], &'static str)> {
        match self {
            // Without lazy initialisation, whose writes in the background would be measured; and none with a discard,
            // which a loop device does by punching holes into its file: each first write would be an allocation below.
            Kind::Ext4 => Some((
                "mkfs.ext4",
                &["-q", "-F", "-E", "nodiscard,lazy_itable_init=0,lazy_journal_init=0"],
                "e2fsprogs",
            )),
            Kind::Xfs => Some(("mkfs.xfs", &["-q", "-f", "-K"], "xfsprogs")),
            Kind::Btrfs => Some(("mkfs.btrfs", &["-q", "-f", "-K"], "btrfs-progs")),
            Kind::Tmpfs => None,
        }
    }

    /// Btrfs discards what was freed by itself.
    fn mount_options(self) -> Option<&'static str> {
        (self == Kind::Btrfs).then_some("nodiscard")
    }
}

/// A limit of a device's writes, taken off when dropped.
#[derive(Debug)]
pub struct Throttle {
    number: String,
    _guarded: Guarded,
}

impl Throttle {
    /// Limits the writes of a device (`7:3`) for everybody, until it is dropped.
    pub fn writes(number: &str, per_s: u32, guardian: &Arc<Guardian>) -> Result<Throttle, MeasureError> {
        let file = Path::new(ROOT_GROUP).join(LIMIT_FILE);
        if !file.exists() {
            return Err(MeasureError::Refused(format!(
                "cannot throttle a device here: {} is missing; this needs control groups version 1 with blkio (boot \
                 with systemd.unified_cgroup_hierarchy=0, then mount -t cgroup -o blkio)",
                file.display()
            )));
        }
        let undo = format!("echo '{number} 0' > {}", quoted(&file));
        let guarded = guardian.guard(&undo).map_err(MeasureError::file(&file))?;
        fs::write(&file, format!("{number} {per_s}")).map_err(MeasureError::file(&file))?;
        Ok(Throttle { number: number.to_owned(), _guarded: guarded })
    }
}

impl Drop for Throttle {
    fn drop(&mut self) {
        // Who cannot take it off leaves a limit on a loop device that is about to go.
        let _ = fs::write(Path::new(ROOT_GROUP).join(LIMIT_FILE), format!("{} 0", self.number));
    }
}

/// How a file system is made.
#[derive(Clone, Debug)]
pub struct LoopOptions {
    pub kind: Kind,
    pub size_mib: u64,
    /// Further mount options: `noatime,commit=1`.
    pub mount_options: Option<String>,
    pub writes_per_s_max: Option<u32>,
}

/// A mounted file system in a file.
#[derive(Debug)]
pub struct LoopFs {
    pub kind: Kind,
    folder: PathBuf,
    mounted: bool,
    throttle: Option<Throttle>,
    /// In the order in which they were attached.
    devices: Vec<String>,
    guarded: Vec<Guarded>,
}

impl LoopFs {
    /// Makes one in a new folder within `place`, which is on the disk that is to carry it.
    pub fn make(
        options: &LoopOptions,
        place: &Path,
        guardian: &Arc<Guardian>,
        stop: &Stop,
    ) -> Result<LoopFs, MeasureError> {
        refuse(options, place)?;
        let folder = new_folder(place, options.kind)?;
        let mut fs = LoopFs {
            kind: options.kind,
            folder,
            mounted: false,
            throttle: None,
            devices: Vec::new(),
            guarded: Vec::new(),
        };
        fs.entrust(guardian)?;
        fs::create_dir(fs.path()).map_err(MeasureError::file(fs.path()))?;
        if options.kind == Kind::Tmpfs {
            let size = format!("size={}m", options.size_mib);
            let all = [Some(size.as_str()), options.mount_options.as_deref()].into_iter().flatten();
            let all = all.collect::<Vec<_>>().join(",");
            run("mount", &["-t", "tmpfs", "-o", &all, "tmpfs", &text(&fs.path())])?;
            fs.mounted = true;
            return Ok(fs);
        }
        zeros(&fs.image(), options.size_mib, stop)?;
        fs.attach(options, guardian)?;
        Ok(fs)
    }

    /// Where it is mounted.
    pub fn path(&self) -> PathBuf {
        self.folder.join("mount")
    }

    fn image(&self) -> PathBuf {
        self.folder.join("image")
    }

    /// Before anything is done: the guardian undoes whatever there is of it.
    fn entrust(&mut self, guardian: &Arc<Guardian>) -> Result<(), MeasureError> {
        let (mount, image, folder) = (quoted(&self.path()), quoted(&self.image()), quoted(&self.folder));
        let undo = format!(
            "cd /; umount {mount} || umount -l {mount}; \
             for a in $(losetup -n -O NAME -j {image}); do \
             for b in $(losetup -n -O NAME -j $a); do losetup -d $b; done; losetup -d $a; done; \
             rm -f {image}; rmdir {mount}; rmdir {folder}"
        );
        self.guarded.push(guardian.guard(&undo).map_err(MeasureError::file(&self.folder))?);
        Ok(())
    }

    fn attach(&mut self, options: &LoopOptions, guardian: &Arc<Guardian>) -> Result<(), MeasureError> {
        // A second cache of the same data would hide what the device costs. Not every file system below can do without.
        let image = text(&self.image());
        let direct = run("losetup", &["--find", "--show", "--direct-io=on", &image]);
        let mut device = match direct {
            Ok(device) => device,
            Err(_) => run("losetup", &["--find", "--show", &image])?,
        };
        self.devices.push(device.clone());
        if let Some(per_s) = options.writes_per_s_max {
            let lower = device_number(&device)?;
            let upper = run("losetup", &["--find", "--show", "--direct-io=on", &device])?;
            self.devices.push(upper.clone());
            device = upper;
            self.make_on(&device, options)?;
            self.throttle = Some(Throttle::writes(&lower, per_s, guardian)?);
        } else {
            self.make_on(&device, options)?;
        }
        Ok(())
    }

    /// Makes the file system on the device and mounts it.
    fn make_on(&mut self, device: &str, options: &LoopOptions) -> Result<(), MeasureError> {
        if let Some((program, arguments, _)) = options.kind.maker() {
            let arguments: Vec<&str> = arguments.iter().copied().chain([device]).collect();
            run(program, &arguments)?;
        }
        let point = text(&self.path());
        let mut arguments = vec!["-t", self.kind.name()];
        for options in self.kind.mount_options().into_iter().chain(options.mount_options.as_deref()) {
            arguments.extend(["-o", options]);
        }
        arguments.extend([device, &point]);
        run("mount", &arguments)?;
        self.mounted = true;
        Ok(())
    }

    /// Whether all of it went.
    fn undo(&mut self) -> bool {
        self.throttle = None;
        let point = text(&self.path());
        if self.mounted {
            // Whoever has just closed a file may not be gone yet.
            let mut left = UNMOUNT_TRIES;
            while run("umount", &[&point]).is_err() {
                left -= 1;
                if left == 0 {
                    return false;
                }
                std::thread::sleep(UNMOUNT_WAIT);
            }
            self.mounted = false;
        }
        while let Some(device) = self.devices.last() {
            if run("losetup", &["--detach", device]).is_err() {
                return false;
            }
            self.devices.pop();
        }
        fs::remove_dir_all(&self.folder).is_ok()
    }
}

impl Drop for LoopFs {
    fn drop(&mut self) {
        if !self.undo() {
            // Not by us: perhaps someone stands in it. The guardian detaches lazily.
            for guarded in std::mem::take(&mut self.guarded) {
                guarded.leave();
            }
        }
    }
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

/// What cannot work here, before anything is made.
fn refuse(options: &LoopOptions, place: &Path) -> Result<(), MeasureError> {
    let refused = |why: String| Err(MeasureError::Refused(why));
    if !rustix::process::geteuid().is_root() {
        return refused("file systems on loop devices need root: run it with sudo, or give directories".to_owned());
    }
    if !place.is_dir() {
        return refused(format!("{} is not a directory; create it first", place.display()));
    }
    if options.kind != Kind::Tmpfs && options.size_mib < SIZE_MIB_MIN {
        return refused(format!("a file system on a loop device needs at least {SIZE_MIB_MIN} MiB"));
    }
    let room = rustix::fs::statvfs(place).map_err(|error| MeasureError::file(place)(error.into()))?;
    let free_mib = room.f_bavail.saturating_mul(room.f_frsize) >> 20;
    if options.kind != Kind::Tmpfs && free_mib < options.size_mib + options.size_mib / 8 {
        let size_mib = options.size_mib;
        return refused(format!(
            "{} has {free_mib} MiB free; needs slightly more than {size_mib} MiB",
            place.display()
        ));
    }
    if let Some((program, _, package)) = options.kind.maker()
        && !search_path().split(':').any(|folder| Path::new(folder).join(program).exists())
    {
        return refused(format!("{program} is missing: apt-get install {package}"));
    }
    Ok(())
}

fn new_folder(place: &Path, kind: Kind) -> Result<PathBuf, MeasureError> {
    let place = place.canonicalize().map_err(MeasureError::file(place))?;
    for number in 0_u32..1000 {
        let folder = place.join(format!("stentor-loop-{}-{number}-{}", std::process::id(), kind.name()));
        match fs::create_dir(&folder) {
            Ok(()) => return Ok(folder),
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(source) => return Err(MeasureError::File { path: folder, source }),
        }
    }
    Err(MeasureError::Refused(format!(
        "{} has too many leftovers of earlier runs; remove stentor-loop-*",
        place.display()
    )))
}

/// A file of zeros, synced: whoever writes to it later need not allocate.
fn zeros(path: &Path, size_mib: u64, stop: &Stop) -> Result<(), MeasureError> {
    let write = || -> std::io::Result<bool> {
        let mut file = File::create_new(path)?;
        let chunk = vec![0; CHUNK_BYTES];
        for _ in 0..size_mib {
            if stop.is_set() {
                return Ok(false);
            }
            file.write_all(&chunk)?;
        }
        file.sync_all()?;
        Ok(true)
    };
    if write().map_err(MeasureError::file(path))? { Ok(()) } else { Err(MeasureError::Stopped) }
}

/// `7:3` of `/dev/loop3`.
fn device_number(device: &str) -> Result<String, MeasureError> {
    let status = rustix::fs::stat(device).map_err(|error| MeasureError::file(device)(error.into()))?;
    Ok(format!("{}:{}", rustix::fs::major(status.st_rdev), rustix::fs::minor(status.st_rdev)))
}

/// Runs a program to its end: its standard output, or what it said instead.
fn run(program: &str, arguments: &[&str]) -> Result<String, MeasureError> {
    let said =
        |what: &dyn std::fmt::Display| MeasureError::Refused(format!("{program} {}: {what}", arguments.join(" ")));
    let output = Command::new(program)
        .args(arguments)
        .env("PATH", search_path())
        .env("LC_ALL", "C")
        .stdin(std::process::Stdio::null())
        .output()
        .map_err(|error| said(&error))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned());
    }
    Err(said(&String::from_utf8_lossy(&output.stderr).trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(kind: Kind) -> LoopOptions {
        LoopOptions { kind, size_mib: SIZE_MIB_MIN, mount_options: None, writes_per_s_max: None }
    }

    #[test]
    fn what_cannot_work_is_refused_with_a_remedy() {
        let folder = tempfile::tempdir().unwrap();
        let why = |options: &LoopOptions, place: &Path| refuse(options, place).unwrap_err().to_string();
        if !rustix::process::geteuid().is_root() {
            assert!(why(&options(Kind::Ext4), folder.path()).contains("sudo"));
            return;
        }
        assert!(why(&options(Kind::Ext4), Path::new("/nowhere")).contains("create it first"));
        let small = LoopOptions { size_mib: 1, ..options(Kind::Xfs) };
        assert!(why(&small, folder.path()).contains("320 MiB"));
        let huge = LoopOptions { size_mib: 1 << 40, ..options(Kind::Ext4) };
        assert!(why(&huge, folder.path()).contains("MiB free"));
        assert!(refuse(&options(Kind::Tmpfs), folder.path()).is_ok());
    }

    #[test]
    fn names_are_given_once() {
        let folder = tempfile::tempdir().unwrap();
        let first = new_folder(folder.path(), Kind::Ext4).unwrap();
        assert_ne!(first, new_folder(folder.path(), Kind::Ext4).unwrap());
    }
}
