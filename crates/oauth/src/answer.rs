//! The response of a token endpoint: a token (RFC 6749 section 5.1), or an error (section 5.2).
//!
//! The endpoint's server has proven its name, but the response is still validated: tokens are visible ASCII of bounded
//! length, the type is `Bearer`, a lifetime is a number of seconds. A quoted error is short and printable, without the
//! secrets of the request; a response that may contain a token is never quoted.

use std::fmt;

use serde::Deserialize;
use serde::de::{self, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use stentor_records::escape::printable;
use stentor_sasl::Secret;
use stentor_sasl::limits::TOKEN_BYTES_MAX;
use zeroize::Zeroizing;

use crate::request::{encoded, is_token};

/// Maximum octets of a response. Tokens have a few thousand, and Microsoft's response may contain three.
pub const ANSWER_BYTES_MAX: usize = 64 * 1024;
/// Maximum characters shown of an error's description.
const QUOTED_CHARS_MAX: usize = 300;
/// Maximum characters of an error's code.
const CODE_CHARS_MAX: usize = 60;

/// A response that brings a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenResponse {
    /// The access token, or why it is not usable although there is a refresh token.
    pub access_token: Result<Secret, TokenError>,
    /// Its lifetime in seconds, if the endpoint gives one.
    pub expires_in_s: Option<u64>,
    /// Replaces the refresh token that was used, which may no longer be valid (section 6).
    pub refresh_token: Option<Secret>,
}

/// Why there is no token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenError {
    pub fault: Fault,
    /// Printable, short, and without secrets.
    pub text: String,
}

/// The party that can fix the error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// `invalid_grant`: the refresh token, or the user's consent, has expired or was revoked.
    Grant,
    /// `invalid_client`, `unauthorized_client`: the client's id or secret.
    Client,
    /// `invalid_scope`.
    Scope,
    /// Another error that the endpoint attributes to us: an immediate retry does not help.
    Request,
    /// An error of the endpoint, which may recover soon.
    Endpoint,
}

impl TokenResponse {
    /// Parses a response. `secrets`: secrets of the request, which no text may contain.
    ///
    /// # Errors
    /// There is no token, or no usable one.
    pub fn parse(status: u16, body: &[u8], secrets: &[&str]) -> Result<TokenResponse, TokenError> {
        let raw = serde_json::from_slice::<Raw>(body);
        if status != 200 {
            return Err(refusal(status, raw.ok(), body, secrets));
        }
        // Errors of serde_json may quote a value.
        let Ok(raw) = raw else {
            return Err(endpoint("the response is not a token response (RFC 6749 section 5.1); check token_url"));
        };
        if let Some(code) = raw.error {
            return Err(of_code(&code, raw.error_description.as_ref(), secrets));
        }
        let refresh_token = raw.refresh_token.map(|token| usable(&token, "refresh_token")).transpose()?;
        let access_token = access_token(raw.access_token, raw.token_type);
        match access_token {
            // The refresh token that was used may no longer be valid.
            Err(refusal) if refresh_token.is_none() => Err(refusal),
            access_token => Ok(TokenResponse {
                access_token,
                expires_in_s: raw.expires_in.and_then(|Seconds(seconds)| seconds),
                refresh_token,
            }),
        }
    }
}

fn access_token(token: Option<Text>, kind: Option<Text>) -> Result<Secret, TokenError> {
    let token = token.ok_or_else(|| endpoint("the response has no access_token"))?;
    match kind {
        Some(kind) if kind.eq_ignore_ascii_case("bearer") => usable(&token, "access_token"),
        Some(_) => Err(endpoint("the token type is not Bearer")),
        None => Err(endpoint("the response has no token_type")),
    }
}

fn usable(token: &Text, key: &str) -> Result<Secret, TokenError> {
    if token.len() > TOKEN_BYTES_MAX {
        return Err(endpoint(&format!("{key} is longer than {TOKEN_BYTES_MAX} octets")));
    }
    if !is_token(token) {
        return Err(endpoint(&format!("{key} is empty or has characters outside visible ASCII")));
    }
    Ok(Secret::from(token.as_str()))
}

fn endpoint(text: &str) -> TokenError {
    TokenError { fault: Fault::Endpoint, text: text.to_owned() }
}

