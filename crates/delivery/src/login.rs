//! AUTH at a smart host: reads the secret from its configured source, and uses the strongest mechanism that both sides
//! support.
//!
//! Promise: a password, a token, or data from which a password can be guessed (CRAM-MD5, SCRAM) is only sent to a host
//! with proven identity, or to any host if the operator permits it (`unproven_allowed`). Secrets are read for each
//! login ([`super::secret`]), kept no longer, and never in an error. Access tokens that Stentor requests itself are
//! kept until they expire ([`stentor_oauth`]). Neither is read or requested before the host may receive it. An error
//! begins with its section of the configuration.
//!
//! SCRAM runs on a thread of its own, since it takes time.

use std::sync::Arc;

use base64ct::{Base64, Encoding as _};
use stentor_core::security::bindings;
use stentor_core::sts::LookupServices;
use stentor_oauth::{Credential, SmartHost};
use stentor_oauth::{RequestContext, Steady, Tokens};
use stentor_sasl::{ClientCapabilities, ClientCredentials, ClientExchange, NoMechanism, choose};
use stentor_smtp::client::OfferedMechanisms;
use stentor_tls::SecuredSession;

use super::secret;

/// Random octets in SCRAM's nonce.
const NONCE_BYTES: usize = 18;

/// Cached tokens, and what token requests need.
#[derive(Clone, Copy)]
pub(super) struct TokenAccess<'t> {
    pub tokens: &'t Tokens,
    pub services: LookupServices<'t>,
}

/// A login that may be sent.
#[derive(Debug)]
pub(super) struct LoginStart {
    pub client: Box<ClientExchange>,
    /// The initial response, if the mechanism has one.
    pub initial: Option<Vec<u8>>,
    /// Generation of the access token, if Stentor requested it.
    pub token: Option<u64>,
}

/// Chooses the mechanism and reads the secret. `unproven`: why the host's identity is not proven, if it is not.
pub(super) async fn begin(
    host: &SmartHost,
    access: TokenAccess<'_>,
    offered: OfferedMechanisms,
    secured: Option<&SecuredSession>,
    unproven: Option<&str>,
) -> Result<LoginStart, String> {
    let begun = begun(host, access, offered, secured, unproven).await;
    begun.map_err(|why| format!("[smart_hosts.\"{}:{}\"]: {why}", host.host, host.port))
}

async fn begun(
    host: &SmartHost,
    access: TokenAccess<'_>,
    offered: OfferedMechanisms,
    secured: Option<&SecuredSession>,
    unproven: Option<&str>,
) -> Result<LoginStart, String> {
    let bindings = bindings(secured);
    let is_protected = unproven.is_none() || host.unproven_allowed;
    let capabilities =
        ClientCapabilities { is_token: host.is_token, allowed: host.mechanisms, is_protected, bindings: &bindings };
    let choice =
        choose(stentor_sasl::Mechanisms::parse(&offered.to_string()), &capabilities).map_err(
            |error| match unproven {
                Some(why) if error == NoMechanism::Unprotected => would_show(host, why, offered),
                _ => format!("{error} (offered: {offered})"),
            },
        )?;
    let (secret, token) = match &host.credential {
        Credential::Oauth(grant) => {
            let LookupServices { resolver, settings, clock } = access.services;
            let clock = clock.clone();
            let steady: &Steady = &(Arc::new(move || clock.steady()) as Steady);
            let (roots, smart_hosts) = (&settings.roots(), &settings.config.protection.smart_hosts);
            let context = RequestContext { resolver, roots, smart_hosts, steady };
            let token = access.tokens.token(context, host, grant).await?;
            (token.secret, Some(token.generation))
        }
        Credential::Secret(source) => {
            let source = source.clone();
            let secret = tokio::task::spawn_blocking(move || secret::read(&source)).await;
            (secret.map_err(|_| "the secret could not be read".to_owned())??, None)
        }
    };
    let account = ClientCredentials { user: host.user.clone(), secret, host: host.host.clone(), port: host.port };
    let mut nonce = [0; NONCE_BYTES];
    getrandom::fill(&mut nonce).map_err(|error| format!("no random numbers: {error}"))?;
    let client =
        ClientExchange::new(&choice, account, &Base64::encode_string(&nonce)).map_err(|error| error.to_string())?;
    let initial = client.initial();
    Ok(LoginStart { client: Box::new(client), initial, token })
}

/// Explains why there is no login where the secret would reach an unproven host, and what helps.
fn would_show(host: &SmartHost, why: &str, offered: OfferedMechanisms) -> String {
    let (name, secret) = (&host.host, if host.is_token { "token" } else { "password" });
    format!(
        "no login: the host {name} is not proven ({why}), and its mechanisms ({offered}) would expose the {secret} to \
         it; trust its CA with [delivery] tls_ca_file, or set unproven_allowed = true"
    )
}

