//! Checks the files and sockets that logins need: the users file, as a start reads it, or Dovecot's socket and the
//! local settings of its users; and the secrets of `[smart_hosts]` that a route uses.
//!
//! Findings that would make a start fail or leave mail waiting for a login are errors; those that may be intended, or
//! only affect this user, are warnings. Files for `oauth` are read to see whether they can hold a token; their contents
//! are not shown, and no program is run.

use std::fs;
use std::io::{ErrorKind, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::UnixStream;
use std::path::Path;

use stentor_config::settings::Settings;
use stentor_config::{AuthSource, Config, DOVECOT_USERS, Diagnostic, Listener, ListenerAuth, Severity};
use stentor_oauth::{Credential, SecretSource, SmartHost};
use stentor_tables::Table;
use stentor_users::{FileError, FileKind, UsersFile};

const OTHERS_READ: u32 = 0o004;
const ANYBODY_RUNS: u32 = 0o111;
const OWNER_READS: u32 = 0o400;
const GROUP_READS: u32 = 0o040;
const OWNER_WRITES: u32 = 0o200;
const GROUP_WRITES: u32 = 0o020;

/// Octets read from a file for a token.
const FILE_BYTES_MAX: u64 = 32 * 1024;

/// A finding about a key of a section.
pub(super) struct Finding {
    pub section: String,
    pub key: &'static str,
    pub severity: Severity,
    pub what: String,
}

/// Checks the users file: findings about its key, and about lines of the file itself.
pub(super) fn users(config: &Config) -> (Option<Finding>, Vec<Diagnostic>) {
    let (kind, key, path) = match &config.auth.source {
        Some(AuthSource::Users(path)) => (FileKind::Own, "users", path.clone()),
        Some(AuthSource::Dovecot(_)) => (FileKind::DovecotOverrides, "dovecot", config.data_dir.join(DOVECOT_USERS)),
        None => return (None, Vec::new()),
    };
    let (path, finding) = (&path, |severity, what| Some(Finding { section: "auth".to_owned(), key, severity, what }));
    let shown = path.display();
    match UsersFile::open(kind, path) {
        Ok(_) => (foreign_owner(config, path).and_then(|what| finding(Severity::Warning, what)), Vec::new()),
        Err(FileError::Faults { faults, .. }) => {
            let at =
                |line, message| Diagnostic { file: path.clone(), line, column: 1, severity: Severity::Error, message };
            let faults = faults.iter().map(|fault| at(fault.line as usize, format!("{}; {}", fault.why, fault.help)));
            (None, faults.collect())
        }
        Err(FileError::Io { error, .. }) if error.kind() == ErrorKind::NotFound => {
            let what = format!(
                "{shown} does not exist, and the server will not start without it: create it with `stentor user add \
                 NAME`, then `chown` it to the server's user"
            );
            (finding(Severity::Error, what), Vec::new())
        }
        // The server's user may be able to read it.
        Err(FileError::Io { error, .. }) if error.kind() == ErrorKind::PermissionDenied => {
            let what = format!("this user cannot read {shown} ({error}): `chown` it to the server's user");
            (finding(Severity::Warning, what), Vec::new())
        }
        Err(error) => (finding(Severity::Error, error.to_string()), Vec::new()),
    }
}

/// Warns if logins are configured but no listener accepts them.
pub(super) fn unasked(config: &Config) -> Option<Finding> {
    let key = match &config.auth.source {
        Some(AuthSource::Users(_)) => "users",
        Some(AuthSource::Dovecot(_)) => "dovecot",
        None => return None,
    };
    let takes_logins = |(_, listener): (_, &Listener)| listener.auth != ListenerAuth::None;
    let what = "no listener accepts logins: add `submission` or `smtps` to [listen], or auth = \"offered\" to a \
        listener of \
         `smtp`";
    let finding = || Finding { section: "auth".to_owned(), key, severity: Severity::Warning, what: what.to_owned() };
    (!config.listen.listeners().any(takes_logins)).then(finding)
}

/// Checks that Dovecot's socket accepts a connection; nothing is sent.
pub(super) fn dovecot(config: &Config) -> Option<Finding> {
    let Some(AuthSource::Dovecot(path)) = &config.auth.source else { return None };
    let error = UnixStream::connect(path).err()?;
    let what =
        format!("Dovecot ({}) does not accept connections: {error}; until it does, nobody can log in", path.display());
    Some(Finding { section: "auth".to_owned(), key: "dovecot", severity: Severity::Warning, what })
}

/// Reports a file that does not belong to the owner of the data directory and that nobody else can read.
fn foreign_owner(config: &Config, path: &Path) -> Option<String> {
    let (file, folder) = (fs::metadata(path).ok()?, fs::metadata(&config.data_dir).ok()?);
    if file.uid() == folder.uid() || file.mode() & GROUP_READS != 0 {
        return None;
    }
    let (path, folder) = (path.display(), config.data_dir.display());
    Some(format!(
        "{path} does not belong to the owner of {folder}, and no one else can read it: run `chown \
         --reference={folder} {path}`"
    ))
}

/// The sections of `[smart_hosts]` and their values, in the order of the file.
fn smart_hosts<'a>(config: &'a Config, settings: &'a Settings) -> impl Iterator<Item = (&'a str, &'a SmartHost)> {
    // Each has a `user`, but the tables inside do not.
    let has_user = |section: &str, key: &str| section.starts_with("smart_hosts.") && key == "user";
    let sections = settings.iter().filter(move |setting| has_user(&setting.section, &setting.key));
    sections.map(|setting| setting.section.as_str()).zip(&config.protection.smart_hosts)
}

