//! `stentor dkim`: makes keys for signing mail. `show` and `rotate` are in `dkim_show`.
//!
//! `new` writes key files that only their owner can read and never replaces one. The records go to standard output, so
//! that a script can take them; the lines for the configuration go to standard error. If a file cannot be written,
//! those written before it are removed again. Exit codes: 0; 1 with the reason; 78 for errors in the configuration.

use std::fmt::Write as _;
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Subcommand};
use stentor_config::settings::quoted;
use stentor_dkim::{Algorithm, GeneratedKey, SigningKey, zone_text};
use stentor_mail::address::normalise_domain;

use crate::asking::{fail, usage};
use crate::dkim_show::{self, RotateArgs, ShowArgs};
use crate::output::{done, print};
use crate::process::keep_out_of_core_dumps;

const KEY_MODE: u32 = 0o600;

#[derive(Args)]
pub(crate) struct Options {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Make keys for a domain; print their DNS records and the lines for the configuration.
    New(NewArgs),
    /// Print the DNS records that the keys need now as zone text.
    Show(ShowArgs),
    /// Make new keys for a domain whose keys the server makes.
    Rotate(RotateArgs),
}

#[derive(Args)]
struct NewArgs {
    /// The domain of the senders' addresses, or of the lists'.
    domain: String,
    /// Selector of the key; with both keys, that of Ed25519 gets `-ed25519` appended.
    #[arg(long, value_name = "NAME", default_value = "s1")]
    selector: String,
    /// Existing directory for the key files [default: the current directory].
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Make only an RSA key, which all receivers can verify.
    #[arg(long, conflicts_with = "ed25519")]
    rsa: bool,
    /// Make only an Ed25519 key, which some receivers cannot verify yet.
    #[arg(long)]
    ed25519: bool,
}

/// Why no keys were made.
#[derive(Debug, thiserror::Error)]
enum NewKeyError {
    #[error("{0:?} is not a valid domain; write an international one as A-labels")]
    Domain(String),
    #[error("{0:?} is not a valid selector: use letters, digits, `-`, `_` and `.`")]
    Selector(String),
    #[error("directory {path}: {error}; create it, or name another with --dir")]
    Folder { path: String, error: io::Error },
    #[error(
        "{path} exists; choose another --selector: a published key must not be replaced while mail signed with it is on its way"
    )]
    Exists { path: String },
    #[error("{path}: {error}")]
    Write { path: String, error: io::Error },
    #[error(transparent)]
    Key(#[from] stentor_dkim::KeyError),
}

/// A key and its file.
struct NewKey {
    selector: String,
    path: PathBuf,
    key: SigningKey,
}

pub(crate) fn run(options: &Options) -> ExitCode {
    match &options.command {
        Command::New(args) => match new(args) {
            Ok(keys) => {
                let shown = print(&records(&args.domain.to_ascii_lowercase(), &keys));
                eprint!("For the configuration:\n{}", section(&args.domain.to_ascii_lowercase(), &keys));
                done(shown)
            }
            Err(error @ (NewKeyError::Domain(_) | NewKeyError::Selector(_))) => usage(&error.to_string()),
            Err(error) => fail(&error.to_string()),
        },
        Command::Show(args) => dkim_show::show(args),
        Command::Rotate(args) => dkim_show::rotate(args),
    }
}

fn new(args: &NewArgs) -> Result<Vec<NewKey>, NewKeyError> {
    keep_out_of_core_dumps();
    let domain = normalise_domain(&args.domain).ok().filter(|name| stentor_config::is_dns_name(name));
    let domain = domain.filter(|_| args.domain.is_ascii()).ok_or_else(|| NewKeyError::Domain(args.domain.clone()))?;
    if !stentor_config::is_dns_name(&args.selector) {
        return Err(NewKeyError::Selector(args.selector.clone()));
    }
    let given = args.dir.as_deref().unwrap_or(Path::new("."));
    let folder =
        fs::canonicalize(given).map_err(|error| NewKeyError::Folder { path: given.display().to_string(), error })?;
    let selector = args.selector.to_ascii_lowercase();
    let wanted = match (args.rsa, args.ed25519) {
        (true, _) => vec![(Algorithm::RsaSha256, selector)],
        (_, true) => vec![(Algorithm::Ed25519Sha256, selector)],
        _ => vec![(Algorithm::RsaSha256, selector.clone()), (Algorithm::Ed25519Sha256, format!("{selector}-ed25519"))],
    };
    let mut keys: Vec<NewKey> = Vec::new();
    for (algorithm, selector) in wanted {
        let path = folder.join(format!("{domain}.{selector}.pem"));
        let made = SigningKey::generate(algorithm).map_err(NewKeyError::Key).and_then(|GeneratedKey { key, pem }| {
            write(&path, pem.as_bytes())?;
            Ok(key)
        });
        match made {
            Ok(key) => keys.push(NewKey { selector, path, key }),
            Err(error) => {
                for NewKey { path, .. } in &keys {
                    let _ = fs::remove_file(path);
                }
                return Err(error);
            }
        }
    }
    Ok(keys)
}