fn refusal(status: u16, raw: Option<Raw>, body: &[u8], secrets: &[&str]) -> TokenError {
    let is_ours = (400..500).contains(&status) && status != 408 && status != 429;
    if let Some(Raw { error: Some(code), error_description, .. }) = raw {
        let refusal = of_code(&code, error_description.as_ref(), secrets);
        return if is_ours { refusal } else { TokenError { fault: Fault::Endpoint, ..refusal } };
    }
    let hint = if (300..400).contains(&status) { ", redirects are not followed" } else { "" };
    let fault = if is_ours { Fault::Request } else { Fault::Endpoint };
    // A body that may contain a token, or repeat our request, is not quoted.
    let octets = body.len();
    TokenError {
        fault,
        text: format!("status {status}{hint}; the body of {octets} octets is not an error of RFC 6749 section 5.2"),
    }
}

fn of_code(code: &Text, description: Option<&Text>, secrets: &[&str]) -> TokenError {
    let fault = match code.as_str() {
        "invalid_grant" | "interaction_required" | "consent_required" => Fault::Grant,
        "invalid_client" | "unauthorized_client" => Fault::Client,
        "invalid_scope" => Fault::Scope,
        "temporarily_unavailable" | "server_error" | "slow_down" => Fault::Endpoint,
        _ => Fault::Request,
    };
    let mut text = quoted(code, CODE_CHARS_MAX, secrets);
    let description = description.map(|text| quoted(text.trim(), QUOTED_CHARS_MAX, secrets));
    if let Some(description) = description.filter(|description| !description.is_empty()) {
        text = format!("{text}: {description}");
    }
    TokenError { fault, text }
}

/// Others' text: without secrets, cut, and printable.
fn quoted(text: &str, chars_max: usize, secrets: &[&str]) -> String {
    let mut text = text.to_owned();
    for secret in secrets.iter().filter(|secret| !secret.is_empty()) {
        text = text.replace(secret, "(hidden)");
        // The secret as encoded in our request.
        text = text.replace(encoded(secret).as_str(), "(hidden)");
    }
    // Microsoft's descriptions have several lines; the first is the summary.
    let line = text.lines().next().unwrap_or_default();
    let cut: String = line.chars().take(chars_max).collect();
    printable(&cut, 4 * chars_max)
}

#[derive(Deserialize)]
struct Raw {
    access_token: Option<Text>,
    token_type: Option<Text>,
    expires_in: Option<Seconds>,
    refresh_token: Option<Text>,
    error: Option<Text>,
    error_description: Option<Text>,
}

/// Text that is wiped on drop.
type Text = Zeroizing<String>;

/// A number of seconds; some servers send a string, or a fraction. `None` for anything else, which does not invalidate
/// the token.
struct Seconds(Option<u64>);

impl<'de> Deserialize<'de> for Seconds {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Seconds, D::Error> {
        struct Numbers;
        impl<'de> Visitor<'de> for Numbers {
            type Value = Seconds;
            fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str("a number of seconds")
            }
            fn visit_u64<E: de::Error>(self, number: u64) -> Result<Seconds, E> {
                Ok(Seconds(Some(number)))
            }
            fn visit_i64<E: de::Error>(self, _: i64) -> Result<Seconds, E> {
                Ok(Seconds(None))
            }
            fn visit_bool<E: de::Error>(self, _: bool) -> Result<Seconds, E> {
                Ok(Seconds(None))
            }
            fn visit_f64<E: de::Error>(self, number: f64) -> Result<Seconds, E> {
                // Saturates; the keeper limits large values.
                Ok(Seconds((number >= 0.0).then_some(number as u64)))
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Seconds, E> {
                let whole = text.parse().ok();
                let fraction = || text.parse::<f64>().ok().filter(|number| *number >= 0.0).map(|number| number as u64);
                Ok(Seconds(whole.or_else(fraction)))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Seconds, A::Error> {
                while items.next_element::<IgnoredAny>()?.is_some() {}
                Ok(Seconds(None))
            }
            fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Seconds, A::Error> {
                while entries.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
                Ok(Seconds(None))
            }
        }
        deserializer.deserialize_any(Numbers)
    }
}

#[cfg(test)]
mod tests;
