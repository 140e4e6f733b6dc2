//! Obtains one certificate: account, order, proof of each name, certificate (RFC 8555 section 7).
//!
//! Steps, and what is durable after each: account → `account-HASH.json`; order, with the key for it → `NAME.order`;
//! names proven; signing request sent → nothing new; certificate → `NAME.pem`, and only then `NAME.order` is removed.
//! If this is interrupted, the next attempt continues the order from its state at the CA. An order that the CA has
//! dropped or invalidated is started again.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use base64ct::{Base64, Base64UrlUnpadded, Encoding as _};
use instant_acme::{
    Account, AccountCredentials, AuthorizationStatus, CertificateIdentifier, ChallengeType, Error, ExternalAccountKey,
    Identifier, NewAccount, NewOrder, Order, OrderStatus, RetryPolicy,
};
use rcgen::{CertificateParams, DistinguishedName, KeyPair, PKCS_ECDSA_P256_SHA256, PublicKeyData as _};
use rustls::pki_types::PrivatePkcs8KeyDer;
use stentor_tls::{Identity, RenewalId, Roots, bundle_key};

use crate::answers::{ChallengeResponses, PublishedAnswer};
use crate::client::Http;
use crate::error::{AcmeError, problem_text};
use crate::record::{AccountFile, NextKey, OrderFile, Shelf, account_file, certificate_file, order_file};
use crate::{Challenge, Settings};

/// Pauses between checks of an order: 0.5 s, then longer, or as the CA says.
const POLL: RetryPolicy = RetryPolicy::new().initial_delay(Duration::from_millis(500)).timeout(Duration::from_secs(90));
/// Maximum octets of the file with an external account's key.
const EXTERNAL_KEY_BYTES_MAX: usize = 4_096;

/// The context of one attempt.
pub(crate) struct Try<'a> {
    pub shelf: &'a Arc<dyn Shelf>,
    pub answers: &'a Arc<ChallengeResponses>,
    pub settings: &'a Settings,
    pub names: &'a [String],
    pub http: Http,
}

/// Runs blocking work outside the threads that move mail.
pub(crate) async fn apart<T: Send + 'static>(
    shelf: &Arc<dyn Shelf>,
    work: impl FnOnce(&dyn Shelf) -> T + Send + 'static,
) -> Result<T, AcmeError> {
    let shelf = shelf.clone();
    let done = tokio::task::spawn_blocking(move || work(&*shelf)).await;
    done.map_err(|_| AcmeError::Settings("the server is stopping".to_owned()))
}

/// Creates the CA's HTTP client.
pub(crate) async fn http(shelf: &Arc<dyn Shelf>, settings: &Settings) -> Result<Http, AcmeError> {
    let ca_file = settings.ca_file.clone();
    let roots = apart(shelf, move |_| match ca_file {
        Some(file) => Roots::from_file(&file).map_err(|error| error.to_string()),
        None => Ok(Roots::of_system()),
    })
    .await?;
    let roots = roots.map_err(AcmeError::Settings)?;
    Http::new(&roots).map_err(|error| AcmeError::Settings(error.to_string()))
}

