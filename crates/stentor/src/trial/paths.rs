//! Checks of folders and files: whether the server could create and write them, and whether others could.

use std::fs::{self, Metadata};
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{Access, access};
use stentor_config::{Config, ConfigKey, SubmissionConfig};
use stentor_logs::settings::{LogTarget, SyslogTo};

use super::Trial;
use super::missing::is_missing;

pub(super) const GROUPS: &str = "/etc/group";

impl Trial<'_> {
    pub(super) fn folders(&mut self, config: &Config) {
        self.creatable(ConfigKey::new("", "data_dir"), &config.data_dir);
        let socket = folder_of(&config.control.socket);
        if socket != config.data_dir {
            self.existing(ConfigKey::new("control", "socket"), socket);
        }
        let log = &config.log;
        let mut places: Vec<(&str, &str, &LogTarget)> = vec![("log", "attempts", &log.attempts)];
        for (key, target) in [
            ("deliveries", &log.deliveries),
            ("acceptances", &log.acceptances),
            ("refusals", &log.refusals),
            ("policy", &log.policy),
            ("audit", &log.audit),
            ("ordinary", &log.ordinary),
            ("bulk", &log.bulk),
        ] {
            places.extend(target.as_ref().map(|target| ("log", key, target)));
        }
        places.extend(log.lists.iter().map(|(list, target)| ("log.lists", list.as_str(), target)));
        for (section, key, target) in places {
            match target {
                LogTarget::File(path) => self.existing(ConfigKey::new(section, key), folder_of(path)),
                LogTarget::Syslog(SyslogTo::Unix(path)) | LogTarget::Journald(path) if !path.exists() => {
                    self.warn(
                        ConfigKey::new(section, key),
                        &format!("{} does not exist, so these log lines are lost", path.display()),
                    );
                }
                _ => {}
            }
        }
    }

    /// Checks a folder that the server creates if it is missing.
    pub(super) fn creatable(&mut self, key: ConfigKey<'_>, path: &Path) {
        match fs::metadata(path) {
            Ok(data) => self.folder(key, path, &data),
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
                let mut above = folder_of(path);
                while !above.exists() && above.parent().is_some() && above != Path::new(".") {
                    above = folder_of(above);
                }
                match fs::metadata(above) {
                    Ok(data) if !data.is_dir() => {
                        let what = format!("cannot create {}: {} is not a directory", path.display(), above.display());
                        self.error(key, &what);
                    }
                    _ if access(above, Access::WRITE_OK).is_err() => {
                        let what =
                            format!("this user cannot create {}: {} is not writable", path.display(), above.display());
                        self.warn(key, &what);
                    }
                    _ => {}
                }
            }
            Err(error) => self.warn(key, &format!("{}: {error}", path.display())),
        }
    }

    /// Checks a folder that must exist.
    pub(super) fn existing(&mut self, key: ConfigKey<'_>, path: &Path) {
        match fs::metadata(path) {
            Ok(data) => self.folder(key, path, &data),
            Err(_) if is_missing(path) => {
                self.error(key, &format!("the directory {} does not exist", path.display()));
            }
            Err(error) => self.warn(key, &format!("{}: {error}", path.display())),
        }
    }

    pub(super) fn folder(&mut self, key: ConfigKey<'_>, path: &Path, data: &Metadata) {
        let shown = path.display();
        if !data.is_dir() {
            self.error(key, &format!("{shown} is not a directory"));
        } else if access(path, Access::WRITE_OK | Access::EXEC_OK).is_err() {
            self.warn(
                key,
                &format!("{shown} is not writable by this user; the server's user must be able to write it"),
            );
        } else if data.mode() & 0o002 != 0 && data.mode() & 0o1000 == 0 {
            self.warn(
                key,
                &format!("every user can write to {shown} (mode {:03o}): run `chmod o-w {shown}`", data.mode() & 0o777),
            );
        }
    }

    /// Checks the submission folder: only the server's user and the setgid program may enter.
    pub(super) fn submission(&mut self, config: &SubmissionConfig) {
        let Some(path) = &config.folder else { return };
        let (key, group) = (ConfigKey::new("submission", "folder"), &config.group);
        let groups = fs::read_to_string(GROUPS).unwrap_or_default();
        let entry = groups.lines().find(|line| line.split(':').next() == Some(group)).unwrap_or_default();
        let mut fields = entry.split(':').skip(2);
        let gid = fields.next().and_then(|gid| gid.parse::<u32>().ok());
        if gid.is_none() {
            let what = format!("there is no group {group}: run `groupadd --system {group}`");
            self.error(ConfigKey::new("submission", "group"), &what);
        }
        if let Some(members) = fields.next().filter(|members| !members.is_empty()) {
            let what = format!("members of group {group} can put any file into the submission folder: {members}");
            self.warn(ConfigKey::new("submission", "group"), &what);
        }
        let Ok(data) = fs::metadata(path) else {
            self.creatable(key, path);
            return;
        };
        self.folder(key, path, &data);
        let shown = path.display();
        if gid.is_some_and(|gid| gid != data.gid()) {
            self.error(key, &format!("{shown} does not belong to group {group}: run `chgrp {group} {shown}`"));
        }
        if data.mode() & 0o777 != 0o730 {
            self.error(key, &format!("{shown} has mode {:03o}: run `chmod 1730 {shown}`", data.mode() & 0o777));
        }
    }
}

/// The folder of a file; `.` for a bare name.
fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if folder != Path::new("") => folder,
        Some(_) => Path::new("."),
        None => path,
    }
}
