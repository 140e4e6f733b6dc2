//! The reply to EHLO: our only multi-line reply (RFC 5321 section 4.1.1.1).

use super::ServerConfig;

/// The attributes that `xclient` parses.
const XCLIENT: &str = "250-XCLIENT NAME ADDR PORT PROTO HELO LOGIN REVERSE_NAME DESTADDR DESTPORT\r\n";

/// Appends the greeting line of a new session.
pub(super) fn write_greeting(config: &ServerConfig, out: &mut Vec<u8>) {
    let protocol = if config.lmtp { "LMTP" } else { "ESMTP" };
    out.extend_from_slice(format!("220 {} {protocol} Stentor\r\n", config.hostname).as_bytes());
}

/// Appends the reply to HELO.
pub(super) fn write_helo(config: &ServerConfig, out: &mut Vec<u8>) {
    out.extend_from_slice(format!("250 {}\r\n", config.hostname).as_bytes());
}

/// Extensions that are not offered to every client.
#[derive(Debug, Clone, Copy)]
pub(super) struct OfferedExtensions<'a> {
    pub dsn: bool,
    pub xverp: bool,
    pub xclient: bool,
    pub starttls: bool,
    pub requiretls: bool,
    /// Mechanisms; none if empty.
    pub auth: &'a str,
}

/// Appends the reply to EHLO or LHLO with the extensions offered.
pub(super) fn write_ehlo(config: &ServerConfig, listed: OfferedExtensions<'_>, out: &mut Vec<u8>) {
    let (hostname, size_max) = (&config.hostname, config.size_max);
    let dsn = if listed.dsn { "250-DSN\r\n" } else { "" };
    let xverp = if listed.xverp { "250-XVERP\r\n" } else { "" };
    let xclient = if listed.xclient { XCLIENT } else { "" };
    let starttls = if listed.starttls { "250-STARTTLS\r\n" } else { "" };
    let requiretls = if listed.requiretls { "250-REQUIRETLS\r\n" } else { "" };
    let auth = if listed.auth.is_empty() { String::new() } else { format!("250-AUTH {}\r\n", listed.auth) };
    let last =
        if config.lmtp { "250 SMTPUTF8\r\n".to_owned() } else { format!("250-SMTPUTF8\r\n{dsn}250 CHUNKING\r\n") };
    let reply = format!(
        "250-{hostname}\r\n250-PIPELINING\r\n250-SIZE {size_max}\r\n250-8BITMIME\r\n250-ENHANCEDSTATUSCODES\r\n{starttls}{auth}{requiretls}{xverp}{xclient}{last}"
    );
    out.extend_from_slice(reply.as_bytes());
}

/// Whether a name from HELO or EHLO may be copied to a Received field: a domain, or an address literal. Permits `_`,
/// unlike RFC 5321 section 4.1.1.1; a name that is not the client's true name is not an error (section 4.1.4). A
/// literal may have a zone, `[IPv6:fe80::1%eth0]`: its characters are `dcontent` of section 4.1.3, without those that
/// open or close anything.
pub(super) fn is_helo_name(name: &[u8]) -> bool {
    let is_literal = name.starts_with(b"[") && name.ends_with(b"]");
    let may_be =
        |byte: u8| byte.is_ascii_alphanumeric() || b"-._:[]".contains(&byte) || is_literal && b"%+~=".contains(&byte);
    (1..=stentor_mail::address::DOMAIN_BYTES_MAX).contains(&name.len()) && name.iter().all(|&byte| may_be(byte))
}

#[cfg(test)]
mod tests {
    use super::is_helo_name;

    #[test]
    fn names_and_literals() {
        for name in [
            "a.example",
            "my_host-1",
            "host.local.",
            "localhost",
            "[127.0.0.1]",
            "[IPv6:2001:db8::1]",
            "[2001:7c0:2041:8::19]",
            "[IPv6:fe80::1%en0]",
            "[ipv6:fe80::1%eth0.100]",
            "[fe80::1%25wlan-0]",
            "[IPv6:fe80::aede:48ff:fe00:1122%12]",
            "[IPv6:fe80::1%br~a+b=c]",
        ] {
            assert!(is_helo_name(name.as_bytes()), "{name}");
        }
        let long = format!("[IPv6:fe80::1%{}]", "x".repeat(255));
        let odd = ["", "a%b", "fe80::1%en0", "[fe80::1%en0", "[a b]", "[a\"b]", "[a(b]", "[a;b]", "[a>b]", "[\u{e9}]"];
        for name in odd.into_iter().chain([&*long]) {
            assert!(!is_helo_name(name.as_bytes()), "{name}");
        }
    }
}
