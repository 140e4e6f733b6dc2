//! Where tracefs is, and why it cannot be used: each refusal says what to do.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use stentor_measure::MeasureError;

use crate::collect::choice::Choice;
use crate::collect::format::Format;

const PLACES: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];

/// A tracefs that this process may use.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Tracefs {
    pub root: PathBuf,
}

/// What was looked at; apart from finding it, so that every answer can be tested.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Circumstances {
    /// The first place that has an `instances` folder.
    pub root: Option<PathBuf>,
    pub has_mount_point: bool,
    /// The kernel knows the file system type.
    pub is_known: bool,
    pub is_root: bool,
    pub may_write: bool,
    /// `integrity` or `confidentiality`.
    pub lockdown: Option<String>,
}

impl Circumstances {
    pub fn look() -> Circumstances {
        let root = PLACES.iter().map(PathBuf::from).find(|place| place.join("instances").is_dir());
        let root = root.or_else(mounted_elsewhere);
        let lockdown = fs::read_to_string("/sys/kernel/security/lockdown").unwrap_or_default();
        let lockdown =
            lockdown.split_once('[').and_then(|(_, rest)| rest.split_once(']')).map(|(word, _)| word.to_owned());
        Circumstances {
            may_write: root.as_ref().is_some_and(|root| may_write(&root.join("instances"))),
            root,
            has_mount_point: Path::new(PLACES[0]).is_dir(),
            is_known: fs::read_to_string("/proc/filesystems").is_ok_and(|text| text.contains("tracefs")),
            is_root: rustix::process::geteuid().is_root(),
            lockdown: lockdown.filter(|word| word != "none"),
        }
    }

    /// The reason why not, with the remedy.
    pub fn tracefs(&self) -> Result<Tracefs, String> {
        if cfg!(target_endian = "big") {
            return Err("the kernel's trace buffers can be read only on little-endian machines".to_owned());
        }
        if self.lockdown.as_deref() == Some("confidentiality") {
            return Err("the kernel is locked down (confidentiality), which forbids tracing; start it with \
                        lockdown=integrity or without"
                .to_owned());
        }
        let Some(root) = &self.root else {
            return Err(match (self.is_root, self.is_known && self.has_mount_point) {
                (_, true) if self.is_root => "tracefs is not mounted; run: mount -t tracefs nodev /sys/kernel/tracing",
                (false, _) => {
                    "tracefs is not visible: run this as root, with tracefs mounted (mount -t tracefs nodev \
                     /sys/kernel/tracing)"
                }
                _ => "this kernel has no tracefs (CONFIG_FTRACE and CONFIG_TRACING are off): only --read FILE works",
            }
            .to_owned());
        };
        if !self.may_write {
            let who = if self.is_root { "CAP_SYS_ADMIN and a writable mount" } else { "root" };
            return Err(format!("no permission to create {}: needs {who}", root.join("instances/NAME").display()));
        }
        Ok(Tracefs { root: root.clone() })
    }
}

/// A test of rights alone: nothing is made.
fn may_write(folder: &Path) -> bool {
    rustix::fs::access(folder, rustix::fs::Access::WRITE_OK).is_ok()
}

fn mounted_elsewhere() -> Option<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mounts").ok()?;
    let point = mounts.lines().find_map(|line| {
        let mut words = line.split(' ');
        let (point, kind) = (words.nth(1)?, words.next()?);
        (kind == "tracefs").then(|| PathBuf::from(point))
    })?;
    point.join("instances").is_dir().then_some(point)
}

impl Tracefs {
    pub fn find() -> Result<Tracefs, MeasureError> {
        Circumstances::look().tracefs().map_err(|reason| MeasureError::Refused(format!("tracefs: {reason}")))
    }

    /// `blk`, `function_graph`, ...
    pub fn tracers(&self) -> Vec<String> {
        let text = fs::read_to_string(self.root.join("available_tracers")).unwrap_or_default();
        text.split_whitespace().map(str::to_owned).collect()
    }

    /// The layout of an event; none if this kernel does not have it.
    pub fn format(&self, name: &str) -> Option<Format> {
        fs::read_to_string(self.root.join("events").join(name).join("format"))
            .ok()
            .and_then(|text| Format::parse(&text))
    }

