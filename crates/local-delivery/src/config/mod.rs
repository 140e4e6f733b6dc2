//! The configuration: the services, their destinations, and the users that they run as.
//!
//! Promise: a configuration that anyone except root can write is refused ([`crate::guarded`]), as is one with an
//! unknown key, user or placeholder. A program only runs as root if its service has `allow_root` and nobody else can
//! write to the program.

mod raw;

pub use raw::{allowed, executable};

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;

use crate::account::PasswdEntry;
use crate::guarded::{self, GuardError};
use crate::template::Template;

/// Default path of the configuration.
pub const CONFIG: &str = "/etc/stentor/deliver.toml";
/// Default directory of the sockets.
const SOCKETS: &str = "/run/stentor-deliver";

/// The checked configuration.
#[derive(Debug)]
pub struct Config {
    pub sockets: PathBuf,
    /// User that may connect, besides root.
    pub client: PasswdEntry,
    pub hostname: String,
    pub message_size_bytes_max: u64,
    pub services: BTreeMap<String, DeliveryService>,
}

/// One kind of delivery, with its own socket.
#[derive(Debug)]
pub struct DeliveryService {
    pub connections_max: u16,
    /// Separator of user and extension in a local part.
    pub delimiter: Option<char>,
    pub runs_as: DeliveryAccount,
    pub agent: Agent,
}

/// Account whose rights a delivery has.
#[derive(Debug)]
pub enum DeliveryAccount {
    /// The recipient, who must be a user of the system.
    Recipient,
    Account(PasswdEntry),
}

/// Kind of delivery.
#[derive(Debug)]
pub enum Agent {
    Maildir { path: Template, create: bool },
    Mbox { path: Template, locks: Vec<Lock>, lock_timeout: Duration },
    Program(Program),
    Aliases(AliasSettings),
}

/// Settings for the programs and files in alias files.
#[derive(Debug)]
pub struct AliasSettings {
    /// Alias files, in lookup order.
    pub files: Vec<PathBuf>,
    /// Account for targets in root's files.
    pub account: PasswdEntry,
    /// User of the client, whose files are not used.
    pub client: u32,
    /// Folder of allowed programs.
    pub programs: Option<PathBuf>,
    pub shell: bool,
    /// Settings shared by all programs, without arguments.
    pub program: Program,
    pub locks: Vec<Lock>,
    pub lock_timeout: Duration,
}

/// Method of locking a mailbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Lock {
    Fcntl,
    Flock,
    Dotlock,
}

/// A command and its permissions.
#[derive(Debug, Clone)]
pub struct Program {
    /// Arguments, of which the first is the program's path.
    pub arguments: Vec<Template>,
    pub directory: Option<PathBuf>,
    pub environment: BTreeMap<String, String>,
    pub timeout: Duration,
    pub output_bytes_max: usize,
    pub defer_exit_codes: Vec<i32>,
    pub from_line: bool,
    pub allow_root: bool,
    pub background: Background,
}

/// Treatment of processes that a program leaves running.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Background {
    Kill,
    /// They are part of the delivery.
    Wait,
}

/// Why a configuration is refused.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error(transparent)]
    Unguarded(#[from] GuardError),
    #[error("{}: {error}", path.display())]
    Read { path: PathBuf, error: io::Error },
    #[error("{}: {error}", path.display())]
    Syntax { path: PathBuf, error: Box<toml::de::Error> },
    #[error("{}: {what}", path.display())]
    Wrong { path: PathBuf, what: String },
}

impl Config {
    /// Reads and checks the file; also returns its text, for workers.
    pub fn read(path: &Path) -> Result<(Config, String), ConfigError> {
        let real = guarded::check(path)?;
        let text = fs::read_to_string(&real).map_err(|error| ConfigError::Read { path: path.into(), error })?;
        Ok((Config::parse(path, &text)?, text))
    }

