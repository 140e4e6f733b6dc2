//! Temporary real file systems for a test, in sparse files on loop devices.
//!
//! Promise: unmounted and detached when dropped, after a panic too; lazily, since the server may still be exiting.
//! Needs root and a kernel that mounts loop devices. Without these the test says so prominently on the terminal and
//! passes; with `STENTOR_NO_SKIP` set it fails instead.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Ext4,
    Xfs,
    Btrfs,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Kind::Ext4 => "ext4",
            Kind::Xfs => "xfs",
            Kind::Btrfs => "btrfs",
        }
    }

    /// Room for a few dozen segments of a test; xfs and btrfs are not made smaller than this.
    fn bytes(self) -> u64 {
        match self {
            Kind::Ext4 => 256 << 20,
            Kind::Xfs | Kind::Btrfs => 320 << 20,
        }
    }
}

pub struct LoopFs {
    kind: Kind,
    device: String,
    point: PathBuf,
    mounted: bool,
    _folder: TempDir,
}

/// Says on the terminal, past the capture of the test's output, that a test was not run.
pub fn skipped(why: &str) {
    let test = std::thread::current().name().unwrap_or("a test").to_owned();
    assert!(std::env::var_os("STENTOR_NO_SKIP").is_none(), "{test} cannot be skipped here: {why}");
    // Nothing can be done about a closed terminal.
    let _ = writeln!(std::io::stderr(), "\n*** SKIPPED {test}: {why} ***");
}

/// Runs a program to its end; what it said if it failed.
fn run(program: &str, arguments: &[&str]) -> Result<String, String> {
    let output = Command::new(program)
        .args(arguments)
        .env("PATH", format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default()))
        .output()
        .map_err(|error| format!("{program}: {error} (testing/install.sh installs it)"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned());
    }
    Err(format!("{program} {}: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr).trim()))
}

impl LoopFs {
    /// Makes and mounts one of the usual size; `None` after having said why that is not possible here.
    pub fn make(kind: Kind) -> Option<LoopFs> {
        LoopFs::make_with(kind, kind.bytes(), &[])
    }

    /// The same of a size in bytes, with more arguments for its mkfs.
    pub fn make_with(kind: Kind, bytes: u64, arguments: &[&str]) -> Option<LoopFs> {
        if !rustix::process::geteuid().is_root() {
            skipped("loop devices and mounts need root");
            return None;
        }
        let folder = tempfile::tempdir().expect("a temporary folder can be made");
        let image = folder.path().join("image");
        File::create(&image).and_then(|file| file.set_len(bytes)).expect("a sparse file can be made");
        let image = image.to_str().expect("a plain path");
        let quiet = if kind == Kind::Ext4 || kind == Kind::Xfs { "-q" } else { "-f" };
        let made: Vec<&str> = [quiet].iter().chain(arguments).copied().chain([image]).collect();
        run(&format!("mkfs.{}", kind.name()), &made).unwrap_or_else(|why| panic!("{why}"));
        let device = match run("losetup", &["--find", "--show", image]) {
            Ok(device) => device,
            Err(why) => {
                skipped(&format!("the kernel gives no loop device: {why}"));
                return None;
            }
        };
        let point = folder.path().join("mount");
        std::fs::create_dir(&point).expect("a folder can be made");
        let mut fs = LoopFs { kind, device, point, mounted: false, _folder: folder };
        if let Err(why) = fs.mount() {
            skipped(&format!("the kernel does not mount {}: {why}", kind.name()));
            return None;
        }
        Some(fs)
    }

    fn mount(&mut self) -> Result<(), String> {
        let point = self.point.to_str().expect("a plain path");
        run("mount", &["-t", self.kind.name(), &self.device, point])?;
        self.mounted = true;
        Ok(())
    }

    /// Where it is mounted.
    pub fn path(&self) -> &Path {
        &self.point
    }

    /// The power goes, as far as the file system is concerned: nothing that was not synced reaches the device any more,
    /// the file system's own log included, and whoever has files open gets errors.
    pub fn power_cut(&self) {
        let point = self.point.to_str().expect("a plain path");
        run("xfs_io", &["-x", "-c", "shutdown", point]).unwrap_or_else(|why| panic!("{why}"));
    }

    /// Unmounts and mounts again, as a start of the machine does: its log is replayed, and what was only in memory is
    /// gone. Nobody may have files open.
    pub fn reboot(&mut self) {
        let point = self.point.to_str().expect("a plain path").to_owned();
        run("umount", &[&point]).unwrap_or_else(|why| panic!("{why}"));
        self.mounted = false;
        self.mount().unwrap_or_else(|why| panic!("{why}"));
    }
}

impl Drop for LoopFs {
    fn drop(&mut self) {
        // As far as it goes: the device is freed when the last user has gone.
        if self.mounted {
            let _ = Command::new("umount").arg("-l").arg(&self.point).status();
        }
        let _ = run("losetup", &["--detach", &self.device]);
    }
}