/// Checks the files with the secrets of `[smart_hosts]`, and the programs that print them.
pub(super) fn secrets(config: &Config, settings: &Settings) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (section, host) in smart_hosts(config, settings) {
        let finding = |key, (severity, what)| Finding { section: section.to_owned(), key, severity, what };
        match &host.credential {
            Credential::Secret(SecretSource::File(path)) => {
                findings.extend(no_secret(path).or_else(|| doubt(path)).map(|found| finding("secret_file", found)));
            }
            Credential::Secret(SecretSource::Command(words)) => {
                let found = words.first().and_then(|program| unrunnable(program));
                findings.extend(found.map(|found| finding("secret_command", found)));
            }
            Credential::Oauth(grant) => {
                let look = |path: &Path| doubt(path).or_else(|| no_token(path)).or_else(|| unreadable(config, path));
                let secret = grant.client_secret_file.as_deref().and_then(look);
                let refresh = grant.refresh_token_file.as_deref();
                let refresh = refresh.and_then(|path| look(path).or_else(|| unreplaceable(config, path)));
                for (key, found) in [("client_secret_file", secret), ("refresh_token_file", refresh)] {
                    let of_grant = |found| Finding { section: format!("{section}.oauth"), ..finding(key, found) };
                    findings.extend(found.map(of_grant));
                }
            }
        }
    }
    findings
}

/// Checks the files with the value of `Authorization` of webhooks.
pub(super) fn webhooks(config: &Config) -> Vec<Finding> {
    let look = |path: &Path| {
        let shown = path.display();
        match fs::read_to_string(path) {
            Err(error) => Some(format!("{shown}: {error}; until it can be read, events wait")),
            Ok(text) if text.trim().is_empty() => Some(format!("{shown} is empty, so events wait")),
            Ok(_) => denied(config, path)
                .then(|| format!("the owner of {} cannot read {shown}, so events wait", config.data_dir.display())),
        }
    };
    let hooks = config.webhooks.iter().filter(|hook| hook.enabled);
    let found = hooks.filter_map(|hook| Some((&hook.name, look(hook.authorization_file.as_deref()?)?)));
    let finding = |(name, what)| Finding {
        section: format!("webhooks.{name}"),
        key: "authorization_file",
        severity: Severity::Warning,
        what,
    };
    found.map(finding).collect()
}

