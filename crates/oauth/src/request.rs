//! The body of a request for an access token, as a form (RFC 6749 section 4.4.2 and 6; appendix B).

use std::fmt::Write as _;

use stentor_sasl::Secret;
use zeroize::Zeroizing;

/// A request for a token. The client authenticates in the body (RFC 6749 section 2.3.1), as Google and Microsoft
/// require.
#[derive(Debug)]
pub struct TokenRequest<'a> {
    pub client_id: &'a str,
    pub client_secret: Option<&'a Secret>,
    /// `None` for a grant of the client's own credentials (section 4.4).
    pub refresh_token: Option<&'a Secret>,
    pub scope: Option<&'a str>,
}

impl TokenRequest<'_> {
    /// Encodes the request as `application/x-www-form-urlencoded`.
    pub fn form(&self) -> Zeroizing<Vec<u8>> {
        let grant = if self.refresh_token.is_some() { "refresh_token" } else { "client_credentials" };
        let pairs = [
            ("grant_type", Some(grant)),
            ("client_id", Some(self.client_id)),
            ("client_secret", self.client_secret.map(Secret::expose)),
            ("refresh_token", self.refresh_token.map(Secret::expose)),
            ("scope", self.scope),
        ];
        // Large enough never to grow, which would leave a copy behind.
        let bytes_max = pairs.iter().map(|(key, value)| key.len() + 2 + 3 * value.map_or(0, str::len)).sum();
        let mut form = Zeroizing::new(String::with_capacity(bytes_max));
        for (key, value) in pairs.iter().filter_map(|(key, value)| Some((key, (*value)?))) {
            if !form.is_empty() {
                form.push('&');
            }
            form.push_str(key);
            form.push('=');
            encode(value, &mut form);
        }
        Zeroizing::new(std::mem::take(&mut *form).into_bytes())
    }
}

/// Encodes a value for a form.
pub fn encoded(value: &str) -> Zeroizing<String> {
    let mut form = Zeroizing::new(String::with_capacity(3 * value.len()));
    encode(value, &mut form);
    form
}

fn encode(value: &str, form: &mut String) {
    for byte in value.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => form.push(char::from(byte)),
            byte => _ = write!(form, "%{byte:02X}"),
        }
    }
}

/// Whether the text can be a token: visible ASCII. RFC 6749 (appendix A.12 and A.17) also allows spaces, which no
/// server uses and RFC 6750 (section 2.1) forbids.
pub fn is_token(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 6749 section 6, with the client in the body (section 2.3.1).
    #[test]
    fn forms_are_those_of_the_rfc() {
        let (secret, refresh) = (Secret::from("7Fjfp0ZBr1KtDRbnfVdmIw"), Secret::from("tGzv3JOkF0XG5Qx2TlKWIA"));
        let request = TokenRequest {
            client_id: "s6BhdRkqt3",
            client_secret: Some(&secret),
            refresh_token: Some(&refresh),
            scope: Some("https://outlook.office.com/SMTP.Send offline_access"),
        };
        let form = String::from_utf8(request.form().to_vec()).unwrap();
        assert_eq!(
            form,
            "grant_type=refresh_token&client_id=s6BhdRkqt3&client_secret=7Fjfp0ZBr1KtDRbnfVdmIw&refresh_token=tGzv3JOkF0XG5Qx2TlKWIA\
             &scope=https%3A%2F%2Foutlook.office.com%2FSMTP.Send%20offline_access"
        );
        let own = TokenRequest { refresh_token: None, scope: None, ..request };
        let form = String::from_utf8(own.form().to_vec()).unwrap();
        assert_eq!(form, "grant_type=client_credentials&client_id=s6BhdRkqt3&client_secret=7Fjfp0ZBr1KtDRbnfVdmIw");
    }

    /// A value cannot break out of its field.
    #[test]
    fn values_cannot_be_told_from_what_they_are() {
        let secret = Secret::from("a&scope=b=%c+d\u{e9}");
        let request = TokenRequest { client_id: "x", client_secret: Some(&secret), refresh_token: None, scope: None };
        let form = String::from_utf8(request.form().to_vec()).unwrap();
        assert!(form.ends_with("&client_secret=a%26scope%3Db%3D%25c%2Bd%C3%A9"), "{form}");
        assert!(!format!("{request:?}").contains("scope=b"), "{request:?}");
    }
}
