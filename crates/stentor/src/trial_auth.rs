//! Whether what logins need can be read: the users file, as a start reads it, and the secrets of `[smart_hosts]`.
//!
//! What would make a start fail, or leave mail waiting for a login, is an error; what may be meant, or only this user may not do, is a
//! warning. No secret is read.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use stentor_config::settings::Settings;
use stentor_config::{AuthSource, Config, Diagnostic, SecretSource, Severity};
use stentor_users::{FileError, UsersFile};

const OTHERS_READ: u32 = 0o004;
const GROUP_READS: u32 = 0o040;

/// About a key of a section.
pub(super) struct Finding {
    pub section: String,
    pub key: &'static str,
    pub severity: Severity,
    pub what: String,
}

/// The users file: about its key, and about lines of the file itself.
pub(super) fn users(config: &Config) -> (Option<Finding>, Vec<Diagnostic>) {
    let Some(AuthSource::Users(path)) = &config.auth.source else { return (None, Vec::new()) };
    let finding = |severity, what| Some(Finding { section: "auth".to_owned(), key: "users", severity, what });
    let shown = path.display();
    match UsersFile::open(path) {
        Ok(_) => (foreign_owner(config, path).and_then(|what| finding(Severity::Warning, what)), Vec::new()),
        Err(FileError::Faults { faults, .. }) => {
            let at =
                |line, message| Diagnostic { file: path.clone(), line, column: 1, severity: Severity::Error, message };
            let faults = faults.iter().map(|fault| at(fault.line as usize, format!("{}; {}", fault.why, fault.help)));
            (None, faults.collect())
        }
        Err(FileError::Io { error, .. }) if error.kind() == ErrorKind::NotFound => {
            let what = format!(
                "{shown} does not exist, and no server starts without it: `stentor user add NAME` makes it; then \
                 `chown` it to the server's user"
            );
            (finding(Severity::Error, what), Vec::new())
        }
        // The server's user may be able to.
        Err(FileError::Io { error, .. }) if error.kind() == ErrorKind::PermissionDenied => {
            let what = format!("{shown} cannot be read by this user ({error}): `chown` it to the server's user");
            (finding(Severity::Warning, what), Vec::new())
        }
        Err(error) => (finding(Severity::Error, error.to_string()), Vec::new()),
    }
}

/// A file that root has made is nothing for a server that runs as another user.
fn foreign_owner(config: &Config, path: &Path) -> Option<String> {
    let (file, folder) = (fs::metadata(path).ok()?, fs::metadata(&config.data_dir).ok()?);
    if file.uid() == folder.uid() || file.mode() & GROUP_READS != 0 {
        return None;
    }
    let (path, folder) = (path.display(), config.data_dir.display());
    Some(format!(
        "{path} is not of the user whom {folder} belongs to, and nobody else reads it: `chown --reference={folder} {path}`"
    ))
}

/// The files with the secrets of `[smart_hosts]`.
pub(super) fn secrets(config: &Config, settings: &Settings) -> Vec<Finding> {
    let mut sections: Vec<&str> = settings
        .iter()
        .map(|setting| setting.section.as_str())
        .filter(|name| name.starts_with("smart_hosts."))
        .collect();
    sections.dedup();
    // Both in the order of the file.
    sections
        .into_iter()
        .zip(&config.protection.smart_hosts)
        .filter_map(|(section, host)| {
            let SecretSource::File(path) = &host.secret else { return None };
            let (severity, what) = doubt(path)?;
            Some(Finding { section: section.to_owned(), key: "secret_file", severity, what })
        })
        .collect()
}

fn doubt(path: &Path) -> Option<(Severity, String)> {
    let shown = path.display();
    match fs::File::open(path).and_then(|file| file.metadata()) {
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            Some((Severity::Warning, format!("{shown} cannot be read by this user: {error}")))
        }
        Err(error) => Some((Severity::Error, format!("{shown} cannot be read, and mail waits for the login: {error}"))),
        Ok(data) if data.is_file() && data.mode() & OTHERS_READ != 0 => {
            let mode = data.mode() & 0o777;
            Some((
                Severity::Warning,
                format!("every user can read the secret in {shown} (mode {mode:03o}): chmod o= {shown}"),
            ))
        }
        Ok(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn files_of_logins_are_looked_at() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let write = |name: &str, text: &str, mode| {
            fs::write(at(name), text).unwrap();
            fs::set_permissions(at(name), fs::Permissions::from_mode(mode)).unwrap();
        };
        let text = "[listen]\nsmtp = \"127.0.0.1:0\"\n[http]\nlisten = []\n[auth]\nusers = \"users\"\n\
                    [smart_hosts.\"b.example:587\"]\nuser = \"u\"\nsecret_command = [\"/bin/true\"]\n\
                    [smart_hosts.\"a.example:587\"]\nuser = \"u\"\nsecret_file = \"secret\"\n";
        write("stentor.toml", text, 0o600);
        let (config, settings) = stentor_config::check_noting(&at("stentor.toml")).unwrap();
        let found = || {
            let (key, lines) = users(&config);
            let shown = |one: &Finding| format!("{} {} {:?} {}", one.section, one.key, one.severity, one.what);
            let (keys, secrets) = (key.iter().map(shown), secrets(&config, &settings));
            let place = |one: &Finding| settings.place(&one.section, one.key);
            let places: Vec<_> = secrets.iter().map(place).collect();
            let all: Vec<String> =
                keys.chain(lines.iter().map(ToString::to_string)).chain(secrets.iter().map(shown)).collect();
            (all, places)
        };
        let (all, places) = found();
        assert_eq!(all.len(), 2, "{all:#?}");
        assert!(all[0].starts_with("auth users Error ") && all[0].contains("`stentor user add NAME`"), "{all:#?}");
        assert!(all[1].contains("Error ") && all[1].contains("secret cannot be read, and mail waits"), "{all:#?}");
        assert_eq!(places, [Some((12, 15))], "the key of the host that has the file");
        write("users", "[ann@x.example]\nlocked = perhaps\n", 0o600);
        write("secret", "s3cret\n", 0o644);
        let (all, _) = found();
        assert!(all.len() == 3 && all[0].contains("users:2:1: "), "{all:#?}");
        assert!(all[2].contains("Warning every user can read the secret in"), "{all:#?}");
        write("users", "", 0o644);
        write("secret", "s3cret\n", 0o600);
        let (all, _) = found();
        assert!(all.len() == 1 && all[0].contains("has mode 644") && all[0].contains("chmod 600"), "{all:#?}");
        write("users", "", 0o600);
        assert_eq!(found().0, Vec::<String>::new());
    }
}
