//! Checks on every request, before anything else.
//!
//! In this order: the Host header names us (so that no web page elsewhere can reach us under a name of its own: DNS
//! rebinding); a change must come from our own pages or carry a token (CSRF); reading may need a login; bodies and
//! times are bounded. Every answer tells browsers not to guess types, frame us, run inline scripts or keep a copy.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::body::HttpBody;
use axum::extract::{Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Redirect, Response};
use stentor_config::{DigestConfig, HttpConfig, ReadAccess};
use stentor_control::ErrorCode;

use super::anonymous::AnonymousConnection;
use super::auth::{self, CallerLogin};
use super::body::{BodyCutoff, in_time};
use super::{Http, browser, link_page, problem};

/// Maximum time until an answer begins. A verb continues after it.
const ANSWER_TIMEOUT: Duration = Duration::from_mins(5);
/// Scripts, styles, pictures and data only from this site, nothing inline; no framing.
const CONTENT_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; \
                              font-src 'self'; connect-src 'self'; manifest-src 'self'; form-action 'self'; \
                              base-uri 'none'; frame-ancestors 'none'";
/// Paths served without a login whatever `reading` says, besides [`link_page::PATHS`]: probes, and the login with its
/// page's files.
const PUBLIC: [&str; 5] = ["/healthz", "/readyz", "/login", "/theme", "/assets/"];

pub(super) async fn guard(State(http): State<Http>, request: Request, next: Next) -> Response {
    let settings = http.core.settings();
    let config = &settings.config.http;
    let digest = settings.config.quarantine.digest.as_ref();
    let link_hosts = [digest.and_then(DigestConfig::link_host), config.link_host()];
    let mut response = match admit(&http, config, &settings.config.hostname, link_hosts, request).await {
        Ok(request) => answer(request, next).await,
        Err(refused) => *refused,
    };
    protect(response.headers_mut());
    response
}

/// The handler's answer, if the body and the answer come in time.
async fn answer(request: Request, next: Next) -> Response {
    let is_known = request.extensions().get::<auth::Caller>().is_some_and(|caller| caller.login.is_some());
    if let Some(place) = request.extensions().get::<Arc<AnonymousConnection>>() {
        place.admitted(is_known);
    }
    let (parts, body) = request.into_parts();
    // The body is already complete.
    let (body, late) = if body.is_end_stream() { (body, BodyCutoff::default()) } else { in_time(body, is_known) };
    match tokio::time::timeout(ANSWER_TIMEOUT, next.run(Request::from_parts(parts, body))).await {
        Ok(response) => match late.status() {
            Some(StatusCode::REQUEST_TIMEOUT) => {
                cut(StatusCode::REQUEST_TIMEOUT, ErrorCode::BadRequest, "the request body arrived too slowly")
            }
            Some(status) => cut(status, ErrorCode::TooLarge, "the request body is too large without a login"),
            None => response,
        },
        Err(_) => problem(
            StatusCode::GATEWAY_TIMEOUT,
            ErrorCode::Busy,
            "timed out; an action in progress continues, see the log for its result",
        ),
    }
}

/// The answer to an incomplete body; the connection closes after it.
fn cut(status: StatusCode, code: ErrorCode, text: &str) -> Response {
    let mut response = problem(status, code, text);
    response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    response
}

