//! URLs that the server sends to: `http` and `https`, without user and password.

use hyper::Uri;

/// A parsed URL.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Url {
    pub uri: Uri,
    /// Host, without the brackets of an IPv6 address.
    pub host: String,
    pub port: u16,
    pub is_tls: bool,
}

impl Url {
    /// Parses a URL.
    ///
    /// # Errors
    /// The reason why the URL is not valid.
    pub fn parse(text: &str) -> Result<Url, String> {
        let uri: Uri = text.parse().map_err(|error| format!("{error}"))?;
        let is_tls = match uri.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            _ => return Err("it must begin with http:// or https://".to_owned()),
        };
        let authority = uri.authority().ok_or("it has no host")?;
        if authority.as_str().contains('@') {
            return Err("it must not hold a user or password".to_owned());
        }
        let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
        if host.is_empty() {
            return Err("it has no host".to_owned());
        }
        // Compared by length: the text after the colon may be the host's own name, as in `a:a`.
        let has_port = authority.as_str().len() > authority.host().len();
        let port = match authority.port_u16() {
            Some(port) if port > 0 => port,
            _ if has_port => return Err("its port is not a number from 1 to 65535".to_owned()),
            _ if is_tls => 443,
            _ => 80,
        };
        Ok(Url { uri, host, port, is_tls })
    }

    /// Appends to the path.
    ///
    /// # Errors
    /// As [`Url::parse`].
    pub fn join(&self, path: &str) -> Result<Url, String> {
        Url::parse(&format!("{}{path}", self.uri.to_string().trim_end_matches('/')))
    }
}

impl std::fmt::Display for Url {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.uri.fmt(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls() {
        let url = Url::parse("https://hooks.example.org/a?b=c").unwrap();
        assert_eq!((url.host.as_str(), url.port, url.is_tls), ("hooks.example.org", 443, true));
        let url = Url::parse("http://[::1]:8080").unwrap();
        assert_eq!((url.host.as_str(), url.port, url.is_tls), ("::1", 8080, false));
        assert_eq!(url.join("/v1/traces").unwrap().to_string(), "http://[::1]:8080/v1/traces");
        for bad in [
            "",
            "x",
            "/x",
            "ftp://a/",
            "http://",
            "http://user:secret@a/",
            "file:///etc/passwd",
            "https://a:99999/",
            "https://a:/",
            "https://a:a/",
            "https://a:0/",
            "https://a: /",
            "https://[::1]:x/",
            "https://[::1]:/",
            "https://[::1]::1/",
            "https://example.org:example.org/",
            "https://example.org:org/",
        ] {
            assert!(Url::parse(bad).is_err(), "{bad}");
        }
    }
}
