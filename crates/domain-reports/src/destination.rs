//! URIs of the tag `rua=` (RFC 8460 3, RFC 9989 4.7): destinations of reports.

/// Destination of reports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReportDestination {
    /// A mail address; it is checked like any other when the message is made.
    Mail(String),
    /// A complete `https:` URL.
    Https(String),
}

impl ReportDestination {
    /// Parses a URI; `None`: it is malformed or of another scheme.
    pub fn parse(uri: &str) -> Option<ReportDestination> {
        let uri = uri.trim_matches([' ', '\t']);
        if !uri.bytes().all(|b| matches!(b, 0x21..=0x7e)) {
            return None;
        }
        let (scheme, rest) = uri.split_once(':')?;
        if scheme.eq_ignore_ascii_case("mailto") {
            // Text after a `?` contains header fields, which others must not set.
            let address = decoded(rest.split('?').next()?)?;
            let (local, domain) = address.rsplit_once('@')?;
            return (!local.is_empty() && !domain.is_empty()).then_some(ReportDestination::Mail(address));
        }
        let host = rest.strip_prefix("//")?;
        (scheme.eq_ignore_ascii_case("https") && !host.is_empty() && !host.starts_with('/'))
            .then(|| ReportDestination::Https(uri.to_owned()))
    }

    /// Identifies the destination.
    pub fn uri(&self) -> String {
        match self {
            ReportDestination::Mail(address) => format!("mailto:{address}"),
            ReportDestination::Https(url) => url.clone(),
        }
    }

    /// Whether both are equal; the domain of an address ignores case.
    pub fn is_same(&self, other: &ReportDestination) -> bool {
        match (self, other) {
            (ReportDestination::Mail(one), ReportDestination::Mail(other)) => {
                match (one.rsplit_once('@'), other.rsplit_once('@')) {
                    (Some((one, at)), Some((other, of))) => one == other && at.eq_ignore_ascii_case(of),
                    _ => one == other,
                }
            }
            _ => self == other,
        }
    }
}

/// Decodes percent-encoding (RFC 3986 2.1); rejects characters that could end a line or an address.
fn decoded(text: &str) -> Option<String> {
    let mut octets = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        let octet = match byte {
            b'%' => {
                let pair = [bytes.next()?, bytes.next()?];
                let digit = |b: u8| char::from(b).to_digit(16).map(|d| d as u8);
                digit(pair[0])? << 4 | digit(pair[1])?
            }
            other => other,
        };
        if octet <= b' ' || octet == 0x7f || matches!(octet, b'<' | b'>' | b',') {
            return None;
        }
        octets.push(octet);
    }
    String::from_utf8(octets).ok()
}
