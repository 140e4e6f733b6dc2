//! `[delivery] same_name_hosts`: other servers that have this server's `hostname`, such as the nodes of a cluster.
//!
//! An entry is the name of a host, `.example.org` for all hosts below a domain, an address or a network. The name in
//! the greeting or EHLO reply of such a host never identifies it as this server; its address and port still do.

use std::net::IpAddr;

use ipnet::IpNet;
use stentor_mail::address::normalise_domain;

use super::raw::Section;

/// The hosts of `same_name_hosts`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SameNameHosts {
    /// Names in lower case; a leading dot means all hosts below a domain.
    names: Vec<Box<str>>,
    networks: Vec<IpNet>,
}

impl SameNameHosts {
    /// Whether a host is one of them, by its name in a route or MX record or by the address at which it was reached.
    pub fn covers(&self, host: &str, address: IpAddr) -> bool {
        let host = host.trim_end_matches('.').to_ascii_lowercase();
        let is_name = |name: &str| if name.starts_with('.') { host.ends_with(name) } else { host == name };
        let address = address.to_canonical();
        self.names.iter().any(|name| is_name(name)) || self.networks.iter().any(|network| network.contains(&address))
    }
}

pub(super) fn read(section: &Section<'_>, key: &'static str) -> SameNameHosts {
    let mut hosts = SameNameHosts::default();
    for text in section.texts(key).unwrap_or_default() {
        let written = text.value.trim_matches(['[', ']']);
        if let Ok(network) = written.parse::<IpNet>() {
            hosts.networks.push(network.trunc());
        } else if let Ok(address) = written.parse::<IpAddr>() {
            hosts.networks.push(IpNet::from(address.to_canonical()));
        } else if let Ok(name) = normalise_domain(text.value.strip_prefix('.').unwrap_or(text.value)) {
            let dot = if text.value.starts_with('.') { "." } else { "" };
            hosts.names.push(format!("{dot}{name}").into());
        } else {
            let message = format!(
                "{:?} in `{key}` is not a valid host; write a host name, \".example.org\" for all hosts below a \
                 domain, an address or a network, without a port",
                text.value
            );
            section.context.error(text.span, message);
        }
    }
    hosts
}

#[cfg(test)]
mod tests {
    fn hosts(list: &str) -> super::SameNameHosts {
        crate::tests::config(&format!("[delivery]\nsame_name_hosts = {list}\n")).delivery.same_name_hosts
    }

    #[test]
    fn hosts_are_named_by_name_address_or_network() {
        let hosts = hosts(r#"["MX2.Our.Example", ".inner.example", "192.0.2.7", "[2001:db8::1]", "198.51.100.0/24"]"#);
        for (host, address, is_covered) in [
            ("mx2.our.example", "203.0.113.1", true),
            ("mx2.our.example.", "203.0.113.1", true),
            ("mx3.our.example", "203.0.113.1", false),
            ("a.inner.example", "203.0.113.1", true),
            ("inner.example", "203.0.113.1", false),
            ("x.test", "192.0.2.7", true),
            ("x.test", "::ffff:192.0.2.7", true),
            ("x.test", "192.0.2.8", false),
            ("x.test", "2001:db8::1", true),
            ("x.test", "198.51.100.200", true),
        ] {
            assert_eq!(hosts.covers(host, address.parse().unwrap()), is_covered, "{host} {address}");
        }
        assert!(!super::SameNameHosts::default().covers("mx2.our.example", "192.0.2.7".parse().unwrap()));
    }

    #[test]
    fn other_texts_are_errors() {
        for bad in ["", "a b", "mx.example:25", "192.0.2.0/40", "*"] {
            let found = crate::tests::findings(&format!("[delivery]\nsame_name_hosts = [{bad:?}]\n"));
            assert!(found.contains("is not a valid host"), "{bad:?}: {found}");
        }
    }
}