/// The first line of a file.
fn first_line(path: &Path) -> Option<Vec<u8>> {
    let mut octets = Vec::new();
    fs::File::open(path).ok()?.take(FILE_BYTES_MAX).read_to_end(&mut octets).ok()?;
    Some(octets.split(|&b| b == b'\n').next().unwrap_or_default().trim_ascii().to_owned())
}

fn no_secret(path: &Path) -> Option<(Severity, String)> {
    let what = || format!("the first line of {} is empty, so the login fails and mail waits", path.display());
    first_line(path)?.is_empty().then(|| (Severity::Error, what()))
}

/// Reports a file that cannot hold a token; the likeliest mistake is the endpoint's whole response.
fn no_token(path: &Path) -> Option<(Severity, String)> {
    if let Some(empty) = no_secret(path) {
        return Some(empty);
    }
    let (line, shown) = (first_line(path)?, path.display());
    let is_odd = line[0] == b'{' || line.iter().any(|b| !b.is_ascii_graphic());
    is_odd.then(|| {
        (
            Severity::Warning,
            format!("the first line of {shown} must be only a token or secret: it begins with {{ or contains blanks"),
        )
    })
}

/// Reports a file that the server cannot read, even if `check` runs as root.
fn unreadable(config: &Config, path: &Path) -> Option<(Severity, String)> {
    let (shown, data_dir) = (path.display(), config.data_dir.display());
    denied(config, path).then(|| {
        (Severity::Warning, format!("the owner of {data_dir} cannot read {shown}, so the login fails and mail waits"))
    })
}

/// Whether the owner of `data_dir`, the server's user, cannot read a file.
fn denied(config: &Config, path: &Path) -> bool {
    let (Ok(file), Ok(server)) = (fs::metadata(path), fs::metadata(&config.data_dir)) else { return false };
    let right = if file.uid() == server.uid() {
        OWNER_READS
    } else if file.gid() == server.gid() {
        GROUP_READS
    } else {
        OTHERS_READ
    };
    server.uid() != 0 && file.mode() & right == 0
}

/// Reports a refresh token that cannot be replaced: rotation writes a new file to its folder.
fn unreplaceable(config: &Config, path: &Path) -> Option<(Severity, String)> {
    let path = fs::canonicalize(path).ok()?;
    let (file, folder) = (fs::metadata(&path).ok()?, fs::metadata(path.parent()?).ok()?);
    let server = fs::metadata(&config.data_dir).ok()?;
    let writes = |data: &fs::Metadata| {
        (data.uid() == server.uid() && data.mode() & OWNER_WRITES != 0)
            || (data.gid() == server.gid() && data.mode() & GROUP_WRITES != 0)
    };
    if server.uid() == 0 || (file.uid() == server.uid() && writes(&folder)) {
        return None;
    }
    let (shown, data_dir) = (path.display(), config.data_dir.display());
    Some((
        Severity::Warning,
        format!(
            "the owner of {data_dir} cannot replace {shown}, so a refresh token that the endpoint rotates is lost \
             when the server stops: give that user the file and its directory"
        ),
    ))
}

fn unrunnable(program: &str) -> Option<(Severity, String)> {
    let then = "no secret, so the login fails and mail waits";
    match fs::metadata(program) {
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            Some((Severity::Warning, format!("this user cannot check {program}: {error}")))
        }
        Err(error) => Some((Severity::Error, format!("{program}: {error}: {then}"))),
        Ok(data) if !data.is_file() || data.mode() & ANYBODY_RUNS == 0 => {
            Some((Severity::Warning, format!("{program} is not an executable program: {then}")))
        }
        Ok(_) => None,
    }
}

