//! AUTH at a smart host: the secret from where the configuration says, and the strongest mechanism that both sides have.
//!
//! Promise: a password or token goes to a host that has proven who it is, or to any if the operator allows that; mechanisms
//! that do not show it may be used elsewhere. Secrets are read for each login, kept no longer, and are in no error.
//!
//! Limits: [`SECRET_BYTES_MAX`] of a secret, [`COMMAND_MS_MAX`] for the command that prints one. SCRAM takes its time on a thread
//! of its own.

use std::io::Read as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use base64ct::{Base64, Encoding as _};
use stentor_config::{SecretSource, SmartHost};
use stentor_mail::client::Mechanisms;
use stentor_sasl::{Account, Bindings, Client, Have, Secret, choose};
use stentor_tls::Secured;

/// As long as a token may be, and its line end.
const SECRET_BYTES_MAX: u64 = 8 * 1024 + 2;
/// How long a command may take to print a secret; it may have to ask for a new token.
const COMMAND_MS_MAX: u64 = 30_000;
const COMMAND_LOOK: Duration = Duration::from_millis(20);
/// Octets of chance in SCRAM's nonce.
const NONCE_BYTES: usize = 18;

/// The mechanism, and its initial response if it has one; or why there is none.
pub(super) async fn begin(
    host: &SmartHost,
    offered: Mechanisms,
    secured: Option<&Secured>,
    is_proven: bool,
) -> Result<(Box<Client>, Option<Vec<u8>>), String> {
    let bindings = secured.map_or_else(Bindings::default, |secured| Bindings {
        exporter: secured.exporter(),
        end_point: secured.server_end_point().map(Into::into),
    });
    let allowed = if host.mechanisms.is_empty() {
        stentor_sasl::Mechanisms::all()
    } else {
        stentor_sasl::Mechanisms::parse(&host.mechanisms.join(" "))
    };
    let have =
        Have { is_token: host.is_token, allowed, is_protected: is_proven || host.allow_unproven, bindings: &bindings };
    let choice = choose(stentor_sasl::Mechanisms::parse(&offered.to_string()), &have)
        .map_err(|error| format!("{error} (offered: {offered})"))?;
    let source = host.secret.clone();
    let secret = tokio::task::spawn_blocking(move || secret(&source)).await;
    let secret = secret.map_err(|_| "the secret was not read".to_owned())??;
    let account = Account { user: host.user.clone(), secret, host: host.host.clone(), port: host.port };
    let mut nonce = [0; NONCE_BYTES];
    getrandom::fill(&mut nonce).map_err(|error| format!("no random numbers: {error}"))?;
    let client = Client::new(&choice, account, &Base64::encode_string(&nonce)).map_err(|error| error.to_string())?;
    let initial = client.initial();
    Ok((Box::new(client), initial))
}

/// The response to a challenge.
pub(super) async fn respond(
    mut client: Box<Client>,
    octets: Vec<u8>,
) -> (Option<Box<Client>>, Result<Vec<u8>, String>) {
    let responded = tokio::task::spawn_blocking(move || {
        let response = client.respond(&octets).map_err(|error| error.to_string());
        (client, response)
    });
    match responded.await {
        Ok((client, response)) => (Some(client), response),
        Err(_) => (None, Err("the challenge was not answered".to_owned())),
    }
}

/// The first line of what the source has. Blocks.
fn secret(source: &SecretSource) -> Result<Secret, String> {
    let octets = match source {
        SecretSource::File(path) => of_file(path)?,
        SecretSource::Command(words) => of_command(words)?,
    };
    let line = octets.split(|&b| b == b'\n' || b == b'\r').next().unwrap_or_default();
    if line.is_empty() {
        return Err("the secret is empty".to_owned());
    }
    Secret::from_utf8(line).ok_or_else(|| "the secret is not UTF-8".to_owned())
}

