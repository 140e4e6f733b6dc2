use proptest::prelude::*;

use super::*;

fn parsed(body: &str) -> Result<TokenResponse, TokenError> {
    TokenResponse::parse(200, body.as_bytes(), &[])
}

fn answer(token: &str, expires_in_s: Option<u64>, refresh: Option<&str>) -> TokenResponse {
    TokenResponse { access_token: Ok(Secret::from(token)), expires_in_s, refresh_token: refresh.map(Secret::from) }
}

/// Responses from RFC 6749 section 5.1 and Google's and Microsoft's documentation of token refresh.
#[test]
fn answers_of_real_servers() {
    let rfc = r#"{"access_token":"2YotnFZFEjr1zCsicMWpAA","token_type":"example","expires_in":3600,
        "refresh_token":"tGzv3JOkF0XG5Qx2TlKWIA","example_parameter":"example_value"}"#;
    assert_eq!(parsed(rfc).unwrap().access_token, Err(endpoint("the token type is not Bearer")));
    let bearer = rfc.replace("\"example\",", "\"Bearer\",");
    let wanted = answer("2YotnFZFEjr1zCsicMWpAA", Some(3600), Some("tGzv3JOkF0XG5Qx2TlKWIA"));
    assert_eq!(parsed(&bearer), Ok(wanted));
    let google = r#"{ "access_token": "1/fFAGRNJru1FTz70BzhT3Zg", "expires_in": 3920,
        "scope": "https://mail.google.com/", "token_type": "Bearer" }"#;
    assert_eq!(parsed(google), Ok(answer("1/fFAGRNJru1FTz70BzhT3Zg", Some(3920), None)));
    let microsoft = r#"{"access_token":"eyJ0eXAiOiJKV1QiLCJhbGciOiJSUzI1NiIsIng1dCI6Ik5HVEZ2ZEstZnl0aEV1Q..",
        "token_type":"Bearer","expires_in":3599,"ext_expires_in":3599,"scope":"https://outlook.office.com/SMTP.Send",
        "refresh_token":"M.R3_BAY.-CYAwABAAAAvPM1KaPl!*$","id_token":null}"#;
    assert_eq!(parsed(microsoft).unwrap().refresh_token, Some(Secret::from("M.R3_BAY.-CYAwABAAAAvPM1KaPl!*$")));
}