/// Entries of `[smart_hosts]` that no route uses. `tables`: the tables that were read.
pub(super) fn unnamed(config: &Config, settings: &Settings, tables: &[Table]) -> Vec<Finding> {
    let unnamed = config.unnamed_smart_hosts(tables);
    let of = |(at, what)| {
        let (section, _) = smart_hosts(config, settings).nth(at)?;
        Some(Finding { section: section.to_owned(), key: "user", severity: Severity::Warning, what })
    };
    unnamed.into_iter().filter_map(of).collect()
}

fn doubt(path: &Path) -> Option<(Severity, String)> {
    let shown = path.display();
    match fs::File::open(path).and_then(|file| file.metadata()) {
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            Some((Severity::Warning, format!("this user cannot read {shown}: {error}")))
        }
        Err(error) => {
            Some((Severity::Error, format!("cannot read {shown}, so the login fails and mail waits: {error}")))
        }
        Ok(data) if data.is_file() && data.mode() & OTHERS_READ != 0 => {
            let mode = data.mode() & 0o777;
            Some((
                Severity::Warning,
                format!("every user can read the secret in {shown} (mode {mode:03o}): run `chmod o= {shown}`"),
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
    fn users_whom_nobody_asks_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("stentor.toml");
        for (listen, is_named) in [
            ("smtp = \"127.0.0.1:25\"", true),
            ("submission = \"127.0.0.1:587\"", false),
            ("smtp = { address = \"127.0.0.1:25\", auth = \"offered\" }", false),
        ] {
            fs::write(&path, format!("[listen]\n{listen}\n[auth]\nusers = \"users\"\n")).unwrap();
            let (config, settings) = stentor_config::check_noting(&path).unwrap();
            let found = unasked(&config);
            assert_eq!(found.is_some(), is_named, "{listen}");
            assert!(found.is_none_or(|found| settings.position(&found.section, found.key).is_some()));
        }
    }

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
            let place = |one: &Finding| settings.position(&one.section, one.key).map(|at| (at.line, at.column));
            let places: Vec<_> = secrets.iter().map(place).collect();
            let all: Vec<String> =
                keys.chain(lines.iter().map(ToString::to_string)).chain(secrets.iter().map(shown)).collect();
            (all, places)
        };
        let (all, places) = found();
        assert_eq!(all.len(), 2, "{all:#?}");
        assert!(all[0].starts_with("auth users Error ") && all[0].contains("`stentor user add NAME`"), "{all:#?}");
        assert!(
            all[1].contains("Error ")
                && all[1].contains("cannot read ")
                && all[1].contains(
                    "secret, so the login \
            fails and mail waits"
                ),
            "{all:#?}"
        );
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

    #[test]
    fn files_of_grants_are_looked_at() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let text = "data_dir = \"data\"\n[smart_hosts.\"a.example:587\"]\nuser = \"u\"\n\
                    [smart_hosts.\"a.example:587\".oauth]\ntoken_url = \"https://x/\"\nclient_id = \"c\"\n\
                    client_secret_file = \"client\"\nrefresh_token_file = \"refresh\"\n";
        fs::write(at("stentor.toml"), text).unwrap();
        fs::create_dir(at("data")).unwrap();
        let (config, settings) = stentor_config::check_noting(&at("stentor.toml")).unwrap();
        let found = || {
            let shown = |one: Finding| {
                let place = settings.position(&one.section, one.key).map(|at| (at.line, at.column));
                format!("{place:?} {:?}: {}", one.severity, one.what)
            };
            secrets(&config, &settings).into_iter().map(shown).collect::<Vec<_>>()
        };
        let all = found();
        assert_eq!(all.len(), 2, "{all:#?}");
        assert!(
            all[0].starts_with("Some((7, 22)) Error: ") && all[0].contains("client, so the login fails"),
            "{all:#?}"
        );
        assert!(
            all[1].starts_with("Some((8, 22)) Error: ") && all[1].contains("refresh, so the login fails"),
            "{all:#?}"
        );
        for (name, mode) in [("client", 0o600), ("refresh", 0o644)] {
            fs::write(at(name), "x\n").unwrap();
            fs::set_permissions(at(name), fs::Permissions::from_mode(mode)).unwrap();
        }
        let all = found();
        assert!(all.len() == 1 && all[0].contains("every user can read the secret in"), "{all:#?}");
        fs::set_permissions(at("refresh"), fs::Permissions::from_mode(0o600)).unwrap();
        assert_eq!(found(), Vec::<String>::new());
        for (text, wanted) in
            [("\nx\n", "Error: "), ("{\"refresh_token\": \"x\"}\n", "Warning: "), ("x y\n", "Warning: ")]
        {
            fs::write(at("refresh"), text).unwrap();
            let all = found();
            assert!(all.len() == 1 && all[0].contains(&format!("{wanted}the first line of ")), "{text}: {all:#?}");
        }
        fs::write(at("refresh"), "x\n").unwrap();
        // The server runs as another user, who may not read and write there.
        if std::os::unix::fs::chown(at("data"), Some(4_242), Some(4_242)).is_ok() {
            let all = found();
            assert!(
                all.len() == 2 && all.iter().all(|one| one.contains("the owner of ") && one.contains(" cannot read ")),
                "{all:#?}"
            );
            for name in ["client", "refresh"] {
                std::os::unix::fs::chown(at(name), Some(4_242), Some(4_242)).unwrap();
            }
            let all = found();
            assert!(
                all.len() == 1 && all[0].contains(" cannot replace ") && all[0].contains("refresh, so a refresh token"),
                "{all:#?}"
            );
            std::os::unix::fs::chown(folder.path(), Some(4_242), Some(4_242)).unwrap();
            assert_eq!(found(), Vec::<String>::new());
        }
    }

    #[test]
    fn logins_that_never_come_about_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("stentor.toml");
        let host = |name: &str, command: &str| {
            format!("[smart_hosts.\"{name}\"]\nuser = \"u\"\nsecret_command = [\"{command}\"]\n")
        };
        let text = [
            "[auth]\ndovecot = \"nowhere/auth\"\n[routes]\n\"*\" = [\"a.example:587\"]\n\"x.example\" = [\"hop:inner\"]\n\
             [hops]\ninner = [\"b.example:587\"]\n",
            &host("a.example:587", "/bin/true"),
            &host("b.example:587", "/nowhere/secret"),
            &host("c.example:587", "/etc/passwd"),
        ];
        fs::write(&file, text.concat()).unwrap();
        let (config, settings) = stentor_config::check_noting(&file).unwrap();
        let all = |found: Vec<Finding>| -> Vec<String> {
            found.into_iter().map(|one| format!("{}: {}", one.section, one.what)).collect()
        };
        let found = all(unnamed(&config, &settings, &[]));
        let never = "c.example:587: no route, hop or table names c.example:587; this login is never used";
        assert!(found.len() == 1 && found[0].ends_with(never), "{found:#?}");
        let found = all(secrets(&config, &settings));
        assert_eq!(found.len(), 2, "{found:#?}");
        assert!(found[0].contains("/nowhere/secret: No such file") && found[0].contains("mail waits"), "{found:#?}");
        assert!(found[1].contains("/etc/passwd is not an executable program"), "{found:#?}");
        let dovecot = dovecot(&config).unwrap().what;
        assert!(
            dovecot.starts_with("Dovecot (") && dovecot.contains("nowhere/auth) does not accept connections: "),
            "{dovecot}"
        );
        assert!(dovecot.ends_with("; until it does, nobody can log in"), "{dovecot}");
        let _taken = std::os::unix::net::UnixListener::bind(folder.path().join("auth")).unwrap();
        fs::write(&file, "[auth]\ndovecot = \"auth\"\n").unwrap();
        let (config, _) = stentor_config::check_noting(&file).unwrap();
        assert!(super::dovecot(&config).is_none());
    }
}
