//! The organizational domain of a host: who runs it.
//!
//! Without the public suffix list, which would have to be kept current: two labels, or three below a registry such as
//! `co.uk`, which is a short second label under a country's domain. An address literal is its own provider.

/// Second labels under which countries register names.
const REGISTRIES: [&str; 22] = [
    "ac", "co", "com", "edu", "firm", "gen", "go", "gob", "gouv", "gov", "ind", "info", "mil", "ne", "net", "nom",
    "or", "org", "plc", "res", "sch", "ltd",
];

/// The organizational domain of a host in lower case; the whole name if it has no more labels.
pub fn of_host(host: &str) -> String {
    let host = host.trim_end_matches('.').to_ascii_lowercase();
    if host.contains(':') || host.ends_with(|c: char| c.is_ascii_digit() || c == ']') {
        return host;
    }
    let labels: Vec<&str> = host.rsplit('.').take(3).collect();
    let count = match labels.as_slice() {
        [country, registry, _] if country.len() == 2 && REGISTRIES.contains(registry) => 3,
        _ => 2,
    };
    let kept: Vec<&str> = labels.into_iter().take(count).rev().collect();
    kept.join(".")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn providers_of_hosts() {
        for (host, provider) in [
            ("gmail-smtp-in.l.google.com", "google.com"),
            ("mx.example.co.uk.", "example.co.uk"),
            ("MX.T-Online.de", "t-online.de"),
            ("example.org", "example.org"),
            ("co.uk", "co.uk"),
            ("localhost", "localhost"),
            ("192.0.2.1", "192.0.2.1"),
            ("[2001:db8::1]", "[2001:db8::1]"),
            ("", ""),
        ] {
            assert_eq!(of_host(host), provider, "{host}");
        }
    }
}
