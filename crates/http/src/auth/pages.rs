//! `POST /login` and `POST /logout`: the targets of the console's forms. The console renders the form itself.

use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::post;
use axum::{Form, Router};
use serde::Deserialize;
use stentor_control::ErrorCode;

use super::{COOKIE, Caller, LoginError};
use crate::{Http, browser, problem};

/// The form's fields.
#[derive(Deserialize)]
struct Fields {
    #[serde(default)]
    user: String,
    password: String,
    /// The page to continue on.
    #[serde(default)]
    next: String,
}

#[derive(Deserialize)]
struct LogoutFields {
    #[serde(default)]
    csrf: String,
}

pub fn router() -> Router<Http> {
    Router::new().route("/login", post(login)).route("/logout", post(logout))
}

/// Logs in. Success redirects to `next`; failure redirects to the form, with the reason in `?failed=`, keeping name and
/// page. Programs get 429 after too many wrong passwords.
async fn login(
    State(http): State<Http>,
    caller: Caller,
    headers: HeaderMap,
    Form(Fields { user, password, next }): Form<Fields>,
) -> Response {
    let name = user.clone();
    let user = if user.is_empty() { "operator".to_owned() } else { user };
    let speaks_tls = http.core.settings().config.http.tls;
    // Runs to the end even if the client disconnects: the next password waits for this one, and a wrong one counts.
    let tried = tokio::spawn(async move {
        let settings = http.core.settings();
        http.auth.login(&settings.config.http, caller.address.ip(), &user, password, &http.core.clock).await
    });
    let Ok(opened) = tried.await else {
        return problem(StatusCode::SERVICE_UNAVAILABLE, ErrorCode::Failed, "the server is stopping");
    };
    let opened = match opened {
        Ok(opened) => opened,
        Err(LoginError::Wrong) => return Redirect::to(&browser::login("wrong", &name, &next)).into_response(),
        Err(LoginError::Slow(wait_s)) if browser::asks(&headers) => {
            let place = browser::login("slow", &name, &next);
            return Redirect::to(&format!("{place}&wait_s={wait_s}")).into_response();
        }
        Err(LoginError::Slow(wait_s)) => {
            let mut response =
                problem(StatusCode::TOO_MANY_REQUESTS, ErrorCode::Busy, &LoginError::Slow(wait_s).to_string());
            response.headers_mut().insert(header::RETRY_AFTER, wait_s.into());
            return response;
        }
        Err(error @ LoginError::NoUsers) => {
            return problem(StatusCode::FORBIDDEN, ErrorCode::Forbidden, &error.to_string());
        }
    };
    // Behind a TLS proxy only the browser's header shows the scheme.
    let is_https =
        speaks_tls || headers.get(header::ORIGIN).is_some_and(|origin| origin.as_bytes().starts_with(b"https://"));
    let secure = if is_https { "; Secure" } else { "" };
    let (id, age_s) = (opened.id, opened.lifetime_ms / 1000);
    let cookie = format!("{COOKIE}={id}; Path=/; HttpOnly; SameSite=Strict; Max-Age={age_s}{secure}");
    let mut response = Redirect::to(browser::local(&next)).into_response();
    if let Ok(value) = HeaderValue::from_str(&cookie) {
        response.headers_mut().insert(header::SET_COOKIE, value);
    }
    response
}

async fn logout(
    State(http): State<Http>,
    caller: Caller,
    headers: HeaderMap,
    Form(LogoutFields { csrf }): Form<LogoutFields>,
) -> Response {
    if let Err(refused) = caller.may_change(Some(&csrf)) {
        return refused;
    }
    http.auth.logout(&headers);
    let mut response = Redirect::to("/").into_response();
    let gone = HeaderValue::from_static("stentor_session=; Path=/; HttpOnly; SameSite=Strict; Max-Age=0");
    response.headers_mut().insert(header::SET_COOKIE, gone);
    response
}