#[test]
fn errors_of_real_servers() {
    let google = br#"{"error": "invalid_grant", "error_description": "Token has been expired or revoked."}"#;
    let refusal = TokenResponse::parse(400, google, &[]).unwrap_err();
    let text = "invalid_grant: Token has been expired or revoked.".to_owned();
    assert_eq!(refusal, TokenError { fault: Fault::Grant, text });
    let microsoft = b"{\"error\":\"invalid_client\",\"error_description\":\"AADSTS7000215: Invalid client secret provided.\\r\\nTrace ID: 1\",\
        \"error_codes\":[7000215]}";
    let refusal = TokenResponse::parse(401, microsoft, &[]).unwrap_err();
    let text = "invalid_client: AADSTS7000215: Invalid client secret provided.".to_owned();
    assert_eq!(refusal, TokenError { fault: Fault::Client, text });
    for (status, body, fault, text) in [
        (
            302,
            "",
            Fault::Endpoint,
            "status 302, redirects are not followed; the body of 0 octets is not an error of RFC 6749 section 5.2",
        ),
        (429, r#"{"error":"invalid_grant"}"#, Fault::Endpoint, "invalid_grant"),
        (
            503,
            "<html>\x1b[1m down",
            Fault::Endpoint,
            "status 503; the body of 15 octets is not an error of RFC 6749 section 5.2",
        ),
        (
            404,
            r#"{"refresh_token":"x"}"#,
            Fault::Request,
            "status 404; the body of 21 octets is not an error of RFC 6749 section 5.2",
        ),
        (
            400,
            r#"{"error":{"code":400}}"#,
            Fault::Request,
            "status 400; the body of 22 octets is not an error of RFC 6749 section 5.2",
        ),
        (400, r#"{"error":"invalid_scope","error_description":null}"#, Fault::Scope, "invalid_scope"),
        // GitHub has sent this.
        (200, r#"{"error":"bad_verification_code"}"#, Fault::Request, "bad_verification_code"),
    ] {
        let refusal = TokenResponse::parse(status, body.as_bytes(), &[]).unwrap_err();
        assert_eq!(refusal, TokenError { fault, text: text.to_owned() }, "{status} {body}");
    }
}

#[test]
fn an_error_shows_no_secret_and_is_short() {
    let echo = format!(r#"{{"error":"invalid_grant","error_description":"r3fresh s3cret {}"}}"#, "x".repeat(10_000));
    let refusal = TokenResponse::parse(400, echo.as_bytes(), &["s3cret", "r3fresh", ""]).unwrap_err();
    assert!(refusal.text.starts_with("invalid_grant: (hidden) (hidden) xxx"), "{}", refusal.text);
    assert!(refusal.text.len() < 400, "{}", refusal.text.len());
    let sent = br#"{"error":"invalid_request","error_description":"client_secret=s3%2Fcr%3D"}"#;
    let refusal = TokenResponse::parse(400, sent, &["s3/cr="]).unwrap_err();
    assert_eq!(refusal.text, "invalid_request: client_secret=(hidden)");
}

#[test]
fn what_is_no_answer_is_refused() {
    let long = "x".repeat(TOKEN_BYTES_MAX + 1);
    for bad in [
        "",
        "null",
        "[]",
        "{}",
        r#"{"access_token":"a"}"#,
        r#"{"token_type":"bearer"}"#,
        r#"{"access_token":"a","token_type":"mac"}"#,
        r#"{"access_token":"","token_type":"bearer"}"#,
        r#"{"access_token":7,"token_type":"bearer"}"#,
        r#"{"access_token":"a","token_type":["bearer"]}"#,
        r#"{"access_token":"a","token_type":"bearer","expires_in":1e999}"#,
        r#"{"access_token":"a","access_token":"b","token_type":"bearer"}"#,
        r#"{"access_token":"a","token_type":"bearer","refresh_token":"r\nfree = true"}"#,
        r#"{"access_token":"a","token_type":"bearer","refresh_token":""}"#,
        r#"{"access_token":"a","token_type":"bearer"} trailing"#,
        &format!(r#"{{"access_token":"{long}","token_type":"bearer"}}"#),
        &"[".repeat(100_000),
    ] {
        let refusal = parsed(bad).unwrap_err();
        assert_eq!(refusal.fault, Fault::Endpoint, "{bad}");
        assert!(refusal.text.len() < 100, "{}", refusal.text);
    }
    for octet in ["\\u0000", "\\u0001", "\\r", "\\n", " ", "\\u007f", "\\u00e9", "\\t"] {
        let body = format!(r#"{{"access_token":"a{octet}b","token_type":"bearer"}}"#);
        assert_eq!(parsed(&body).unwrap_err().text, "access_token is empty or has characters outside visible ASCII");
    }
}

#[test]
fn lives_are_numbers_whatever_they_are_written_as() {
    for (written, read) in [
        ("3600", Some(3600)),
        ("\"3599\"", Some(3599)),
        ("3599.9", Some(3599)),
        ("0", Some(0)),
        ("null", None),
        // Another type does not invalidate the token.
        ("\"3599.0\"", Some(3599)),
        ("-1", None),
        ("-0.5", None),
        ("\"soon\"", None),
        ("\"-1\"", None),
        ("{\"s\":[1]}", None),
        ("[1]", None),
        ("true", None),
        ("18446744073709551615", Some(u64::MAX)),
        ("99999999999999999999999999", Some(u64::MAX)),
        ("1e300", Some(u64::MAX)),
    ] {
        let body = format!(r#"{{"access_token":"a\/b","token_type":"BEARER","expires_in":{written}}}"#);
        assert_eq!(parsed(&body), Ok(answer("a/b", read, None)), "{written}");
    }
}

/// Random JSON with a response's keys and values of all types.
fn json() -> impl Strategy<Value = String> {
    let key = prop_oneof![
        Just("access_token"),
        Just("token_type"),
        Just("expires_in"),
        Just("refresh_token"),
        Just("error"),
        Just("error_description"),
        Just("x")
    ];
    let value = prop_oneof![
        any::<String>().prop_map(|text| serde_json::Value::from(text).to_string()),
        "[ -~]{0,20}".prop_map(|text| serde_json::Value::from(text).to_string()),
        Just("\"Bearer\"".to_owned()),
        any::<i64>().prop_map(|number| number.to_string()),
        any::<f64>().prop_map(|number| number.to_string()),
        Just("null".to_owned()),
    ];
    let pairs = proptest::collection::vec((key, value), 0..8);
    pairs.prop_map(|pairs| {
        let pairs: Vec<_> = pairs.iter().map(|(key, value)| format!("\"{key}\":{value}")).collect();
        format!("{{{}}}", pairs.join(","))
    })
}

proptest! {
    #[test]
    fn what_comes_out_is_a_token_or_printable(body in json(), status in prop_oneof![Just(200), 0..700_u16]) {
        match TokenResponse::parse(status, body.as_bytes(), &["s3cret"]) {
            Ok(answer) => {
                prop_assert!(status == 200);
                prop_assert!(answer.access_token.is_err() || is_token(answer.access_token.unwrap().expose()));
                prop_assert!(answer.refresh_token.is_none_or(|token| is_token(token.expose())));
            }
            Err(refusal) => {
                prop_assert!(!refusal.text.is_empty() || body.contains("\"error\""), "{}", refusal.text);
                prop_assert!(!refusal.text.chars().any(char::is_control), "{}", refusal.text);
                prop_assert!(refusal.text.len() < 4 * (QUOTED_CHARS_MAX + CODE_CHARS_MAX) + 50);
            }
        }
    }

    #[test]
    fn any_octets_are_an_answer_or_a_refusal(octets in proptest::collection::vec(any::<u8>(), 0..300), status: u16) {
        let _ = TokenResponse::parse(status, &octets, &["a"]);
    }
}

/// The old refresh token may no longer be valid.
#[test]
fn a_refresh_token_is_kept_whatever_the_access_token_is_worth() {
    for (body, text) in [
        (r#"{"refresh_token":"r2","token_type":"bearer"}"#, "the response has no access_token"),
        (r#"{"refresh_token":"r2","access_token":"a"}"#, "the response has no token_type"),
        (
            r#"{"refresh_token":"r2","access_token":"a b","token_type":"bearer"}"#,
            "access_token is empty or has characters outside visible ASCII",
        ),
    ] {
        let answer = parsed(body).unwrap();
        assert_eq!((answer.refresh_token, answer.access_token), (Some(Secret::from("r2")), Err(endpoint(text))));
    }
}