    /// Checks the text of the file at `path`.
    pub fn parse(path: &Path, text: &str) -> Result<Config, ConfigError> {
        let raw: raw::RawConfig =
            toml::from_str(text).map_err(|error| ConfigError::Syntax { path: path.into(), error: Box::new(error) })?;
        Config::check(raw).map_err(|what| ConfigError::Wrong { path: path.into(), what })
    }

    fn check(raw: raw::RawConfig) -> Result<Config, String> {
        let client = raw::account("client", raw.client.as_deref().unwrap_or("stentor"))?;
        let programs = raw.programs.map(|folder| guarded::check(&folder)).transpose();
        let programs = programs.map_err(|error| format!("programs: {error}"))?;
        let mut services = BTreeMap::new();
        for (name, service) in raw.services {
            let service =
                service.check(programs.as_deref(), client.uid).map_err(|what| format!("service {name}: {what}"))?;
            if !raw::is_name(&name) {
                return Err(format!("service {name:?}: use a name of up to 32 of a-z, 0-9, - and _"));
            }
            services.insert(name, service);
        }
        if services.is_empty() {
            return Err("no services; add a table such as [services.local]".to_owned());
        }
        let uname = rustix::system::uname();
        let hostname = raw.hostname.unwrap_or_else(|| uname.nodename().to_string_lossy().into_owned());
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
        if hostname.is_empty() || !hostname.bytes().all(plain) {
            return Err(format!("hostname: {hostname:?} is not a valid host name"));
        }
        Ok(Config {
            sockets: raw.sockets.unwrap_or_else(|| SOCKETS.into()),
            client,
            hostname,
            message_size_bytes_max: raw.message_size_bytes_max.unwrap_or(50 << 20),
            services,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn read(text: &str) -> Result<Config, String> {
        let text = format!("client = \"root\"\nhostname = \"mx.test\"\n{text}");
        let raw = toml::from_str(&text).map_err(|error: toml::de::Error| error.message().to_owned())?;
        Config::check(raw)
    }

    fn refused(text: &str) -> String {
        read(text).map(|config| format!("{config:?}")).expect_err("refused")
    }

    #[test]
    fn a_service_of_each_kind() {
        let config = read(
            "[services.local]\nkind = \"maildir\"\npath = \"~/Maildir\"\n[services.spool]\nkind = \"mbox\"\n\
             path = \"/var/mail/${user}\"\nlocks = [\"dotlock\"]\ndelimiter = \"\"\n[services.tickets]\nkind = \"program\"\n\
             user = \"nobody\"\ncommand = [\"/bin/true\", \"${sender}\"]\ndefer_exit_codes = [1]\n",
        );
        let config = config.unwrap();
        let local = &config.services["local"];
        assert!(
            matches!(local.agent, Agent::Maildir { create: true, .. })
                && matches!(local.runs_as, DeliveryAccount::Recipient)
        );
        assert_eq!((local.delimiter, local.connections_max), (Some('+'), 20));
        let spool = &config.services["spool"];
        assert!(matches!(&spool.agent, Agent::Mbox { locks, .. } if *locks == [Lock::Dotlock]));
        assert_eq!(spool.delimiter, None);
        let Agent::Program(program) = &config.services["tickets"].agent else { panic!("a program") };
        assert_eq!((program.arguments.len(), program.timeout), (2, Duration::from_mins(5)));
    }

    #[test]
    fn a_service_of_alias_files() {
        let config = read("[services.aliases]\nkind = \"aliases\"\n").unwrap();
        let Agent::Aliases(aliases) = &config.services["aliases"].agent else { panic!("aliases") };
        assert_eq!(aliases.files, [Path::new("/etc/aliases")]);
        assert_eq!((&*aliases.account.name, aliases.shell, aliases.program.from_line), ("nobody", false, true));
        let wrong = |rest: &str| refused(&format!("[services.aliases]\nkind = \"aliases\"\n{rest}"));
        assert!(wrong("user = \"root\"").contains("would run as root"));
        assert!(
            wrong("files = []").contains("`files`") && wrong("files = [\"aliases\"]").contains("not an absolute path")
        );
        assert!(wrong("command = [\"/bin/true\"]").contains("command"));
        let limited = "programs = \"/usr/bin\"\n[services.aliases]\nkind = \"aliases\"\nshell = true\n";
        assert!(refused(limited).contains("`shell`"));
    }

    #[test]
    fn what_is_wrong_is_named() {
        let program = |rest: &str| refused(&format!("[services.x]\nkind = \"program\"\n{rest}"));
        assert!(refused("").contains("no service"));
        assert!(refused("[services.x]\nkind = \"maildir\"\npath = \"~/M\"\nmode = 1\n").contains("mode"));
        assert!(refused("[services.\"a/b\"]\nkind = \"maildir\"\npath = \"~/M\"\n").contains("use a name"));
        assert!(refused("[services.x]\nkind = \"mbox\"\npath = \"mail\"\n").contains("must begin with"));
        assert!(
            refused("[services.x]\nkind = \"mbox\"\npath = \"/var/mail/all\"\n").contains("the same for all users")
        );
        assert!(refused("[services.x]\nkind = \"mbox\"\npath = \"~/m\"\nlocks = []\n").contains("`locks`"));
        assert!(refused("[services.x]\nkind = \"mbox\"\npath = \"~/m.lock\"\n").contains("name of a lock"));
        assert!(program("user = \"no-such-user\"\ncommand = [\"/bin/true\"]").contains("no-such-user does not exist"));
        assert!(program("user = \"root\"\ncommand = [\"/bin/true\"]").contains("would run as root"));
        assert!(program("command = \"/bin/true\"").contains("must be an array"));
        assert!(program("command = [\"/bin/true\"]\nshell = true").contains("must be a string"));
        assert!(program("command = \"echo ${sender}\"\nshell = true").contains("cannot contain placeholders"));
        assert!(read("[services.x]\nkind = \"program\"\ncommand = \"echo ${HOME} ${x:-\"\nshell = true").is_ok());
        assert!(program("command = [\"/bin/${user}\"]").contains("cannot contain placeholders"));
        assert!(program("command = [\"true\"]").contains("absolute"));
        assert!(program("command = [\"/no/such\"]").contains("/no/such"));
        assert!(program("command = [\"/bin/true\", \"${size}\"]").contains("`${size}` is unknown"));
        assert!(program("command = [\"/bin/true\"]\ntimeout_s = 1000").contains("`timeout_s`"));
    }

    #[test]
    fn programs_of_the_folder_alone() {
        let folder = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink("/bin/true", folder.path().join("vacation")).unwrap();
        let service = |command: &str| {
            let folder = folder.path().display();
            read(&format!("programs = \"{folder}\"\n[services.x]\nkind = \"program\"\n{command}"))
        };
        let config = service("command = [\"/usr/bin/vacation\", \"${user}\"]").unwrap();
        let Agent::Program(program) = &config.services["x"].agent else { panic!("a program") };
        let folder = folder.path().canonicalize().unwrap();
        assert_eq!(program.arguments[0].fixed().as_deref(), folder.join("vacation").to_str());
        for bad in ["[\"/bin/sh\"]", "[\"..\"]", "[\"/usr/bin/\"]", "[\"\"]"] {
            assert!(service(&format!("command = {bad}")).is_err(), "{bad}");
        }
        assert!(service("command = \"vacation\"\nshell = true").is_err());
    }

    #[test]
    fn a_file_that_others_may_write_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("deliver.toml");
        fs::write(&file, "client = \"root\"\n[services.local]\nkind = \"maildir\"\npath = \"~/M\"\n").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
        assert!(Config::read(&file).is_ok());
        fs::set_permissions(&file, fs::Permissions::from_mode(0o664)).unwrap();
        assert!(matches!(Config::read(&file), Err(ConfigError::Unguarded(_))));
    }
}