/// Writes a file that only its owner can read, and its entry in the directory.
fn write(path: &Path, octets: &[u8]) -> Result<(), NewKeyError> {
    let shown = path.display().to_string();
    let mut file = match OpenOptions::new().write(true).create_new(true).mode(KEY_MODE).open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Err(NewKeyError::Exists { path: shown }),
        Err(error) => return Err(NewKeyError::Write { path: shown, error }),
    };
    let folder = path.parent().unwrap_or(Path::new("."));
    let written = file.write_all(octets).and_then(|()| file.sync_all());
    written.and_then(|()| fs::File::open(folder)?.sync_all()).map_err(|error| {
        let _ = fs::remove_file(path);
        NewKeyError::Write { path: shown, error }
    })
}

fn records(domain: &str, keys: &[NewKey]) -> String {
    keys.iter().map(|key| zone_text(&key.selector, domain, &key.key.record())).collect()
}

/// Lines for the configuration.
fn section(domain: &str, keys: &[NewKey]) -> String {
    let mut text = format!("[[dkim]]\ndomain = {}\n", quoted(domain));
    for (NewKey { selector, path, .. }, prefix) in keys.iter().zip(["", "second_"]) {
        let path = quoted(&path.display().to_string());
        let _ = writeln!(text, "{prefix}selector = {}\n{prefix}key = {path}", quoted(selector));
    }
    text
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn args(folder: &Path, selector: &str) -> NewArgs {
        let dir = Some(folder.to_owned());
        NewArgs { domain: "Example.org".to_owned(), selector: selector.to_owned(), dir, rsa: false, ed25519: false }
    }

    #[test]
    fn new_keys_are_private_and_their_section_is_valid() {
        let folder = tempfile::tempdir().unwrap();
        let keys = new(&args(folder.path(), "S1")).unwrap();
        for NewKey { path, .. } in &keys {
            assert_eq!(fs::metadata(path).unwrap().permissions().mode() & 0o777, KEY_MODE);
        }
        let config = stentor_config::check_text(Path::new("stentor.toml"), &section("example.org", &keys)).unwrap();
        let read = config.dkim_domains().unwrap();
        assert!(read.warnings.is_empty());
        let selectors: Vec<&str> = read.domains[0].signers.iter().map(|one| &*one.selector).collect();
        assert_eq!(selectors, ["s1", "s1-ed25519"]);
        let text = records("example.org", &keys);
        assert!(text.lines().all(|line| line.contains("._domainkey.example.org. IN TXT (")), "{text}");
        assert_eq!(text.lines().count(), 2);
    }

    #[test]
    fn no_file_is_replaced_and_none_is_left_behind() {
        let folder = tempfile::tempdir().unwrap();
        let in_the_way = folder.path().join("example.org.s1-ed25519.pem");
        fs::write(&in_the_way, "old").unwrap();
        assert!(matches!(new(&args(folder.path(), "s1")), Err(NewKeyError::Exists { .. })));
        assert_eq!(fs::read_to_string(&in_the_way).unwrap(), "old");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        assert!(matches!(new(&args(folder.path(), "a b")), Err(NewKeyError::Selector(_))));
        assert!(matches!(new(&args(&folder.path().join("none"), "s2")), Err(NewKeyError::Folder { .. })));
        let domain = NewArgs { domain: "[1.2.3.4]".to_owned(), ..args(folder.path(), "s1") };
        assert!(matches!(new(&domain), Err(NewKeyError::Domain(_))));
    }
}