impl Try<'_> {
    /// Obtains a certificate and stores it.
    pub async fn obtain(&self) -> Result<Identity, AcmeError> {
        match self.obtain_once().await {
            // The CA lost the account: register again.
            Err(error) if error.is_kind("accountDoesNotExist") => {
                tracing::info!(directory = %self.settings.directory, "account unknown to the CA; registering again");
                let directory = self.settings.directory.clone();
                self.remove(account_file(&directory)).await?;
                self.remove(order_file(self.names)).await?;
                self.obtain_once().await
            }
            other => other,
        }
    }

    /// When the CA wants this certificate renewed, and the seconds until it should be asked again. `None`: it does not
    /// say.
    pub async fn window(&self, id: &RenewalId) -> Result<Option<((i64, i64), i64)>, AcmeError> {
        let account = self.account().await?;
        let id = CertificateIdentifier {
            authority_key_identifier: id.issuer_key.as_str().into(),
            serial: id.serial.as_str().into(),
        };
        match account.renewal_info(&id).await {
            Ok((info, wait)) => {
                let window = info.suggested_window;
                let window = (window.start.unix_timestamp(), window.end.unix_timestamp());
                Ok(Some((window, wait.as_secs().min(i64::MAX as u64).cast_signed())))
            }
            Err(Error::Unsupported(_)) => Ok(None),
            Err(error) => Err(AcmeError::of("renewal information", error)),
        }
    }

    async fn obtain_once(&self) -> Result<Identity, AcmeError> {
        let account = self.account().await?;
        let (mut order, key) = match self.begun(&account).await? {
            Some(begun) => begun,
            None => self.begin(&account).await?,
        };
        match self.finish(&mut order, &key).await {
            Ok(identity) => {
                self.remove(order_file(self.names)).await?;
                Ok(identity)
            }
            Err(error) => {
                // A new order is needed. If the CA cannot be reached, this order is continued later.
                if error.is_refusal() || matches!(error, AcmeError::Unproven { .. } | AcmeError::Certificate(_)) {
                    self.remove(order_file(self.names)).await?;
                }
                Err(error)
            }
        }
    }

    async fn account(&self) -> Result<Account, AcmeError> {
        let file = account_file(&self.settings.directory);
        let kept: Option<AccountFile> = self.read(file.clone()).await?;
        let builder = Account::builder_with_http(Box::new(self.http.clone()));
        let of_file = |kept: &AccountFile| serde_json::from_value::<AccountCredentials>(kept.credentials.clone()).ok();
        let Some((mut kept, credentials)) = kept.and_then(|kept| of_file(&kept).map(|one| (kept, one))) else {
            return self.register(builder, file).await;
        };
        let account = builder.from_credentials(credentials).await.map_err(|e| AcmeError::of("the directory", e))?;
        if kept.contact != self.settings.contact {
            let contact = contact(self.settings);
            match account.update_contacts(&contact.iter().map(String::as_str).collect::<Vec<_>>()).await {
                Ok(()) => {
                    kept.contact.clone_from(&self.settings.contact);
                    self.write(file, &kept).await?;
                }
                // Not a reason to have no certificate, unless the account is gone.
                Err(error) => {
                    let error = AcmeError::of("the contact", error);
                    if error.is_kind("accountDoesNotExist") {
                        return Err(error);
                    }
                    tracing::warn!(%error, "the CA rejected the new contact; keeping the previous one");
                }
            }
        }
        Ok(account)
    }

    async fn register(&self, builder: instant_acme::AccountBuilder, file: String) -> Result<Account, AcmeError> {
        let external = self.external().await?;
        let contact = contact(self.settings);
        let new = NewAccount {
            contact: &contact.iter().map(String::as_str).collect::<Vec<_>>(),
            terms_of_service_agreed: true,
            only_return_existing: false,
        };
        let made = builder.create(&new, self.settings.directory.clone(), external.as_ref()).await;
        let (account, credentials) = made.map_err(|error| AcmeError::of("a new account", error))?;
        let credentials =
            serde_json::to_value(&credentials).map_err(|error| AcmeError::of("a new account", error.into()))?;
        self.write(file, &AccountFile { contact: self.settings.contact.clone(), credentials }).await?;
        tracing::info!(directory = %self.settings.directory, account = %account.id(), "registered an account at the \
            CA");
        Ok(account)
    }

    /// The external account's key (RFC 8555 section 7.3.4); CAs issue it in base64url.
    async fn external(&self) -> Result<Option<ExternalAccountKey>, AcmeError> {
        let Some((id, file)) = self.settings.external.clone() else { return Ok(None) };
        let read = file.clone();
        let text = apart(self.shelf, move |_| std::fs::read_to_string(read)).await?;
        let text = text.map_err(AcmeError::file(&*file))?;
        let key = text.trim().trim_end_matches('=');
        let key = if key.len() > EXTERNAL_KEY_BYTES_MAX { None } else { Base64UrlUnpadded::decode_vec(key).ok() };
        let wrong = || AcmeError::Settings(format!("{}: not a base64url key", file.display()));
        Ok(Some(ExternalAccountKey::new(id, &key.filter(|key| !key.is_empty()).ok_or_else(wrong)?)))
    }

    /// The order of an earlier attempt, if it matches and the CA still has it.
    async fn begun(&self, account: &Account) -> Result<Option<(Order, KeyPair)>, AcmeError> {
        let Some(kept) = self.read::<OrderFile>(order_file(self.names)).await? else { return Ok(None) };
        let Some(key) = key_under_way(&kept, self.names, self.settings) else { return Ok(None) };
        match account.order(kept.url).await.map_err(|error| AcmeError::of("the order under way", error)) {
            Ok(mut order) => Ok((order.state().status != OrderStatus::Invalid).then_some((order, key))),
            Err(error) if error.is_kind("accountDoesNotExist") || !error.is_refusal() => Err(error),
            Err(_) => Ok(None),
        }
    }

    /// Creates an order. Its key is durable before the CA sees it.
    async fn begin(&self, account: &Account) -> Result<(Order, KeyPair), AcmeError> {
        let file = certificate_file(self.names);
        let is_kept = self.settings.keep_key;
        let before = apart(self.shelf, move |shelf| held_key(shelf, &file)).await?;
        let key = match before.filter(|_| is_kept) {
            Some(key) => key,
            None => KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)
                .map_err(|error| AcmeError::Settings(format!("the key could not be created: {error}")))?,
        };
        let identifiers: Vec<Identifier> = self.names.iter().map(|name| Identifier::Dns(name.clone())).collect();
        let order = account.new_order(&NewOrder::new(&identifiers)).await;
        let order = order.map_err(|error| AcmeError::of("a new order", error))?;
        let kept = OrderFile {
            directory: self.settings.directory.clone(),
            names: self.names.to_vec(),
            url: order.url().to_owned(),
            key: Base64::encode_string(key.serialized_der()),
        };
        self.write(order_file(self.names), &kept).await?;
        Ok((order, key))
    }

    /// Completes an order from any state.
    async fn finish(&self, order: &mut Order, key: &KeyPair) -> Result<Identity, AcmeError> {
        if order.state().status == OrderStatus::Pending {
            self.prove(order).await?;
        }
        if order.state().status == OrderStatus::Ready {
            let request = request(self.names, key).map_err(|error| AcmeError::Settings(error.to_string()))?;
            order.finalize_csr(&request).await.map_err(|error| AcmeError::of("the request", error))?;
        }
        let chain = order.poll_certificate(&POLL).await.map_err(|error| AcmeError::of("the certificate", error))?;
        let (identity, text) =
            Identity::bundle(chain.as_bytes(), key.serialized_der()).map_err(AcmeError::Certificate)?;
        if let Some(name) = self.names.iter().find(|name| !identity.certificate.is_for(name)) {
            return Err(AcmeError::Certificate(format!("it is not for {name}")));
        }
        let file = certificate_file(self.names);
        let kept = file.clone();
        let written = apart(self.shelf, move |shelf| shelf.replace(&kept, text.as_bytes())).await?;
        written.map_err(AcmeError::file(file))?;
        Ok(identity)
    }

    /// Answers a challenge for each name that is not proven yet.
    async fn prove(&self, order: &mut Order) -> Result<(), AcmeError> {
        // The answers stay available until the CA has checked.
        let mut given = Vec::new();
        let mut all = order.authorizations();
        while let Some(one) = all.next().await {
            let mut one = one.map_err(|error| AcmeError::of("an authorization", error))?;
            let name = one.identifier().to_string();
            match one.status {
                AuthorizationStatus::Pending => {}
                AuthorizationStatus::Valid => continue,
                _ => return Err(self.unproven(name, "its authorization has expired".to_owned())),
            }
            let Some(mut challenge) = one.challenge(self.challenge()) else {
                return Err(self.unproven(name, "the CA does not offer it".to_owned()));
            };
            let authorization = challenge.key_authorization();
            let token = challenge.token.clone();
            given.push(self.give(&name, &token, &authorization)?);
            challenge.set_ready().await.map_err(|error| self.refused(name, error))?;
        }
        let ready = order.poll_ready(&POLL).await.map_err(|error| AcmeError::of("the order", error));
        match ready {
            Ok(OrderStatus::Ready) => Ok(()),
            Ok(_) => Err(self.why(order).await.unwrap_or_else(|| AcmeError::Nonsense {
                step: "the order",
                text: "it is invalid, without a reason for any name".to_owned(),
            })),
            Err(error) if error.is_refusal() => Err(self.why(order).await.unwrap_or(error)),
            Err(error) => Err(error),
        }
    }

    fn give(
        &self,
        name: &str,
        token: &str,
        key: &instant_acme::KeyAuthorization,
    ) -> Result<PublishedAnswer, AcmeError> {
        let digest = key.digest();
        // The digest is SHA-256.
        let digest = digest.as_ref().try_into().map_err(|_| AcmeError::Settings("no digest".to_owned()))?;
        let challenge = self.settings.challenge;
        self.answers.give(challenge, name, token, key.as_str(), &digest).map_err(AcmeError::Settings)
    }

    /// The failed challenge, with the CA's text.
    async fn why(&self, order: &mut Order) -> Option<AcmeError> {
        let mut all = order.authorizations();
        while let Some(Ok(mut one)) = all.next().await {
            one.refresh().await.ok()?;
            if let Some(problem) = one.challenges.iter().find_map(|challenge| challenge.error.as_ref()) {
                return Some(self.unproven(one.identifier().to_string(), problem_text(problem)));
            }
        }
        None
    }

    fn refused(&self, name: String, error: Error) -> AcmeError {
        match error {
            Error::Api(problem) => self.unproven(name, problem_text(&problem)),
            other => AcmeError::of("a challenge", other),
        }
    }

    fn unproven(&self, name: String, text: String) -> AcmeError {
        let challenge = match self.settings.challenge {
            Challenge::Http01 => "http-01",
            Challenge::TlsAlpn01 => "tls-alpn-01",
        };
        AcmeError::Unproven { name, challenge, text }
    }

    fn challenge(&self) -> ChallengeType {
        match self.settings.challenge {
            Challenge::Http01 => ChallengeType::Http01,
            Challenge::TlsAlpn01 => ChallengeType::TlsAlpn01,
        }
    }

    /// Reads a JSON file; `None` if it is missing or damaged, so that it is created again.
    async fn read<T: serde::de::DeserializeOwned>(&self, file: String) -> Result<Option<T>, AcmeError> {
        let name = file.clone();
        let octets = apart(self.shelf, move |shelf| shelf.read(&name)).await?.map_err(AcmeError::file(&file))?;
        let Some(octets) = octets else { return Ok(None) };
        let read = serde_json::from_slice(&octets);
        if read.is_err() {
            // The contents are not logged, since they include a key.
            tracing::warn!(%file, "file damaged; creating a new one");
        }
        Ok(read.ok())
    }

    async fn write<T: serde::Serialize>(&self, file: String, value: &T) -> Result<(), AcmeError> {
        let octets = serde_json::to_vec(value).map_err(|error| AcmeError::Settings(error.to_string()))?;
        let name = file.clone();
        apart(self.shelf, move |shelf| shelf.replace(&name, &octets)).await?.map_err(AcmeError::file(file))
    }

    async fn remove(&self, file: String) -> Result<(), AcmeError> {
        let name = file.clone();
        apart(self.shelf, move |shelf| shelf.remove(&name)).await?.map_err(AcmeError::file(Path::new(&file)))
    }
}

