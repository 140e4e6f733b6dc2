//! The message of RFC 8463 appendix A, and others' keys.

use std::sync::Arc;

use stentor_dkim::{Algorithm, KeyError, MessageHash, Signer, SigningKey, Times, is_signed_by, sign};

/// The Ed25519 key of RFC 8463 appendix A.1 as PKCS#8.
const ED25519_KEY: &str = "-----BEGIN PRIVATE KEY-----\n\
    MC4CAQAwBQYDK2VwBCIEIJ1hsZ3v/VpguoRK9JLsLMREScVpezJpGXA7rAMcrn9g\n\
    -----END PRIVATE KEY-----\n";
const ED25519_RECORD: &str = "v=DKIM1; k=ed25519; p=11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo=";
/// Appendix A.3, with lines that end in spaces left as they are.
const SIGNATURE: &str = "DKIM-Signature: v=1; a=ed25519-sha256; c=relaxed/relaxed;\r\n\
    \x20d=football.example.com; i=@football.example.com;\r\n\
    \x20q=dns/txt; s=brisbane; t=1528637909; h=from : to :\r\n\
    \x20subject : date : message-id : from : subject : date;\r\n\
    \x20bh=2jUSOH9NhtVGCQWNr9BrIAPreKQjO6Sn7XIkfJVOzv8=;\r\n\
    \x20b=/gCrinpcQOoIfuHNQIbq4pgh9kyIK3AQUdt9OdqQehSwhEIug4D11Bus\r\n\
    \x20Fa3bT3FY5OsU7ZbnKELq+eXdp1Q1Dw==\r\n";
const MESSAGE: &str = "From: Joe SixPack <joe@football.example.com>\r\n\
    To: Suzie Q <suzie@shopping.example.net>\r\n\
    Subject: Is dinner ready?\r\n\
    Date: Fri, 11 Jul 2003 21:00:37 -0700 (PDT)\r\n\
    Message-ID: <20030712040037.46341.5F8J@football.example.com>\r\n\
    \r\n\
    Hi.\r\n\
    \r\n\
    We lost the game.  Are you hungry yet?\r\n\
    \r\n\
    Joe.\r\n";

#[test]
fn the_signature_of_rfc_8463_verifies() {
    let key = SigningKey::from_pem(ED25519_KEY.as_bytes()).unwrap();
    assert_eq!(key.record(), ED25519_RECORD);
    let signer = Signer { domain: "football.example.com".into(), selector: "brisbane".into(), key: Arc::new(key) };
    let mut message = MessageHash::default();
    message.push(SIGNATURE.as_bytes());
    message.push(MESSAGE.as_bytes());
    let (header, body) = message.finish();
    assert!(is_signed_by(&header, body, &signer, 1_600_000_000));
    let changed = String::from_utf8(header).unwrap().replace("dinner", "supper");
    assert!(!is_signed_by(changed.as_bytes(), body, &signer, 1_600_000_000));
}

#[test]
fn the_form_of_a_signature_is_fixed() {
    let key = Arc::new(SigningKey::from_pem(ED25519_KEY.as_bytes()).unwrap());
    let signer = Signer { domain: "football.example.com".into(), selector: "brisbane".into(), key };
    let mut message = MessageHash::default();
    message.push(MESSAGE.as_bytes());
    let (header, body) = message.finish();
    let signed = sign(&header, body, &[signer], Times { signed: 1_528_637_909, expires: None }).unwrap();
    let signed = String::from_utf8(signed).unwrap();
    let (unsigned, signature) = signed.split_once(" b=").unwrap();
    assert_eq!(
        unsigned,
        "DKIM-Signature: v=1; a=ed25519-sha256; c=relaxed/relaxed;\r\n\
         \td=football.example.com; s=brisbane; t=1528637909; h=from:from:\r\n\
         \treply-to:to:to:cc:subject:subject:date:date:message-id:message-id;\r\n\
         \tbh=2jUSOH9NhtVGCQWNr9BrIAPreKQjO6Sn7XIkfJVOzv8=;"
    );
    assert_eq!(signature.replace(['\r', '\n', '\t'], "").len(), 88);
}

/// `openssl genrsa -traditional 1024`, as in RFC 8463 appendix A.1.
#[test]
fn short_rsa_keys_are_refused() {
    let file = "-----BEGIN RSA PRIVATE KEY-----\n\
        MIICXQIBAAKBgQDkHlOQoBTzWRiGs5V6NpP3idY6Wk08a5qhdR6wy5bdOKb2jLQi\n\
        Y/J16JYi0Qvx/byYzCNb3W91y3FutACDfzwQ/BC/e/8uBsCR+yz1Lxj+PL6lHvqM\n\
        KrM3rG4hstT5QjvHO9PzoxZyVYLzBfO2EeC3Ip3G+2kryOTIKT+l/K4w3QIDAQAB\n\
        AoGAH0cxOhFZDgzXWhDhnAJDw5s4roOXN4OhjiXa8W7Y3rhX3FJqmJSPuC8N9vQm\n\
        6SVbaLAE4SG5mLMueHlh4KXffEpuLEiNp9Ss3O4YfLiQpbRqE7Tm5SxKjvvQoZZe\n\
        zHorimOaChRL2it47iuWxzxSiRMv4c+j70GiWdxXnxe4UoECQQDzJB/0U58W7RZy\n\
        6enGVj2kWF732CoWFZWzi1FicudrBFoy63QwcowpoCazKtvZGMNlPWnC7x/6o8Gc\n\
        uSe0ga2xAkEA8C7PipPm1/1fTRQvj1o/dDmZp243044ZNyxjg+/OPN0oWCbXIGxy\n\
        WvmZbXriOWoSALJTjExEgraHEgnXssuk7QJBALl5ICsYMu6hMxO73gnfNayNgPxd\n\
        WFV6Z7ULnKyV7HSVYF0hgYOHjeYe9gaMtiJYoo0zGN+L3AAtNP9huqkWlzECQE1a\n\
        licIeVlo1e+qJ6Mgqr0Q7Aa7falZ448ccbSFYEPD6oFxiOl9Y9se9iYHZKKfIcst\n\
        o7DUw1/hz2Ck4N5JrgUCQQCyKveNvjzkkd8HjYs0SwM0fPjK16//5qDZ2UiDGnOe\n\
        uEzxBDAr518Z8VFbR41in3W4Y3yCDgQlLlcETrS+zYcL\n\
        -----END RSA PRIVATE KEY-----\n";
    assert_eq!(SigningKey::from_pem(file.as_bytes()), Err(KeyError::TooShort));
}

#[test]
fn keys_of_openssl_are_read() {
    for (args, algorithm) in [
        (&["genrsa", "-traditional", "2048"][..], Algorithm::RsaSha256),
        (&["genrsa", "2048"], Algorithm::RsaSha256),
        (&["genpkey", "-algorithm", "ed25519"], Algorithm::Ed25519Sha256),
    ] {
        let Ok(out) = std::process::Command::new("openssl").args(args).output() else {
            eprintln!("*** SKIPPED: openssl is not installed");
            return;
        };
        let key = SigningKey::from_pem(&out.stdout).unwrap_or_else(|error| panic!("{args:?}: {error}"));
        assert_eq!(key.algorithm(), algorithm);
    }
}
