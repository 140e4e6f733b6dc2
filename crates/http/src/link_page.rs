//! Pages behind links that recipients and subscribers get by mail.
//!
//! They need no login: the link is the permission, and the forms of lists need none. They run no scripts, load nothing,
//! pass on no URL (`no-referrer`), are not indexed, and refer to no other path of ours, so that a proxy in front only
//! needs to pass their own.

use std::sync::LazyLock;

use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use base64ct::{Base64, Encoding as _};
use maud::{DOCTYPE, Markup, PreEscaped, html};
use sha2::{Digest, Sha256};
use stentor_copies::UNSUBSCRIBE_PATH;
use stentor_lists::replies::CommandReply;

/// Path prefixes of links.
pub(super) const PATHS: [&str; 4] = [KEPT_PATH, UNSUBSCRIBE_PATH, LISTS_PATH, CommandReply::CONFIRM_PATH];
/// Of recipients' links to their quarantined mail.
const KEPT_PATH: &str = "/kept/";
/// Of the forms of lists.
pub(super) const LISTS_PATH: &str = "/lists/";
const STYLE: &str = include_str!("../assets/link_page.css");

/// Only our own style, by its digest, and forms to this server.
static CONTENT_POLICY: LazyLock<HeaderValue> = LazyLock::new(|| {
    let digest = Base64::encode_string(&Sha256::digest(STYLE));
    let policy = format!(
        "default-src 'none'; style-src 'sha256-{digest}'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    );
    // Base64 is ASCII.
    HeaderValue::try_from(policy).expect("a policy is a header value")
});

pub(super) fn missing() -> Response {
    page(StatusCode::NOT_FOUND, "Not found", &html! { p { "This link is invalid or has expired." } })
}

pub(super) fn later(status: StatusCode, after_s: &'static str, text: &str) -> Response {
    let mut response = page(status, "Try again later", &html! { p role="alert" { (text) } });
    response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static(after_s));
    response
}

pub(super) fn page(status: StatusCode, title: &str, main: &Markup) -> Response {
    let body = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="robots" content="noindex, nofollow";
                title { (title) }
                style { (PreEscaped(STYLE)) }
            }
            body { main { h1 { (title) } (main) } }
        }
    };
    let mut response =
        (status, [(header::CONTENT_TYPE, "text/html; charset=utf-8")], body.into_string()).into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_SECURITY_POLICY, CONTENT_POLICY.clone());
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    headers.insert(HeaderName::from_static("x-robots-tag"), HeaderValue::from_static("noindex, nofollow"));
    response
}