fn contact(settings: &Settings) -> Vec<String> {
    settings.contact.iter().map(|address| format!("mailto:{address}")).collect()
}

fn key_pair(pkcs8: &[u8]) -> Option<KeyPair> {
    KeyPair::from_pkcs8_der_and_sign_algo(&PrivatePkcs8KeyDer::from(pkcs8), &PKCS_ECDSA_P256_SHA256).ok()
}

/// The key of a stored certificate.
fn held_key(shelf: &dyn Shelf, file: &str) -> Option<KeyPair> {
    key_pair(&bundle_key(&shelf.read(file).ok().flatten()?).ok()?)
}

/// The key of an order in progress, if the order matches.
fn key_under_way(order: &OrderFile, names: &[String], settings: &Settings) -> Option<KeyPair> {
    let is_same = order.names == names && order.directory == settings.directory;
    key_pair(&Base64::decode_vec(&order.key).ok().filter(|_| is_same)?)
}

/// The key that the next certificate will have. Blocks.
pub(crate) fn next_key(shelf: &dyn Shelf, names: &[String], settings: &Settings) -> NextKey {
    let order = shelf.read(&order_file(names)).ok().flatten();
    let order = order.and_then(|octets| serde_json::from_slice::<OrderFile>(&octets).ok());
    if let Some(key) = order.and_then(|order| key_under_way(&order, names, settings)) {
        return NextKey::Made(key.subject_public_key_info());
    }
    let is_kept = settings.keep_key && held_key(shelf, &certificate_file(names)).is_some();
    if is_kept { NextKey::Kept } else { NextKey::New }
}

/// A certificate signing request (RFC 8555 section 7.4) with names and key only.
fn request(names: &[String], key: &KeyPair) -> Result<Vec<u8>, rcgen::Error> {
    let mut params = CertificateParams::new(names.to_vec())?;
    params.distinguished_name = DistinguishedName::new();
    Ok(params.serialize_request(key)?.der().to_vec())
}