    /// What there is of a choice, each with its layout, and what is missed.
    pub fn events(&self, choice: &Choice) -> (Vec<(String, Format)>, Vec<String>) {
        let of_systems = choice.systems.iter().flat_map(|system| self.events_of(system));
        let (mut there, mut missing) = (Vec::new(), Vec::new());
        for event in choice.events.iter().cloned().chain(of_systems) {
            match self.format(&event) {
                Some(format) => there.push((event, format)),
                None if choice.rare.contains(&event) => {}
                None => missing.push(event),
            }
        }
        (there, missing)
    }

    /// All events of a system, as `system/name`.
    pub fn events_of(&self, system: &str) -> Vec<String> {
        let folders = fs::read_dir(self.root.join("events").join(system)).into_iter().flatten().flatten();
        let names = folders.filter(|entry| entry.path().join("format").is_file());
        names.map(|entry| format!("{system}/{}", entry.file_name().to_string_lossy())).collect()
    }
}

/// Says what a refused step in tracefs means.
pub fn explained(path: &Path, error: std::io::Error) -> MeasureError {
    let what = match error.kind() {
        ErrorKind::PermissionDenied => "run this as root, outside of a container without CAP_SYS_ADMIN",
        ErrorKind::OutOfMemory => "not enough memory for the buffers: choose a smaller --buffer-kib",
        ErrorKind::ResourceBusy => "another process uses it: find it with `fuser -v`, or wait for its trace to end",
        ErrorKind::StorageFull => "no space for another instance: remove unused ones in instances/",
        ErrorKind::NotFound if path.ends_with("set_graph_function") => {
            "this kernel cannot select functions: use --functions ''"
        }
        ErrorKind::NotFound => "this kernel does not have it",
        ErrorKind::InvalidInput if path.ends_with("set_graph_function") => {
            "it is not a traceable function; see available_filter_functions"
        }
        _ => return MeasureError::File { path: path.to_owned(), source: error },
    };
    MeasureError::Refused(format!("{}: {error}; {what}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_kernel_does_not_have_is_listed_and_the_rest_goes_on() {
        let folder = tempfile::tempdir().unwrap();
        let event = |name: &str, format: &str| {
            let path = folder.path().join("events").join(name);
            fs::create_dir_all(&path).unwrap();
            fs::write(path.join("format"), format).unwrap();
        };
        event("block/block_rq_issue", "name: block_rq_issue\nID: 7\nformat:\n");
        event("block/block_new", "name: block_new\nID: 8\nformat:\n");
        event("ext4/broken", "no format");
        let tracefs = Tracefs { root: folder.path().to_owned() };
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let choice = Choice {
            events: names(&["block/block_rq_issue", "block/gone", "ext4/broken", "ext4/rare"]),
            rare: names(&["ext4/rare"]),
            systems: vec!["block"],
        };
        let (there, missing) = tracefs.events(&choice);
        let mut there: Vec<_> = there.into_iter().map(|(name, format)| (name, format.id)).collect();
        there.sort();
        there.dedup();
        assert_eq!(there, [("block/block_new".to_owned(), 8), ("block/block_rq_issue".to_owned(), 7)]);
        assert_eq!(missing, ["block/gone", "ext4/broken"]);
    }

    #[test]
    fn each_bad_state_says_what_to_do() {
        let good = Circumstances {
            root: Some(PathBuf::from("/sys/kernel/tracing")),
            has_mount_point: true,
            is_known: true,
            is_root: true,
            may_write: true,
            lockdown: None,
        };
        assert_eq!(good.tracefs().unwrap().root, Path::new("/sys/kernel/tracing"));
        let cases = [
            (Circumstances { root: None, ..good.clone() }, "mount -t tracefs nodev"),
            (Circumstances { root: None, is_root: false, ..good.clone() }, "as root"),
            (Circumstances { root: None, is_known: false, ..good.clone() }, "no tracefs"),
            (Circumstances { may_write: false, is_root: false, ..good.clone() }, "needs root"),
            (Circumstances { may_write: false, ..good.clone() }, "CAP_SYS_ADMIN"),
            (Circumstances { lockdown: Some("confidentiality".to_owned()), ..good }, "locked down"),
        ];
        for (circumstances, words) in cases {
            let reason = circumstances.tracefs().unwrap_err();
            assert!(reason.contains(words), "{reason}");
        }
    }
}