/// Adds the caller to the request, or returns the answer that denies it.
async fn admit(
    http: &Http,
    config: &HttpConfig,
    hostname: &str,
    link_hosts: [Option<&str>; 2],
    request: Request,
) -> Result<Request, Box<Response>> {
    let refuse = |status, text: &str| Err(Box::new(problem(status, ErrorCode::Forbidden, text)));
    let host = match host(&request) {
        Ok(host) => host.to_owned(),
        Err(why) => return refuse(StatusCode::BAD_REQUEST, why),
    };
    // Recipients' links may use a host name of their own, which serves only their page.
    let is_link = link_page::PATHS.iter().any(|link| request.uri().path().starts_with(link));
    let is_linked = is_link && link_hosts.into_iter().flatten().any(|ours| is_ours(&host, ours, &[]));
    if !is_linked && !is_ours(&host, hostname, &config.host_names) {
        let text = "unknown host name; list this server's names in [http] host_names";
        return refuse(StatusCode::MISDIRECTED_REQUEST, text);
    }
    let (mut parts, body) = request.into_parts();
    let caller = http.auth.caller(config, &parts.headers, auth::address(&parts), &http.core.clock);
    if caller.is_wrong {
        caller.slow_down().await;
        return refuse(StatusCode::UNAUTHORIZED, "unknown token");
    }
    let changes = !matches!(parts.method, Method::GET | Method::HEAD | Method::OPTIONS);
    let path = parts.uri.path();
    let is_public =
        is_link || PUBLIC.iter().any(|public| path == *public || public.ends_with('/') && path.starts_with(public));
    // A link is itself a secret, or its form needs no permission. Its page sends no referrer, so there is no origin to
    // check.
    let is_trusted = is_link || matches!(caller.login, Some(CallerLogin::Token { .. }));
    if changes && !is_trusted && is_foreign(&parts.headers, &host) {
        return refuse(StatusCode::FORBIDDEN, "the request came from another site's page");
    }
    if caller.login.is_none() && !is_public && (changes || config.reading == ReadAccess::Login) {
        let is_page = !path.starts_with("/api/") && path != "/metrics";
        if is_page && !config.users.is_empty() && (!changes || browser::asks(&parts.headers)) {
            return Err(Box::new(Redirect::to(&login_form(&parts, &host, changes)).into_response()));
        }
        return Err(Box::new(match caller.may_change(None) {
            Err(refused) if changes => refused,
            _ => problem(StatusCode::UNAUTHORIZED, ErrorCode::Forbidden, "reading needs a login here"),
        }));
    }
    parts.extensions.insert(caller);
    Ok(Request::from_parts(parts, body))
}

/// The host that a request names: one Host field (RFC 9112 section 3.2), or the authority of its target.
///
/// # Errors
/// It names no host, or perhaps several: a proxy in front may have decided by another one.
pub(super) fn host(request: &Request) -> Result<&str, &'static str> {
    let mut fields = request.headers().get_all(header::HOST).iter();
    let authority = request.uri().authority().map(axum::http::uri::Authority::as_str);
    let named = match (fields.next(), fields.next()) {
        (_, Some(_)) => return Err("more than one Host header (RFC 9112 section 3.2)"),
        (Some(host), None) => {
            let host = host.to_str().ok().filter(|host| !host.contains([',', ' ', '\t']));
            Some(host.ok_or("the Host header is not a valid host (RFC 9112 section 3.2)")?)
        }
        (None, None) => authority,
    };
    match (named, authority) {
        (Some(host), Some(target)) if !host.eq_ignore_ascii_case(target) => {
            Err("the Host header differs from the host of the request target")
        }
        (Some(host), _) => Ok(host),
        (None, _) => Err("a Host header is needed (RFC 9112 section 3.2)"),
    }
}

/// The URL of the login form, for a caller who requested or changed a page after the session ended.
fn login_form(parts: &Parts, host: &str, changes: bool) -> String {
    if changes {
        return browser::login("expired", "", browser::came_from(&parts.headers, host));
    }
    browser::login("", "", parts.uri.path_and_query().map_or("/", |path| path.as_str()))
}

/// Whether a Host header names this server. Addresses always do: the check is against foreign names that resolve to us.
fn is_ours(host: &str, hostname: &str, names: &[String]) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit()) => name,
        _ => host,
    };
    let bare = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
    let same = |ours: &str| name.trim_end_matches('.').eq_ignore_ascii_case(ours);
    bare.parse::<IpAddr>().is_ok() || same("localhost") || same(hostname) || names.iter().any(|ours| same(ours))
}