/// Returns the response to a challenge.
pub(super) async fn respond(
    mut client: Box<ClientExchange>,
    octets: Vec<u8>,
) -> (Option<Box<ClientExchange>>, Result<Vec<u8>, String>) {
    let responded = tokio::task::spawn_blocking(move || {
        let response = client.respond(&octets).map_err(|error| error.to_string());
        (client, response)
    });
    match responded.await {
        Ok((client, response)) => (Some(client), response),
        Err(_) => (None, Err("the challenge could not be answered".to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use stentor_oauth::SecretSource;
    use stentor_resolve::Resolver;

    use super::*;
    use stentor_core::Settings;
    use stentor_core::clock::Clock;

    #[test]
    fn what_is_spoken_here_is_seen_in_offers() {
        for mechanism in stentor_sasl::Mechanisms::all().iter() {
            assert_eq!(OfferedMechanisms::of(mechanism.name()).to_string(), mechanism.name());
        }
    }

    #[tokio::test]
    async fn a_password_goes_to_nobody_who_is_not_proven() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("secret");
        let (tokens, clock) = (Tokens::default(), Clock::start());
        let settings = Settings::new(stentor_config::without_file().unwrap(), None);
        let resolver = Resolver::new(settings.resolver(&[])).unwrap();
        let access = TokenAccess {
            tokens: &tokens,
            services: LookupServices { resolver: &resolver, settings: &settings, clock: &clock },
        };
        std::fs::write(&file, "s3cret\n").unwrap();
        let host = SmartHost {
            host: "relay.example".to_owned(),
            port: 587,
            user: "ann".to_owned(),
            credential: Credential::Secret(SecretSource::File(file)),
            is_token: false,
            mechanisms: stentor_sasl::Mechanisms::all(),
            unproven_allowed: false,
        };
        let offered = OfferedMechanisms::of("PLAIN").and(OfferedMechanisms::of("LOGIN"));
        let error = begin(&host, access, offered, None, Some("self-signed")).await.unwrap_err();
        assert!(error.starts_with("[smart_hosts.\"relay.example:587\"]: "), "{error}");
        assert!(error.contains("]: no login: the host relay.example is not proven (self-signed)"), "{error}");
        assert!(
            error.contains("(PLAIN LOGIN) would expose the password") && error.contains("unproven_allowed"),
            "{error}"
        );
        // A digest of a challenge chosen by the host can be broken, given time.
        let error =
            begin(&host, access, OfferedMechanisms::of("CRAM-MD5"), None, Some("self-signed")).await.unwrap_err();
        assert!(error.contains("(CRAM-MD5) would expose the password"), "{error}");
        let token = SmartHost { is_token: true, ..host.clone() };
        let error = begin(&token, access, offered, None, Some("self-signed")).await.unwrap_err();
        assert!(error.contains("for a token") && error.contains("(offered: PLAIN LOGIN)"), "{error}");
        let LoginStart { client, initial, .. } = begin(&host, access, offered, None, None).await.unwrap();
        assert_eq!((client.mechanism().name(), initial.as_deref()), ("PLAIN", Some(&b"\0ann\0s3cret"[..])));
        let scram = offered.and(OfferedMechanisms::of("SCRAM-SHA-256"));
        let LoginStart { client, initial, .. } = begin(&host, access, scram, None, None).await.unwrap();
        assert_eq!(client.mechanism().name(), "SCRAM-SHA-256");
        assert!(!String::from_utf8(initial.unwrap()).unwrap().contains("s3cret"));
        // The host chooses the number of rounds, so that guessing from a proof can be cheap.
        for why in ["self-signed", "in clear"] {
            let only = OfferedMechanisms::of("SCRAM-SHA-256");
            let error = begin(&host, access, only, None, Some(why)).await.unwrap_err();
            assert!(error.contains("(SCRAM-SHA-256) would expose the password"), "{error}");
        }
        let allowed = SmartHost { unproven_allowed: true, ..host.clone() };
        let LoginStart { client, .. } = begin(&allowed, access, scram, None, Some("in clear")).await.unwrap();
        assert_eq!(client.mechanism().name(), "SCRAM-SHA-256");
        let allowed =
            SmartHost { unproven_allowed: true, mechanisms: stentor_sasl::Mechanisms::parse("LOGIN"), ..host };
        let LoginStart { client, initial, .. } =
            begin(&allowed, access, scram, None, Some("self-signed")).await.unwrap();
        assert_eq!((client.mechanism().name(), initial), ("LOGIN", None));
    }
}
