//! Any octets as the answer of a token endpoint: no panic; what comes out as a token is one, and what is quoted is
//! printable and short.
#![no_main]

use libfuzzer_sys::fuzz_target;
use stentor_oauth::{TokenResponse, is_token};

fuzz_target!(|data: &[u8]| {
    let with_head = [br#"{"access_token":"a","token_type":"Bearer","#, data, b"}"].concat();
    let error = [br#"{"error":"invalid_grant","error_description":""#, data, br#""}"#].concat();
    for (status, body) in [(200, data), (200, &with_head[..]), (400, data), (400, &error[..])] {
        match TokenResponse::parse(status, body, &["s3cret"]) {
            Ok(answer) => {
                assert!(status == 200);
                assert!(
                    answer.access_token.is_err() || answer.access_token.is_ok_and(|token| is_token(token.expose()))
                );
                assert!(answer.refresh_token.is_none_or(|token| is_token(token.expose())));
            }
            Err(refusal) => {
                assert!(refusal.text.len() < 2_000 && !refusal.text.chars().any(char::is_control));
                assert!(!refusal.text.contains("s3cret"));
            }
        }
    }
});