fn of_file(path: &Path) -> Result<Vec<u8>, String> {
    let failed = |error| format!("{} cannot be read: {error}", path.display());
    let file = std::fs::File::open(path).map_err(failed)?;
    let mut octets = Vec::new();
    file.take(SECRET_BYTES_MAX).read_to_end(&mut octets).map_err(failed)?;
    Ok(octets)
}

fn of_command(words: &[String]) -> Result<Vec<u8>, String> {
    let [program, arguments @ ..] = words else { return Err("there is no command".to_owned()) };
    let failed = |what: &dyn std::fmt::Display| format!("{program}: {what}");
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|error| failed(&error))?;
    let until = Instant::now() + Duration::from_millis(COMMAND_MS_MAX);
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status,
            Ok(None) if Instant::now() < until => std::thread::sleep(COMMAND_LOOK),
            ended => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(ended.err().map_or_else(|| failed(&"no answer in time"), |error| failed(&error)));
            }
        }
    };
    let mut octets = Vec::new();
    if let Some(stdout) = child.stdout.take() {
        stdout.take(SECRET_BYTES_MAX).read_to_end(&mut octets).map_err(|error| failed(&error))?;
    }
    if status.success() { Ok(octets) } else { Err(failed(&status)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command(words: &[&str]) -> SecretSource {
        SecretSource::Command(words.iter().map(|word| (*word).to_owned()).collect())
    }

    fn read(source: &SecretSource) -> Result<String, String> {
        secret(source).map(|secret| secret.expose().to_owned())
    }

    #[test]
    fn a_secret_is_the_first_line_of_its_source() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("secret");
        for (text, expected) in [("s3cret\n", "s3cret"), ("s3cret", "s3cret"), ("s3 cret\r\nnot this\n", "s3 cret")] {
            std::fs::write(&file, text).unwrap();
            assert_eq!(read(&SecretSource::File(file.clone())).as_deref(), Ok(expected));
        }
        std::fs::write(&file, "\ns3cret").unwrap();
        assert_eq!(read(&SecretSource::File(file.clone())), Err("the secret is empty".to_owned()));
        std::fs::remove_file(&file).unwrap();
        assert!(read(&SecretSource::File(file)).unwrap_err().contains("cannot be read: No such file"));
        assert_eq!(read(&command(&["/bin/echo", "tok en"])).as_deref(), Ok("tok en"));
        assert!(read(&command(&["/bin/false"])).unwrap_err().contains("/bin/false: exit status: 1"));
        assert!(read(&command(&["/nonexistent"])).is_err());
    }

    #[tokio::test]
    async fn a_password_goes_to_nobody_who_is_not_proven() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("secret");
        std::fs::write(&file, "s3cret\n").unwrap();
        let host = SmartHost {
            host: "relay.example".to_owned(),
            port: 587,
            user: "ann".to_owned(),
            secret: SecretSource::File(file),
            is_token: false,
            mechanisms: Vec::new(),
            allow_unproven: false,
        };
        let offered = Mechanisms::of("PLAIN").and(Mechanisms::of("LOGIN"));
        let error = begin(&host, offered, None, false).await.unwrap_err();
        assert!(error.contains("not protected") && error.contains("PLAIN LOGIN"), "{error}");
        let (client, initial) = begin(&host, offered, None, true).await.unwrap();
        assert_eq!((client.mechanism().name(), initial.as_deref()), ("PLAIN", Some(&b"\0ann\0s3cret"[..])));
        let scram = offered.and(Mechanisms::of("SCRAM-SHA-256"));
        let (client, initial) = begin(&host, scram, None, false).await.unwrap();
        assert_eq!(client.mechanism().name(), "SCRAM-SHA-256");
        assert!(!String::from_utf8(initial.unwrap()).unwrap().contains("s3cret"));
        let allowed = SmartHost { allow_unproven: true, mechanisms: vec!["LOGIN".to_owned()], ..host };
        let (client, initial) = begin(&allowed, scram, None, false).await.unwrap();
        assert_eq!((client.mechanism().name(), initial), ("LOGIN", None));
    }
}