/// Whether the browser says that another site's page made this request (Fetch Metadata; RFC 6454 section 7).
fn is_foreign(headers: &HeaderMap, host: &str) -> bool {
    let text = |name: &str| headers.get(name).map(|value| value.to_str().unwrap_or("?"));
    if let Some(site) = text("sec-fetch-site")
        && !matches!(site, "same-origin" | "none")
    {
        return true;
    }
    match text("origin") {
        None => false,
        Some(origin) => origin.split_once("://").is_none_or(|(_, from)| !from.eq_ignore_ascii_case(host)),
    }
}

fn protect(headers: &mut HeaderMap) {
    let all: [(HeaderName, &'static str); 7] = [
        (header::CONTENT_SECURITY_POLICY, CONTENT_POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::X_FRAME_OPTIONS, "DENY"),
        // Not `no-referrer`: forms would then send `Origin: null`.
        (header::REFERRER_POLICY, "same-origin"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
        (header::CACHE_CONTROL, "no-store"),
    ];
    for (name, value) in all {
        headers.entry(name).or_insert(HeaderValue::from_static(value));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts() {
        let names = ["mail.example.org".to_owned()];
        for ours in [
            "localhost",
            "LOCALHOST:8025",
            "127.0.0.1:1",
            "[::1]:8025",
            "[::1]",
            "mx.test",
            "Mail.Example.org.",
            "10.0.0.1",
        ] {
            assert!(is_ours(ours, "mx.test", &names), "{ours}");
        }
        for other in [
            "",
            "evil.example",
            "localhost.evil.example",
            "127.0.0.1.evil.example:80",
            "x@localhost",
            "mail.example.org:x",
        ] {
            assert!(!is_ours(other, "mx.test", &names), "{other}");
        }
    }

    #[test]
    fn a_request_names_one_host() {
        let request = |target: &str, hosts: &[&[u8]]| {
            let mut request = Request::new(axum::body::Body::empty());
            *request.uri_mut() = target.parse().unwrap();
            for host in hosts {
                request.headers_mut().append(header::HOST, HeaderValue::from_bytes(host).unwrap());
            }
            host(&request).map(str::to_owned)
        };
        assert_eq!(request("/", &[b"a:1"]).as_deref(), Ok("a:1"));
        assert_eq!(request("http://a:1/", &[]).as_deref(), Ok("a:1"));
        assert_eq!(request("http://a:1/", &[b"A:1"]).as_deref(), Ok("A:1"));
        for (target, hosts) in [
            ("/", &[][..]),
            ("/", &[&b"a"[..], b"a"]),
            ("/", &[b"localhost", b"evil.example"]),
            ("/", &[b"", b"a"]),
            ("/", &[b"a, b"]),
            ("/", &[b"a b"]),
            ("/", &[b"a\xff"]),
            ("http://evil.example/", &[b"localhost"]),
            ("http://a/", &[b"a\xff"]),
        ] {
            assert!(request(target, hosts).is_err(), "{target} {hosts:?}");
        }
    }

    #[test]
    fn origins() {
        let foreign = |name: &'static str, value: &'static str| {
            is_foreign(&HeaderMap::from_iter([(HeaderName::from_static(name), HeaderValue::from_static(value))]), "h:1")
        };
        assert!(!is_foreign(&HeaderMap::new(), "h:1"), "no browser");
        assert!(!foreign("origin", "http://h:1") && !foreign("origin", "https://H:1"));
        assert!(foreign("origin", "null") && foreign("origin", "http://h:2") && foreign("origin", "http://evil"));
        assert!(!foreign("sec-fetch-site", "same-origin") && !foreign("sec-fetch-site", "none"));
        assert!(foreign("sec-fetch-site", "same-site") && foreign("sec-fetch-site", "cross-site"));
    }
}
