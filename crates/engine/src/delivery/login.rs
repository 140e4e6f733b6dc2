//! AUTH at a smart host: the secret from where the configuration says, and the strongest mechanism that both sides have.
//!
//! Promise: a password or token goes to a host that has proven who it is, or to any if the operator allows that; mechanisms
//! that do not show it may be used elsewhere. Secrets are read for each login ([`super::secret`]), kept no longer, and are in no
//! error. An error begins with the section of the configuration that it is about.
//!
//! SCRAM takes its time on a thread of its own.

use base64ct::{Base64, Encoding as _};
use stentor_config::SmartHost;
use stentor_mail::client::Mechanisms;
use stentor_sasl::{Account, Bindings, Client, Have, NoMechanism, choose};
use stentor_tls::Secured;

use super::secret;

/// Octets of chance in SCRAM's nonce.
const NONCE_BYTES: usize = 18;

/// The mechanism, and its initial response if it has one; or why there is none. `unproven`: why the host has not proven who it is, if it
/// has not.
pub(super) async fn begin(
    host: &SmartHost,
    offered: Mechanisms,
    secured: Option<&Secured>,
    unproven: Option<&str>,
) -> Result<(Box<Client>, Option<Vec<u8>>), String> {
    let begun = begun(host, offered, secured, unproven).await;
    begun.map_err(|why| format!("[smart_hosts.\"{}:{}\"]: {why}", host.host, host.port))
}

async fn begun(
    host: &SmartHost,
    offered: Mechanisms,
    secured: Option<&Secured>,
    unproven: Option<&str>,
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
    let is_protected = unproven.is_none() || host.allow_unproven;
    let have = Have { is_token: host.is_token, allowed, is_protected, bindings: &bindings };
    let choice =
        choose(stentor_sasl::Mechanisms::parse(&offered.to_string()), &have).map_err(|error| match unproven {
            Some(why) if error == NoMechanism::Unprotected => would_show(host, why, offered),
            _ => format!("{error} (offered: {offered})"),
        })?;
    let source = host.secret.clone();
    let secret = tokio::task::spawn_blocking(move || secret::read(&source)).await;
    let secret = secret.map_err(|_| "the secret was not read".to_owned())??;
    let account = Account { user: host.user.clone(), secret, host: host.host.clone(), port: host.port };
    let mut nonce = [0; NONCE_BYTES];
    getrandom::fill(&mut nonce).map_err(|error| format!("no random numbers: {error}"))?;
    let client = Client::new(&choice, account, &Base64::encode_string(&nonce)).map_err(|error| error.to_string())?;
    let initial = client.initial();
    Ok((Box::new(client), initial))
}

/// Why there is no login where the secret would be shown to whoever it is, and what helps.
fn would_show(host: &SmartHost, why: &str, offered: Mechanisms) -> String {
    let (name, secret) = (&host.host, if host.is_token { "token" } else { "password" });
    format!(
        "no login: the host {name} is not proven ({why}), and what it offers ({offered}) would show it the {secret}; trust its CA by [delivery] \
         tls_ca_file, or set allow_unproven = true"
    )
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

#[cfg(test)]
mod tests {
    use stentor_config::SecretSource;

    use super::*;

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
        let error = begin(&host, offered, None, Some("self-signed")).await.unwrap_err();
        assert!(error.starts_with("[smart_hosts.\"relay.example:587\"]: "), "{error}");
        assert!(error.contains("]: no login: the host relay.example is not proven (self-signed)"), "{error}");
        assert!(
            error.contains("(PLAIN LOGIN) would show it the password") && error.contains("allow_unproven"),
            "{error}"
        );
        let token = SmartHost { is_token: true, ..host.clone() };
        let error = begin(&token, offered, None, Some("self-signed")).await.unwrap_err();
        assert!(error.contains("for a token") && error.contains("(offered: PLAIN LOGIN)"), "{error}");
        let (client, initial) = begin(&host, offered, None, None).await.unwrap();
        assert_eq!((client.mechanism().name(), initial.as_deref()), ("PLAIN", Some(&b"\0ann\0s3cret"[..])));
        let scram = offered.and(Mechanisms::of("SCRAM-SHA-256"));
        let (client, initial) = begin(&host, scram, None, Some("self-signed")).await.unwrap();
        assert_eq!(client.mechanism().name(), "SCRAM-SHA-256");
        assert!(!String::from_utf8(initial.unwrap()).unwrap().contains("s3cret"));
        let allowed = SmartHost { allow_unproven: true, mechanisms: vec!["LOGIN".to_owned()], ..host };
        let (client, initial) = begin(&allowed, scram, None, Some("self-signed")).await.unwrap();
        assert_eq!((client.mechanism().name(), initial), ("LOGIN", None));
    }
}
