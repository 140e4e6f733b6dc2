//! Macros in the domains of SPF terms (RFC 7208 section 7): `%{i}`, `%{d2r}`.

use std::net::IpAddr;

use super::syntax::SyntaxError;

/// Longest name in the DNS.
const NAME_BYTES_MAX: usize = 253;
const DELIMITERS: &str = ".-+,/_=";

/// What macros expand to.
#[derive(Debug, Clone, Copy)]
pub struct MacroValues<'a> {
    pub local: &'a str,
    /// Domain of the sender.
    pub sender_domain: &'a str,
    /// Domain whose record has the term.
    pub domain: &'a str,
    pub client: IpAddr,
    pub helo: &'a str,
}

/// Expands a domain; one that is too long loses labels from the left.
///
/// # Errors
/// The macro is not valid.
pub fn expand(spec: &str, values: &MacroValues<'_>) -> Result<String, SyntaxError> {
    let mut out = String::new();
    let mut rest = spec;
    while let Some((before, behind)) = rest.split_once('%') {
        out.push_str(before);
        let bad = || SyntaxError(format!("the macro \"%{behind}\" is not valid"));
        rest = match behind.as_bytes().first() {
            Some(b'%') => {
                out.push('%');
                &behind[1..]
            }
            Some(b'_') => {
                out.push(' ');
                &behind[1..]
            }
            Some(b'-') => {
                out.push_str("%20");
                &behind[1..]
            }
            Some(b'{') => {
                let (inner, after) = behind[1..].split_once('}').ok_or_else(bad)?;
                out.push_str(&value(inner, values).ok_or_else(bad)?);
                after
            }
            _ => return Err(bad()),
        };
    }
    out.push_str(rest);
    while out.len() > NAME_BYTES_MAX {
        let Some((_, shorter)) = out.split_once('.') else { break };
        out = shorter.to_owned();
    }
    Ok(out)
}

/// The value of `letter digits "r" delimiters`.
fn value(inner: &str, values: &MacroValues<'_>) -> Option<String> {
    let letter = inner.chars().next()?.to_ascii_lowercase();
    let options = inner.get(1..)?;
    let digits_end = options.find(|c: char| !c.is_ascii_digit()).unwrap_or(options.len());
    let (digits, options) = options.split_at(digits_end);
    let (is_reversed, delimiters) = match options.strip_prefix(['r', 'R']) {
        Some(delimiters) => (true, delimiters),
        None => (false, options),
    };
    if !delimiters.chars().all(|c| DELIMITERS.contains(c)) {
        return None;
    }
    let count = match digits {
        "" => usize::MAX,
        digits => digits.parse().ok().filter(|count| *count > 0)?,
    };
    let text = match letter {
        's' => format!("{}@{}", values.local, values.sender_domain),
        'l' => values.local.to_owned(),
        'o' => values.sender_domain.to_owned(),
        'd' => values.domain.to_owned(),
        'i' => dotted(values.client),
        'v' => if values.client.is_ipv4() { "in-addr" } else { "ip6" }.to_owned(),
        'h' => values.helo.to_owned(),
        // Deprecated; no receiver needs a name here. `c`, `r` and `t` may only occur in explanations.
        'p' => "unknown".to_owned(),
        _ => return None,
    };
    let delimiters = if delimiters.is_empty() { "." } else { delimiters };
    let mut parts: Vec<&str> = text.split(|c| delimiters.contains(c)).collect();
    if is_reversed {
        parts.reverse();
    }
    let from = parts.len().saturating_sub(count);
    Some(parts[from..].join("."))
}

/// An address as labels: that of IPv6 in nibbles.
fn dotted(address: IpAddr) -> String {
    match address {
        IpAddr::V4(v4) => v4.to_string(),
        IpAddr::V6(v6) => {
            let nibbles = v6.octets().into_iter().flat_map(|octet| [octet >> 4, octet & 15]);
            nibbles.map(|nibble| format!("{nibble:x}")).collect::<Vec<_>>().join(".")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expanded(spec: &str) -> String {
        let client = "192.0.2.3".parse().unwrap();
        let values = MacroValues {
            local: "strong-bad",
            sender_domain: "email.example.com",
            domain: "email.example.com",
            client,
            helo: "mx.example.com",
        };
        expand(spec, &values).unwrap_or_else(|error| error.0)
    }

    /// Section 7.4.
    #[test]
    fn examples_of_the_rfc() {
        for (spec, wanted) in [
            ("%{s}", "strong-bad@email.example.com"),
            ("%{d4}", "email.example.com"),
            ("%{d2}", "example.com"),
            ("%{dr}", "com.example.email"),
            ("%{d2r}", "example.email"),
            ("%{l-}", "strong.bad"),
            ("%{lr-}", "bad.strong"),
            ("%{l1r-}", "strong"),
            ("%{ir}.%{v}._spf.%{d2}", "3.2.0.192.in-addr._spf.example.com"),
            ("a%%b", "a%b"),
        ] {
            assert_eq!(expanded(spec), wanted, "{spec}");
        }
        for bad in ["%", "%x", "%{x}", "%{d0}", "%{d", "%{d!}"] {
            assert!(expanded(bad).contains("is not valid"), "{bad}");
        }
        let long = format!("{}.%{{d}}", "a.".repeat(200));
        assert!(expanded(&long).len() <= NAME_BYTES_MAX && expanded(&long).ends_with(".example.com"));
    }

    #[test]
    fn ipv6_has_nibbles() {
        let address = "2001:db8::1".parse().unwrap();
        assert!(dotted(address).starts_with("2.0.0.1.0.d.b.8.0.") && dotted(address).ends_with(".0.1"));
    }
}
